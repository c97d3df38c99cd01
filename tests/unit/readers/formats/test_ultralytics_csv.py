"""results.csv of YOLO: epochs, a clock that starts again, files without times."""

from __future__ import annotations

import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import from_text

HEADER = "epoch,time,train/box_loss,train/cls_loss,metrics/mAP50(B),val/box_loss,val/cls_loss,lr/pg0\n"


def rows(epochs: int, *, first: int = 1, each: float = 50.0, padded: bool = False) -> str:
    gap = "            " if padded else ""
    cells = "{},{:g},1.5,0.25,0.3,1.6,nan,0.0001" if not padded else "{},{:g}, 1.5, 0.25, 0.3, 1.6, nan, 0.0001"
    return "".join(f"{gap}{cells.format(first + i, (i + 1) * each)}\n" for i in range(epochs))


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "ultralytics-csv"
    (run,) = read(source)
    return run


@pytest.mark.parametrize("padded", [False, True])
def test_epochs(padded: bool) -> None:
    header = HEADER.replace(",", ",      ") if padded else HEADER
    run = the_run(header + rows(20, padded=padded))
    assert run.iterations.number.tolist() == list(range(1, 21))
    assert run.iterations.time_s == pytest.approx(50)
    assert run.iterations.loss[0] == 1.75
    assert [event.at for event in run.evaluations] == list(range(1, 21))
    analysis = analyse(run)
    assert analysis.goodput.wall_s == pytest.approx(1000)
    assert analysis.phases.evaluations == 20
    assert any(finding.code == "epochs" for finding in analysis.findings)


def test_a_clock_that_starts_again_is_another_process() -> None:
    first, second = read(from_text(HEADER + rows(20) + rows(10, first=18, each=70.0)))
    assert (len(first.iterations), len(second.iterations)) == (20, 10)
    assert second.iterations.time_s == pytest.approx(70)
    assert second.iterations.number[0] == 18


def test_one_epoch() -> None:
    assert analyse(the_run(HEADER + rows(1))).costs.step_s.mid == pytest.approx(50)


def test_a_file_without_times_is_refused() -> None:
    header = "          epoch,      train/box_loss,   metrics/precision,        val/box_loss,          x/lr0\n"
    text = header + "".join(f"  {epoch}, 0.0865, 0.23, 0.0636, 0.0032\n" for epoch in range(30))
    assert detect(from_text(text)) == "ultralytics-csv"
    with pytest.raises(NoIterations):
        read(from_text(text))


@pytest.mark.parametrize(
    "text",
    ["epoch,step,train_loss\n1,20,2.5\n2,40,2.4\n", "epoch,time,loss\n1,20,2.5\n2,40,2.4\n", HEADER],
)
def test_other_tables_are_not(text: str) -> None:
    assert detect(from_text(text)) != "ultralytics-csv"


def test_cut_and_odd_rows_are_passed_over() -> None:
    assert len(the_run(HEADER + rows(20) + "21,105\n,,,,,,,\nx,1,1,1,1,1,1,1\n").iterations) == 20


def test_an_odd_line_changes_no_other_row() -> None:
    text = HEADER + rows(20)
    whole, odd = the_run(text), the_run(text + "a line of another program\n21,x,1,1,1,1,1,1\n")
    assert odd.iterations.time_s[:20].tolist() == whole.iterations.time_s.tolist()
    assert odd.iterations.line.tolist() == whole.iterations.line.tolist()
