"""parameter-golf: modded-nanogpt's clock with a limit of time, and lines with minutes."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.readers import read
from stepwatch.run import Run
from stepwatch.sources import from_text

_TOKENS = 524288


def _older(step_s: float, last: int, *, stop: bool, cap: str = "600.000") -> str:
    lines = [
        "world_size:8 grad_accum_steps:1", "model_params:17059912",
        f"train_batch_tokens:{_TOKENS} train_seq_len:1024 iterations:20000 warmup_steps:20 max_wallclock_seconds:{cap}",
        "step:0/20000 val_loss:6.9370 val_bpb:4.0978 train_time:0ms step_avg:0.01ms",
    ]  # fmt: skip
    for step in sorted({*range(1, 11), *range(200, last + 1, 200)}):
        clock = 1e3 * step_s * step
        lines.append(f"step:{step}/20000 train_loss:3.2100 train_time:{clock:.0f}ms step_avg:{clock / step:.2f}ms")
    if stop:
        clock = 1e3 * step_s * last
        lines.append(f"step:{last}/20000 val_loss:2.0512 val_bpb:1.2148 train_time:{clock:.0f}ms step_avg:44.00ms")
        lines.append(f"stopping_early: wallclock_cap train_time:{clock:.0f}ms step:{last}/20000")
        lines.append("final_int8_zlib_roundtrip val_loss:2.0564 val_bpb:1.2179 eval_time:2310ms")
    return "\n".join(lines) + "\n"


def _newer(step_s: float, last: int, *, stop: bool) -> str:
    lines = [
        "  iterations: 20000", "  max_wallclock_seconds: 600.0", f"  train_batch_tokens: {_TOKENS}",
        "  val_loss_every: 4000", "  world_size: 8", "gptq:reserving 12s, effective=588000ms",
        "0/20000 val_loss: 9.0072 val_bpb: 3.4870",
    ]  # fmt: skip
    for step in sorted({*range(1, 6), *range(500, last + 1, 500)}):
        clock = step_s * step
        lines.append(
            f"{step}/20000 train_loss: 3.3793 train_time: {clock / 60:.1f}m tok/s: {step * _TOKENS / clock:.0f}"
        )
    if stop:
        lines.append(f"{last}/20000 val_loss: 2.8097 val_bpb: 1.0877")
        lines.append(f"stopping_early: wallclock_cap train_time: {1e3 * step_s * last:.0f}ms step: {last}/20000")
    return "\n".join(lines) + "\n"


def _one(text: str) -> Run:
    (run,) = read(from_text(text))
    assert run.format == "parameter-golf"
    return run


def _whole(run: Run) -> float:
    return float((run.iterations.time_s * np.diff(run.iterations.number, prepend=0)).sum())


@pytest.mark.parametrize(("written", "evaluated"), [(_older, [0, 7692]), (_newer, [0, 7692])])
def test_a_run_that_stopped_at_its_limit_has_ended(written: object, evaluated: list[int]) -> None:
    assert callable(written)
    run = _one(written(0.078, 7692, stop=True))
    assert run.ended_by_plan
    assert run.settings.count("max_iters") == 7692 == run.iterations.number[-1]
    assert np.allclose(run.iterations.time_s[10:], 0.078, rtol=0.02)
    assert _whole(run) == pytest.approx(7692 * 0.078, rel=0.001)
    assert [each.at for each in run.evaluations] == evaluated
    assert run.settings.count("tokens_per_iter") == _TOKENS
    assert run.settings.count("world_size") == 8


@pytest.mark.parametrize(("written", "cap"), [(_older, 600), (_newer, 588)])
def test_a_run_with_a_limit_ends_there(written: object, cap: int) -> None:
    assert callable(written)
    run = _one(written(0.078, 4000, stop=False))
    assert not run.ended_by_plan
    assert run.settings.count("max_iters") == pytest.approx(cap / 0.078, rel=0.01)
    assert run.limit_s == cap


def test_a_short_run_ends_at_its_iterations() -> None:
    run = _one(_older(0.078, 4000, stop=False, cap="9000.000"))
    assert run.settings.count("max_iters") == 20000
    assert run.limit_s is None


def test_the_limit_counts_from_the_pace_of_the_last_lines() -> None:
    text = _older(0.05, 4000, stop=False)
    for step in range(4200, 5001, 200):
        text += f"step:{step}/20000 train_loss:3.2100 train_time:{200000 + 100 * (step - 4000)}ms step_avg:60.00ms\n"
    assert _one(text).settings.count("max_iters") == pytest.approx(5000 + 300 / 0.1, rel=0.001)


def test_lines_of_the_binary_track() -> None:
    lines = [f"step:{step}/50000 loss:3.1000 t:{155 * step}ms avg:155.0ms" for step in range(500, 5001, 500)]
    run = _one("\n".join(["model_params:17059912", "val_bpb:3.1", *lines]))
    assert np.allclose(run.iterations.time_s, 0.155)


def test_a_log_of_modded_nanogpt_stays_one() -> None:
    text = "".join(f"step:{step}/1390 train_time:{33 * step}ms step_avg:33.00ms\n" for step in range(1, 50))
    (run,) = read(from_text(text))
    assert run.format == "modded-nanogpt"


@pytest.mark.parametrize("said", [True, False])
def test_lines_behind_the_name_of_their_run(said: bool) -> None:
    """The model is evaluated behind the last step also where no line says that the limit of time ended the training."""
    runs = []
    for name, step_s, last in (("wide_d704.r2-" + "x" * 60, 0.078, 7692), ("narrow", 0.044, 5000)):
        lines = _older(step_s, last, stop=True).splitlines()[2:]
        runs += [f"{name}: {line}" for line in lines if said or "stopping" not in line]
    wide, narrow = read(from_text("\n".join([*runs, "train narrow rc=0"])))
    assert (wide.format, narrow.format) == ("parameter-golf", "parameter-golf")
    assert [int(run.iterations.number[-1]) for run in (wide, narrow)] == [7692, 5000]
    assert [run.settings.count("max_iters") for run in (wide, narrow)] == [7692, 5000]
    assert wide.ended_by_plan
    assert narrow.ended_by_plan
    assert [_whole(run) for run in (wide, narrow)] == pytest.approx([600.0, 220.0], rel=1e-3)
