"""The Hugging Face Trainer in notebooks: one bar and one table for each training."""

from __future__ import annotations

import json

import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.run import FaultKind, Run, Timing
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


def notebook(*outputs: dict[str, object]) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "outputs": [output]} for output in outputs]}).encode()


def shown(text: str) -> dict[str, object]:
    return {"output_type": "display_data", "data": {"text/html": text.splitlines(True), "text/plain": ["<HTML>"]}}


def printed(text: str) -> dict[str, object]:
    return {"output_type": "stream", "text": text.splitlines(True)}


def runs_of(*outputs: dict[str, object]) -> tuple[Run, ...]:
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
    assert {fault.kind for fault in runs_of(error, shown(cut), error)[0].faults} >= {FaultKind.TRACEBACK}
    assert len(runs_of(error, shown(cut), error)[0].faults) == len(runs_of(shown(cut), error)[0].faults)


def test_a_bar_of_an_evaluation_or_without_a_clock_is_no_training() -> None:
    for label in ("[13/13 00:01]", "[  2/100 : < :, Epoch 0.01/1]"):
        with pytest.raises(NoIterations):
            runs_of(shown(html(label)))
