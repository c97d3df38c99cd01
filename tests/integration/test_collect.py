"""From logs to a store and back: on a disk, in a real S3 server, by a real cluster of Dask, with processes killed."""

from __future__ import annotations

import gzip
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import duckdb
import psutil
import pytest
from tests.builders import Truth, a_log
from tests.commands import stepwatch
from tests.faulty_proxy import faulty

from stepwatch.fleet.collect import CollectRequest, collect

Tables = dict[str, list[tuple[object, ...]]]
TABLES = ("runs", "parts", "findings", "advice", "restarts", "failures", "sources")
NEVER_THE_SAME = ("collected_at", "processor_s", "fingerprint")
SHORT = Truth(max_iters=120, log_interval=1, eval_interval=50, compile_s=1.0)


def write_logs(place: Path, count: int) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        truth = Truth(seed=number, max_iters=60 + number, log_interval=1, eval_interval=25, step_s=0.1 + number / 1000)
        (place / f"run-{number:03}.log").write_text(a_log(truth))
    return place


def told(store: str, top: str = "") -> Tables:
    """Every row of every table, without what is never the same twice."""
    from stepwatch.fleet.store import Store

    found: Tables = {}
    opened = Store(store)
    for table in TABLES:
        data = opened.table(table)
        rows = data.drop_columns([name for name in NEVER_THE_SAME if name in data.column_names]).to_pylist()
        found[table] = sorted(
            tuple(str(value).replace(top, "") if top else str(value) for value in row.values()) for row in rows
        )
    return found


def test_a_directory_of_all_kinds_becomes_rows(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "logs", 2)
    text = a_log(SHORT)
    (logs / "packed.log.gz").write_bytes(gzip.compress(text.encode()))
    (logs / "twice.log").write_text(
        text + a_log(Truth(first_iter=100, max_iters=160, log_interval=1, eval_interval=50))
    )
    with zipfile.ZipFile(logs / "runs.zip", "w") as archive:
        archive.writestr("a/x.log", text)
        archive.writestr("b/notes.md", "nothing")
    with tarfile.open(logs / "more.tar.gz", "w:gz") as tar:
        tar.add(logs / "run-000.log", "inner/run.log")
    (logs / "readme.md").write_text("These are our runs.\n")
    (logs / "empty.log").write_text("")
    (logs / "broken.zip").write_bytes(b"PK\x03\x04 not really")
    done = stepwatch("collect", logs, "--into", tmp_path / "store", "--iterations", "--forecasts", "--gpu", "4070")
    assert done.returncode == 0, done.stderr
    asked = duckdb.sql(
        f"select source, run_index, iterations, step_s_mid from read_parquet('{tmp_path}/store/runs/**/*.parquet')"
    )
    found = {
        (os.path.relpath(str(source), logs), index): (count, step_s)
        for source, index, count, step_s in asked.fetchall()
    }
    assert set(found) == {
        ("run-000.log", 0), ("run-001.log", 0), ("packed.log.gz", 0), ("twice.log", 0), ("twice.log", 1),
        ("runs.zip/a/x.log", 0), ("more.tar.gz/inner/run.log", 0),
    }  # fmt: skip
    assert found["run-000.log", 0] == found["more.tar.gz/inner/run.log", 0]
    assert found["packed.log.gz", 0] == found["runs.zip/a/x.log", 0]
    rows = told(str(tmp_path / "store"), f"{logs}/")
    assert [row[3:6] for row in rows["restarts"]] == [("100", "120", "21")]
    assert {row[0] for row in rows["failures"]} == {"broken.zip"}
    outcomes = duckdb.sql(f"select log, outcome from read_parquet('{tmp_path}/store/sources/**/*.parquet')").fetchall()
    assert {os.path.basename(str(log)): outcome for log, outcome in outcomes}["readme.md"] == "no log"
    counted = duckdb.sql(f"select count(*) from read_parquet('{tmp_path}/store/iterations/**/*.parquet')").fetchall()
    assert counted[0][0] > 500


def test_only_what_has_changed_is_read_again(tmp_path: Path) -> None:
    logs, store = write_logs(tmp_path / "logs", 3), str(tmp_path / "store")
    request = CollectRequest(places=(str(logs),), into=store, workers=1)
    assert collect(request).runs == 3
    files = {path: path.stat().st_mtime_ns for path in Path(store).rglob("*.parquet")}
    assert collect(request)[:3] == (3, 3, 0)
    assert files == {path: path.stat().st_mtime_ns for path in Path(store).rglob("*.parquet")}
    grown = logs / "run-001.log"
    grown.write_text(a_log(Truth(seed=1, max_iters=100, log_interval=1, eval_interval=25)))
    assert collect(request)[:3] == (3, 2, 1)
    asked = f"select source, last_iteration from read_parquet('{store}/runs/**/*.parquet')"
    assert dict(duckdb.sql(asked).fetchall())[str(grown)] == 100
    assert len(duckdb.sql(asked).fetchall()) == 3


def test_a_poison_log_costs_that_log_alone(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "logs", 2)
    line = b"iter 1: loss 4.2, time 100.00ms, mfu 9.00%\n"
    (logs / "huge.log.gz").write_bytes(gzip.compress(line * 300_000, compresslevel=1) * 40)  # half a GB
    (logs / "large.log").write_bytes(line * 3000)
    request = CollectRequest(
        places=(str(logs),), into=str(tmp_path / "store"), memory_limit=200_000_000, time_limit=120
    )
    done = collect(request)
    assert done.failures == {"memory": 1}
    assert done.runs >= 3
    again = CollectRequest(places=(str(logs / "run-000.log"),), into=str(tmp_path / "other"), max_size=1000)
    assert collect(again).failures == {"too large": 1}


def test_a_log_that_takes_too_long_is_named(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "logs", 1)
    done = collect(CollectRequest(places=(str(logs),), into=str(tmp_path / "store"), time_limit=0.01))
    assert done.failures == {"time": 1}


def test_bad_places_are_one_line_and_an_exit_code(tmp_path: Path) -> None:
    for place in (tmp_path / "nothing", "s3x://nothing"):
        done = stepwatch("collect", place, "--into", tmp_path / "store")
        assert done.returncode == 1
        assert b"Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) <= 2
    done = stepwatch(
        "collect", write_logs(tmp_path / "logs", 1), "--into", tmp_path / "s", "--scheduler", "tcp://127.0.0.1:1"
    )
    assert done.returncode == 1
    assert b"scheduler" in done.stderr


# --- somewhere else, by others ----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(port)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A real S3 server on the loopback."""
    import s3fs

    port = free_port()
    own = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in own}
    os.environ |= own
    with started("-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)):
        wait_for(port)
        s3fs.S3FileSystem().mkdir("lab")
        yield "s3://lab"
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value


class Cluster(NamedTuple):
    address: str
    scheduler: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def cluster(bucket: str) -> Iterator[Cluster]:
    """A real scheduler and two workers, each a process below one; a worker that is killed is started again."""
    port = free_port()
    code = "import sys; from dask.__main__ import main; main()"
    with started("-c", code, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard") as scheduler:
        wait_for(port)
        address = f"tcp://127.0.0.1:{port}"
        options = ("--nworkers", "2", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")
        with started("-c", code, "worker", address, *options):
            yield Cluster(address, scheduler)


def test_from_a_bucket_to_a_bucket_by_a_cluster(bucket: str, cluster: Cluster, tmp_path: Path) -> None:
    """The same rows as on this disk, by this process's own children."""
    import s3fs

    logs = write_logs(tmp_path / "logs", 8)
    there = s3fs.S3FileSystem()
    there.put(str(logs), "lab/logs", recursive=True)
    request = CollectRequest(places=(f"{bucket}/logs",), into=f"{bucket}/store", scheduler=cluster.address)
    assert collect(request)[:4] == (8, 0, 8, 8)
    assert collect(request)[:3] == (8, 8, 0)
    collect(CollectRequest(places=(str(logs),), into=str(tmp_path / "store"), workers=1))
    here, by_cluster = told(str(tmp_path / "store"), str(logs)), told(f"{bucket}/store", f"{bucket}/logs")
    assert here["parts"] == by_cluster["parts"]
    assert here["findings"] == by_cluster["findings"]
    there.pipe_file("lab/logs/run-003.log", a_log(SHORT).encode())
    assert collect(request)[:3] == (8, 7, 1)


def test_a_bucket_that_fails_costs_nothing(bucket: str, tmp_path: Path) -> None:
    """Errors, delays and cut connections, in reading and in writing."""
    import s3fs

    s3fs.S3FileSystem().put(str(write_logs(tmp_path / "logs", 3)), "lab/few", recursive=True)
    collect(CollectRequest(places=(f"{bucket}/few",), into=f"{bucket}/calm", workers=1))
    real = os.environ["AWS_ENDPOINT_URL"]
    with faulty(int(real.rpartition(":")[2]), seed=5, share=0.4, delay_s=0.1, most=12) as (address, faults):
        os.environ["AWS_ENDPOINT_URL"] = address
        s3fs.S3FileSystem.clear_instance_cache()
        collect(CollectRequest(places=(f"{bucket}/few",), into=f"{bucket}/hit", workers=1))
    os.environ["AWS_ENDPOINT_URL"] = real
    s3fs.S3FileSystem.clear_instance_cache()
    assert faults.made.total() > 5
    assert told(f"{bucket}/hit") == told(f"{bucket}/calm")


def test_two_writers_of_one_bucket_lose_no_row(bucket: str, tmp_path: Path) -> None:
    logs = [write_logs(tmp_path / part, 4) for part in ("a", "b")]
    requests = [CollectRequest(places=(str(place),), into=f"{bucket}/shared", workers=1) for place in logs]
    writers = [threading.Thread(target=collect, args=(request,)) for request in requests]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(told(f"{bucket}/shared")["runs"]) == 8


def command_of(process: psutil.Process) -> str:
    """Empty of one that is gone."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def readers_below() -> list[psutil.Process]:
    below = psutil.Process().children(recursive=True)
    return [child for child in below if "stepwatch.fleet.reader" in command_of(child)]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tables]:
    """Logs, and what a collection of them gives that nobody disturbs."""
    place = tmp_path_factory.mktemp("calm")
    logs = write_logs(place / "logs", 24)
    collect(CollectRequest(places=(str(logs),), into=str(place / "store")))
    return logs, told(str(place / "store"))


@contextmanager
def killing(victims: Callable[[], list[psutil.Process]], most: int, seed: int) -> Iterator[list[int]]:
    """Meanwhile processes are killed at random moments; yields how many."""
    stop, killed = threading.Event(), []

    def kill() -> None:
        rng = random.Random(seed)
        while len(killed) < most and not stop.wait(rng.uniform(0.05, 0.4)):
            for victim in victims()[-1:]:
                with suppress(psutil.Error):
                    victim.send_signal(signal.SIGKILL)
                    killed.append(victim.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    yield killed
    stop.set()
    killer.join()


def test_killed_readers_cost_nothing(calm: tuple[Path, Tables], tmp_path: Path) -> None:
    logs, expected = calm
    with killing(readers_below, most=4, seed=7) as killed:
        collect(CollectRequest(places=(str(logs),), into=str(tmp_path / "hit"), workers=2))
    assert killed
    assert told(str(tmp_path / "hit")) == expected


def test_a_client_that_is_killed_goes_on_where_it_was(calm: tuple[Path, Tables], tmp_path: Path) -> None:
    logs, expected = calm
    command = [sys.executable, "-m", "stepwatch", "collect", str(logs), "--into", str(tmp_path / "hit")]
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while client.poll() is None and len([*tmp_path.glob("hit/sources/*/*.parquet")]) < 3:
        time.sleep(0.01)
    client.kill()
    client.wait()
    done = collect(CollectRequest(places=(str(logs),), into=str(tmp_path / "hit")))
    assert 0 < done.read < 24
    assert told(str(tmp_path / "hit")) == expected


def test_killed_workers_of_a_cluster_cost_nothing(cluster: Cluster, calm: tuple[Path, Tables], tmp_path: Path) -> None:
    """Their nannies start them again."""
    logs, expected = calm

    def workers() -> list[psutil.Process]:
        return [child for child in psutil.Process().children(recursive=True) if "spawn_main" in command_of(child)]

    with killing(workers, most=1, seed=3) as killed:
        collect(CollectRequest(places=(str(logs),), into=str(tmp_path / "hit"), scheduler=cluster.address))
    assert killed
    assert told(str(tmp_path / "hit")) == expected
