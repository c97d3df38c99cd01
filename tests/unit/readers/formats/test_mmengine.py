"""mmengine and mmcv: epochs and iterations, the clock between their lines, validations and saves, several processes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import from_text

BEGAN = datetime(2025, 3, 2, 10, 0, tzinfo=UTC)


class Log:
    """A log in the words of mmengine or of mmcv, with a clock that the caller moves on."""

    def __init__(self, mmcv: bool = False) -> None:
        self.mmcv, self.now, self.lines = mmcv, 0.0, [""]

    def say(self, text: str) -> None:
        moment = BEGAN + timedelta(seconds=self.now)
        stamp = f"{moment:%Y-%m-%d %H:%M:%S},250 - mmdet" if self.mmcv else f"{moment:%Y/%m/%d %H:%M:%S} - mmengine"
        self.lines.append(f"{stamp} - INFO - {text}")

    def train(self, place: str, time: float, loss: float = 2.5) -> None:
        if self.mmcv:
            text = f"{place}\tlr: 1.9e-03, eta: 3 days, 3:03:21, time: {time:.3f}, data_time: 0.059, memory: 37"
            self.say(f"{text}, loss_cls: 0.7437, loss: {loss:.4f}")
        else:
            text = f"lr: 1.0e-01  eta: 1:43:01  time: {time:.4f}  data_time: 0.0590  memory: 37  loss: {loss:.4f}"
            self.say(f"{place}  {text}  loss_cls: 0.7")

    def epochs(self, count: int, *, first: int = 1, time: float = 0.5, per_epoch: int = 110) -> Log:
        """Lines every 50; 10 iterations at the end of each epoch have none. A save of 2 s, a validation of 20 s."""
        self.say("workflow: [('train', 1)], max: 9 epochs" if self.mmcv else "Checkpoints will be saved to /out.")
        name = "Epoch" if self.mmcv else "Epoch(train) "
        for epoch in range(first, first + count):
            for done in range(50, per_epoch, 50):
                self.now += 50 * time
                self.train(f"{name} [{epoch}][{done if self.mmcv else f'{done:3d}'}/{per_epoch}]", time)
            self.now += per_epoch % 50 * time
            self.say(f"Saving checkpoint at {epoch} epochs")
            self.now += 22
            if self.mmcv:
                self.say(f"Epoch(val) [{epoch}][500]\tbbox_mAP: 0.3710")
            else:
                self.say(f"Epoch(val) [{epoch}][ 50/200]    eta: 0:00:10  time: 0.0900  data_time: 0.01")
                self.say(f"Epoch(val) [{epoch}][200/200]    coco/bbox_mAP: 0.37  data_time: 0.01  time: 0.0900")
        return self

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "mmengine"
    (run,) = read(source)
    return run


@pytest.mark.parametrize("mmcv", [False, True])
def test_epochs(mmcv: bool) -> None:
    run = the_run("train_cfg = dict(by_epoch=True, max_epochs=9, val_interval=1)\n" + Log(mmcv).epochs(3).text)
    assert run.iterations.number.tolist() == [50, 100, 160, 210, 270, 320, 330]  # the last is seen by its save
    assert run.iterations.time_s == pytest.approx(0.5)
    assert run.iterations.loss[0] == 2.5
    assert run.settings.count("max_iters") == 9 * 110
    assert [event.at for event in run.evaluations] == [110, 220, 330]
    assert [save.at for save in run.checkpoints] == [110, 220, 330]
    assert [event.took_s for event in run.evaluations] == pytest.approx([22] * 3)  # the save is not to be told apart
    assert run.inside is not None
    assert run.inside.data_s[0] == 0.059
    analysis = analyse(run)
    assert analysis.goodput.iterations == 330
    assert analysis.goodput.wall_s == pytest.approx(330 * 0.5 + 3 * 22, abs=1)  # the last is behind the last step


@pytest.mark.parametrize(("mmcv", "name"), [(False, "Iter(train)"), (True, "Iter")])
def test_iterations(mmcv: bool, name: str) -> None:
    log = Log(mmcv)
    for number in range(50, 401, 50):
        log.now += 15
        log.train(f"{name} [{number}/80000]", 0.3)
        if number % 200 == 0:
            log.say(f"Saving checkpoint at {number} iterations")
            log.now += 30
            log.say("Iter(val) [500/500]  mIoU: 31.2  time: 0.05" if not mmcv else "Iter(val) [500]\tmIoU: 0.31")
    run = the_run(log.text)
    assert run.iterations.number.tolist() == list(range(50, 401, 50))
    assert run.settings.count("max_iters") == 80000
    assert [event.at for event in run.evaluations] == [200, 400]
    assert [save.at for save in run.checkpoints] == [200, 400]


def test_results_in_a_line_without_a_time_are_an_evaluation() -> None:
    """As mmcv printed them before it had a line of its own for them."""
    text = Log(mmcv=True).epochs(3).text
    for epoch in (1, 2, 3):
        text = text.replace(f"Epoch(val) [{epoch}][500]\t", f"Epoch [{epoch}][110/110]\tlr: 2.500e-05, ")
    run = the_run(text)
    assert run.iterations.number.tolist() == [50, 100, 160, 210, 270, 320, 330]
    assert [(event.at, event.took_s) for event in run.evaluations] == [(n, pytest.approx(22)) for n in (110, 220, 330)]
    assert analyse(run).goodput.wall_s == pytest.approx(330 * 0.5 + 3 * 22, abs=1)


def test_a_mean_says_nothing_of_the_end_of_the_epoch_before() -> None:
    """Each epoch begins slowly; the line after its start is not about the iterations behind the last line."""
    log = Log(mmcv=True)
    log.say("workflow: [('train', 1)], max: 9 epochs")
    for epoch in range(1, 14):
        for done, time in ((10, 0.55 + epoch / 500), (20, 0.33 + epoch / 500)):
            log.now += 10 * time
            log.train(f"Epoch [{epoch}][{done}/26]", time)
        log.now += 6 * 0.33
    log.say("Saving checkpoint at 13 epochs")
    run = the_run(log.text)
    assert analyse(run).phases.covers.tolist() == [*[10] * 26, 6]
    assert analyse(run).costs.step_s.mid < 0.4
    for each in (run, replace(run, traits=replace(run.traits, prints_means=False))):  # rows that count for more too
        analysis = analyse(each)
        said = {finding.code: finding.message.params for finding in analysis.findings}
        assert said["uneven_steps"]["mid"] == analysis.costs.step_s.mid


def test_the_clock_shows_a_slow_start() -> None:
    log = Log()
    log.say("Checkpoints will be saved to /out.")
    log.now += 30
    late = (
        log.epochs(2)
        .text.replace("Checkpoints will be saved", "Nothing", 2)
        .replace("Nothing", "Checkpoints will be saved", 1)
    )
    assert analyse(the_run(late)).goodput.parts_s["compile"] == pytest.approx(30, abs=2)


def test_a_log_that_stands_there_twice_counts_once() -> None:
    text = Log().epochs(3).text
    run = the_run(f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> main\n")
    assert len(run.iterations) == 7
    assert not run.reordered
    assert analyse(run).goodput.by_clock


def test_a_process_that_goes_on_is_a_run_of_its_own() -> None:
    log = Log().epochs(3)
    log.now += 5000
    first, second = read(from_text(log.epochs(2, first=3, time=0.7).text))
    assert (first.iterations.number[-1], second.iterations.number[0]) == (330, 270)
    assert second.iterations.time_s == pytest.approx(0.7)


def test_one_line_is_about_all_so_far() -> None:
    log = Log(mmcv=True)
    log.say("workflow: [('train', 1)], max: 12 epochs")
    log.now += 20
    log.train("Epoch [1][50/58633]", 0.4)
    analysis = analyse(the_run(log.text))
    assert analysis.costs.step_s.mid == pytest.approx(0.4)
    assert analysis.goodput.iterations == 50


@pytest.mark.parametrize(
    "line",
    [
        "Epoch(val) [1][36/36]  accuracy/top1: 4.8780  data_time: 0.0003  time: 0.0447",
        "Epoch(test) [ 50/500]    eta: 0:00:40  time: 0.0900  data_time: 0.0100",
        "Epoch: [0]  [ 10/625]  eta: 0:12:34  lr: 0.01  loss: 2.3 (2.9)  time: 0.2512  data: 0.0101  max mem: 1234",
        "Epoch [1][50/100]  lr: 0.1",
    ],
)
def test_other_lines_are_not(line: str) -> None:
    assert detect(from_text(line)) != "mmengine"


def test_lines_of_windows() -> None:
    assert np.array_equal(
        the_run(Log().epochs(2).text.replace("\n", "\r\n")).iterations.number, [50, 100, 160, 210, 220]
    )


@pytest.mark.parametrize("mmcv", [False, True])
def test_an_error_of_the_next_start_is_not_of_the_run_before(mmcv: bool) -> None:
    error = "AssertionError: ids are not unique!\n"
    log = Log(mmcv).epochs(2)
    assert [fault.text for fault in the_run(log.text + error).faults] == [error.strip()]
    log.say("Environment info:" if mmcv else "\n------------\nSystem environment:")
    assert the_run(log.text + error).faults == ()
    begun = the_run("\n".join(log.lines[-3:]) + Log(mmcv).epochs(2).text + error)  # its own start
    assert [fault.text for fault in begun.faults] == [error.strip()]
