"""W&B's own file of a run: framing, damage, and the rows of its history, with files that are written here."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wandb_files import BEGIN_S, BLOCK, framed, history, items, part, printed, started, varint

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.readers.formats.wandb_records import _items, _plain_items, decode
from stepwatch.run import Run
from stepwatch.sources import from_bytes


def training(steps: int = 40, every_s: float = 2.0, **more: object) -> list[bytes]:
    rows = [started({"max_steps": 100, "per_device_train_batch_size": 4, "logging_steps": 1})]
    wall = BEGIN_S + 3
    for step in range(1, steps + 1):
        wall += every_s
        row = {"train__loss": 3.0, "train__global_step": step, "_timestamp": wall, "_step": len(rows)}
        rows.append(history(**row, **more))
        if step % 10 == 0:
            wall += 7.5
            evaluation = {"eval__loss": 2.5, "eval__runtime": 7.5, "train__global_step": step, "_timestamp": wall}
            rows.append(history(**evaluation, _step=len(rows)))
    return rows


def the_run(*messages: bytes) -> Run:
    (run,) = read(from_bytes(framed(*messages), "run-a1.wandb"))
    return run


def test_times_are_those_between_two_losses_without_evaluations() -> None:
    run = the_run(*training())
    assert run.format == "wandb-file"
    assert run.iterations.number.tolist() == list(range(1, 41))
    assert run.iterations.time_s[1:].tolist() == pytest.approx([2.0] * 39)
    assert [(each.at, each.took_s) for each in run.evaluations] == [(at, pytest.approx(7.5)) for at in (10, 20, 30, 40)]
    assert run.settings.count("max_iters") == 100
    assert run.settings.count("batch_size") == 4
    assert analyse(run).costs.step_s.mid == pytest.approx(2.0)


def test_records_go_over_blocks_and_keep_all_values() -> None:
    values = {"text": "ü" * 50_000, "none": None, "yes": True, "list": [1, {"a": 2.5}], "_step": 7}
    found = decode(framed(part(2, items(values)), history(loss=1.5)))
    assert found.history == [values, {"loss": 1.5}]
    assert found.damaged == 0


def test_newer_versions_have_fields_for_plain_values() -> None:
    item = lambda key, rest: part(1, part(1, key) + rest)  # noqa: E731
    row = (
        item(b"flag", b"\x20\x01") + item(b"count", b"\x28" + varint(2 * 700)) + item(b"below", b"\x28\x05")
        + item(b"loss", b"\x31" + struct.pack("<d", 0.25)) + item(b"word", part(7, b"x"))
        + item(b"all", part(8, b"[1]"))
        + part(1, part(2, b"a") + part(2, b"b") + part(16, b"3"))
    )  # fmt: skip
    expected = {"flag": True, "count": 700, "below": -3, "loss": 0.25, "word": "x", "all": [1], "a.b": 3}
    assert decode(framed(part(2, row))).history == [expected]


def test_a_file_that_is_cut_gives_what_was_complete() -> None:
    whole = framed(*training())
    for size in range(len(whole) - 60, len(whole)):
        (run,) = read(from_bytes(whole[:size], "run-a1.wandb"))
        assert run.iterations.number[-1] == 40
        assert run.unread_count == 1
    with pytest.raises(NoIterations):
        read(from_bytes(whole[:7], "run-a1.wandb"))


def test_after_damage_reading_goes_on_at_the_next_block() -> None:
    whole = bytearray(framed(*training(padding="x" * 2000)))
    whole[BLOCK + 500] ^= 0xFF
    found = decode(bytes(whole))
    assert found.damaged >= 1
    steps = [row["train/global_step"] for row in found.history if "train/loss" in row]
    assert steps[0] == 1
    assert steps[-1] == 40
    assert 20 < len(steps) < 40


def test_what_runs_after_the_timed_part_of_an_evaluation_belongs_to_it() -> None:
    rows = training(12)
    late = {"eval__perplexity": 9.0, "train__global_step": 12, "_step": 20}
    evaluation = {"eval__runtime": 4.0, "train__global_step": 12, "_step": 19}
    wall = BEGIN_S + 3 + 24 + 7.5
    rows += [history(**evaluation, _timestamp=wall + 4), history(**late, _timestamp=wall + 10)]
    assert the_run(*rows).evaluations[-1].took_s == pytest.approx(10.0)


def test_the_console_is_read_where_the_history_has_no_steps() -> None:
    lines = [printed(f"iter {n}: loss 2.{n}, time 250.00ms, mfu 30.00%\n") for n in range(20)]
    image = {"sample": {"_type": "image-file"}, "_timestamp": BEGIN_S, "_step": 0}
    run = the_run(started({"batch_size": 12}), history(**image), *lines)
    assert run.format == "nanogpt"
    assert run.settings.count("batch_size") == 12


def test_rows_that_may_be_epochs_are_not_called_iterations() -> None:
    rows = [history(train__loss=2.0, _timestamp=BEGIN_S + 60 * n, _step=n) for n in range(1, 9)]
    with pytest.raises(NoIterations, match="one row for each epoch"):
        the_run(started({"epochs": 8}), *rows, printed("no bar here\n"))


def of_epochs(epochs: int, check_s: float, *, first: int = 1, begin_s: float = BEGIN_S, row: int = 0) -> list[bytes]:
    """Two rows for each epoch, of 10 s: only that of the validation behind it has the number of the epoch."""
    rows = []
    for epoch in range(first, first + epochs):
        begin_s += 10.0
        rows.append(history(train_loss=2.0 + row / 100, _timestamp=begin_s, _step=row))
        begin_s += check_s
        rows.append(history(epoch=epoch, val_accuracy=0.5, _timestamp=begin_s, _step=row + 1))
        row += 2
    return rows


@pytest.mark.parametrize("name", ["epoch", "Epoch"])
@pytest.mark.parametrize("first", [0, 1])
def test_where_a_key_counts_the_epochs_these_are_the_unit(name: str, first: int) -> None:
    rows = [
        history(**{name: first + n, "Train Loss": 2.0, "Validation Loss": 2.1}, _timestamp=BEGIN_S + 5 * n + 5, _step=n)
        for n in range(8)
    ]
    run = the_run(started({"epochs": 20}), *rows, printed("no bar here\n"))
    assert run.traits.counts_epochs
    assert run.iterations.number.tolist() == list(range(1, 9))
    assert run.iterations.time_s.tolist() == pytest.approx([5.0] * 8)
    assert run.iterations.loss.tolist() == [2.0] * 8
    assert "eval" in run.holds
    assert run.settings.count("max_iters") == 20


def test_rows_of_a_validation_end_it() -> None:
    run = the_run(started({}), *of_epochs(12, 4.0))
    assert run.iterations.number.tolist() == list(range(1, 13))
    assert run.iterations.time_s.tolist() == pytest.approx([10.0] * 12)
    assert [(each.at, each.took_s) for each in run.evaluations] == [(at, pytest.approx(4.0)) for at in range(1, 13)]
    assert "eval" not in run.holds
    assert analyse(run).goodput.wall_s == pytest.approx(12 * 14.0)


def test_a_validation_that_is_logged_with_its_epoch_is_part_of_it() -> None:
    run = the_run(started({}), *of_epochs(12, 0.001))
    assert "eval" in run.holds
    assert {each.took_s for each in run.evaluations} == {None}


def test_epochs_that_begin_again_are_another_run() -> None:
    rows = [row for fold in range(3) for row in of_epochs(6, 4.0, begin_s=BEGIN_S + 84.0 * fold, row=12 * fold)]
    runs = read(from_bytes(framed(started({"epochs": 6}), *rows), "run-a1.wandb"))
    assert [run.iterations.number.tolist() for run in runs] == [list(range(1, 7))] * 3
    assert [[each.took_s for each in run.evaluations] for run in runs] == [[pytest.approx(4.0)] * 6] * 3
    assert all(run.traits.counts_epochs and run.settings.count("max_iters") == 6 for run in runs)


def test_what_lies_between_the_bars_of_the_console_is_known_from_the_history() -> None:
    messages, wall = [started({"epochs": 6})], BEGIN_S
    for epoch in range(6):
        for n in range(1, 41):
            clock, left = (f"00:{seconds:02d}" for seconds in (n // 2, 20 - n // 2))
            messages.append(printed(f"\r{n * 100 // 40:3d}%|{'█' * 10}| {n}/40 [{clock}<{left},  2.00it/s, loss=1.2]"))
        wall += 20 + 3.0
        row = {"epoch": epoch, "train_loss": 2.0 - epoch / 10, "val_loss": 2.1}
        messages += [printed(f"\nEpoch {epoch}: loss 1.2\n"), history(**row, _timestamp=wall, _step=epoch)]
    run = the_run(*messages)
    assert (run.format, run.iterations.number[-1]) == ("tqdm-loop", 240)
    assert [each.at for each in run.evaluations] == list(range(40, 241, 40))
    assert [each.took_s for each in run.evaluations] == [pytest.approx(3.0)] * 6
    assert analyse(run).goodput.wall_s == pytest.approx(6 * 23.0, rel=0.01)


def test_batches_with_a_row_for_each_epoch_are_steps() -> None:
    rows = [
        history(**({"loss": 2.0} if n % 10 else {"epoch": n // 10}), _timestamp=BEGIN_S + n, _step=n)
        for n in range(1, 60)
    ]
    run = the_run(started({}), *rows)
    assert not run.traits.counts_epochs
    assert len(run.iterations) > 40


def test_what_ran_between_the_start_of_the_file_and_the_training_is_not_of_it() -> None:
    rows = training(steps=100)
    last = BEGIN_S + 3 + 100 * 2.0 + 10 * 7.5
    late = history(train__train_runtime=200 + 75 + 1.0, train__global_step=100, _timestamp=last + 1, _step=200)
    a = analyse(the_run(*rows, late))
    assert a.run.start == "training"
    assert a.goodput.wall_s == pytest.approx(275, rel=0.01)
    assert analyse(the_run(*rows)).run.start == "process"


def test_rows_tell_better_than_the_config_how_far_they_are_apart() -> None:
    rows = [started({"log_interval": 10})]
    steps = [*range(50, 1001, 50), 1010]  # the last one a rest
    for step in steps:
        rows.append(history(train__loss=3.0, train__global_step=step, _timestamp=BEGIN_S + 2.0 * step, _step=len(rows)))
    run = the_run(*rows)
    assert run.settings.count("log_interval") == 50
    assert analyse(run).costs.step_s.mid == pytest.approx(2.0, rel=0.01)
    assert analyse(run).goodput.wall_s == pytest.approx(2020.0, rel=0.01)


NUMBERS = st.floats() | st.integers() | st.sampled_from([1e-7, 0, -0.0, 1e22, 10**400])
VALUES = NUMBERS | st.none() | st.booleans() | st.text() | st.lists(st.integers())
KEYS = st.text(max_size=300) | st.sampled_from(["train/loss", "_step", "Ђ\x01", "a\n\x0ab", "1\n"])


@given(st.dictionaries(KEYS, VALUES))
def test_rows_of_plain_numbers_are_read_the_same_by_the_quick_way(values: dict[str, object]) -> None:
    message = items(values)
    quick = _plain_items(message)
    slow = _items(message, 1)
    assert not quick or (quick == slow and [*quick] == [*slow])


def test_almost_all_rows_are_read_by_the_quick_way() -> None:
    assert _plain_items(items({"train/loss": 2.5, "_step": 7, "lr": 1e-05, "x": -0.25}))
