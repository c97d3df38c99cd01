"""The Hugging Face Trainer in notebooks: one bar and one table for each training."""

from __future__ import annotations

import json

import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.run import Run, Timing
from stepwatch.sources import from_bytes

Cells = tuple[str, ...]
BANNER = """\
==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 2
   \\\\   /|    Num examples = 1,600 | Num Epochs = 4 | Total steps = 100
O^O/ \\_/ \\    Batch size per device = 8 | Gradient accumulation steps = 4
\\        /    Data Parallel GPUs = 2 | Total batch size (8 x 4 x 2) = 64
 "-____-"     Trainable parameters = 1,500,000 of 900,000,000 (0.17% trained)
"""


def html(label: str, header: Cells = ("Step", "Training Loss"), rows: tuple[Cells, ...] = ()) -> str:
    def row(kind: str, cells: Cells) -> str:
        return "<tr>\n" + "".join(f"      <{kind}>{cell}</{kind}>\n" for cell in cells) + "    </tr>\n"

    body = "".join(row("td", cells) for cells in rows)
    return (
        f"\n    <div>\n      <progress value='1' max='2' style='width:300px;'></progress>\n      {label}\n    </div>\n"
        f'    <table border="1">\n  <thead>\n{row("th", header)}  </thead>\n  <tbody>\n{body}  </tbody>\n</table><p>'
    )


def notebook(*outputs: dict[str, object] | list[dict[str, object]]) -> bytes:
    """A cell for each output, or for a list of them."""
    cells = [output if isinstance(output, list) else [output] for output in outputs]
    return json.dumps({"cells": [{"cell_type": "code", "outputs": cell} for cell in cells]}).encode()


def shown(text: str) -> dict[str, object]:
    return {"output_type": "display_data", "data": {"text/html": text.splitlines(True), "text/plain": ["<HTML>"]}}


def printed(text: str) -> dict[str, object]:
    return {"output_type": "stream", "text": text.splitlines(True)}


def runs_of(*outputs: dict[str, object] | list[dict[str, object]]) -> tuple[Run, ...]:
    return read(from_bytes(notebook(*outputs), "training.ipynb"))


def test_the_clock_of_the_bar_starts_after_the_first_step() -> None:
    rows = (("50", "2.5"), ("100", "2.1"))
    (run,) = runs_of(shown(html("[101/101 03:20, Epoch 2/2]", rows=rows)))
    assert run.format == "hf-notebook"
    assert run.timing is Timing.SPANS_RUN
    assert run.iterations.number.tolist() == [50, 100, 101]
    assert run.iterations.time_s.tolist() == pytest.approx([2.0] * 3)
    assert run.iterations.loss[:2].tolist() == [2.5, 2.1]
    assert analyse(run).goodput.wall_s == pytest.approx(202)


def test_a_running_bar_is_one_step_ahead() -> None:
    (run,) = runs_of(shown(html("[ 302/1000 10:00 < 23:10, 0.50 it/s, Epoch 0.30/1]", rows=(("100", "2.5"),))))
    assert run.iterations.number.tolist() == [100, 301]
    assert run.iterations.time_s[0] == pytest.approx(2.0)
    assert run.settings.count("max_iters") == 1000


def test_rows_with_a_validation_loss_are_evaluations() -> None:
    header = ("Epoch", "Training Loss", "Validation Loss", "Accuracy")
    rows = (("1", "No log", "2.4", "0.5"), ("2", "2.2", "2.3", "0.6"))
    (run,) = runs_of(shown(html("[100/100 01:39, Epoch 2/2]", header, rows)))
    assert [(each.at, each.val_loss) for each in run.evaluations] == [(50, 2.4), (100, 2.3)]
    report = analyse(run)
    assert not report.shows_parts
    assert "evaluations included" in next(f.message.key for f in report.findings if f.code == "averaged_times")


def test_columns_of_rewards_are_no_evaluations() -> None:
    (run,) = runs_of(shown(html("[2/2 01:00, Epoch 1/1]", ("Step", "Training Loss", "reward"), (("1", "0.1", "7"),))))
    assert run.evaluations == ()


def test_train_runtime_is_the_time_of_all_steps() -> None:
    output = "TrainOutput(global_step=80, training_loss=1.2, metrics={'train_runtime': 170.0, 'train_loss': 1.2})"
    result = {"output_type": "execute_result", "data": {"text/plain": [output]}}
    (run,) = runs_of(shown(html("[ 80/100 02:38 < 00:40, 0.50 it/s, Epoch 0.80/1]")), result)
    assert run.iterations.number.tolist() == [80]
    assert run.iterations.time_s[0] == pytest.approx(170 / 80)
    assert run.settings.count("max_iters") == 80  # it has ended


def test_each_bar_is_a_training_with_its_banner() -> None:
    first, second = (html(f"[{n}/{n} 01:39, Epoch 4/4]") for n in (100, 50))
    run, other = runs_of(printed(BANNER), shown(first), shown(first), printed("done"), shown(second))
    assert run.iterations.number.tolist() == [100]
    assert other.iterations.number.tolist() == [50]
    assert run.settings.count("world_size") == 2
    assert run.settings.count("gradient_accumulation_steps") == 8
    assert run.settings.count("batch_size") == 8
    assert run.saved_params == 9e8


def test_an_error_of_another_cell_is_none_of_the_training() -> None:
    error = {"output_type": "error", "traceback": ["Traceback (most recent call last)", "RuntimeError: no such file"]}
    whole, cut = html("[100/100 01:39, Epoch 1/1]"), html("[ 60/100 01:39 < 01:00, 0.6 it/s, Epoch 0.6/1]")
    assert runs_of(error, shown(whole), error)[0].faults == ()
    own = [shown(cut), error]
    assert {fault.kind for fault in runs_of(error, own)[0].faults} >= {"traceback"}
    assert len(runs_of(error, own, error)[0].faults) == len(runs_of(own)[0].faults)
    assert runs_of(error, shown(cut), error)[0].faults == ()


def test_a_bar_of_an_evaluation_or_without_a_clock_is_no_training() -> None:
    for label in ("[13/13 00:01]", "[  2/100 : < :, Epoch 0.01/1]"):
        with pytest.raises(NoIterations):
            runs_of(shown(html(label)))


def train_output(step: int, runtime: float) -> dict[str, object]:
    metrics = f"{{'train_runtime': {runtime}, 'train_steps_per_second': 1.5, 'train_loss': 1.2, 'epoch': 2.0}}"
    text = f"TrainOutput(global_step={step}, training_loss=1.2, metrics={metrics})"
    return {"output_type": "execute_result", "data": {"text/plain": [text]}}


EVALUATED = ("Epoch", "Training Loss", "Validation Loss")


def test_results_and_bars_of_later_cells_do_not_make_it_a_console_log() -> None:
    rows = (("1", "2.5", "2.4"), ("2", "2.1", "2.2"))
    result = "{'eval_loss': 2.2, 'eval_runtime': 3.1, 'epoch': 2.0}\n"
    inference = "100%|██████████| 3/3 [00:00<00:00, 84.13it/s]\n"
    bar = shown(html("[80/80 02:45, Epoch 2/2]", EVALUATED, rows))
    (run,) = runs_of(bar, train_output(80, 170.0), printed(3 * result + inference))
    assert run.format == "hf-notebook"
    assert run.iterations.number.tolist() == [40, 80]
    assert analyse(run).goodput.wall_s == pytest.approx(170)
    assert [each.at for each in run.evaluations] == [40, 80]


def test_each_result_belongs_to_the_bar_above_it() -> None:
    runs = runs_of(
        *(shown(html("[80/80 02:45, Epoch 2/2]")), train_output(80, 170.0)),
        *(shown(html("[160/160 05:40, Epoch 4/4]")), train_output(160, 344.0)),
    )
    assert [analyse(run).goodput.wall_s for run in runs] == pytest.approx([170, 344])


def test_a_resumed_training_did_not_do_the_steps_before_it() -> None:
    header, rows = ("Step", "Training Loss", "Validation Loss"), (("600", "2.1", "2.2"), ("700", "2.0", "2.1"))
    label = "[ 700/1000 03:17 < 05:00, 1.00 it/s, Epoch 7/10]"
    (run,) = runs_of(shown(html(label, header, rows)), train_output(700, 200.0))
    assert run.resumed
    assert run.iterations.time_s.tolist() == pytest.approx([1.0, 1.0])  # of 200 steps, since 500
    assert analyse(run).goodput.iterations == 200
    # A bar that has ended shows no rate, but its table begins late.
    (run,) = runs_of(shown(html("[700/700 03:17, Epoch 7/7]", header, rows)), train_output(700, 200.0))
    assert analyse(run).goodput.iterations == 200
    # Without a table the rate alone says it.
    (run,) = runs_of(shown(html("[ 701/1000 03:19 < 05:00, 1.00 it/s, Epoch 7/10]")))
    assert analyse(run).goodput.iterations == pytest.approx(200, abs=2)
    # And where the table begins late, but the rate is that of all steps, it was not resumed.
    (run,) = runs_of(shown(html("[ 701/1000 11:39 < 05:00, 1.00 it/s, Epoch 7/10]", header, rows)))
    assert analyse(run).goodput.iterations == 700


def test_what_is_left_is_finer_than_a_clock_of_two_seconds() -> None:
    (run,) = runs_of(shown(html("[ 6/10000 00:02 < 2:00:00, 1.39 it/s, Epoch 0.00/1]")))
    assert run.iterations.time_s[0] == pytest.approx(7200 / 9994)
    (run,) = runs_of(shown(html("[ 4/8 00:01 < 00:02, 1.39 it/s, Epoch 0.50/1]")))
    assert run.iterations.time_s[0] == pytest.approx(1 / 1.39)


def test_a_bar_that_is_shown_again_further_on_is_one_training() -> None:
    rows = (("10", "2.1"), ("20", "2.0"), ("30", "1.9"))
    (run,) = runs_of(
        shown(html("[ 26/40 00:24 < 00:14, 1.00 it/s, Epoch 0.65/1]", rows=rows[:2])),
        shown(html("[40/40 00:39, Epoch 1/1]", rows=rows)),
    )
    assert run.iterations.number.tolist() == [10, 20, 30, 40]
    other = (("10", "3.1"), ("20", "3.0"), ("30", "2.9"))
    whole = "[40/40 00:39, Epoch 1/1]"
    assert len(runs_of(shown(html(whole, rows=other)), shown(html(whole, rows=rows)))) == 2


@pytest.mark.parametrize(
    "behind",
    [
        [printed("Training completed!\n")],
        [printed("Early stopping at step 500\n")],
        [printed("Evaluating\n"), shown("<div>\n <progress value='9' max='9'></progress>\n [9/9 00:02]\n </div>")],
    ],
)
def test_what_stands_below_a_bar_that_did_not_reach_its_end_shows_that_it_was_stopped(
    behind: list[dict[str, object]],
) -> None:
    header = ("Step", "Training Loss", "Validation Loss")
    rows = (("250", "2.5", "2.4"), ("500", "2.1", "2.2"))
    bar = shown(html("[ 500/2000 16:38 < 50:00, 0.50 it/s, Epoch 1/4]", header, rows))
    (running,) = runs_of(bar, printed("UserWarning: a value is missing\n"))
    assert (analyse(running).forecast.done, running.settings.count("max_iters")) == (False, 2000)
    (run,) = runs_of(bar, *behind)
    assert analyse(run).forecast.done
    assert (run.iterations.number.tolist(), [event.at for event in run.evaluations]) == ([250, 500], [250, 500])


def test_a_bar_without_a_table_is_a_training() -> None:
    (run,) = read(from_bytes(b"[1000/1000 16:39, Epoch 1/1]\n", "train.log"))
    assert run.format == "hf-notebook"
    assert run.iterations.number.tolist() == [1000]
