"""TensorBoard event files: framing, scalars of all kinds, times between moments, evaluations, saves, damage."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from tests.event_files import arguments, hyperparameters, scalar, start, tensor_scalar, text

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations, StepwatchError
from stepwatch.readers import detect, read
from stepwatch.readers.formats.event_files import decode
from stepwatch.run import Run
from stepwatch.sources import Source, kind_of, normalise

BEGIN_S = 1_700_000_000.0


def a_file(
    last: int = 200, step_s: float = 0.5, eval_every: int = 0, runtime: bool = True, save_every: int = 0,
    begin_s: float = BEGIN_S, first: int = 0, head: bytes = b"",
) -> bytes:  # fmt: skip
    now = begin_s
    data = start(now) + head
    now += 8.0
    for step in range(first + 1, last + 1):
        now += step_s
        if step % 10 == 0:
            data += scalar(now, step, "train/loss", 5 - step / 1000) + scalar(now + 1e-3, step, "train/grad_norm", 1.0)
            data += scalar(now + 2e-3, step, "train/epoch", step / 100)
        if eval_every and step % eval_every == 0:
            now += 6.0
            data += scalar(now, step, "eval/loss", 4.0)
            data += scalar(now, step, "eval/runtime", 6.0) if runtime else b""
        if save_every and step % save_every == 0:
            now += 3.0
    return data


def the_run(data: bytes) -> Run:
    (run,) = read(Source("events", normalise(data)))
    return run


def test_bytes_are_handed_through() -> None:
    data = a_file()
    assert kind_of(data) == "events"
    assert normalise(data) == data
    assert detect(Source("x", data)) == "tensorboard"


def test_times_are_those_between_moments() -> None:
    run = the_run(a_file())
    assert run.iterations.number.tolist() == list(range(10, 201, 10))
    assert run.iterations.time_s.tolist() == pytest.approx([1.3, *[0.5] * 19])
    assert run.iterations.loss[0] == pytest.approx(4.99)
    assert run.iterations.stamp_s[1] - run.iterations.stamp_s[0] == pytest.approx(5.0)
    assert analyse(run).costs.step_s.mid == pytest.approx(0.5, rel=0.001)


@pytest.mark.parametrize("runtime", [True, False])
def test_evaluations_are_taken_out_and_told(runtime: bool) -> None:
    run = the_run(a_file(last=400, eval_every=100, runtime=runtime))
    assert run.iterations.time_s[1:].tolist() == pytest.approx([0.5] * 39, rel=1e-3)
    assert [(e.at, e.val_loss) for e in run.evaluations] == [(100, 4.0), (200, 4.0), (300, 4.0), (400, 4.0)]
    assert [e.took_s for e in run.evaluations] == pytest.approx([6.0] * 4, rel=1e-3)


def test_an_evaluation_between_two_rows_is_found_by_the_clock() -> None:
    run = the_run(a_file(last=400, eval_every=95, runtime=False))
    assert run.evaluations[0].took_s == pytest.approx(6.0, rel=0.01)
    assert run.iterations.time_s[1:].tolist() == pytest.approx([0.5] * 39, rel=0.01)


def test_saves_that_the_arguments_tell_of_are_taken_out() -> None:
    head = arguments(BEGIN_S, save_strategy="steps", save_steps=100, output_dir="/home/someone")
    run = the_run(a_file(last=400, save_every=100, head=head))
    assert [(save.at, round(save.took_s or 0, 2)) for save in run.checkpoints] == [(100, 3.0), (200, 3.0), (300, 3.0)]
    assert run.iterations.time_s[1:].tolist() == pytest.approx([0.5] * 39, rel=1e-3)


def test_saves_that_do_not_stand_out_are_not_told() -> None:
    head = arguments(BEGIN_S, save_strategy="steps", save_steps=100)
    assert the_run(a_file(last=400, head=head)).checkpoints == ()


def test_arguments_are_settings_and_nothing_private_is_kept() -> None:
    head = arguments(
        BEGIN_S, per_device_train_batch_size=4, gradient_accumulation_steps=8, max_steps=-1, num_train_epochs=3,
        logging_steps=10, eval_strategy="steps", eval_steps=50, bf16=True, torch_compile=True,
        output_dir="/home/someone", run_name="secret", hub_token="secret", logging_dir="/home/someone/runs/node7",
    )  # fmt: skip
    run = the_run(a_file(head=head))
    told = {name: setting.value for name, setting in run.settings.items()}
    assert told == {
        "batch_size": 4, "gradient_accumulation_steps": 8, "log_interval": 10, "eval_interval": 50, "dtype": "bfloat16",
        "compile": True, "max_iters": 300,
    }  # fmt: skip
    assert "secret" not in repr(run)
    assert "someone" not in repr(run)


def test_hyperparameters_and_megatron_s_texts_are_settings() -> None:
    head = hyperparameters(BEGIN_S, batch_size=12.0, compile=True, device="cuda", out_dir="/home/someone")
    head += text(BEGIN_S, "seq_length/text_summary", "1024") + text(BEGIN_S, "global_batch_size/text_summary", "32")
    settings = the_run(a_file(head=head)).settings
    assert (settings.count("batch_size"), settings.flag("compile"), settings.text("device")) == (12, True, "cuda")
    assert (settings.count("block_size"), settings.count("tokens_per_iter")) == (1024, 32768)
    assert "out_dir" not in settings


@pytest.mark.parametrize("metadata_first", [False, True])
def test_tensors_are_numbers_too(metadata_first: bool) -> None:
    data = start(BEGIN_S)
    for step in range(1, 30):
        data += tensor_scalar(BEGIN_S + 2 * step, step, "Loss/train", 3.0, metadata_first=metadata_first)
    run = the_run(data)
    assert run.iterations.time_s.tolist() == pytest.approx([2.0] * 29)
    assert run.iterations.loss[0] == 3.0


def test_a_trainer_s_own_iteration_time_is_used() -> None:
    data = start(BEGIN_S)
    for step in range(10, 200, 10):
        now = BEGIN_S + step
        data += scalar(now, step, "lm loss", 3.0) + scalar(now, step, "lm loss vs samples", 3.0)
        data += scalar(now, step, "iteration-time", 0.75) + scalar(now, step, "throughput(tps)", 1234.0)
    run = the_run(data)
    assert run.iterations.time_s.tolist() == [0.75] * 19
    assert run.iterations.loss.tolist() == [3.0] * 19
    assert run.iterations.reported_tokens_per_s[0] == 1234.0


@pytest.mark.parametrize("tag", ["data_time", "train/data_time", "time_metrics/data_loading(s)"])
def test_waiting_for_data_is_a_part(tag: str) -> None:
    steps = range(10, 400, 10)
    data = start(BEGIN_S) + b"".join(
        scalar(BEGIN_S + step, step, "loss", 3.0) + scalar(BEGIN_S + step, step, tag, 0.25) for step in steps
    )
    analysis = analyse(the_run(data))
    assert analysis.costs.data_s is not None
    assert analysis.costs.data_s.mid == pytest.approx(0.25)
    assert analysis.goodput.parts_s["data"] == pytest.approx(0.25 * analysis.goodput.iterations, rel=0.01)


def test_files_of_a_directory_join_whatever_their_order() -> None:
    first, second = (
        a_file(last=200),
        a_file(last=400, first=200, begin_s=BEGIN_S + 5000, head=arguments(BEGIN_S + 5000)),
    )
    extra = start(BEGIN_S + 9000) + scalar(BEGIN_S + 9001, 400, "eval/loss", 3.5)
    whole = read(Source("runs", second + extra + first))
    assert sorted(len(run.iterations) for run in whole) in ([20, 20], [40])
    assert sum(len(run.iterations) for run in whole) == 40
    times = np.concatenate([run.iterations.time_s for run in whole])
    assert np.median(times) == pytest.approx(0.5)
    assert times.max() < 2.0  # the 80 minutes between the processes are no step


def test_a_run_that_begins_anew_is_another_run() -> None:
    head = arguments(BEGIN_S + 5000, per_device_train_batch_size=2)
    data = a_file(last=200, head=arguments(BEGIN_S, per_device_train_batch_size=4))
    runs = read(Source("runs", data + a_file(last=100, begin_s=BEGIN_S + 5000, step_s=0.6, head=head)))
    assert [len(run.iterations) for run in runs] == [20, 10]
    assert [run.settings.count("batch_size") for run in runs] == [4, 2]


def test_a_step_that_falls_begins_another_run() -> None:
    runs = read(Source("runs", a_file(last=200) + a_file(last=100, begin_s=BEGIN_S + 5000, step_s=0.6)))
    assert [len(run.iterations) for run in runs] == [20, 10]


@pytest.mark.parametrize("lost", [1, 3, 8, 14, 40, 60])
def test_a_half_written_last_record_is_left_out(lost: int) -> None:
    data = start(BEGIN_S) + b"".join(scalar(BEGIN_S + n, n, "loss", 1.0) for n in range(1, 50))
    assert len(the_run(data[:-lost]).iterations) in (47, 48)


def test_a_damaged_record_costs_only_itself() -> None:
    data = bytearray(a_file(last=400))
    place = len(data) // 2
    data[place : place + 40] = random.Random(1).randbytes(40)
    run = the_run(bytes(data))
    assert len(run.iterations) >= 38
    assert run.unread_count in (0, 1)


def test_much_damage_costs_no_more_than_its_bytes() -> None:
    """Every second length is wrong: each of them had to be searched for behind the one before."""
    records = [scalar(BEGIN_S + step, step, "train/loss", 1.0) for step in range(20_000)]
    damaged = b"".join(b"\xff" + record[1:] if step % 2 else record for step, record in enumerate(records))
    began = time.process_time()
    scalars, _, _, times = decode(damaged)
    assert time.process_time() - began < 2.0
    assert (len(scalars.step), times) == (10_000, 10_000)
    assert scalars.step.tolist() == list(range(0, 20_000, 2))


def test_damage_longer_than_a_block_is_one_damage() -> None:
    before, behind = (b"".join(scalar(BEGIN_S + step, step, "train/loss", 1.0) for step in range(9)) for _ in range(2))
    scalars, _, end, times = decode(before + b"\xee" * 200_000 + behind)
    assert (len(scalars.step), times, end) == (18, 1, len(before) + 200_000 + len(behind))


@pytest.mark.parametrize("seed", range(60))
def test_no_accident_makes_it_raise(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(
        a_file(last=100, eval_every=30, head=arguments(BEGIN_S, a=1) + hyperparameters(BEGIN_S, batch_size=1.0))
    )
    for _ in range(rng.randint(1, 30)):
        place = rng.randrange(70, len(data))
        data[place : place + rng.randint(0, 9)] = rng.randbytes(rng.randint(0, 9))
    try:
        for run in read(Source("x", bytes(data[: rng.randint(64, len(data))]))):
            analyse(run)
    except StepwatchError:
        pass


def test_small_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = a_file(last=400, eval_every=100)
    whole = the_run(data)
    monkeypatch.setattr("stepwatch.sources.BLOCK_BYTES", 300)
    assert np.array_equal(the_run(data).iterations.time_s, whole.iterations.time_s)


def test_only_the_whole_is_told_of() -> None:
    data = start(BEGIN_S) + scalar(BEGIN_S + 41, 20, "train/train_runtime", 40.0)
    run = the_run(data)
    assert (run.iterations.number.tolist(), run.iterations.time_s.tolist()) == ([20], [2.0])
    analysis = analyse(run)
    assert (analysis.goodput.iterations, analysis.goodput.wall_s) == (20, pytest.approx(40))
    assert analysis.forecast.done


@pytest.mark.parametrize("ending_s", [0.0, 30.0])
def test_the_runtime_of_the_whole_ends_the_run(ending_s: float) -> None:
    end_s = BEGIN_S + 8 + 204 * 0.5 + ending_s  # with the last save, say
    run = the_run(a_file(last=204) + scalar(end_s, 204, "train/train_runtime", 110.0 + ending_s))
    assert run.iterations.number.tolist()[-2:] == [200, 204]
    assert run.iterations.time_s[-1] == pytest.approx(0.5)
    assert np.isnan(run.iterations.loss[-1])
    analysis = analyse(run)
    assert analysis.forecast.done
    assert analysis.goodput.parts_s["stall"] == 0
    assert analysis.goodput.wall_s == pytest.approx(110 + ending_s, rel=0.01)


def test_each_run_of_a_directory_has_its_own_end() -> None:
    later = BEGIN_S + 1000
    data = a_file(last=204) + scalar(BEGIN_S + 111, 204, "train/train_runtime", 110.0)
    data += a_file(last=103, begin_s=later, step_s=0.6) + scalar(later + 70, 103, "train/train_runtime", 69.8)
    assert [run.iterations.number.tolist()[-1] for run in read(Source("events", data))] == [204, 103]


def test_a_file_without_training_is_refused() -> None:
    with pytest.raises(StepwatchError):
        read(Source("x", start(BEGIN_S) + scalar(BEGIN_S, 1, "lr", 0.1)))


def test_large_steps_and_a_first_step_of_zero() -> None:
    data = start(BEGIN_S) + b"".join(scalar(BEGIN_S + n, n * 10**9, "loss", float("nan")) for n in range(5))
    scalars, texts, end, damaged = decode(data)
    assert scalars.step.tolist() == [n * 10**9 for n in range(5)]
    assert (end, damaged, len(texts)) == (len(data), 0, 1)


def test_a_record_that_is_cut_off_is_counted() -> None:
    data = a_file()
    assert the_run(data).unread_count == 0
    assert the_run(data[:-10]).unread_count == 1


@pytest.mark.parametrize("size", [40, None])
def test_a_file_without_a_number_is_told_as_such(size: int | None) -> None:
    with pytest.raises(NoIterations, match="contains no numbers"):
        the_run(start(BEGIN_S)[:size])


def of_epochs(batches: int, epochs: int = 6, step_s: float = 0.4, ranks: int = 1) -> bytes:
    """YOLO's: a step is an epoch; its losses are logged for each batch or once, the validation of 3 s behind them."""
    now = BEGIN_S
    data = start(now)
    for epoch in range(1, epochs + 1):
        for batch in range(20):
            now += step_s
            if batch >= 20 - batches:
                data += b"".join(scalar(now + 1e-3 * rank, epoch, "train/box_loss", 1.5) for rank in range(ranks))
        now += 3.0
        data += scalar(now, epoch, "val/box_loss", 1.4) + scalar(now, epoch, "metrics/mAP50(B)", 0.5)
    return data


def test_batches_that_are_all_logged_for_their_epoch_are_the_steps() -> None:
    run = the_run(of_epochs(20))
    assert run.iterations.number.tolist() == list(range(1, 121))
    a = analyse(run)
    assert a.costs.step_s.mid == pytest.approx(0.4, rel=0.01)
    assert [(each.at, each.took_s) for each in run.evaluations] == [(20 * n, pytest.approx(3.0)) for n in range(1, 7)]
    assert not run.traits.counts_epochs


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_step_that_is_evaluated_each_time_is_an_epoch(ranks: int) -> None:
    run = the_run(of_epochs(1, ranks=ranks))
    assert run.traits.counts_epochs
    assert run.iterations.number.tolist() == list(range(1, 7))
    assert run.iterations.time_s[1:].tolist() == pytest.approx([11.0] * 5, abs=0.01)
    assert [each.took_s for each in run.evaluations] == [None] * 6


def test_steps_that_are_evaluated_each_time_are_no_epochs_where_these_are_told_apart() -> None:
    data = start(BEGIN_S)
    for step in range(1, 9):
        at = BEGIN_S + 30.0 * step
        data += scalar(at, step, "train/loss", 2.0) + scalar(at, step, "train/epoch", step / 8)
        data += scalar(at + 10, step, "eval/loss", 2.0) + scalar(at + 10, step, "eval/runtime", 10.0)
    run = the_run(data)
    assert not run.traits.counts_epochs
    assert run.iterations.time_s[1:].tolist() == pytest.approx([20.0] * 7)


def test_a_process_that_goes_on_from_a_checkpoint_begins_with_its_first_row() -> None:
    """The steps rise over both: its start is no stall of the first."""
    data = normalise(a_file(last=200) + a_file(first=200, last=400, begin_s=BEGIN_S + 500))
    runs = read(Source("events", data))
    assert [run.iterations.number[0] for run in runs] == [10, 210]
    assert all("stall" not in {finding.code for finding in analyse(run).findings} for run in runs)


# --- where a training begins ------------------------------------------------------------------------------------


def first_said(run: Run) -> str:
    return next((found.message.key for found in analyse(run).findings if found.code == "first_iteration"), "")


def test_what_the_whole_took_tells_when_it_began() -> None:
    late = BEGIN_S + 600  # the file was begun ten minutes before
    data = start(BEGIN_S) + a_file(last=200, begin_s=late).removeprefix(start(late))
    ended = scalar(late + 108, 200, "train/train_runtime", 108.0)
    unsure, run = the_run(data), the_run(data + ended)
    assert (unsure.start, run.start) == ("process", "training")
    assert "before the training" in first_said(unsure)
    assert "before the training" not in first_said(run)
    assert run.iterations.time_s[0] == pytest.approx(1.3)
    assert analyse(run).goodput.wall_s == pytest.approx(108, rel=0.01)


def test_arguments_are_written_when_the_training_begins() -> None:
    assert the_run(a_file(head=arguments(BEGIN_S, per_device_train_batch_size=4))).start == "training"


def test_a_second_training_of_a_process_did_not_begin_with_it() -> None:
    later = BEGIN_S + 3000
    second = a_file(last=400, step_s=0.6, begin_s=later).removeprefix(start(later))
    first, run = read(Source("runs", a_file(last=200) + second))
    assert (first.start, run.start) == ("process", "unknown")
    assert run.iterations.number[0] == 10
    assert run.iterations.time_s[1:].tolist() == pytest.approx([0.6] * 39)
    assert 0.5 <= run.iterations.time_s[0] <= 0.6  # as the others
    a = analyse(run)
    assert a.costs.compile_s is None
    assert a.goodput.iterations == 400
    assert a.goodput.wall_s == pytest.approx(240, rel=0.01)


@pytest.mark.parametrize("part", ["box_loss", "box_om"])  # the second is YOLOv10's
def test_epochs_that_count_from_zero_are_all_there(part: str) -> None:
    now, data = BEGIN_S, start(BEGIN_S)
    for epoch in range(8):
        now += 11.0 + 20.0 * (epoch == 0)
        data += scalar(now, epoch, f"train/{part}", 1.5) + scalar(now, epoch, f"val/{part}", 1.4)
    run = the_run(data)
    assert run.iterations.number.tolist() == list(range(1, 9))
    assert run.iterations.time_s.tolist() == pytest.approx([31.0, *[11.0] * 7])
    assert [each.at for each in run.evaluations] == list(range(1, 9))


def test_keras_calls_its_epochs_so() -> None:
    data = start(BEGIN_S) + b"".join(scalar(BEGIN_S + 2.5 * (n + 1), n, "epoch_loss", 1.0) for n in range(30))
    run = the_run(data)
    assert run.traits.counts_epochs
    assert run.iterations.number.tolist() == list(range(1, 31))
    assert run.iterations.time_s.tolist() == pytest.approx([2.5] * 30)


def test_the_first_row_of_a_resumed_process_holds_its_start_wherever_it_counts_from() -> None:
    data, now = start(BEGIN_S), BEGIN_S + 900.0
    for epoch in range(101, 150):
        now += 160.0
        data += scalar(now, epoch, "train/loss", 2.0) + scalar(now + 0.5, epoch, "val/loss", 2.1)
    analysis = analyse(the_run(data))
    assert analysis.goodput.parts_s["stall"] == 0.0
    assert analysis.goodput.parts_s["compile"] == pytest.approx(900.0, rel=0.02)


@pytest.mark.parametrize("every", [1, 10])
def test_steps_that_are_counted_anew_in_each_epoch_go_on(every: int) -> None:
    data, now = start(BEGIN_S), BEGIN_S + 5.0
    for epoch in range(10):
        for step in range(100):
            now += 0.5
            data += scalar(now, step, "train/loss", 2.0) if step % every == 0 else b""
        now += 8.0
        data += scalar(now, epoch, "val/loss", 2.1)
    run = the_run(data)
    analysis = analyse(run)
    assert run.iterations.number[-1] == 1000 - every
    assert analysis.costs.step_s.mid == pytest.approx(0.5, rel=0.01)
    assert len(run.evaluations) == 10
    assert analysis.goodput.wall_s == pytest.approx(now - BEGIN_S, rel=0.02)


def test_steps_that_begin_again_in_another_file_are_another_run() -> None:
    pieces = [a_file(last=200, step_s=0.5 - n / 50, begin_s=BEGIN_S + 110.0 * n) for n in range(4)]
    assert len(read(Source("events", normalise(b"".join(pieces))))) == 4
