"""The recorder's file: every part as it was timed, whatever became of the file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.recorded import STARTED, Planted, a_record, header

from stepwatch.analysis import analyse
from stepwatch.analysis.phases import CERTAINTY_NAMES, PHASE_NAMES, Phase
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.readers.collection import runs_in
from stepwatch.readers.following import LiveReader
from stepwatch.readers.log_files import ReadingOptions
from stepwatch.run import Run, Timing
from stepwatch.sources import from_bytes, from_file, from_text
from stepwatch.watch import Live


def runs_of(text: str) -> tuple[Run, ...]:
    return read(from_text(text, "run.jsonl"))


def the_run(text: str) -> Run:
    (run,) = runs_of(text)
    return run


def codes(run: Run) -> dict[str, str]:
    return {finding.code: finding.severity for finding in analyse(run).findings}


# --- what is read ---------------------------------------------------------------------------------------------------


def test_steps_and_what_is_inside_them() -> None:
    run = the_run(a_record(data_s=0.012, device_s=0.15, wait_s=0.001).text)
    assert (run.format, run.timing, run.holds) == ("stepwatch", Timing.SPANS_STEP, frozenset())
    assert run.iterations.number.tolist() == list(range(60))
    assert run.iterations.time_s == pytest.approx(np.full(60, 0.201), rel=0.06)
    assert run.iterations.loss[0] == 4.0
    assert run.iterations.stamp_s[0] == pytest.approx(STARTED + 3 + 0.01 * 3 + 7.5 + 1.5 + run.iterations.time_s[0])
    assert run.inside is not None
    assert set(run.inside.data_s.tolist()) == {0.012}
    assert set(run.inside.wait_s.tolist()) == {0.001}
    assert set(run.inside.device_s.tolist()) == {0.15}


def test_evaluations_and_checkpoints_carry_what_they_took() -> None:
    run = the_run(a_record().text)
    assert [(e.at, e.took_s, e.val_loss) for e in run.evaluations] == [(0, 1.5, 3.2), (20, 1.5, 3.2), (40, 1.5, 3.2)]
    assert [(save.at, save.took_s) for save in run.checkpoints] == [(20, 0.4), (40, 0.4)]


def test_header_tells_card_settings_and_work() -> None:
    settings = {"n_params": 1.5e6, "tokens_per_iter": 4096, "flops_per_iter": 4e10, "out_dir": "/home/x"}
    run = the_run(a_record(settings=settings, world_size=2).text)
    assert run.gpu_text == "NVIDIA GeForce RTX 4070"
    assert run.settings.count("tokens_per_iter") == 4096
    assert run.settings.number("n_params") == 1.5e6
    assert run.settings.count("world_size") == 2
    assert run.flops_per_token == pytest.approx(4e10 / 4096)
    assert "out_dir" not in run.settings


def test_settings_that_became_known_later_count() -> None:
    lines = a_record(settings={}).lines
    lines.insert(1, '{"settings":{"n_params":124000000,"flops_per_iter":1e13,"tokens_per_iter":1000},"t":1763264001.0}')
    run = the_run("\n".join(lines))
    assert run.settings.number("n_params") == 124e6
    assert run.flops_per_token == 1e10
    assert not run.distributed


def test_tokens_and_work_of_single_steps() -> None:
    line = '{"step":%d,"s":0.500000,"t":1763264001.%06d,"tokens":1000,"flops":123456789012345678}'
    run = the_run("\n".join([header(Planted(settings={})), *(line % (n, n) for n in range(4))]))
    assert run.iterations.reported_tokens_per_s.tolist() == [2000.0] * 4
    assert run.flops_per_token == pytest.approx(123456789012345.678)


@pytest.mark.parametrize(
    "line",
    [
        '{"step":7,"s":0.500000,"t":1763264001.000000,"loss":NaN}',
        '{"step":7,"s":0.5,"t":1763264001,"loss":NaN,"lr":6e-4}',
        '{"step": 7, "s": 0.5, "t": 1763264001.0, "note": {"a": 1}, "loss": Infinity}',
    ],
)
def test_lines_of_another_spelling_are_read_one_by_one(line: str) -> None:
    run = the_run(header(Planted()) + "\n" + line)
    assert (run.iterations.number[0], run.iterations.time_s[0], run.iterations.loss[0]) == (7, 0.5, np.inf)
    assert run.iterations.stamp_s[0] == 1763264001


def test_columns_read_what_json_reads() -> None:
    record = a_record(data_s=0.0123, wait_s=0.001, device_s=0.1)
    spaced = "\n".join(json.dumps(json.loads(line)) for line in record.lines)  # no line fits a template
    fast, slow = the_run(record.text), the_run(spaced)
    for name in ("number", "time_s", "loss", "stamp_s", "line"):
        assert np.array_equal(getattr(fast.iterations, name), getattr(slow.iterations, name))
    assert fast.inside is not None and slow.inside is not None  # noqa: PT018
    for name in ("data_s", "wait_s", "device_s"):
        assert np.array_equal(getattr(fast.inside, name), getattr(slow.inside, name))
    assert (fast.span, fast.evaluations, fast.checkpoints) == (slow.span, slow.evaluations, slow.checkpoints)


def test_extra_keys_of_the_user_change_nothing() -> None:
    plain = a_record().text
    noted = plain.replace("}\n{", ',"lr":0.0006,"cells":3}\n{')
    assert the_run(noted).iterations.time_s.tolist() == the_run(plain).iterations.time_s.tolist()


# --- whose file it is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"loss": 2.3, "global_step/max_steps": "5/100", "elapsed_time": "10s"}\n' * 3,
        '{"step": 5, "loss": 2.1, "epoch": 0.1}\n{"step": 10, "loss": 2.0, "epoch": 0.2}\n',
        '{"_step": 50, "_timestamp": 1745377456.2, "_runtime": 610.4, "train/global_step": 500, "train/loss": 3.1}',
    ],
)
def test_other_json_is_not_taken_for_a_record(text: str) -> None:
    assert detect(from_text(text)) != "stepwatch"


def test_an_excerpt_without_header_is_a_record_too() -> None:
    lines = a_record(steps=40).lines
    run = the_run("\n".join(lines[20:]))
    assert run.format == "stepwatch"
    assert run.span is not None
    assert run.span.started_s == run.span.begun_s
    assert not analyse(run).phases.of(Phase.FIRST).any()


def test_a_record_that_speaks_of_cells_is_no_notebook() -> None:
    text = a_record(settings={"cells": 5, "stream_name": "x"}).text
    assert from_bytes(text.encode()).text == text.encode()
    assert len(the_run(text).iterations) == 60


def test_a_header_alone_is_a_run_that_has_begun() -> None:
    (run,) = runs_of(header(Planted()))
    assert run.has_header
    with pytest.raises(NoIterations):
        analyse(run)


# --- what becomes of files ------------------------------------------------------------------------------------------


def test_the_line_that_a_kill_cut_short_is_passed_over() -> None:
    text = a_record(closed=False).text
    for cut in range(1, len(text.splitlines()[-1]) + 1):
        run = the_run(text[:-cut])
        assert len(run.iterations) >= 59
        assert run.unread_count == 0


def test_each_process_start_is_a_run() -> None:
    first = a_record(steps=30, closed=False)
    second = a_record(steps=30, first_step=25, started=first.clock + 60)
    runs = runs_of(first.text + second.text)
    assert [run.iterations.number[0] for run in runs] == [0, 25]
    for run, record in zip(runs, (first, second), strict=True):
        assert analyse(run).goodput.wall_s == pytest.approx(record.wall_s, abs=1e-4)


def test_a_header_behind_a_torn_line_starts_a_run() -> None:
    first, second = a_record(steps=30).text, a_record(steps=30, started=STARTED + 500, seed=2).text
    runs = runs_of(first[: first.rindex('"t":')] + second)
    assert len(runs) == 2


def test_a_process_that_died_before_its_first_step_leaves_nothing_in_the_next_run() -> None:
    dead = a_record(steps=0, closed=False, compile_s=99.0)
    run = the_run(dead.text + a_record(started=STARTED + 1000).text)
    assert run.compile_s == 7.5
    assert analyse(run).goodput.wall_s < 100


def test_a_new_process_without_steps_is_not_counted_to_the_last_run() -> None:
    first = a_record()
    run = the_run(first.text + header(Planted(started=first.clock + 5000)) + "\n")
    assert analyse(run).goodput.wall_s == pytest.approx(first.wall_s, abs=1e-4)


def test_two_evaluations_at_one_step_both_count() -> None:
    lines = a_record().lines
    place = next(i for i, line in enumerate(lines) if line.startswith('{"eval":20'))
    lines.insert(place, '{"eval":20,"s":0.700000,"t":1763264010.000000}')
    run = the_run("\n".join(lines))
    assert sum(e.took_s or 0 for e in run.evaluations) == pytest.approx(3 * 1.5 + 0.7)


def test_lines_that_could_not_be_written_are_told() -> None:
    lines = a_record().lines
    lines[10:13] = ['{"lost":3,"t":1763264014.0}']
    assert codes(the_run("\n".join(lines)))["lost_lines"] == "notice"


def rotated(place: Path, name: str = "run.jsonl") -> None:
    """Three pieces, as the recorder leaves them."""
    record = a_record(steps=90)
    again = header(record.planted, continued=True)
    pieces = [record.lines[:40], [again, *record.lines[40:70]], [again, *record.lines[70:]]]
    for suffix, lines in zip((".2", ".1", ""), pieces, strict=True):
        (place / (name + suffix)).write_text("\n".join(lines) + "\n")


def test_pieces_of_a_rotated_record_are_one_run(tmp_path: Path) -> None:
    rotated(tmp_path)
    (alone,) = read(from_file(tmp_path / "run.jsonl"))
    (found,) = runs_in(str(tmp_path), ReadingOptions()).runs
    for run in (alone, found):
        assert run.iterations.number.tolist() == list(range(90))
        assert run.compile_s == 7.5


def test_the_last_piece_alone_begins_with_its_first_line(tmp_path: Path) -> None:
    rotated(tmp_path)
    (tmp_path / "run.jsonl.1").unlink()
    (run,) = read(from_file(tmp_path / "run.jsonl"))
    a = analyse(run)
    assert a.goodput.parts_s["start"] == 0
    assert not a.phases.of(Phase.FIRST).any()


# --- what is made of it ---------------------------------------------------------------------------------------------


def test_every_part_is_the_planted_one() -> None:
    record = a_record(noise=0.02)
    a = analyse(the_run(record.text))
    parts = a.goodput.parts_s
    assert a.goodput.by_clock
    assert a.goodput.wall_s == pytest.approx(record.wall_s, abs=1e-4)
    assert sum(parts.values()) == pytest.approx(a.goodput.wall_s)
    for part, seconds in record.parts.items():
        assert parts[part] == pytest.approx(seconds, rel=0.001, abs=0.02), part
    left = record.wall_s - sum(record.parts.values())
    assert parts["start"] + parts["unexplained"] == pytest.approx(left, abs=1e-3)
    assert parts["start"] == pytest.approx(3.01, abs=1e-4)
    assert a.costs.how == dict.fromkeys(("step_s", "eval_s", "checkpoint_s", "compile_s"), "measured")
    assert a.costs.compile_s is not None
    assert a.costs.compile_s.mid == pytest.approx(7.5, rel=0.005)


def test_phases_are_steps_and_seen() -> None:
    a = analyse(the_run(a_record().text))
    assert {CERTAINTY_NAMES[c] for c in a.phases.certainty.tolist()} == {"seen"}
    assert [PHASE_NAMES[p] for p in a.phases.phase.tolist()] == ["first"] + ["step"] * 59


def test_what_lies_before_the_first_step_and_after_the_last_counts() -> None:
    record = a_record(steps=21, eval_interval=100, closed=False)
    late = record.clock + 2.0
    evaluation = f'{{"eval":21,"s":2.000000,"t":{late:.6f}}}\n'
    save = f'{{"checkpoint":21,"s":0.500000,"t":{late + 0.5:.6f}}}\n'
    goodput = analyse(the_run(record.text + evaluation + save)).goodput
    assert goodput.parts_s["eval"] == pytest.approx(1.5 + 2.0)
    assert goodput.parts_s["checkpoint"] == pytest.approx(0.5)
    assert goodput.wall_s == pytest.approx(record.wall_s + 2.5, abs=1e-4)


def test_a_slow_first_step_is_warm_up() -> None:
    record = a_record(compile_s=None, step_s=lambda number: 4.0 if number == 0 else 0.2, noise=0.001)
    costs = analyse(the_run(record.text)).costs
    assert costs.compile_s is not None
    assert costs.compile_s.mid == pytest.approx(3.8, rel=0.01)


def test_a_clock_that_was_set_back_makes_no_part_negative() -> None:
    lines = a_record().lines
    back = [line.replace('"t":1763264', '"t":1763200') if i > 30 else line for i, line in enumerate(lines)]
    goodput = analyse(the_run("\n".join(back))).goodput
    assert min(goodput.parts_s.values()) >= 0
    assert sum(goodput.parts_s.values()) == pytest.approx(goodput.wall_s)


def test_numbers_that_go_in_tens_are_not_filled_up() -> None:
    record = a_record(steps=9, eval_interval=None)
    goodput = analyse(the_run(re.sub(r'"step":(\d)', r'"step":\g<1>0', record.text))).goodput
    assert goodput.iterations == 9
    assert goodput.wall_s == pytest.approx(record.wall_s, abs=1e-4)


def test_steps_too_short_for_their_digits_are_explained() -> None:
    run = the_run(a_record(steps=80, step_s=0.0, noise=0.0).text)
    assert analyse(run).goodput.iterations == 80


def test_start_up_is_not_forecast_again() -> None:
    planted = {"steps": 50, "eval_interval": None, "compile_s": None, "settings": {"max_iters": 100}, "closed": False}
    quick, slow = (analyse(the_run(a_record(before_s=before, **planted).text)) for before in (0.1, 300.0))
    assert quick.forecast.remaining_s is not None and slow.forecast.remaining_s is not None  # noqa: PT018
    assert slow.forecast.remaining_s.mid == pytest.approx(quick.forecast.remaining_s.mid, rel=0.01)


def test_a_closed_record_of_all_steps_is_done() -> None:
    assert analyse(the_run(a_record(settings={"max_iters": 60}).text)).forecast.done
    assert not analyse(the_run(a_record(settings={"max_iters": 60}, closed=False).text)).forecast.done
    assert not analyse(the_run(a_record(settings={"max_iters": 600}).text)).forecast.done


@pytest.mark.parametrize(("data_s", "severity"), [(0.002, "info"), (0.02, "notice"), (0.06, "warning")])
def test_waiting_for_data_is_told(data_s: float, severity: str) -> None:
    assert codes(the_run(a_record(data_s=data_s).text))["data_wait"] == severity


def test_a_device_that_idles_is_told() -> None:
    found = codes(the_run(a_record(device_s=0.08).text))
    assert found["device_idle"] == "warning"
    assert "device_idle" not in codes(the_run(a_record(device_s=0.19).text))
    assert "device_idle" not in codes(the_run(a_record(device_s=0.08, data_s=0.11).text))  # the data are the brake


def test_where_the_host_does_not_wait_the_device_counts() -> None:
    a = analyse(the_run(a_record(step_s=0.02, device_s=0.2, between_s=0.18).text))
    assert a.costs.step_s.mid == pytest.approx(0.2, rel=0.02)
    assert "asynchronous_loop" in {finding.code for finding in a.findings}


def test_slow_steps_of_which_the_record_tells_why() -> None:
    lines = a_record(data_s=0.01).lines
    place = next(i for i, line in enumerate(lines) if line.startswith('{"step":31,'))
    late = json.loads(lines[place])
    lines[place] = f'{{"step":31,"s":2.200000,"t":{late["t"] + 2:.6f},"data_s":2.010000}}'
    run = the_run("\n".join(lines))
    assert codes(run)["late_data"] == "notice"
    assert "stall" not in codes(run)
    lines[place] = lines[place].replace('"data_s":2.010000', '"data_s":0.010000')
    assert "stall" in codes(the_run("\n".join(lines)))


# --- while it grows -------------------------------------------------------------------------------------------------


def test_line_by_line_is_as_all_at_once() -> None:
    text = a_record(data_s=0.01, device_s=0.1).text + a_record(started=STARTED + 900, data_s=0.02, seed=2).text
    live = LiveReader("run.jsonl")
    for line in text.splitlines(keepends=True):
        live.feed(line.encode())
        live.run()
    whole = runs_of(text)
    for run, other in zip((*live.past, live.run()), whole, strict=True):
        assert run is not None
        assert run.span == other.span
        assert run.iterations.time_s.tolist() == other.iterations.time_s.tolist()
        assert run.inside is not None and other.inside is not None  # noqa: PT018
        assert np.array_equal(run.inside.data_s, other.inside.data_s, equal_nan=True)
        assert np.array_equal(run.inside.device_s, other.inside.device_s, equal_nan=True)


def test_rows_that_are_let_go_keep_the_parts_whole() -> None:
    record = a_record(steps=400, data_s=0.01, device_s=0.1)
    live = LiveReader("run.jsonl")
    live.feed(record.text.encode())
    run = live.run()
    assert run is not None
    live.keep(run, np.arange(400) % 3 == 0)
    kept = live.run()
    assert kept is not None
    assert kept.inside is not None
    assert len(kept.inside.device_s) == len(kept.iterations) == 134
    assert np.isfinite(kept.inside.device_s).all()
    goodput = analyse(kept).goodput
    assert goodput.iterations == 400
    assert goodput.steps_s == pytest.approx(record.parts["step"], rel=0.01)
    assert goodput.parts_s["data"] == pytest.approx(400 * 0.01, rel=0.01)
    assert sum(goodput.parts_s.values()) == pytest.approx(goodput.wall_s)


def test_watching_tells_stalls_and_the_end_of_a_record() -> None:
    record = a_record(steps=60, settings={"max_iters": 60}, step_s=lambda number: 3.0 if number == 50 else 0.2)
    live = Live("run.jsonl", analyse, stopwatch=lambda: 0.0)
    told: list[tuple[str, int | None]] = []
    live.begin_watching(0.0)
    for moment, line in enumerate(record.text.splitlines(keepends=True)):
        live.feed(line.encode(), float(moment))
        live.look(float(moment), thoroughly=True)
        told += [(event.kind, event.iteration) for event in live.news()]
    assert told == [("stall", 50), ("done", 59)]
    assert live.look(99.0).done
