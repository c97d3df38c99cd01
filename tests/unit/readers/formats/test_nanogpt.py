"""Every variant of nanoGPT's log is read, and nothing in a log is guessed at."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from stepwatch.errors import NoIterations, UsageError
from stepwatch.readers import detect, read
from stepwatch.run import Run, Timing
from stepwatch.sources import Source, from_text, normalise
from stepwatch.trainer.config import TrainConfig

SEEDS = Path(__file__).resolve().parents[5] / "shared" / "seeds"
LINE = "iter 100: loss 4.2000, time 168.60ms, mfu 3.21%"


def the_run(text: str) -> Run:
    runs = read(from_text(text))
    assert len(runs) == 1
    return runs[0]


def numbers_and_times(run: Run) -> list[tuple[int, float]]:
    return list(zip(run.iterations.number.tolist(), run.iterations.time_s.round(7).tolist(), strict=True))


# --- one line --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        LINE, "iter 100: loss 4.2000, time 168.60ms", "iter 100: time 168.6ms", "iter 100: loss..., time 168.60ms",
        "iter 100: loss 4.2000 BPC, time 168.60ms, mfu 3.21%", f"{LINE}, mem 11.71GB",
        f"{LINE}, lr 6.00e-04, total time 13.46s",
        f"{LINE}, comm 0.0000s (0.0%), BW 0.00 GB/s, collectives 0, tokens/s 1245956.4, gpu_util 60.0%",
        f"{LINE}, cuda memory 0.499G, lr 6.00e-04, total time 1.35s", "iter 100: loss nan, time 168.60ms, mfu 3.21%",
        "iter 100: loss inf, time 168.60ms", "iter 100: loss -inf, time 168.60ms, mfu -100.00%",
        "iter 100: loss 4.2e+00, time 168.60ms", "iter 100: loss 4.2, time 0.1686s",
        "iter 100 : loss 4.2, time: 168.6 ms",
        "100 | loss 4.2000 | lr 5.000000e-05 | 168.60ms | mfu 0.21%",
        "100 | loss nan | lr 0.0 | 168.6ms | mfu -100.00%",
        "[rank0]: 100 | loss 4.2000 | lr 5.000000e-05 | 168.60ms | mfu 0.21%",
        "iter 100: loss 4.2, time 0.1686 seconds", "iteration 100: loss 4.2, time 168.6ms", f"> {LINE}",
        f"```{LINE}",
        f"    {LINE}    ", f"[rank0]: {LINE}", f"2024-05-04 09:30:00,000 - INFO - {LINE}",
        f"| {LINE} |", f'"{LINE}\\n",',
        f"wandb: syncing {LINE}", "[train] iter 100: loss 8.3326 168.6 ms/iter", f"{'#' * 1_000_000} {LINE}",
    ],
)  # fmt: skip
def test_iteration_is_read(line: str) -> None:
    assert numbers_and_times(the_run(line + "\n")) == [(100, 0.1686)]


@pytest.mark.parametrize(
    "line",
    [
        "iter 100: loss 4.2", "iter 100", "iter 1.5: loss 4, time 5ms",
        "iter -5: loss 4, time 5ms", "iter 5: loss 4, time -5ms", "iter 5: loss 4, time ms", "loss 4.2, time 168ms",
        "iter 1234567890123: loss 4, time 5ms", f"iter 5: loss 4, time {'9' * 400}ms", "myiter 5: time 5ms",
        "*iter 5: time 5ms", "iter five: time 5ms", "iter 5: total time 5s", "iter 5: time 5 monkeys",
        f"iter 5: loss 4, time {'9' * 20}s",
        "100 | loss 4.2 | 168.60ms | mfu 0.21%", "100 | loss 4.2 | lr 5e-5 | mfu 1%",
        "5 of 100 | loss 4.2 | lr 5e-5 | 168.60ms | mfu 0.21%", "1.5 | loss 4 | lr 5e-5 | 168.60ms | mfu 0.21%",
    ],
)  # fmt: skip
def test_what_is_no_timed_iteration_is_not_guessed_at(line: str) -> None:
    with pytest.raises(NoIterations):
        read(from_text(line))


def test_fields_of_an_iteration_are_kept() -> None:
    text = f"{LINE}, tokens/s 1,245,956.4\niter 200: loss nan, time 5ms, mfu 113.00%\niter 300: time 5ms\n"
    rows = the_run(text).iterations
    assert rows.loss[0] == 4.2
    assert rows.reported_mfu.tolist()[:2] == [0.0321, 1.13]
    assert rows.reported_tokens_per_s[0] == 1245956.4
    assert np.isinf(rows.loss[1])  # printed as nan
    assert np.isnan(rows.loss[2])  # not printed
    assert np.isnan(rows.reported_mfu[2])
    assert rows.line.tolist() == [0, 1, 2]


@pytest.mark.parametrize("value", ["1.2.3", "1..2", "1,.,.", "9" * 400])
def test_a_rate_that_is_no_number_leaves_the_iteration(value: str) -> None:
    rows = the_run(f"{LINE}, tokens/s {value}\n").iterations
    assert len(rows) == 1
    assert not np.isinf(rows.reported_tokens_per_s[0])


def test_columns_and_patterns_give_the_same_value() -> None:
    lines = [f"iter {number}: loss 4.2731, time 168.63ms, mfu 3.27%\n" for number in range(100, 140)]
    fast, slow = the_run("".join(lines)).iterations, the_run(lines[0]).iterations
    assert len(fast) == len(lines)
    assert (fast.time_s[0], fast.loss[0], fast.reported_mfu[0]) == (slow.time_s[0], slow.loss[0], slow.reported_mfu[0])


def test_llama2_c_is_read_with_its_evaluations_and_saves() -> None:
    line = "{n} | loss 5.7543 | lr 4.900000e-05 | {ms:.2f}ms | mfu 0.21%\n"
    text = "tokens per iteration will be: 131,072\n"
    for n in range(0, 2010, 10):
        if n % 500 == 0:
            text += f"step {n}: train loss 5.7373, val loss 5.9544\nsaving checkpoint to out\nwrote out/model.bin\n"
        text += line.format(n=n, ms=9000.5 if n % 500 == 0 else 80.25)
    run = the_run(text)
    dressed = the_run("".join(f"> {row}\n" for row in text.splitlines()))
    assert (run.format, run.timing) == ("nanogpt", Timing.SPANS_ITERATION)
    assert [e.at for e in run.evaluations] == [c.at for c in run.checkpoints] == [0, 500, 1000, 1500, 2000]
    assert run.iterations.time_s.tolist() == dressed.iterations.time_s.tolist()
    assert run.iterations.loss.tolist() == dressed.iterations.loss.tolist() == [5.7543] * 201
    assert run.iterations.reported_mfu.tolist() == dressed.iterations.reported_mfu.tolist()


def test_averages_over_the_log_interval_are_declared() -> None:
    assert the_run("[train] iter 30: loss 8.3326 2276 ms/iter\n").timing is Timing.SPANS_LOG_INTERVAL
    assert the_run(LINE).timing is Timing.SPANS_ITERATION


# --- evaluations and checkpoints ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "train", "val"),
    [
        ("step 100: train loss 2.5, val loss 2.6", 2.5, 2.6),
        ("step 100: train loss 2.5 BPC, val loss 2.6 BPC", 2.5, 2.6),
        ("step 100: train loss..., val loss...", None, None), ("step 100: train loss 2.5, test loss 2.6", 2.5, 2.6),
        ("step 100, tokens 0: train loss 2.5, val loss 2.6 avg perplexity: 5.2", 2.5, 2.6),
        ("[eval] iter 100: train 2.5 val 2.6 lr 3.00e-04", 2.5, 2.6),
        ("step 100: train loss nan, val loss inf", None, None),
        ("```step 100: train loss 2.5, val loss 2.6", 2.5, 2.6), ("> step 100: train loss 2.5, val loss 2.6", 2.5, 2.6),
        ("2024-05-04T09:30:00+02:00 step 100: train loss 2.5, val loss 2.6", 2.5, 2.6),
        ("INFO:root:step 100: train loss 2.5, val loss 2.6", 2.5, 2.6),
    ],
)  # fmt: skip
def test_evaluation_is_read(line: str, train: float | None, val: float | None) -> None:
    (evaluation,) = the_run(f"{line}\n{LINE}\n").evaluations
    assert evaluation.at == 100
    if train is not None:
        assert (evaluation.train_loss, evaluation.val_loss) == (train, val)


@pytest.mark.parametrize(
    "line",
    ["step 100: loading data", "At step 100: train loss fell", "step: train loss 2.5", "step 5|6: train loss 1"],
)
def test_other_steps_are_no_evaluations(line: str) -> None:
    assert the_run(f"{line}\n{LINE}\n").evaluations == ()


@pytest.mark.parametrize(
    "line",
    ["saving checkpoint to out", "saving checkpoint", "saving checkpoint to C:\\Users\\me\\out",
     "Saving checkpoint ...",
     "[rank0]: saving checkpoint to out", "2024-05-04 09:30:00,000 saving checkpoint to out", "saved model checkpoint"],
)  # fmt: skip
def test_checkpoint_belongs_to_the_evaluation_above(line: str) -> None:
    (save,) = the_run(f"step 100: train loss 2.5, val loss 2.6\n{line}\n{LINE}\n").checkpoints
    assert save.at == 100


def test_checkpoint_of_its_own_carries_the_number_in_its_name() -> None:
    run = the_run(f"{LINE}\nsaving checkpoint -> out/ckpt_000100.pt\niter 200: loss 4, time 5ms\n")
    assert [save.at for save in run.checkpoints] == [100]


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 100_000, "9" * 19])
def test_checkpoint_number_beyond_all_bounds_is_ignored(digits: str) -> None:
    began = time.process_time()
    (save,) = the_run(f"{LINE}\nsaving checkpoint to out/ckpt{digits}.pt\n").checkpoints
    assert save.at is None
    assert time.process_time() - began < 1


def test_log_without_step_lines_has_no_evaluations() -> None:
    assert the_run("".join(f"iter {i}: loss 4, time 5ms\n" for i in range(50))).evaluations == ()


# --- header ----------------------------------------------------------------------------------------------------------

HEADER = """\
Overriding config with config/train_small.py:
# a small run
out_dir = 'out-small'
eval_interval = 250 # keep frequent
eval_iters = 200#100
#max_iters = 77
wandb_run_name = f'run-{time}'
gradient_accumulation_steps = 5 * 8
batch_size = 12
unknown_thing = 5
Overriding: batch_size = 8
Overriding: max_iters = 6000
tokens per iteration will be: 327,680
found vocab_size = 65 (inside data/small/meta.pkl)
Initializing a new model from scratch
number of parameters: 10.65M
WARNING: using slow attention. Flash Attention requires PyTorch >= 2.0
num decayed parameter tensors: 26, with 10,740,096 parameters
num non-decayed parameter tensors: 13, with 4,992 parameters
using fused AdamW: True
compiling the model... (takes a ~minute)
"""
PREFIXES = ["", "2024-05-04 09:30:00,000 - INFO - ", "[rank0]: ", "2024-05-04T09:30:00.123+02:00 ", "0: ", "(t pid=5) "]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_header_tells_the_settings(prefix: str) -> None:
    run = the_run("".join(f"{prefix}{line}\n" for line in f"{HEADER}{LINE}".splitlines()))
    told = {name: setting.value for name, setting in run.settings.items()}
    expected = {
        "eval_interval": 250, "eval_iters": 200, "gradient_accumulation_steps": 40, "batch_size": 8, "max_iters": 6000,
        "tokens_per_iter": 327680, "vocab_size": 65, "n_params": 10.65e6, "fused": True,
        "compile": True, "flash": False,
    }  # fmt: skip
    assert {name: told.get(name) for name in expected} == expected
    assert run.saved_params == 10745088
    assert run.has_header
    assert not run.resumed


def test_header_glued_to_a_fence_is_read() -> None:
    run = the_run(f"```tokens per iteration will be: 16,384\n{LINE}\n```\n")
    assert run.settings["tokens_per_iter"].value == 16384


@pytest.mark.parametrize(
    "line",
    ["max_iters = 9**9**9", f"max_iters = {'9' * 350}", "dropout = (-8)**0.5", "dtype = '\\ud800'",
     "max_iters = 1e999",
     f"number of parameters: {'9' * 400}M", "number of parameters: ...", "tokens per iteration will be: ,,,",
     f"found vocab_size = {'9' * 5000}", "max_iters = " + "~" * 390 + "1", "batch_size = __import__('os')",
     "x" * 10**6],
)  # fmt: skip
def test_hostile_header_lines_are_passed_over(line: str) -> None:
    began = time.process_time()
    run = the_run(f"{line}\n{LINE}\n")
    assert time.process_time() - began < 1
    assert not {"max_iters", "dropout", "dtype", "n_params", "tokens_per_iter", "vocab_size"} & set(run.settings)


def test_card_launcher_and_logging_work_are_noticed() -> None:
    lines = ["using NVIDIA GeForce RTX 4070", "torchrun --nproc_per_node=8 train.py", "Gradient norm: 2.1", LINE]
    run = the_run("\n".join(lines))
    assert run.gpu_text is not None
    assert "4070" in run.gpu_text
    assert run.distributed
    assert run.busy_when_logging


def test_faults_are_noticed() -> None:
    run = the_run(f"{LINE}\nTraceback (most recent call last):\n  File\nKeyboardInterrupt\n")
    assert [fault.kind for fault in run.faults] == ["traceback", "interrupted"]


# --- noise and wraps -------------------------------------------------------------------------------------------------


def test_unknown_lines_are_counted_and_kept() -> None:
    run = the_run(f"hello there\n\n```\n...\n{LINE}\n\x1b[31mwhat is this\x1b[0m\n")
    assert run.unread_count == 2
    assert [(unread.line, unread.text) for unread in run.unread] == [(0, "hello there"), (5, "what is this")]


@pytest.mark.parametrize("noise", ["tensor([[0.1, 0.2]])\n" * 15_000, "x" * 300_000 + "\n", "iter " * 60_000 + "\n"])
def test_noise_between_two_lines_is_passed_over(noise: str) -> None:
    run = the_run(f"{LINE}\n{noise}iter 200: loss 4.1, time 169ms\n")
    assert numbers_and_times(run) == [(100, 0.1686), (200, 0.169)]


def test_a_megabyte_of_noise_before_the_first_line_does_not_hide_it() -> None:
    for shift in range(0, 60, 14):
        noise = "noise " * ((1 << 20) // 6)
        assert detect(from_text(noise[: (1 << 20) - 2 - shift] + "\n" + LINE)) == "nanogpt"


STAMPED = "2024-05-04 09:30:00,000 " + LINE


def test_a_line_broken_at_any_column_is_read() -> None:
    for line, column, blanks_kept in product([LINE, STAMPED], range(10, 80), [True, False]):
        pieces = [line[:column], line[column:]]
        if not blanks_kept:
            pieces = [piece.rstrip() for piece in pieces]
        broken = "\n".join(piece for piece in pieces if piece)
        text = f"step 0: train loss 4.3, val loss 4.3\n{broken}\niter 200: loss 4.1, time 169ms, mfu 3.2%\n"
        run = the_run(text)
        assert numbers_and_times(run) == [(100, 0.1686), (200, 0.169)], (line, column, blanks_kept)
        assert run.iterations.reported_mfu[0] == 0.0321, (line, column, blanks_kept)
        assert run.iterations.loss[0] == 4.2, (line, column, blanks_kept)
        if line == STAMPED and column > 24:
            assert run.iterations.stamp_s[0] == 1714815000.0, (line, column, blanks_kept)


def test_a_log_wrapped_by_a_narrow_terminal_is_read() -> None:
    for line, width in product([LINE, STAMPED], range(20, 80)):
        lines = [line.replace("100", str(100 + i)) for i in range(9)]
        text = "\n".join(line[i : i + width] for line in lines for i in range(0, len(line), width))
        assert numbers_and_times(the_run(text)) == [(100 + i, 0.1686) for i in range(9)], (line, width)


def test_an_evaluation_broken_at_any_column_is_read() -> None:
    for column in range(10, 48):
        line = "step 100: train loss 2.5123, val loss 2.6123"
        (evaluation,) = the_run(f"{line[:column]}\n{line[column:]}\n{LINE}\n").evaluations
        assert (evaluation.at, evaluation.train_loss, evaluation.val_loss) == (100, 2.5123, 2.6123), column


def test_an_iteration_without_its_end_takes_nothing_from_the_next() -> None:
    lines = ["iter 100: loss 4.2,", "iter 200: loss 4.1, time 169ms", "iter 300: lo", "saving checkpoint", "time 5ms"]
    run = the_run("\n".join(lines))
    assert numbers_and_times(run) == [(200, 0.169)]
    assert len(run.checkpoints) == 1


def test_a_log_cut_anywhere_gives_what_it_holds() -> None:
    for cut in range(1, 140):
        text = f"iter 0: loss 4.3, time 12000.00ms, mfu -100.00%\nstep 100: train loss 4.2, val loss 4.2\n{LINE}\n"
        (run,) = read(from_text(text[:-cut])) if cut < 85 else read(from_text(text))
        assert (0, 12.0) in numbers_and_times(run), cut


# --- excerpts --------------------------------------------------------------------------------------------------------


def test_excerpt_as_people_paste_it_is_read() -> None:
    text = "Look:\n\n```\niter 100: time 168ms\niter 200: time 170ms\n...\niter 900: time 168ms\n```\nand\n```\n"
    text += "step 500: train loss..., val loss...\nsaving checkpoint\niter 500: loss..., time 5985ms\n```\n"
    run = the_run(text)
    assert numbers_and_times(run) == [(100, 0.168), (200, 0.17), (500, 5.985), (900, 0.168)]
    assert [evaluation.at for evaluation in run.evaluations] == [500]
    assert [save.at for save in run.checkpoints] == [500]


def seeds_with_logs() -> list[str]:
    if not SEEDS.is_dir():
        return []
    texts = [path.read_text(encoding="utf-8") for path in sorted(SEEDS.glob("*.txt"))]
    blocks = [block for text in texts for block in text.split("```")[1::2]]
    return [text for text in texts + blocks if "time 1" in text or "time 5" in text]


@pytest.mark.parametrize("text", seeds_with_logs() or [f"```\n{LINE}\n```"], ids=lambda text: f"{len(text)} letters")
def test_notes_that_quote_a_log_are_answered_whole_or_by_their_blocks(text: str) -> None:
    assert len(the_run(text).iterations) > 0


# --- nothing to read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"), (b" \n\t\n", "empty"), (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20, "not text"),
        (b"PK\x03\x04" + bytes(500) + bytes(range(200, 256)) * 50, "not text"),
        (b"\x7fELF" + bytes(range(256)) * 9, "not text"),
        (b"hello\nworld\n", "no iteration found"), ("grüße\n".encode() * 9, "no iteration"),
        (b"import iterators\nepoch 3 loss 4.2 took 5 s\nIteration 7 | 12.5 ms/it\n", "Iteration 7"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told(data: bytes, said: str) -> None:
    with pytest.raises(NoIterations, match=said) as caught:
        read(Source("x.log", normalise(data)))
    assert caught.value.remedy is not None


def test_a_refusal_says_where_the_formats_are_named() -> None:
    with pytest.raises(NoIterations) as caught:
        read(from_text("nothing here"))
    assert caught.value.remedy is not None
    assert "`stepwatch explain --help`" in caught.value.remedy.in_english()
    assert "nanogpt" in str(caught.value.remedy.params["formats"])  # which the page lists


def test_unknown_format_is_told_and_a_known_one_is_taken() -> None:
    with pytest.raises(UsageError, match="no log format"):
        read(from_text(LINE), "cobol")
    assert len(read(from_text(LINE), "nanogpt")) == 1


@pytest.mark.parametrize(
    "lines",
    [
        "iter {n}: loss 4.2279, time 44.46ms, mfu 3.30%, lr 6.00e-04, total time 4.54s\n",
        "step {n}: train loss 2.9, test loss 2.9\niter {n}: loss 4.2279, time 44.46ms, mfu 3.30%\n",
        "step {n}: train loss 2.9 BPC, val loss 2.9 BPC\niter {n}: loss 4.2279 BPC, time 44.46ms, mfu 3.30%\n",
        "Gradient norm: 1.{n}\niter {n}: loss 4.2279, time 44.46ms, mfu 3.30%\n",
        "iter 1{n:07d}: loss 4.2279, time 44.46ms, mfu 3.30%\n",
        "iter {n}: loss 4.2279, time 44.461234567890123ms, mfu 3.30%\n",
    ],
    ids=["total time", "test loss", "units", "gradient norm", "eight digits", "many digits"],
)
def test_lines_of_forks_are_read_about_as_fast_as_nanogpts_own(lines: str) -> None:
    """One by one they would take more than ten times as long."""

    def spent(pattern: str) -> float:
        text = "".join(pattern.format(n=n) for n in range(4000))
        begin = time.process_time()
        run = the_run(text)
        assert (len(run.iterations), run.iterations.time_s[0]) == (4000, pytest.approx(0.04446, rel=1e-3))
        return time.process_time() - begin

    own = "step {n}: train loss 2.9, val loss 2.9\niter {n}: loss 4.2279, time 44.46ms, mfu 3.30%\n"
    spent(lines)
    assert min(spent(lines) for _ in range(3)) < 5 * min(spent(own) for _ in range(3))


def test_every_setting_and_remark_of_our_own_trainer_is_known() -> None:
    settings = [f"{name} = {value!r}" for name, value in TrainConfig().plain().items()]
    remarks = ["recipe=modern without cap: nanoGPT cannot load it", "next: stepwatch explain out/run.jsonl"]
    begin = "stepwatch 0.1.0 trains; times are of the step alone; cpu"
    run = the_run("\n".join([begin, *settings, remarks[0], LINE, remarks[1]]))
    assert run.unread == ()


def test_a_line_whose_clock_is_none_hides_no_others() -> None:
    """The digits tell: what stands in front of the first save is no clock, but as many digits as one."""
    saves = "".join(f"{clock} saving checkpoint to out\n" for clock in ("5714815007.25", "1714815007.25"))
    run = the_run(saves + f"1714815008.25 {LINE}\n")
    assert [save.line for save in run.checkpoints] == [1]
