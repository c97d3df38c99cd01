"""minGPT's lines: the time of the step before, and none in the first."""

from __future__ import annotations

import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.readers.formats.mingpt import READER
from stepwatch.run import Run
from stepwatch.sources import from_text

HEAD = "number of parameters: 2.67M\nrunning on device cuda\niter_dt 0.00ms; iter 0: train loss 4.18342\n"


def rows(first: int = 10, last: int = 600) -> str:
    lines = []
    for number in range(first, last + 1, 10):
        lines.append(f"iter_dt {80 + number % 7 / 10:.2f}ms; iter {number}: train loss 3.22233\n")
        if number % 500 == 0:
            lines.append("saving model\n")
    return "".join(lines)


def the_run(text: str) -> Run:
    (run,) = read(from_text(text))
    return run


def test_iterations_are_read_and_the_first_has_no_time() -> None:
    run = the_run(HEAD + rows())
    assert run.format == "mingpt"
    assert run.iterations.number.tolist() == list(range(10, 601, 10))
    assert run.iterations.time_s[0] == pytest.approx(0.0803)
    assert run.iterations.loss[0] == 3.22233
    assert (run.settings.number("n_params"), run.settings.text("device")) == (2.67e6, "cuda")
    assert run.unread_count == 0


@pytest.mark.parametrize(
    "line", ["2024-05-04 09:30:00 iter_dt 81.00ms; iter 10: train loss nan", "iter_dt 81ms; iter 10: loss 1e3"]
)
def test_variants_are_read(line: str) -> None:
    run = the_run(line + "\n")
    assert run.iterations.time_s.tolist() == pytest.approx([0.081])


def test_a_save_belongs_to_the_line_above_and_costs_nothing_known() -> None:
    run = the_run(HEAD + rows())
    assert [save.at for save in run.checkpoints] == [500]
    assert analyse(run).costs.how["checkpoint_s"] == "not separable"


def test_the_tenth_step_alone_is_not_the_first() -> None:
    assert analyse(the_run(HEAD + rows())).costs.compile_s is None


def test_two_runs_are_two() -> None:
    assert [
        len(run.iterations) for run in read(from_text(HEAD + rows() + HEAD + rows(last=200).replace("_dt 8", "_dt 9")))
    ] == [60, 20]


def test_a_near_miss_is_shown() -> None:
    run = the_run(HEAD + rows() + "iter_dt 81.0ms; iter : train loss 2\n" + rows(610, 650))
    assert [unread.text for unread in run.unread] == ["iter_dt 81.0ms; iter : train loss 2"]


def test_the_example_is_read() -> None:
    assert detect(from_text(example_of(READER.name))) == "mingpt"
    assert len(the_run(example_of(READER.name)).iterations) == 2
