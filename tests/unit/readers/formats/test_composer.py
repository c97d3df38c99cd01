"""Composer: records of many lines, clocks in hours, means of the last batches."""

from __future__ import annotations

import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.readers.formats.composer import READER
from stepwatch.run import Run
from stepwatch.sources import from_text

CONFIG = """\
******************************
Config:
max_seq_len: 2048
global_train_batch_size: 64
  d_model: 768
  n_layers: 12
precision: amp_bf16
eval_interval: 50ba
******************************
"""


def record(
    batch: int, last: int, trained_s: float, *, per_s: float | None = None, evaluated_s: float = 0.0,
    own_s: float | None = None, head: str | None = None,
) -> str:  # fmt: skip
    lines = [head if head is not None else f"[batch={batch}/{last}]:"] if head != "" else []
    lines += [f"\t Train trainer/device_train_microbatch_size: 8\n\t Train loss/train/total: {9 - batch / last:.4f}"]
    lines += ["\t Train metrics/train/LanguageCrossEntropy: 8.4000"]
    if per_s is not None:
        lines += [
            f"\t Train throughput/batches_per_sec: {per_s:.4f}",
            f"\t Train throughput/samples_per_sec: {64 * per_s:.4f}",
        ]
        lines += [f"\t Train throughput/device/samples_per_sec: {8 * per_s:.4f}"]
        lines += [
            f"\t Train throughput/tokens_per_sec: {64 * 2048 * per_s:.4f}",
            "\t Train throughput/device/mfu: 0.4100",
        ]
    lines += [f"\t Train time/train: {trained_s / 3600:.4f}", f"\t Train time/val: {evaluated_s / 3600:.4f}"]
    lines += [f"\t Train time/secs_per_step: {own_s:.4f}"] if own_s is not None else []
    return "\n".join([*lines, "\t Train expert/selection: <wandb.sdk.Image object at 0x711e>"]) + "\n"


def a_log(last: int = 120, step_s: float = 2.0, window: int = 10, every: int = 1, own: bool = False) -> str:
    text, evaluated = "", 0.0
    for batch in range(1, last + 1):
        trained = 20.0 + step_s * (batch - 1)
        if batch % every == 0 or batch == 1:
            per_s = 1 / step_s if batch > window else None
            own_s = (20.0 if batch == 1 else step_s) if own else None
            text += record(batch, last, trained, per_s=per_s, evaluated_s=evaluated, own_s=own_s)
        if batch % 50 == 0:
            text += "[Eval batch=1/10] Eval on eval data\n[Eval batch=5/10] Eval on eval data\n"
            text += "[Eval batch=10/10] Eval on eval data:\n\t Eval metrics/eval/LanguageCrossEntropy: 3.2000\n"
            evaluated += 12.0
    return text


def the_run(text: str) -> Run:
    (run,) = read(from_text(text))
    return run


@pytest.mark.parametrize(("every", "own"), [(1, False), (10, False), (1, True)])
def test_records_are_read(every: int, own: bool) -> None:
    run = the_run(CONFIG + a_log(every=every, own=own))
    assert run.format == "composer"
    assert run.iterations.number.tolist() == [1, *range(2 if every == 1 else every, 121, every)]
    assert run.iterations.time_s[0] == pytest.approx(20, abs=0.2)
    assert run.iterations.time_s[1:] == pytest.approx(2.0, rel=0.02)
    assert run.iterations.loss[0] == pytest.approx(9 - 1 / 120, abs=1e-4)
    assert run.iterations.reported_mfu[-1] == 0.41
    assert run.iterations.reported_tokens_per_s[-1] == 65536
    assert [(e.at, e.val_loss) for e in run.evaluations] == [(50, 3.2), (100, 3.2)]
    assert [e.took_s for e in run.evaluations] == pytest.approx([12.0, 12.0], abs=0.4)


def test_facts() -> None:
    settings = the_run(CONFIG + a_log()).settings
    told = {
        "max_iters": 120,
        "world_size": 8,
        "block_size": 2048,
        "tokens_per_iter": 131072,
        "n_embd": 768,
        "n_layer": 12,
    }
    assert {name: settings.count(name) for name in told} == told
    assert (settings.count("batch_size"), settings.count("eval_interval")) == (8, 50)
    assert settings.text("dtype") == "bfloat16"


def test_costs_are_those_of_the_log() -> None:
    costs = analyse(the_run(a_log())).costs
    assert costs.step_s.mid == pytest.approx(2.0, rel=0.01)
    assert costs.eval_s is not None
    assert costs.eval_s.mid == pytest.approx(12.0, rel=0.03)


def test_a_checkpoint_is_seen_in_the_difference_of_the_training_time() -> None:
    text = "".join(record(b, 400, 20.0 + 0.5 * b + (60 if b > 200 else 0), per_s=2.0) for b in range(100, 401, 100))
    run = the_run(text)
    assert run.iterations.time_s[1:].tolist() == pytest.approx([0.5, 1.1, 0.5], rel=0.01)


@pytest.mark.parametrize(
    ("head", "number", "last"),
    [
        ("[batch=20/4800]:", 20, 4800), ("[epoch=3][batch=5/100]:", 205, None), ("[sample=1280/64000]:", 20, 1000),
        ("[token=2621440/131072000]:", 20, 1000), ("[batch=20]:", 20, None),
        ("2024-05-04 09:30:00 [batch=20/4800]:", 20, 4800),
    ],
)  # fmt: skip
def test_progress_is_told_in_many_ways(head: str, number: int, last: int | None) -> None:
    run = the_run(record(20, 4800, 58.0, per_s=0.5, head=head))
    assert run.iterations.number.tolist() == [number]
    assert run.settings.count("max_iters") == last
    assert run.iterations.time_s[0] == pytest.approx(2.0)


def test_a_record_without_its_head_is_numbered_by_time_and_speed() -> None:
    text = record(5, 5, 1889.6, per_s=0.002669, head="")
    run = the_run(text)
    assert run.iterations.number.tolist() == [5]
    assert run.iterations.time_s[0] == pytest.approx(1 / 0.002669, rel=0.005)  # four decimals alone give 370 s


def test_clocks_in_seconds() -> None:
    text = a_log().replace("\t Train time/val", "\t Train time_seconds/train: 1.0\n\t Train time/val")
    for hours in {line.split()[-1] for line in text.splitlines() if "time/train" in line or "time/val" in line}:
        text = text.replace(f"time/train: {hours}\n", f"time/train: {float(hours) * 3600:.4f}\n")
        text = text.replace(f"time/val: {hours}\n", f"time/val: {float(hours) * 3600:.4f}\n")
    run = the_run(text)
    assert run.iterations.time_s[1:] == pytest.approx(2.0, rel=0.2)
    assert run.evaluations[0].took_s == pytest.approx(12, abs=0.4)


def test_spaces_in_place_of_tabs_and_numbers_that_are_none() -> None:
    text = a_log().replace("\t ", "         ").replace("loss/train/total: 8.9", "loss/train/total: nan #", 1)
    run = the_run(text.replace(" #", "", 1))
    assert len(run.iterations) == 120


def test_values_that_are_no_numbers_are_shown() -> None:
    run = the_run(a_log().replace("time/train: 0.0056", "time/train: <object at 0x7>"))
    assert run.unread_count >= 1


def test_two_runs_are_two() -> None:
    runs = read(from_text(CONFIG + a_log() + CONFIG + a_log(last=60, step_s=3.0)))
    assert [len(run.iterations) for run in runs] == [120, 60]


@pytest.mark.parametrize("cut", range(0, 9000, 611))
def test_cut_anywhere_it_is_read_as_far_as_it_goes(cut: int) -> None:
    text = a_log(last=40)
    for part in (text[:cut], text[cut : cut + 4000]):
        if part.count("time/train") > 1:
            assert len(read(from_text(part))[0].iterations) >= part.count("[batch=") - 2


def test_the_example_is_read() -> None:
    assert detect(from_text(example_of(READER.name))) == "composer"
    run = the_run(example_of(READER.name))
    assert run.iterations.time_s[0] == pytest.approx(3.995, rel=1e-3)
