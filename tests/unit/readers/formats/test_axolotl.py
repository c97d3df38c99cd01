"""axolotl: the Trainer's log with figures of its own."""

from __future__ import annotations

import numpy as np
import pytest
from tests.bars import TrainerLog

from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.readers.formats import reader_of
from stepwatch.run import Timing
from stepwatch.sources import from_text

FIGURES = (
    "'learning_rate': '4.9e-05', 'ppl': '2.046', 'memory/max_active (GiB)': '2.98', "
    "'tokens/train_per_sec_per_gpu': '2210', 'tokens/trainable': 93, 'tokens/total': {tokens}, "
)


def axolotl_log(log: TrainerLog) -> str:
    parts = log.text().split("'learning_rate': '4.9e-05', ")
    text = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        text += FIGURES.format(tokens=512 * log.log_every * number) + part
    return (
        "[2026-03-02 11:10:09,114] [INFO] [axolotl.train] Starting trainer...\n" + text
        + "[2026-03-02 11:20:09,114] [INFO] [axolotl.train] Training completed! Saving trained model to ./out.\n"
    )  # fmt: skip


def test_a_run_is_read() -> None:
    log = TrainerLog(quoted=True, eval_every=100)
    source = from_text(axolotl_log(log))
    assert detect(source) == "axolotl"
    (run,) = read(source)
    true = np.array([log.times[number] for number in range(1, 401)])
    assert abs(np.median(run.iterations.time_s) / np.median(true) - 1) < 0.01
    assert len(run.iterations) == 400
    assert [e.took_s for e in run.evaluations] == [12.5] * 4
    assert [c.at for c in run.checkpoints] == [400]
    assert np.isfinite(run.iterations.loss).sum() == 40
    assert run.settings.count("tokens_per_iter") == 512
    assert run.has_header


def test_older_figures_are_known_too() -> None:
    text = TrainerLog().text().replace("'grad_norm'", "'memory/max_mem_active(gib)': 7.1, 'grad_norm'")
    assert detect(from_text(text)) == "axolotl"


def test_the_last_lines_alone_give_the_mean_of_the_run() -> None:
    source = from_text(
        "{'train_runtime': '158.8', 'train_steps_per_second': '1.638', 'train_loss': '1.567', 'epoch': '1', "
        "'tokens/train_per_sec_per_gpu': '0'}\n100%|██████████| 260/260 [02:38<00:00,  1.64it/s]\n"
    )
    (run,) = read(source)
    assert run.timing is Timing.SPANS_RUN
    assert run.iterations.time_s[0] == pytest.approx(158.8 / 260)


def test_a_line_alone_tells_no_time() -> None:
    line = "{'loss': '0.7157', 'grad_norm': '12.79', " + FIGURES.format(tokens=512) + "'epoch': '0.1333'}"
    source = from_text(line)
    assert detect(source) == "axolotl"
    with pytest.raises(NoIterations, match="nothing in it shows its time"):
        read(source)


def test_each_of_the_two_readers_keeps_to_its_own() -> None:
    own, plain = axolotl_log(TrainerLog(quoted=True)).encode(), TrainerLog(quoted=True).text().encode()
    assert reader_of("hf-trainer").sniff(own) == reader_of("axolotl").sniff(plain) == 0
