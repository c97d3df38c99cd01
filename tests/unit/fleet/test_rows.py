"""Rows of runs that trackers, `stepwatch run` and the recorder have left on a disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.builders import Truth, a_log
from tests.recorded import STARTED, several_ranks
from tests.unit.readers.formats.test_mlflow import a_run
from tests.unit.readers.formats.test_trackio import database
from tests.unit.readers.formats.test_wandb_file import training
from tests.wandb_files import framed

from stepwatch.fleet.copies import fetched_locally
from stepwatch.fleet.logs import find_logs
from stepwatch.fleet.rows import LogTask, Rows, rows_of
from stepwatch.fleet.schema import as_json, from_json
from stepwatch.messages import Message
from stepwatch.units import Interval


def rows_below(place: Path) -> dict[str, Rows]:
    """By the name of the log below the place."""
    found = {}
    for log in find_logs([str(place)]):
        with fetched_locally(log, limit=10**9) as paths:
            found[log.name.removeprefix(f"{place}/")] = rows_of(LogTask(name=log.name, paths=paths))
    return found


def samples(place: Path) -> None:
    columns = "time_s,cpu,gpu0_utilisation,gpu0_power_w,gpu1_utilisation,gpu1_power_w"
    lines = [f"{STARTED + second},0.5,0.9,250,0.9,250" for second in range(60)]
    place.write_text("\n".join(("# stepwatch.samples/1", columns, *lines, "")))


def test_stores_of_trackers_are_runs(tmp_path: Path) -> None:
    a_run(tmp_path / "mlruns" / "0" / "abc")
    (tmp_path / "project.db").write_bytes(database({"a": 1.5, "b": 3.0}))
    offline = tmp_path / "wandb" / "offline-run-1"
    (offline / "files").mkdir(parents=True)
    (offline / "run-1.wandb").write_bytes(framed(*training()))
    (offline / "files" / "wandb-metadata.json").write_text(json.dumps({"host": "gpu07", "cudaVersion": "12.4"}))
    (offline / "files" / "media.txt").write_text("not a log")
    found = rows_below(tmp_path)
    told = {
        name: [(run["format"], pytest.approx(run["step_s_mid"], rel=0.01)) for run in rows["runs"]]
        for name, rows in found.items()
    }
    assert told == {
        "mlruns/0/abc": [("mlflow", 0.4)],
        "project.db": [("trackio", 1.5), ("trackio", 3.0)],
        "wandb/offline-run-1": [("wandb-file", 2.0)],
    }
    (run,) = found["wandb/offline-run-1"]["runs"]
    assert (run["node"], run["cuda_version"]) == ("gpu07", "12.4")


def test_runs_that_were_recorded_are_read_with_their_samples(tmp_path: Path) -> None:
    """Of `stepwatch run` and of the recorder: with their samples, and the ranks as one run."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "train.log").write_text(a_log(Truth(max_iters=100, log_interval=1, eval_interval=50)))
    samples(kept / "samples.csv")
    (kept / "environment.json").write_text(json.dumps({"host": "gpu03", "versions": {"torch": "2.6.0"}}))
    for rank, record in enumerate(several_ranks((0.2, 0.2))):
        (tmp_path / ("run.jsonl" if rank == 0 else f"run.rank{rank}.jsonl")).write_text(record.text)
    samples(tmp_path / "run.samples.csv")
    found = rows_below(tmp_path)
    assert set(found) == {"kept", "run.jsonl"}
    (run,) = found["kept"]["runs"]
    assert (run["node"], run["torch_version"], run["iterations"]) == ("gpu03", "2.6.0", 101)
    (run,) = found["run.jsonl"]["runs"]
    assert (run["format"], run["world_size"], run["driver_version"]) == ("stepwatch", 2, "550.54")
    assert "nothing_in_samples" in [row["code"] for row in found["run.jsonl"]["findings"]]


def test_damaged_samples_cost_themselves_alone(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(a_log(Truth(max_iters=40, log_interval=1)))
    (tmp_path / "train.samples.csv").write_text("# stepwatch.samples/9\nnothing\n")
    found = rows_of(LogTask("train.log", (str(tmp_path / "train.log"),)))
    assert len(found["runs"]) == 1
    assert [row["cause"] for row in found["failures"]] == ["unreadable"]
    assert found["sources"][0]["outcome"] == "runs"


def test_a_message_within_a_message_comes_back_to_be_said_in_any_language() -> None:
    what = Message(
        "{what:word} ({lever:word})", {"what": Message("Take {count:n}.", {"count": 3}), "lever": "--workers"}
    )
    assert from_json(json.loads(json.dumps(as_json(what)))) == what
    assert as_json(Message("{cost:range}", {"cost": Interval(1.0, 2.0, 3.0)})) is None
