"""`stepwatch train` from the outside: nanoGPT's losses, its log, signals, ranks, and input that is wrong."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.checkpoints import killings, small_disk
from tests.calibrations import a_calibration
from tests.forked import (
    Running,
    free_port,
    stepwatch_train,
    stepwatch_train_in_detail,
    stepwatch_train_printing_to,
    stepwatch_train_slowly,
    torchrun_stepwatch_train,
)

from stepwatch import from_file, from_text, read
from stepwatch.analysis import analyse
from stepwatch.analysis.machine import ClockMatch
from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.cli import main
from stepwatch.readers.formats.wandb_records import decode
from stepwatch.run import Timing
from stepwatch.sources.sample_files import read_samples

torch = pytest.importorskip("torch", reason="torch is not installed: the trainer is not tested")

from stepwatch.trainer import generate  # noqa: E402
from stepwatch.trainer.keeper import CheckpointWriter  # noqa: E402
from stepwatch.trainer.loop import TrainingLoop  # noqa: E402
from stepwatch.trainer.resuming import load  # noqa: E402
from stepwatch.trainer.snapshot import Copy  # noqa: E402

TINY = {
    "dataset": "numbers", "device": "cpu", "n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 16, "batch_size": 4,
    "gradient_accumulation_steps": 2, "max_iters": 100, "eval_interval": 50, "eval_iters": 3, "log_interval": 10,
    "learning_rate": 1e-2, "warmup_iters": 10, "lr_decay_iters": 100, "min_lr": 1e-3,
}  # fmt: skip
ROUNDING = 1.01e-4  # both figures have four digits

# Printed by nanoGPT (commit 3adf61e, torch 2.13, one thread of a CPU) for TINY and the data below, with
# --compile=False --dtype=float32 and the flags named here.
BY_NANOGPT: Mapping[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "plain": (
        ("--dropout=0.0",),
        {
            "train 0": 4.1246, "val 0": 4.1212, "0": 4.1092, "10": 3.7223, "20": 2.9272, "30": 2.2880, "40": 1.8639,
            "train 50": 1.4715, "val 50": 1.6441, "50": 1.3583, "60": 1.0318, "70": 1.1590, "80": 1.0543, "90": 0.8744,
            "train 100": 1.1332, "val 100": 1.0928, "100": 1.1261,
        },
    ),
    "dropout and biases": (
        ("--dropout=0.2", "--bias=True", "--grad_clip=0.5"),
        {
            "train 0": 4.1224, "val 0": 4.1162, "0": 4.1159, "10": 3.7394, "20": 3.1387, "30": 2.5757, "40": 2.1890,
            "train 50": 1.6823, "val 50": 1.8848, "50": 1.8336, "60": 1.8477, "70": 1.5465, "80": 1.4989, "90": 1.7964,
            "train 100": 1.1890, "val 100": 1.4821, "100": 1.4982,
        },
    ),
}  # fmt: skip

Train = Callable[..., str]


def numbers(first: int, count: int) -> np.ndarray:
    """Counting by threes, with a second rule that comes and goes: something to learn."""
    i = np.arange(first, first + count)
    return ((3 * i + i // 5 * (i // 97 % 3)) % 61).astype(np.uint16)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    data = tmp_path / "data" / "numbers"
    data.mkdir(parents=True)
    numbers(0, 4000).tofile(data / "train.bin")
    numbers(4000, 1000).tofile(data / "val.bin")
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 61}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANGUAGE", "en")
    return tmp_path


@pytest.fixture
def train(place: Path, capsys: pytest.CaptureFixture[str]) -> Train:
    """Runs the command in this process; what it printed."""

    def run(*flags: str) -> str:
        main(["train", *flags_of(TINY), *flags])
        return capsys.readouterr().out

    return run


def flags_of(settings: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in settings.items()]


def losses(log: str) -> dict[str, float]:
    found = {number: float(loss) for number, loss in re.findall(r"^iter (\d+): loss (\S+),", log, re.M)}
    for number, pairs in re.findall(r"^step (\d+): (.*)$", log, re.M):
        found |= {f"{split} {number}": float(loss) for split, loss in re.findall(r"(\w+) loss (\S+?)(?:,|$)", pairs)}
    return found


def recorded(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- the same training ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NANOGPT)
def test_the_losses_are_nanogpts(train: Train, name: str) -> None:
    flags, expected = BY_NANOGPT[name]
    assert losses(train(*flags)) == pytest.approx(expected, abs=ROUNDING)


def test_trackers_hold_the_figures_of_the_evaluations(
    train: Train, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: wandb_log is not tested")
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed: tensorboard_log is not tested",
    )
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(place)}.items():
        monkeypatch.setenv(name, value)
    _, expected = BY_NANOGPT["plain"]
    said = losses(train("--wandb_log=True", "--tensorboard_log=True"))
    assert said == pytest.approx(expected, abs=ROUNDING)  # nobody draws random numbers for it
    events = accumulator.EventAccumulator(str(place / "out")).Reload()
    for split in ("train", "val"):
        found = {f"{split} {event.step}": event.value for event in events.Scalars(f"{split}/loss")}
        assert found == pytest.approx({key: loss for key, loss in expected.items() if split in key}, abs=ROUNDING)
    (file,) = (place / "out" / "wandb").glob("offline-run-*/run-*.wandb")
    rows = [row for row in decode(file.read_bytes()).history if "val/loss" in row]
    assert [row["iter"] for row in rows] == [0, 50, 100]
    assert [row["val/loss"] for row in rows] == pytest.approx(
        [expected[f"val {number}"] for number in (0, 50, 100)], abs=ROUNDING
    )


@pytest.mark.parametrize("setting", ["wandb_log", "tensorboard_log"])
def test_a_tracker_that_is_missing_is_said_at_the_start(
    train: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    for package in ("wandb", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as ended:
        train(f"--{setting}=True")
    assert ended.value.code == 1
    assert f"{setting}=True needs {setting.removesuffix('_log')}" in capsys.readouterr().err


def test_an_evaluation_in_other_batches_has_the_same_result(train: Train) -> None:
    _, expected = BY_NANOGPT["plain"]
    assert losses(train("--eval_batch_size=5")) == pytest.approx(expected, abs=ROUNDING)


def by_ranks(count: int, *flags: str) -> str:
    """What the ranks of a training say together."""
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    places = ({"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count))
    ranks = [Running(stepwatch_train, *flags_of(TINY), *flags, environment=shared | place) for place in places]
    codes, logs, errors = zip(*(rank.ended() for rank in ranks), strict=True)
    assert not any(codes), errors
    return "".join(logs)


def test_any_number_of_ranks_has_the_losses_of_one(train: Train, place: Path) -> None:
    flags = ["--eval_interval=4", "--log_interval=1", "--gradient_accumulation_steps=6"]
    alone = losses(train(*flags, "--max_iters=8", "--out_dir=one"))
    alone_modern = losses(train(*flags, "--max_iters=5", "--recipe=modern", "--out_dir=one_modern"))
    shared = [*flags, "--max_iters=5"]  # saved at its end, with 6 to come
    resumed = [*shared, "--init_from=auto", "--max_iters=8", "--keep=2"]
    logs = [
        by_ranks(2, *shared, "--out_dir=ddp"),
        by_ranks(2, *shared, "--out_dir=two", "--sharding=fsdp"),
        by_ranks(3, *resumed, "--out_dir=two", "--sharding=fsdp", "--activation_checkpointing=True"),
        by_ranks(2, *resumed, "--out_dir=ddp", "--sharding=fsdp"),
    ]
    modern = by_ranks(2, *shared, "--recipe=modern", "--out_dir=modern")
    assert losses(modern) == pytest.approx(alone_modern, abs=ROUNDING)
    last = {name: alone[name] for name in ("6", "7", "train 8", "val 8", "8")}
    first = {name: loss for name, loss in alone.items() if name not in last}
    exact = [line["loss"] for line in recorded(place / "one" / "run.jsonl") if "step" in line]
    for name in ("ddp", "two"):
        together = [line["loss"] for line in recorded(place / name / "run.jsonl") if "step" in line]
        assert together == pytest.approx(exact, abs=1e-5)
        assert sum("wait_s" in line for line in recorded(place / name / "run.rank1.jsonl")) == 9
    shutil.rmtree(place / "two" / "ckpt_sharded_8")
    main(["convert", "two", "whole/ckpt.pt"])
    whole, parts = load(place / "whole" / "ckpt.pt"), load(place / "two" / "ckpt_sharded_6")
    assert whole["iter_num"] == parts["iter_num"] == 6
    assert all(torch.equal(weight, whole["model"][name]) for name, weight in parts["model"].items())
    for name in ("two", "whole"):
        logs.append(train(*flags, f"--out_dir={name}", "--init_from=resume", "--max_iters=8"))
    for expected, log in zip((first, first, last, last, last, last), logs, strict=True):
        assert losses(log) == pytest.approx(expected, abs=ROUNDING)


def test_two_machines_go_on_by_themselves_when_a_rank_is_killed(train: Train, place: Path) -> None:
    flags = ["--eval_interval=1000", "--log_interval=1", "--max_iters=12", "--checkpoint_interval=4"]
    alone = losses(train(*flags, "--out_dir=one"))
    place_to_meet = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    agent = ["--nnodes=2", "--nproc_per_node=1", "--max-restarts=1", "--rdzv-backend=c10d", place_to_meet, "--"]
    ours = [*flags_of(TINY), *flags, "--out_dir=two", "--sharding=fsdp", "--init_from=auto"]
    agents = [Running(torchrun_stepwatch_train, "two/ckpt_sharded_*[0-9]", *agent, *ours) for _ in range(2)]
    try:
        codes, said, errors = zip(*(agent.ended() for agent in agents), strict=True)
    finally:
        for agent in agents:
            agent.process.terminate()  # which ends its ranks too
            agent.process.join()
    assert codes == (0, 0), errors
    logs = "".join(said)
    assert logs.count("Resuming training from two") == 1
    assert losses(logs) == pytest.approx({name: alone[name] for name in losses(logs)}, abs=ROUNDING)
    found = {name for name in losses(logs) if name.isdigit()}
    assert found == {name for name in alone if name.isdigit()}
    before, after = explain(ExplainRequest(logs=(str(place / "two" / "run.jsonl"),))).runs
    (told,) = (finding for finding in after.analysis.findings if finding.code == "restart")
    assert told.message.params["begin"] == after.analysis.run.iterations.number[0] > 0
    assert told.message.params["reached"] == before.analysis.run.iterations.number[-1]


# --- the log ----------------------------------------------------------------------------------------------------


def test_the_log_and_the_record_say_the_same(train: Train, place: Path) -> None:
    (place / "train.log").write_text(train("--log_interval=1", "--max_iters=90"))  # with a last save at 91
    (log,) = read(from_file(str(place / "train.log")))
    (record,) = read(from_file(str(place / "out" / "run.jsonl")))
    assert (log.timing, log.holds) == (Timing.SPANS_STEP, frozenset())
    assert not log.unread_count, log.unread
    assert log.iterations.number.tolist() == record.iterations.number.tolist() == list(range(91))
    apart_s = np.abs(log.iterations.time_s - record.iterations.time_s)
    assert np.quantile(apart_s, 0.1) < 1e-3  # on a busy machine others run while the line is printed
    assert log.iterations.loss == pytest.approx(record.iterations.loss, abs=ROUNDING)
    for ours, theirs in ((log.evaluations, record.evaluations), (log.checkpoints, record.checkpoints)):
        assert [event.at for event in ours] == [event.at for event in theirs]
        assert [event.took_s for event in ours] == pytest.approx([event.took_s for event in theirs], abs=0.1)
    assert [save.at for save in log.checkpoints] == [50, 91]
    saved_s = [analyse(run).goodput.parts_s["checkpoint"] for run in (log, record)]
    assert saved_s[0] == pytest.approx(saved_s[1], abs=1e-4)
    assert load(place / "out" / "ckpt.pt")["iter_num"] == 91
    assert log.settings["eval_iters"].value == record.settings["eval_iters"].value == 3
    (found,) = (line["settings"] for line in recorded(place / "out" / "run.jsonl")[1:] if "settings" in line)
    assert found["peak_memory_bytes"] > 1e8  # torch alone takes more  # type: ignore[index]
    assert analyse(log).costs.how["eval_s"] == analyse(log).costs.how["checkpoint_s"] == "measured"


def test_the_estimate_is_held_against_the_run_and_steady_steps_are_traced(
    train: Train, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwatch.gpus.this_machine.load_calibration", a_calibration)
    monkeypatch.setattr("stepwatch.trainer.log._OFTEN_S", 0.0)
    log = train("--profile=True", "--max_iters=40", "--log_interval=1")
    assert re.search(r"; mfu of its 0\.1000 TFLOPS$", log, re.M) if torch.get_num_threads() == 2 else True
    expected = re.search(r"^estimate of the run: step ([\d.]+)ms \(([\d.]+) to ([\d.]+)\), .*: fits$", log, re.M)
    assert expected is not None
    found = re.search(r"^estimate against the run: step ([\d.]+)ms, (as|less than|more than) estimated: ", log, re.M)
    assert found is not None
    step, low, high = (float(number) for number in (found[1], expected[2], expected[3]))
    assert found[2] == ("less than" if step < low else "more than" if step > high else "as")
    times = [float(time) for time in re.findall(r"^iter .* time ([\d.]+)ms", log, re.M)]
    assert step == pytest.approx(np.median(times), abs=0.01)
    assert "evaluation at 0: 6 of 6 batches" in log
    (run,) = read(from_text(log))
    assert not run.unread_count, run.unread
    assert "profile of iterations 10 to 14: out/profile.json" in log
    events = json.loads((place / "out" / "profile.json").read_text())["traceEvents"]
    assert sum(event["name"] == "Optimizer.step#AdamW.step" for event in events) == 5


def test_nothing_is_trained_after_the_end(train: Train, place: Path) -> None:
    train("--max_iters=12", "--eval_interval=10", "--always_save_checkpoint=False")
    assert load(place / "out" / "ckpt.pt")["iter_num"] == 10  # the best
    assert load(place / "out" / "ckpt_stopped_13.pt")["iter_num"] == 13
    log = train("--max_iters=12", "--init_from=resume")
    assert "iteration 13 is next: nothing to train" in log
    assert not losses(log)


def test_samples_of_the_machine_lie_beside_the_record_and_explain_it(place: Path) -> None:
    process, file = started("--samples", program=stepwatch_train_slowly), place / "out" / "run.samples.csv"
    while not file.exists() or file.read_text().count("\n") < 10:  # eight samples, some of them before the first step
        assert process.process.is_alive()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.ended()[0] == 0
    sampled = read_samples(file)
    (run,) = explain(ExplainRequest(logs=(str(place / "out" / "run.jsonl"),))).runs
    assert run.analysis.machine is not None
    assert run.analysis.machine.clock is ClockMatch.STAMPS
    assert len(run.analysis.machine.samples) == len(sampled) > 0
    assert (sampled.machine["processes"] == 1).all(), "the sampler itself is no part of the training"


def test_an_iteration_that_stands_for_several_shows_their_mean(train: Train, place: Path) -> None:
    (place / "train.log").write_text(train())
    (log,) = read(from_file(str(place / "train.log")))
    steps = [line["s"] for line in recorded(place / "out" / "run.jsonl") if "step" in line]
    assert log.timing == Timing.SPANS_LOG_INTERVAL
    means = np.reshape(steps[1:], (10, 10)).mean(axis=1)
    assert np.median(np.abs(log.iterations.time_s[1:] - means)) < 1e-3


def test_saves_have_an_interval_of_their_own_and_one_split_is_enough(train: Train) -> None:
    log = train("--max_iters=20", "--eval_interval=10", "--checkpoint_interval=8", "--eval_splits=val")
    assert re.findall(r"^checkpoint at (\d+): waited", log, re.M) == ["8", "16", "21"]
    assert re.findall(r"^checkpoint at (\d+): written", log, re.M) == ["8", "16", "21"]
    assert re.findall(r"^step (\d+): val loss [\d.]+$", log, re.M) == ["0", "10", "20"]


def test_waiting_for_a_copy_is_the_checkpoints_and_not_the_steps(
    train: Train, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--log_interval=1", "--max_iters=10", "--eval_interval=10", "--n_embd=128")  # tensors beyond _AT_ONCE
    train(*flags)
    plain = load(place / "out" / "ckpt.pt")["model"]
    finish, settle = Copy.finish, CheckpointWriter.settle

    def slow(copy: Copy) -> None:
        time.sleep(0.2)
        finish(copy)

    def said_to_last_long(keeper: CheckpointWriter) -> float:
        return settle(keeper) + 1000.0

    monkeypatch.setattr(Copy, "finish", slow)
    monkeypatch.setattr(CheckpointWriter, "settle", said_to_last_long)
    log = train(*flags)
    lines = (r"^checkpoint at 10: waited (\S+)ms", r"^iter 10:.*? time (\S+)ms")
    waited, taken = (float(re.findall(line, log, re.M)[0]) for line in lines)
    assert waited > 1e6
    assert taken < 0  # those seconds were taken off, though they did not pass
    (step,) = (line["s"] for line in recorded(place / "out" / "run.jsonl")[-8:] if line.get("step") == 10)
    assert step < 0
    saved = load(place / "out" / "ckpt.pt")
    assert saved["iter_num"] == 10
    assert all(torch.equal(weight, plain[name]) for name, weight in saved["model"].items())


def test_a_run_goes_on_where_it_was_saved(train: Train, place: Path) -> None:
    train("--max_iters=20", "--eval_interval=20")
    log = train("--init_from=resume", "--max_iters=40", "--eval_interval=20", "--n_layer=3")
    assert "Resuming training from out" in log
    assert [name for name in losses(log) if name.isdigit()] == ["20", "30", "40"]
    assert max(losses(log)[f"val {at}"] for at in (20, 40)) < BY_NANOGPT["plain"][1]["val 0"] - 0.5
    (_, again) = read(from_file(str(place / "out" / "run.jsonl")))
    assert again.iterations.number[0] == 20


@pytest.mark.parametrize("flags", [("--dropout=0.2",), ("--eval_interval=7", "--checkpoint_interval=4")])
def test_a_run_that_was_interrupted_has_the_losses_of_one_that_was_not(
    train: Train, place: Path, flags: tuple[str, ...]
) -> None:
    flags = ("--max_iters=40", "--eval_interval=10", "--log_interval=1", *flags)
    whole = losses(train(*flags, "--out_dir=whole"))
    parts = losses(train(*flags, "--max_iters=17"))  # what came after its last save is trained again
    for stop in (18, 19, 20, 21, 23, 29, 31, 33, 34, 36):

        def step_and_stop(
            loop: TrainingLoop, number: int, at: int = stop, step: Callable[..., float | None] = TrainingLoop.step
        ) -> float | None:
            loss = step(loop, number)
            loop.stopping = number == at
            return loss

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(TrainingLoop, "step", step_and_stop)
            log = train(*flags, "--init_from=resume")
        assert f"after iteration {stop}" in log
        parts |= losses(log)
    parts |= losses(train(*flags, "--init_from=resume"))
    assert parts == whole


def test_killed_at_random_moments_the_checkpoint_is_whole_and_recent(tmp_path: Path) -> None:
    assert killings(tmp_path, times=10, seed=1).lost == []


def test_a_longer_block_than_the_checkpoints_is_refused(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    train("--max_iters=0")
    longer = 2 * int(TINY["block_size"])
    with pytest.raises(SystemExit):
        train("--init_from=resume", f"--block_size={longer}")
    assert f"block_size {TINY['block_size']} ≠ {longer}" in capsys.readouterr().err


def test_evaluating_only(train: Train, place: Path) -> None:
    log = train("--eval_only=True")
    assert losses(log) == pytest.approx({"train 0": 4.1246, "val 0": 4.1212}, abs=ROUNDING)
    assert not (place / "out" / "ckpt.pt").exists()


# --- what it has learnt -----------------------------------------------------------------------------------------

# By nanoGPT's sample.py from this checkpoint: --num_samples=2 --max_new_tokens=40 --start=ADG, float32 on a CPU.
SAMPLED_BY_NANOGPT = """\
ADGJMPSVYYZ]dgjmpvv|BBEHKNQTWZ]]`cfijFILORT
---------------
ADGJPSVZ]``cfilllpsvy|EHKPSVwY\\___bcflorruu
---------------
"""


def letters(first: int, count: int) -> bytes:
    named = [chr(first + token) for token in range(count)]
    return pickle.dumps({"vocab_size": count, "itos": dict(enumerate(named)),
                         "stoi": {letter: token for token, letter in enumerate(named)}})  # fmt: skip


def test_samples_are_nanogpts(train: Train, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train()
    meta = place / "data" / "numbers" / "meta.pkl"
    meta.write_bytes(letters(ord("A"), 61))
    main(["sample", "--num_samples=2", "--max_new_tokens=40", "--start=ADG", "--device=cpu"])
    assert capsys.readouterr().out == SAMPLED_BY_NANOGPT
    (place / "prompt.txt").write_text("ADG")
    main(["sample", "out/ckpt.pt", "--prompt=ADG", "--num_samples=2", "--max_new_tokens=40", "--device=cpu"])
    assert capsys.readouterr().out == SAMPLED_BY_NANOGPT
    main(["sample", "--out_dir=out/ckpt.pt", "--start=FILE:prompt.txt", "--num_samples=1", "--max_new_tokens=40",
          "--device=cpu"])  # fmt: skip
    assert capsys.readouterr().out == SAMPLED_BY_NANOGPT[: len(SAMPLED_BY_NANOGPT) // 2]
    for flags, said in (
        (["--start=ÄDG"], "does not know the character Ä"),
        (["--start="], "no text to continue"),
        (["--out_dir=nowhere"], "there is no file"),
        (["--dataset=nowhere"], "vocabulary of this model is not known"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["sample", *flags, "--device=cpu"])
        captured = capsys.readouterr()
        assert left.value.code
        assert said in captured.err
        assert "init_from" not in captured.err
        assert not captured.out
    meta.write_bytes(pickle.dumps({"vocab_size": 61}))
    with pytest.raises(SystemExit):
        main(["sample", "--device=cpu"])
    assert "not a vocabulary" in capsys.readouterr().err


def test_bytes_become_text_again_where_a_character_takes_several(place: Path) -> None:
    (place / "data" / "bytes").mkdir()
    (place / "data" / "bytes" / "meta.pkl").write_bytes(letters(0, 256))
    vocabulary = generate.vocabulary_of({"model_args": {"vocab_size": 256}}, "bytes")
    assert "".join(vocabulary.pieces(iter(vocabulary.encode("Größe 字")))) == "Größe 字"


# --- ends -------------------------------------------------------------------------------------------------------


def started(*flags: str, until: str = "iter 3:", program: Callable[..., None] = stepwatch_train_in_detail) -> Running:
    """A run without an end, in its loop."""
    endless = flags_of({**TINY, "max_iters": 10**6, "eval_interval": 10**6, "log_interval": 1})
    process = Running(program, *endless, *flags)
    for line in process.out:
        if line.startswith(until):
            break
    return process


def test_a_signal_ends_the_step_saves_and_leaves(place: Path) -> None:
    process = started()
    process.send_signal(signal.SIGTERM)
    code, log, _ = process.ended()
    assert code == 0
    stopped = re.search(r"^stopped by SIGTERM after iteration (\d+)$", log, re.M)
    assert stopped is not None
    saved = torch.load(place / "out" / "ckpt.pt", weights_only=True)
    assert saved["iter_num"] == int(stopped[1]) + 1


@pytest.mark.parametrize("output", ["-", "/dev/full", ""], ids=["a reader who leaves", "a full disk", "none"])
def test_a_log_that_cannot_be_written_ends_no_training(place: Path, output: str) -> None:
    if output == "/dev/full" and not os.path.exists(output):
        pytest.skip("this system has no /dev/full")
    process = Running(stepwatch_train_printing_to, output, *flags_of({**TINY, "max_iters": 30, "log_interval": 1}))
    if output == "-":
        process.out.readline()
        process.out.close()
    code, _, error = process.ended()
    assert load(place / "out" / "ckpt.pt")["iter_num"] == 31  # 0 to 30 are done
    assert error.count("the log cannot be written") == bool(output)
    assert code == 0


def test_a_second_signal_ends_at_once(place: Path) -> None:
    process = started()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    code, _, _ = process.ended()
    assert code in (128 + signal.SIGINT, 128 + signal.SIGTERM)


def test_a_stop_in_a_fresh_run_leaves_what_an_older_one_saved(train: Train, place: Path) -> None:
    train("--max_iters=20", "--eval_interval=20")
    process = started()
    process.send_signal(signal.SIGINT)
    _, _, error = process.ended()
    assert "SIGINT: stopping, and saving" in error
    assert load(place / "out" / "ckpt.pt")["iter_num"] == 20
    (beside,) = (place / "out").glob("ckpt_stopped_*.pt")
    at = load(beside)["iter_num"]
    log = train("--init_from=resume", f"--max_iters={at + 1}", "--log_interval=1")
    assert f"the newest checkpoint is {beside.name}" in log
    assert f"iter {at}: " in log


def test_a_stop_is_served_inside_an_evaluation(train: Train, place: Path) -> None:
    train("--max_iters=20", "--eval_interval=20", "--always_save_checkpoint=False")
    # Seconds of evaluation after two steps.
    process = started(
        "--init_from=resume", "--eval_interval=22", "--eval_iters=20000", "--always_save_checkpoint=False",
        until="evaluation at 22:",
    )  # fmt: skip
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code, log, error = process.ended()
    assert time.monotonic() - asked < 20
    assert code == 0
    assert "SIGTERM: stopping" in error
    assert "stopped by SIGTERM in the evaluation at 22" in log
    assert load(place / "out" / "ckpt.pt")["iter_num"] == 20
    assert load(place / "out" / "ckpt_stopped_22.pt")["iter_num"] == 22
    assert '"eval":22' not in (place / "out" / "run.jsonl").read_text()


def test_a_directory_without_room_is_refused_before_the_training(
    train: Train, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(place / "disk", 1) as disk:
        if disk is None:
            pytest.skip("only root can make a disk that is full")
        with pytest.raises(SystemExit) as ended:
            train("--out_dir=disk")
        assert ended.value.code == 1
        said = capsys.readouterr()
        assert "“disk” cannot be written: no room on the disk" in said.err
        assert "iter 0" not in said.out


def test_a_last_save_that_failed_is_an_error(
    train: Train, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwatch.trainer.keeper.replace", lambda *given: "no space left on device")
    with pytest.raises(SystemExit) as ended:
        train("--max_iters=20", "--eval_interval=10")
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert "checkpoint at 20: not written (no space left on device); this run has none before it" in said.out
    assert "the last checkpoint, of iteration 20, was not written: no space left on device" in said.err
    assert "left no checkpoint" in said.err


def moments_of_another_shape(saved: dict[str, Any]) -> None:
    saved["optimizer"]["state"][1]["exp_avg"] = torch.zeros(3)


def a_negative_second_moment(saved: dict[str, Any]) -> None:
    saved["optimizer"]["state"][0]["exp_avg_sq"] -= 1


def a_missing_moment(saved: dict[str, Any]) -> None:
    del saved["optimizer"]["state"][0]["exp_avg"]


def no_state(saved: dict[str, Any]) -> None:
    saved["optimizer"]["state"] = [1, 2]


def one_group(saved: dict[str, Any]) -> None:
    del saved["optimizer"]["param_groups"][1]


def a_beta_of_two(saved: dict[str, Any]) -> None:
    saved["optimizer"]["param_groups"][0]["betas"] = (2.0, 0.9)


def steps_below_zero(saved: dict[str, Any]) -> None:
    saved["optimizer"]["state"][0]["step"] = torch.tensor(-3.0)


@pytest.mark.parametrize(
    "spoil",
    [moments_of_another_shape, a_negative_second_moment, a_missing_moment, no_state, one_group, a_beta_of_two,
     steps_below_zero],
)  # fmt: skip
def test_an_optimizer_that_does_not_fit_is_refused(
    train: Train, place: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[dict[str, Any]], None]
) -> None:
    train("--max_iters=2", "--eval_interval=2")
    saved = torch.load(place / "out" / "ckpt.pt", weights_only=True)
    spoil(saved)
    torch.save(saved, place / "out" / "ckpt.pt")
    with pytest.raises(SystemExit) as ended:
        train("--init_from=resume", "--max_iters=4")
    assert ended.value.code == 1
    assert "the optimizer in the checkpoint does not fit the model" in capsys.readouterr().err


def test_sizes_that_the_weights_do_not_have_take_no_memory(
    train: Train, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train("--max_iters=2", "--eval_interval=2")
    saved = torch.load(place / "out" / "ckpt.pt", weights_only=True)
    for size in ("n_layer", "vocab_size", "block_size"):
        torch.save(saved | {"model_args": saved["model_args"] | {size: 2**30}}, place / "out" / "ckpt.pt")
        with pytest.raises(SystemExit):
            train("--init_from=resume", "--max_iters=4")
        assert "do not fit its own model_args" in capsys.readouterr().err


def test_a_run_goes_on_with_a_shorter_block(train: Train) -> None:
    train("--max_iters=10", "--eval_interval=10")
    log = train("--init_from=resume", "--max_iters=12", "--log_interval=1", "--block_size=8")
    assert losses(log)["12"] < BY_NANOGPT["plain"][1]["0"]


def test_a_loss_that_is_no_number_ends_the_run_and_leaves_the_checkpoint(
    train: Train, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train("--max_iters=20", "--eval_interval=10")
    good = (place / "out" / "ckpt.pt").read_bytes()
    with pytest.raises(SystemExit) as ended:
        train("--init_from=resume", "--max_iters=60", "--eval_interval=5", "--learning_rate=1e20", "--grad_clip=0.0")
    assert ended.value.code == 1
    assert "no longer finite" in capsys.readouterr().err
    assert (place / "out" / "ckpt.pt").read_bytes() == good


def test_told_so_it_goes_on_without_a_number_but_saves_nothing(train: Train, place: Path) -> None:
    flags = ("--max_iters=30", "--eval_interval=15", "--learning_rate=1e20", "--grad_clip=0.0", "--on_nan=continue")
    log = train(*flags)
    assert "iter 30: loss nan" in log
    assert "checkpoint at 30: left out" in log
    assert not (place / "out" / "ckpt.pt").exists()


# --- input that is wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--batchsize=3"], 2, "batch_size"), (["--n_layer=x"], 2, "above zero"), (["--n_layer=0"], 2, "above zero"),
        (["--n_head=3"], 2, "multiple of n_head"), (["--compile=3"], 2, "True or False"),
        (["--dropout=1"], 2, "below 1"),
        (["--on_nan=perhaps"], 2, "stop | continue"), (["-x"], 2, "--key=value"), (["a.py", "b.py"], 1, "no file"),
        (["--device=nowhere"], 1, "device"), (["--dataset=none"], 1, "prepare"), (["missing.py"], 1, "no file"),
        (["--block_size=5000"], 1, "4,000 tokens"), (["--out_dir=data/numbers/train.bin"], 1, "--out_dir"),
        (["--init_from=resume"], 1, "ckpt.pt"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(
    train: Train, capsys: pytest.CaptureFixture[str], flags: list[str], code: int, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        train(*flags)
    error = capsys.readouterr().err
    assert ended.value.code == code
    assert said in error
    assert len(error.splitlines()) == 2


def test_a_vocabulary_that_does_not_fit(train: Train, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "data" / "numbers" / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 50}))
    with pytest.raises(SystemExit):
        train()
    assert "vocabulary" in capsys.readouterr().err


def test_a_config_is_read_and_not_executed(train: Train, place: Path) -> None:
    told = "import time\nn = 5\nmax_iters = n * 2\nwandb_run_name = 'run' + str(time.time())\nraise SystemExit\n"
    (place / "config.py").write_text(told)
    log = train("config.py", "--max_iters=1")
    assert "max_iters = 1\n" in log
    assert "left out of config.py" in log
    (place / "other.py").write_text("batchsize = 3\n")
    with pytest.raises(SystemExit) as ended:
        train("other.py")
    assert ended.value.code == 2


def test_files_and_flags_override_what_came_before_them(train: Train, place: Path) -> None:
    (place / "one.py").write_text("max_iters = 1\neval_iters = 2\nlog_interval = pick()\n")
    (place / "two.py").write_text("eval_iters = 4\n")
    log = train("--eval_iters=9", "one.py", "--log_interval=1", "two.py", "--out_dir=here")
    assert [line for line in log.splitlines() if line.startswith(("max_it", "eval_it", "log_int", "out_d"))] == [
        "out_dir = 'here'", "log_interval = 1", "eval_iters = 4", "max_iters = 1",
    ]  # fmt: skip


def test_without_torch_the_command_to_install_it_is_named(place: Path) -> None:
    (place / "torch").mkdir()
    (place / "torch" / "__init__.py").write_text("raise ImportError('not here')\n")
    environment = {**os.environ, "PYTHONPATH": f"{place}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-m", "stepwatch", "train"], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 1
    assert 'pip install "stepwatch[train]"' in done.stderr
