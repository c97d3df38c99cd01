"""The planted logs must be right themselves: everything else is checked against them."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.builders import A100_FLOPS, Record, Saves, Shape, Truth, a_log, a_run, random_truth  # noqa: E402

ITER = re.compile(r"iter (\d+): loss \d+\.\d{4}, time (\d+\.\d\d)ms(?:, mfu (-?\d+\.\d\d)%)?$", re.MULTILINE)
STEP = re.compile(r"step (\d+): train loss (\d+\.\d{4}), val loss (\d+\.\d{4})$", re.MULTILINE)
SAVING = re.compile(r"saving checkpoint to out-x$", re.MULTILINE)
QUIET = Truth(noise=0.0, eval_noise=0.0, checkpoint_noise=0.0)
SEEDS = range(30)


def any_run(seed: int) -> Record:
    return a_run(random_truth(np.random.default_rng(seed)))


def save_numbers(text: str) -> list[int]:
    """The evaluation just above each saving line."""
    return [int(m[1]) for m in re.finditer(r"step (\d+): .*\n.*saving checkpoint", text)]


def test_the_builder_knows_nothing_of_the_program() -> None:
    tree = ast.parse((ROOT / "tests" / "builders.py").read_text(encoding="utf-8"))
    plain = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    of = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in plain + of if name.startswith("stepwatch")]


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_are_never_negative_and_sum_to_the_time(seed: int) -> None:
    run = any_run(seed)
    parts = np.stack([run.step_s, run.eval_s, run.checkpoint_s, run.compile_s, run.stall_s])
    assert (parts >= 0).all()
    assert np.allclose(parts.sum(axis=0), run.time_s)
    assert run.total_s == pytest.approx(run.time_s.sum())
    assert run.wall_s <= run.total_s * (1 + 1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_loop_evaluates_saves_and_prints_where_nanogpt_does(seed: int) -> None:
    run, truth = any_run(seed), any_run(seed).truth
    numbers = range(truth.first_iter, truth.max_iters + 1)
    assert run.number.tolist() == list(numbers)
    assert run.number[run.evaluated].tolist() == [k for k in numbers if k % truth.eval_interval == 0]
    assert run.number[run.logged].tolist() == [k for k in numbers if k % truth.log_interval == 0]
    assert not (run.saved & ~run.evaluated).any()
    assert (run.eval_s > 0).tolist() == run.evaluated.tolist()
    assert (run.checkpoint_s > 0).tolist() == run.saved.tolist()
    assert np.flatnonzero(run.compile_s).tolist() in ([], [0])
    assert run.stall_s[0] == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_text_prints_what_the_record_holds(seed: int) -> None:
    run = any_run(seed)
    printed = [(int(k), float(ms)) for k, ms, _ in ITER.findall(run.text)]
    mask = run.logged & run.seen
    assert [k for k, _ in printed] == run.number[mask].tolist()
    assert [ms for _, ms in printed] == pytest.approx((run.time_s[mask] * 1000).tolist(), abs=0.0051)
    steps = [int(k) for k, _, _ in STEP.findall(run.text)]
    last = printed[-1][0]
    assert [k for k in steps if k <= last] == run.number[run.evaluated & run.seen].tolist()
    assert [k for k in save_numbers(run.text) if k <= last] == run.number[run.saved & run.seen].tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_lines_of_an_iteration_come_as_evaluation_checkpoint_time(seed: int) -> None:
    body = re.findall(r"(step|iter) (\d+):|(saving) checkpoint", any_run(seed).text)
    numbers = [int(k) for _, k, _ in body if k]
    assert numbers == sorted(numbers)
    for (above, k_above, _), (below, k_below, saving) in pairwise(body):
        assert not saving or above == "step"
        assert k_above != k_below or (above, below) == ("step", "iter")


def test_counts_of_a_plain_run() -> None:
    run = a_run(replace(QUIET, max_iters=1000, eval_interval=250, log_interval=10, saves=Saves.ALWAYS))
    assert run.n_evaluations == 5  # 0, 250, 500, 750, 1000
    assert run.n_visible_evaluations == 4
    assert run.n_saves == 4
    assert len(ITER.findall(run.text)) == 101
    assert len(STEP.findall(run.text)) == 5
    assert len(SAVING.findall(run.text)) == 4


def test_times_of_a_quiet_run_are_the_planted_ones() -> None:
    run = a_run(replace(QUIET, saves=Saves.ALWAYS, step_s=0.1, eval_s=5.0, checkpoint_s=0.5, compile_s=20.0))
    times = {int(k): float(ms) for k, ms, _ in ITER.findall(run.text)}
    assert times[0] == pytest.approx(25100)
    assert times[10] == pytest.approx(100)
    assert times[250] == pytest.approx(5600)
    assert (run.true_step_s, run.true_eval_s, run.true_checkpoint_s) == pytest.approx((0.1, 5.0, 0.5))
    assert run.true_compile_s == 20.0
    assert run.wall_s == pytest.approx(2001 * 0.1 + 9 * 5.0 + 8 * 0.5 + 20.0)


@pytest.mark.parametrize("saves", Saves)
def test_iteration_zero_evaluates_but_never_saves(saves: Saves) -> None:
    for seed in SEEDS:
        run = a_run(Truth(seed=seed, saves=saves, max_iters=500))
        assert run.evaluated[0]
        assert not run.saved[0]


def test_a_resumed_run_may_save_at_once() -> None:
    run = a_run(replace(QUIET, first_iter=500, saves=Saves.ALWAYS, compile_s=20.0))
    assert run.saved[0]
    assert run.time_s[0] == pytest.approx(20.0 + 5.0 + 0.5 + 0.1)
    assert "Resuming training from out-x" in run.text
    assert save_numbers(run.text)[0] == 500


def test_a_run_resumed_off_the_grid_begins_without_evaluation() -> None:
    run = a_run(replace(QUIET, first_iter=520))
    assert run.time_s[0] == pytest.approx(20.0 + 0.1)
    assert run.true_compile_s == 20.0
    assert a_run(replace(QUIET, first_iter=525)).true_compile_s is None


def test_policies_of_saving() -> None:
    assert a_run(Truth(saves=Saves.NEVER)).n_saves == 0
    assert a_run(Truth(saves=Saves.NEVER)).true_checkpoint_s is None
    many = a_run(Truth(saves=Saves.ON_IMPROVEMENT, max_iters=20_000, eval_interval=10))
    early, late = many.saved[1:10_000].sum(), many.saved[10_000:].sum()
    assert 0 < late < early / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_printed_losses_agree_with_the_saving_lines(seed: int) -> None:
    text = a_log(Truth(seed=seed, saves=Saves.ON_IMPROVEMENT))
    saved, best = set(save_numbers(text)), np.inf
    for k, _, val in STEP.findall(text):
        assert (float(val) < best) == (int(k) in saved or int(k) == 0)
        best = min(best, float(val))


@pytest.mark.parametrize("log_interval", [1, 2, 5, 7, 10])
@pytest.mark.parametrize("first_iter", [0, 250, 503])
def test_mfu_is_absent_for_five_local_iterations_then_a_moving_average(log_interval: int, first_iter: int) -> None:
    truth = Truth(log_interval=log_interval, first_iter=first_iter, max_iters=900, noise=0.1)
    printed = [(int(k), float(ms) / 1000, float(mfu)) for k, ms, mfu in ITER.findall(a_log(truth))]
    expected = -100.0
    for k, time_s, mfu in printed:
        now = 100 * truth.flops_per_iter / time_s / A100_FLOPS
        if k - first_iter >= 5:
            expected = now if expected == -100.0 else 0.9 * expected + 0.1 * now
        assert mfu == pytest.approx(expected, abs=0.0052)


def test_counts_of_gpt2_are_those_of_nanogpt() -> None:
    gpt2 = Shape(n_layer=12, n_head=12, n_embd=768, vocab_size=50304, block_size=1024)
    assert gpt2.n_params == 123_587_328
    assert (gpt2.n_decayed, gpt2.n_not_decayed) == (124_354_560, 19_200)
    assert gpt2.flops_per_token == pytest.approx(854.77e6, rel=1e-5)
    text = a_log(Truth(shape=gpt2, batch_size=12, gradient_accumulation=40, max_iters=10))
    assert "tokens per iteration will be: 491,520\n" in text
    assert "number of parameters: 123.59M\n" in text
    assert "num decayed parameter tensors: 50, with 124,354,560 parameters\n" in text
    assert "num non-decayed parameter tensors: 25, with 19,200 parameters\n" in text


def test_the_header_names_its_settings_and_can_be_left_out() -> None:
    text = a_log(Truth(eval_interval=50, log_interval=7, eval_iters=20, gradient_accumulation=3, compiled=False))
    dumped = dict(re.findall(r"^(\w+) = ([^ #\n]+)", text, re.MULTILINE))
    wanted = {"eval_interval": "50", "log_interval": "7", "eval_iters": "20", "gradient_accumulation_steps": "3"}
    assert wanted.items() <= dumped.items()
    assert dumped["compile"] == "False"
    assert "compiling" not in text
    assert a_log(Truth(header=False)).startswith("step 0: ")


def test_lines_can_be_left_out() -> None:
    assert not STEP.search(a_log(Truth(with_step_lines=False)))
    assert SAVING.search(a_log(Truth(with_step_lines=False)))
    assert not SAVING.search(a_log(Truth(with_saving_lines=False)))
    assert "mfu" not in a_log(Truth(with_mfu=False))


def test_unlogged_evaluations_happen_but_their_time_is_not_printed() -> None:
    run = a_run(Truth(log_interval=200, eval_interval=500, max_iters=4000))
    assert run.truth.unlogged_evaluations
    assert (run.n_evaluations, run.n_visible_evaluations) == (9, 4)  # printed at 1000, 2000, 3000, 4000


def test_a_cut_log_ends_early_and_the_truth_with_it() -> None:
    whole, cut = a_run(Truth(header=False)), a_run(Truth(header=False, kept=0.4))
    assert whole.text.startswith(cut.text)
    assert len(cut.text.splitlines()) == round(0.4 * len(whole.text.splitlines()))
    assert int(ITER.findall(cut.text)[-1][0]) == cut.number[cut.seen][-1]
    assert cut.wall_s < cut.total_s == whole.total_s


def test_timestamps_are_those_of_the_record() -> None:
    run = a_run(Truth(timestamps=True, saves=Saves.ALWAYS, max_iters=300, log_interval=1))
    stamped = re.findall(r"^(\S+ \S+),(\d{3}) (iter|step|saving)", run.text, re.MULTILINE)
    assert len(stamped) == 301 + 2 + 1
    assert all(line.startswith("2024-05-04 09:3") for line in run.text.splitlines())
    seconds = [datetime.fromisoformat(second).timestamp() + int(ms) / 1000 for second, ms, _ in stamped]
    assert seconds == sorted(seconds)
    ends = [at for at, (_, _, kind) in zip(seconds, stamped, strict=True) if kind == "iter"]
    assert np.diff(ends) == pytest.approx(run.time_s[1:], abs=0.0021)


def test_noise_drift_tails_and_stalls_do_what_they_say() -> None:
    long = Truth(max_iters=20_000, noise=0.05)
    steps = a_run(long).step_s
    assert steps.std() / steps.mean() == pytest.approx(0.05, rel=0.05)
    assert steps.mean() == pytest.approx(long.step_s, rel=0.002)
    drifting = a_run(replace(long, noise=0.0, drift=0.2))
    assert drifting.step_s[-1] - drifting.step_s[0] == pytest.approx(0.2 * long.step_s)
    assert drifting.true_step_s == pytest.approx(long.step_s)
    assert a_run(replace(long, tail_share=0.1)).step_s.max() > steps.max()
    assert a_run(replace(long, tail_share=0.1)).step_s.mean() > steps.mean()
    stalls = a_run(replace(long, stall_share=0.05)).stall_s
    hit = stalls[stalls > 0]
    assert hit.size / stalls.size == pytest.approx(0.05, rel=0.1)
    assert 1.5 * long.step_s <= hit.min() < hit.max() <= 30 * long.step_s


def test_the_same_seed_gives_the_same_text() -> None:
    for seed in SEEDS:
        assert any_run(seed).text == any_run(seed).text
    assert a_log(Truth(seed=1)) != a_log(Truth(seed=2))


def test_random_runs_stay_within_what_they_promise() -> None:
    rng = np.random.default_rng(11)
    runs = [a_run(random_truth(rng)) for _ in range(300)]
    truths = [run.truth for run in runs]
    assert all(2 <= run.n_visible_evaluations <= 40 for run in runs)
    assert all(run.number.size <= 20_001 for run in runs)
    assert all(1 <= truth.log_interval <= 200 for truth in truths)
    assert all(0.001 <= truth.noise <= 0.15 for truth in truths)
    assert all(0.3 <= truth.eval_s / truth.step_s <= 300 for truth in truths)
    assert all(0.06e9 <= 12 * truth.n_params / truth.checkpoint_s <= 0.9e9 for truth in truths)
    assert all(truth.compile_s <= (120 if truth.compiled else 3) for truth in truths)
    assert 0.72 < np.mean([truth.header for truth in truths]) < 0.88
    forward = [t.eval_s / t.step_s * t.gradient_accumulation / 2 / t.eval_iters for t in truths if t.header]
    assert 0.22 <= min(forward) <= max(forward) <= 0.63
    assert np.quantile(forward, [0.25, 0.5, 0.75]) == pytest.approx([0.31, 0.35, 0.365], abs=0.03)
    for quirk in ("tail_share", "drift", "stall_share", "unlogged_evaluations", "first_iter", "timestamps"):
        assert any(getattr(truth, quirk) for truth in truths), quirk
