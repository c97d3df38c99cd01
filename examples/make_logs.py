"""Writes the example logs of this directory: `python -m examples.make_logs`.

Each is played by the builder of the tests from costs that are stated here, so that an answer can be checked.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.builders import Record, Saves, Shape, Truth, a_run

PLACE = Path(__file__).parent

# 30 million parameters on an RTX 4070: 24,576 tokens in 168 ms are 28 TFLOPS, about half of what the card can do.
SMALL = Truth(
    seed=4070, log_interval=100, eval_interval=500, eval_iters=200, step_s=0.1686, eval_s=5.1, checkpoint_s=0.47,
    compile_s=7.26, noise=0.004, eval_noise=0.004, checkpoint_noise=0.03, batch_size=12, gradient_accumulation=4,
    shape=Shape(n_layer=6, n_head=6, n_embd=384, vocab_size=50304, block_size=512), out_dir="out-30m",
)  # fmt: skip

# GPT-2 of 124 million parameters: every second evaluation falls between two logged iterations.
GPT2 = Truth(
    seed=124, max_iters=5000, log_interval=20, eval_interval=250, eval_iters=100, step_s=1.93, eval_s=15.9,
    checkpoint_s=3.0, compile_s=41.0, saves=Saves.ALWAYS, noise=0.006, eval_noise=0.006, batch_size=8,
    gradient_accumulation=8, kept=0.6, out_dir="out-gpt2",
    shape=Shape(n_layer=12, n_head=12, n_embd=768, vocab_size=50304, block_size=1024),
)  # fmt: skip

SLEEP_AT, SLEEP_S = 2730, 6 * 3600.0 + 11 * 60
INTERRUPT = 'Traceback (most recent call last):\n  File "train.py", line 301, in <module>\nKeyboardInterrupt\n'


def short() -> str:
    """The beginning of a run, without its header: what people paste into a chat."""
    return _text(a_run(replace(SMALL, seed=4071, max_iters=1600, header=False)))


def nanogpt() -> str:
    """6,000 iterations without a header, evaluations with and without a checkpoint."""
    return _text(a_run(replace(SMALL, max_iters=6000, header=False)))


def gpt2() -> str:
    """Cut at three fifths, with its header, so that the end can be foretold."""
    return _text(a_run(GPT2))


def resumed() -> str:
    """Interrupted by hand after a while, and taken up again from the last checkpoint."""
    truth = replace(SMALL, seed=7, log_interval=50, max_iters=4000, saves=Saves.ALWAYS)
    begun = a_run(replace(truth, kept=0.42))
    last_save = int(begun.number[begun.saved & begun.seen][-1])
    return _text(begun) + INTERRUPT + _text(a_run(replace(truth, seed=8, first_iter=last_save)))


def laptop_sleep() -> str:
    """A laptop whose lid was closed for six hours in one iteration."""
    record = a_run(replace(SMALL, seed=9, log_interval=10, max_iters=4000, step_s=0.213, eval_s=6.4, noise=0.015))
    asleep = record.stall_s.copy()
    asleep[SLEEP_AT] = SLEEP_S
    return _text(replace(record, stall_s=asleep))


def _text(record: Record) -> str:
    """The log in the words of a user's own config instead of the builder's."""
    words = {
        "# a planted run: every cost in this log is known": "# an example, written by examples/make_logs.py",
        " # planted": "", "train_planted": "train_gpt2", "'planted'": "'openwebtext'",
    }  # fmt: skip
    text = record.text
    for old, new in words.items():
        text = text.replace(old, new)
    return text


LOGS = {
    "short.log": short,
    "nanogpt-4070.log": nanogpt,
    "gpt2-124m-4070.log": gpt2,
    "resumed.log": resumed,
    "laptop-sleep.log": laptop_sleep,
}


def main() -> None:
    for name, make in LOGS.items():
        (PLACE / name).write_text(make(), encoding="utf-8", newline="\n")
        print(f"wrote examples/{name}")


if __name__ == "__main__":
    main()
