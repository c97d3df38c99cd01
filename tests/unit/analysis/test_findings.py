"""Every finding, with the log that calls for it and one that does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.builders import Truth, a_log
from tests.planted import on_an_h100
from tests.unit.analysis.test_analysis import lines

from stepwatch.analysis import analyse
from stepwatch.analysis import findings as module
from stepwatch.analysis.findings import passed
from stepwatch.analysis.statistics import quantile
from stepwatch.estimator.ceilings import normal_mfu
from stepwatch.gpus import find_gpu
from stepwatch.i18n import say
from stepwatch.readers import read
from stepwatch.settings import Origin, Settings
from stepwatch.sources import from_text

STEADY = lines(*np.random.default_rng(0).normal(100, 0.5, 120), first=10, mfu=", mfu 12.00%")
FIRST = "step 0: train loss 4, val loss 4\niter 0: loss 4, time 9000.00ms, mfu -100.00%\n"


def with_slow(rows: dict[int, float], **options: object) -> str:
    times = np.random.default_rng(0).normal(100, 0.5, 300)
    for row, value in rows.items():
        times[row] = value
    return lines(*times, first=10, **options)  # type: ignore[arg-type]


def _llm_c(number: int, after: str = "") -> str:
    return f"step {number:4d}/50: train loss 4.367631 (80.639749 ms, 12701 tok/s)\n{after}"


LOGS: dict[str, str] = {
    "bar_alone": "".join(f"{n}%|##   | {n}/100 [00:{n // 2:02d}<00:30,  2.00it/s]\n" for n in range(1, 90)),
    "epochs": "epoch,time,train/box_loss\n" + "".join(f"{epoch},{50 * epoch},1.5\n" for epoch in range(1, 21)),
    "first_iteration": FIRST + STEADY,
    "warm_up": FIRST + lines(180, 140, *[100.0] * 60, first=10, mfu=", mfu 12.00%"),
    "evaluation_spikes": a_log(Truth()),
    "silent_evaluations": a_log(Truth(with_step_lines=False, with_saving_lines=False, header=False)),
    "checkpoint_cost": a_log(Truth()),
    "hidden_evaluations": a_log(Truth(log_interval=200, eval_interval=500, max_iters=6000)),
    "stall": with_slow({100: 700.0}),
    "sleep": with_slow({100: 4e6}),
    "periodic_slowness": with_slow(dict.fromkeys(range(36, 300, 37), 400.0)) + "step 5000: train loss 3, val loss 3\n",
    "regime_change": lines(*[100.0] * 200, *[240.0] * 150, first=10),
    "drift": lines(*(100 * (1 + 0.1 * np.arange(400) / 400)), first=10),
    "uneven_steps": lines(*(100 * np.exp(0.3 * np.random.default_rng(0).standard_normal(200))), first=10),
    "ddp_artefact": "torchrun --standalone train.py\n" + with_slow(dict.fromkeys(range(9, 300, 10), 300.0)),
    "unsynchronised": "tokens per iteration will be: 16,384\n" * 4 + FIRST + STEADY,
    "busy_when_logging": FIRST + STEADY.replace("iter", "Gradient norm: 2.1\niter"),
    "mfu_sentinel": FIRST + STEADY,
    "mfu_other_card": FIRST + STEADY,
    "loss_nan": STEADY + "iter 2000: loss nan, time 100.00ms, mfu 12.00%\n",
    "ended_early": STEADY + "Traceback (most recent call last):\nKeyboardInterrupt\n",
    "few_iterations": "iter 0: time 12543ms\niter 500: time 5985ms\niter 1000: time 5726ms\n",
    "beyond_the_end": "max_iters = 500\n" + STEADY,
    "figures_disagree": a_log(Truth()).replace(
        "tokens per iteration will be: 16,384", "tokens per iteration will be: 491,520"
    ),
    "impossible_mfu": "".join(
        f"[titan] 2025-01-01 00:00:{n:02},000 - root - INFO - step: {n}  loss:  4.00000  grad_norm:  1.0000  "
        "memory: 10.00GiB(50.00%)  tps: 1,000  tflops: 47,210.56  mfu: 15131.59%\n"
        for n in range(1, 30)
    ),
    "averaged_times": "".join(f"[train] iter {n}: loss 8.3 2276 ms/iter\n" for n in range(20, 210, 10)),
    "invisible_evaluations": "".join(_llm_c(n, "val loss 4.5\n" * (n % 10 == 0)) for n in range(1, 40)),
    "invisible_checkpoints": "".join(_llm_c(n, "Writing checkpoint at step 20\n" * (n == 20)) for n in range(1, 40)),
    "lines_without_time": "".join(_llm_c(n) for n in range(1, 40)) + "step 40/50: train loss 4 (a few ms)\n",
    "outside_values": "".join(_llm_c(n) for n in range(1, 40)) + _llm_c(40).replace("80.639749", "700000000"),
    "schedule": "".join(
        f"step:{n}/400 train_time:{50 * n + 40 * max(n - 200, 0)}ms step_avg:50.00ms\n" for n in range(1, 401)
    ),
}


def codes(text: str, gpu: str | None = None) -> set[str]:
    return {f.code for f in analyse(read(from_text(text))[0], find_gpu(gpu) if gpu else None).findings}


@pytest.mark.parametrize("code", LOGS)
def test_a_log_that_calls_for_a_finding_gets_it(code: str) -> None:
    assert code in codes(LOGS[code])


@pytest.mark.parametrize("code", sorted(set(LOGS) - {"mfu_other_card"}))
def test_a_steady_log_gets_none_of_them(code: str) -> None:
    assert code not in codes(STEADY)


@pytest.mark.parametrize(
    ("text", "nan"),
    [
        (STEADY + "iter 2000: time 100.00ms\n", False),  # not printed is not nan
        (STEADY + "iter 2000: loss..., time 100.00ms\n", False),
        (STEADY.replace("loss 3.0", "loss nan"), True),
        (STEADY + "iter 2000: loss inf, time 100.00ms, mfu 12.00%\n", True),
        ("iter 5: loss nan, time 100.00ms, mfu 12.00%\n" + STEADY, False),  # it recovered
    ],
)
def test_a_loss_that_is_no_number_is_told_from_one_that_was_not_printed(text: str, nan: bool) -> None:
    assert ("loss_nan" in codes(text)) is nan


def test_an_excerpt_of_evaluations_alone_says_that_its_parts_cannot_be_told_apart() -> None:
    text = "step 500: train loss..., val loss...\nsaving checkpoint\niter 500: loss..., time 5985ms\n"
    costs = analyse(read(from_text(text))[0]).costs
    assert set(costs.how.values()) == {"not separable"}
    assert costs.pair_s is not None
    assert costs.pair_s.high == pytest.approx(5.985)
    assert analyse(read(from_text(text))[0]).goodput.wall_s == pytest.approx(5.985)


def test_evaluations_in_a_stretch_that_is_missing_are_imputed() -> None:
    record = a_log(Truth(header=False, max_iters=5000)).splitlines(keepends=True)
    kept = [line for line in record if not 1100 <= int(re.search(r"\d+", line + " 0")[0]) <= 3900]  # type: ignore[index]
    whole, cut = (analyse(read(from_text("".join(lines)))[0]) for lines in (record, kept))
    assert cut.goodput.wall_s == pytest.approx(whole.goodput.wall_s, rel=0.02)


def test_a_drift_is_not_blamed_on_heat_where_the_trainer_has_schedules() -> None:
    total = np.cumsum(100 * (1 + 0.08 * np.arange(400) / 400))
    text = "".join(f"step:{n}/400 train_time:{t:.0f}ms step_avg:{t / n:.2f}ms\n" for n, t in enumerate(total, 1))
    analysis = analyse(read(from_text(text))[0])
    sentence = next(say(f.message, "en") for f in analysis.findings if f.code == "drift")
    assert "heat" not in sentence
    assert "changes batch size" in sentence


@pytest.mark.parametrize(
    ("first_ms", "told"),
    [(98.0, "no more than as many others"), (700.0, "took 7.00 s together: 5."), (90.0, "took 900.0 ms together")],
)
def test_a_mean_over_the_first_iterations_is_said_of_all_of_them(first_ms: float, told: str) -> None:
    rows = [first_ms, *np.random.default_rng(0).normal(100, 1, 30)]
    text = "".join(
        f"Iter {10 * n}: Train loss 1.7, It/sec {1000 / ms:.4f}, Tokens/sec 99\n" for n, ms in enumerate(rows, 1)
    )
    analysis = analyse(read(from_text(text))[0])
    sentence = next(say(f.message, "en") for f in analysis.findings if f.code == "first_iteration")
    assert sentence.startswith("Iterations 1 to 10 ")
    assert told in sentence


def test_findings_about_a_card_need_one() -> None:
    text = a_log(Truth(step_s=0.001, log_interval=1))
    assert "impossible_figure" in codes(text, "3060")
    assert "impossible_figure" not in codes(a_log(Truth()), "4090")
    smoothed = a_log(Truth(eval_s=40, log_interval=50))
    assert "mfu_smoothed" in codes(smoothed, "a100-40gb")
    assert "mfu_other_card" not in codes(smoothed, "a100-40gb")


@pytest.mark.parametrize(
    ("factor", "code"), [(1.0, "speed_is_normal"), (3.0, "slower_than_expected"), (0.4, "faster_than_expected")]
)
def test_the_speed_is_compared_with_what_the_card_should_need(factor: float, code: str) -> None:
    header = a_log(Truth()).partition("step 0")[0]
    begun = analyse(read(from_text(header))[0], find_gpu("4070"))
    assert {f.code for f in begun.findings} == {"only_begun"}
    assert code in codes(a_log(Truth(step_s=factor * begun.costs.step_s.mid)), "4070")


def test_the_peak_of_another_card_in_the_trainers_table_is_named() -> None:
    header = "GPU: NVIDIA GeForce RTX 3090 Ti | Peak FLOPS (BF16): 3.10e+13\nEstimated FLOPs per token: 1.0e+09\n"
    step = "step {n:05d}/00400 (0.25%) | loss: 9.5 | lrm: 1.00 | dt: 480.00ms | tok/sec: 21,407 | bf16_mfu: 69.05 |\n"
    assert "mfu_other_peak" in codes(header + "".join(step.format(n=n) for n in range(30)), "3090")


def spread_by(ratio: float, rows: int) -> str:
    """Steps in which p95 is this many times p5."""
    return lines(*np.random.default_rng(1).permutation(np.repeat((100.0, 100.0 * ratio), rows // 2)), first=10)


@pytest.mark.parametrize(
    ("text", "uneven"),
    [
        (spread_by(1.45, 40), False),
        (spread_by(1.55, 40), True),
        (spread_by(1.55, module.LEAST_SPREAD_ROWS), True),
        (spread_by(1.55, module.LEAST_SPREAD_ROWS - 2), False),
        (lines(*[100.0] * 200, *[240.0] * 150, first=10), False),  # two levels, each of them even
    ],
)
def test_steps_are_uneven_from_half_as_much_again_on(text: str, uneven: bool) -> None:
    assert ("uneven_steps" in codes(text)) is uneven


def test_a_schedule_or_rounded_times_make_no_uneven_steps() -> None:
    rng = np.random.default_rng(0)
    total = np.cumsum(100 * np.exp(0.3 * rng.standard_normal(400)))
    scheduled = "".join(f"step:{n}/400 train_time:{t:.0f}ms step_avg:{t / n:.2f}ms\n" for n, t in enumerate(total, 1))
    assert "uneven_steps" not in codes(scheduled)
    epochs = "".join(
        f"Epoch {n}/60\n500/500 ━━━━━━━━━━ {ms // 2}s {ms}ms/step - loss: 5.1204\n"
        for n, ms in enumerate(rng.choice((2, 4), 60).tolist(), 1)
    )
    assert "uneven_steps" not in codes(epochs)


@pytest.mark.parametrize("evaluated", [False, True])
def test_slow_means_that_each_hold_an_evaluation_are_not_said_to_be_without(evaluated: bool) -> None:
    text = ""
    for n in range(1, 81):
        slow, validated = n in (20, 33, 57), evaluated or n % 4 == 0
        text += f"Epoch {n}/80\n66/66 ━━━━━━━━━━ {4 if slow else 2}s {60 if slow else 30}ms/step - loss: 5.1"
        text += " - val_loss: 4.4" * validated + "\n"
        text += f"Epoch {n}: val_loss improved, saving model to a.h5\n" * (n < 9)
    analysis = analyse(read(from_text(text))[0])
    sentence = next(say(f.message, "en") for f in analysis.findings if f.code == "stall")
    assert ("without evaluation" in sentence) is not evaluated


def test_uneven_steps_are_said_with_their_spread() -> None:
    analysis = analyse(read(from_text(LOGS["uneven_steps"]))[0])
    sentence = next(say(f.message, "en") for f in analysis.findings if f.code == "uneven_steps")
    times = analysis.run.iterations.time_s[analysis.phases.normal]
    assert f"nine in ten between {1000 * quantile(times, 0.05):.1f} ms and" in sentence


def test_an_mfu_below_half_of_what_is_usual_is_low() -> None:
    usual = analyse(read(from_text("\n".join(on_an_h100("llm.c", [0.35] * 60))))[0], find_gpu("h100")).throughput
    assert usual.mfu is not None
    assert usual.normal_mfu is not None
    edge_s = 0.35 * usual.mfu / (usual.normal_mfu.low / 2)
    for step_s, low in ((0.97 * edge_s, False), (1.03 * edge_s, True)):
        text = "\n".join(on_an_h100("llm.c", [step_s] * 60))
        assert ("low_mfu" in codes(text, "h100")) is low
        assert "low_mfu" not in codes(text)
        small = text.replace("774030080", str(int(module.PUBLISHED_PARAMS) - 1))
        assert "low_mfu" not in codes(small, "h100")  # small models are slow by their size
    # At the limit of size the model still counts.
    text = "\n".join(on_an_h100("llm.c", [20.0] * 60)).replace("774030080", str(int(module.PUBLISHED_PARAMS)))
    assert "low_mfu" in codes(text, "h100")


def test_every_code_in_the_module_is_tested_here() -> None:
    written = set(re.findall(r'Finding\(\s*"(\w+)"', Path(module.__file__).read_text(encoding="utf-8")))
    with_card = {"impossible_figure", "mfu_smoothed", "speed_is_normal", "slower_than_expected", "faster_than_expected"}
    with_card |= {"mfu_other_peak", "low_mfu"}
    assert written == set(LOGS) | with_card


@pytest.mark.parametrize("code", LOGS)
def test_a_finding_names_its_figures(code: str) -> None:
    analysis = analyse(read(from_text(LOGS[code]))[0])
    sentence = next(say(f.message, "en") for f in analysis.findings if f.code == code)
    assert re.search(r"\d", sentence) or code.startswith(("busy_", "averaged_", "drift", "invisible_", "epochs"))
    assert "{" not in sentence


def _advice(check: Callable[[str], bool]) -> None:
    for text in LOGS.values():
        for finding in analyse(read(from_text(text))[0]).findings:
            assert check(say(finding.message, "en"))


def test_no_finding_says_to_reduce_the_interval_of_evaluations() -> None:
    _advice(lambda sentence: not re.search(r"(reduce|lower|smaller|decrease)[^.]*eval_interval", sentence))


# --- evaluations and saves outside the printed times, by the clock ------------------------------------------------


def clocked(*, saves_every: int) -> str:
    """Steps of 1 s by llm.c, evaluations of 7 s every 50 and saves of 3 s."""
    text, at = [], 0.0
    for n in range(1, 501):
        at += 1.0
        text.append(
            (at, f"step {n:4d}/2000 | loss 4.9 (-0.4z)| norm 0.4 (+0.1z)| lr 2e-04 | 1000.00 ms | 51.2% bf16 MFU")
        )
        if n % 50 == 0:
            at += 7.0
            text.append((at, "val loss 4.100000"))
        if n % saves_every == 0:
            at += 3.0
            text.append((at, f"Writing checkpoint at step {n}"))
    return "".join(f"2025-03-02 10:{int(t) // 60:02d}:{t % 60:06.3f} {line}\n" for t, line in text)


def test_saves_that_always_come_with_an_evaluation_cost_what_the_clock_shows_beyond_it() -> None:
    (run,) = read(from_text(clocked(saves_every=100)))
    costs = analyse(run).costs
    assert costs.eval_s is not None
    assert costs.checkpoint_s is not None
    assert (costs.eval_s.mid, costs.checkpoint_s.mid) == (pytest.approx(7.0, abs=0.1), pytest.approx(3.0, abs=0.1))


def test_evaluations_and_saves_that_are_never_apart_are_in_a_total_by_the_clock() -> None:
    (run,) = read(from_text(clocked(saves_every=50)))
    a = analyse(run)
    (finding,) = (each for each in a.findings if each.code.startswith("invisible"))
    assert "includes them" in say(finding.message, "en")
    assert a.goodput.wall_s == pytest.approx(500 + 9 * 10, rel=0.03)


def test_iterations_of_nanogpt_that_tell_no_time_are_named() -> None:
    (run,) = read(from_text(STEADY + "iter 2000: loss 3.2, time n/a\nnoise\niter 2010: loss 3.2, time n/a\n"))
    (finding,) = (each for each in analyse(run).findings if each.code == "lines_without_time")
    assert say(finding.message, "en").startswith("2 lines look like iterations but have no readable time")


# --- steps that are uneven, cards that are hardly used --------------------------------------------------------------


def uneven(times_ms: list[float]) -> bool:
    run = read(from_text(lines(*times_ms, first=11, interval=1)))[0]
    run = replace(run, settings=run.settings.overridden_by(Settings.of(Origin.USER, {"eval_interval": 10**6})))
    return "uneven_steps" in {finding.code for finding in analyse(run).findings}


@pytest.mark.parametrize(("ratio", "told"), [(1.45, False), (1.55, True)])
def test_steps_are_uneven_where_the_slow_take_half_as_long_again_as_the_fast(ratio: float, told: bool) -> None:
    spread = np.log(ratio) / 0.9  # from the fastest to the slowest; the ratio is of nine in ten
    assert uneven((100 * np.exp(np.random.default_rng(0).uniform(0, spread, 1000))).tolist()) == told


@pytest.mark.parametrize(("rows", "told"), [(19, False), (20, True)])
def test_twenty_steps_show_that_they_are_uneven(rows: int, told: bool) -> None:
    assert uneven(([100.0, 180.0, 130.0, 150.0, 110.0] * 4)[:rows]) == told


@pytest.mark.parametrize(
    ("fast", "slow", "told"), [(55, 100, True), (45, 100, False), (100, 55, True), (100, 45, False)]
)
def test_a_twentieth_of_the_steps_on_either_side_does_not_count(fast: int, slow: int, told: bool) -> None:
    times = [80.0] * fast + [100.0] * (1000 - fast - slow) + [125.0] * slow
    assert uneven(np.random.default_rng(0).permutation(times).tolist()) == told


@pytest.mark.parametrize(("millions", "share", "told"), [(110, 0.45, True), (110, 0.55, False), (90, 0.45, False)])
@pytest.mark.parametrize("stated", ["n_params", "flops_per_token"])
def test_half_of_the_usual_use_of_a_card_is_low_for_models_of_a_hundred_million(
    millions: int, share: float, told: bool, stated: str
) -> None:
    gpu = find_gpu("4070")
    usual, peak = normal_mfu(gpu), gpu.peak_flops().flops
    assert usual is not None
    assert peak is not None
    per_token = 6e6 * millions
    settings = {"tokens_per_iter": round(share * usual.low * peak * 0.1 / per_token)}
    run = read(from_text(lines(*[100.0] * 60, first=11)))[0]
    if stated == "n_params":
        settings["n_params"] = millions * 10**6
    else:
        run = replace(run, flops_per_token=per_token)
    a = analyse(replace(run, settings=Settings.of(Origin.USER, settings)), gpu)
    assert ("low_mfu" in {finding.code for finding in a.findings}) == told


@pytest.mark.parametrize(("share", "little"), [(0.047, True), (0.053, False)])
def test_evaluations_and_checkpoints_take_little_below_a_twentieth(share: float, little: bool) -> None:
    a = analyse(read(from_text(a_log(Truth(max_iters=600))))[0])
    parts = {**a.goodput.parts_s, "step": 1 - share, "eval": share / 2, "checkpoint": share / 2}
    a = replace(a, goodput=replace(a.goodput, parts_s=parts))
    assert any("little time in" in message.key for message in passed(a)) == little


def test_a_loss_that_was_infinite_once_is_not_called_finite() -> None:
    rows = [f"iter {n}: loss {'inf' if n == 30 else '4.0'}, time 100.00ms, mfu 5.00%\n" for n in range(60)]
    (run,) = read(from_text("".join(rows)))
    assert "finite loss throughout" not in {message.key for message in passed(analyse(run))}
