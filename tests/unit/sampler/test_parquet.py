"""Samples as Parquet, written and read by the real pyarrow."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.unit.gpus.test_driver import Device, Driver

from stepwatch import explain
from stepwatch.errors import InputError, TooLarge, UnreadableInput
from stepwatch.sampler import Sampler
from stepwatch.sampler.parquet import write_parquet
from stepwatch.samples import CARD, MACHINE
from stepwatch.sources.sample_files import lines_of_parquet, read_samples

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: samples as Parquet are not tested")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: samples as Parquet are not tested")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Of two cards, the last line cut off."""
    clock = iter(range(1_770_000_000, 1_770_000_100))
    path = tmp_path / "samples.csv"
    driver = Driver(Device(), Device(name="Card B", drawn_mw=None))
    sampler = Sampler(path, pid=1, driver=driver, clock=lambda: float(next(clock)))
    for _ in range(5):
        sampler.sample()
    sampler.close()
    with path.open("a") as file:
        file.write("1770000005.000,0.5,0")
    return path


def test_all_columns_and_the_cards_come_back_as_they_were(lines: Path) -> None:
    path = lines.with_suffix(".parquet")
    write_parquet(lines, path)
    plain, packed = read_samples(lines), read_samples(path)
    assert len(plain) == len(packed) == 5
    assert [card.name for card in packed.cards] == ["GeForce RTX 4070", "Card B"]
    for one, other in (
        (plain.machine, packed.machine),
        *((a.columns, b.columns) for a, b in zip(plain.cards, packed.cards, strict=True)),
    ):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
    assert plain.at_s.tolist() == packed.at_s.tolist()
    assert not list(path.parent.glob("*.part"))


def test_others_can_read_it_by_the_documented_schema(lines: Path) -> None:
    path = lines.with_suffix(".parquet")
    write_parquet(lines, path)
    table = pq.read_table(path)
    cards = [f"gpu{card}_{name}" for card in range(2) for name in CARD]
    assert table.column_names == ["time_s", *MACHINE, *cards]
    assert set(table.schema.types) == {pa.float64()}
    assert table.schema.metadata[b"schema"] == b"stepwatch.samples/1"
    assert table.column("gpu1_power_w").null_count == 5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a process shows its threads here")
def test_reading_leaves_no_thread_behind(tmp_path: Path, lines: Path) -> None:
    """Threads of pyarrow can abort a Python that leaves."""
    write_parquet(lines, tmp_path / "samples.parquet")
    count = "len(os.listdir('/proc/self/task'))"
    read = f"sample_files.read_samples({str(tmp_path / 'samples.parquet')!r})"
    words = f"import os, pyarrow; from stepwatch.sources import sample_files; before = {count}; {read}; print({count} - before)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_a_table_that_another_program_made_of_nvidia_smi_is_read_too(tmp_path: Path) -> None:
    rows = {"timestamp": [1_770_000_000.0, 1_770_000_001.0], "index": [0, 0], "utilization.gpu [%]": [90, 80]}
    pq.write_table(pa.table(rows), tmp_path / "cards.parquet")
    assert read_samples(tmp_path / "cards.parquet").cards[0].columns["utilisation"].tolist() == pytest.approx(
        [0.9, 0.8]
    )


def test_what_is_no_table_of_samples_is_refused_in_one_line(tmp_path: Path, lines: Path) -> None:
    path = tmp_path / "samples.parquet"
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), path)
    with pytest.raises(InputError, match="no samples"):
        read_samples(path)
    write_parquet(lines, path)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:4], whole[:100] + bytes(100) + whole[200:], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(UnreadableInput, match="cannot be read"):
            read_samples(path)
    pq.write_table(pa.table({"time_s": np.zeros(100_000)}), path)
    assert path.stat().st_size < 10_000
    for limit in (100_000, 100):
        with pytest.raises(TooLarge):
            lines_of_parquet(str(path), limit)


def test_a_run_keeps_both_and_is_explained_by_either(tmp_path: Path) -> None:
    program = "import time\nfor number in range(30):\n    time.sleep(0.05)\n    print(f'iter {number}: loss 4.0000, time 50.00ms, mfu 1.00%', flush=True)"
    words = [sys.executable, "-m", "stepwatch", "run", "--quiet", "--interval", "0.2", "-o", "kept", "--"]
    subprocess.run([*words, sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60, capture_output=True)
    kept = tmp_path / "kept"
    (kept / "samples.csv").rename(tmp_path / "elsewhere.csv")
    (explained,) = explain(str(kept)).runs
    assert explained.analysis.machine is not None
    assert explained.analysis.machine.clock == "arrivals"
    assert len(explained.analysis.machine.samples) == len(read_samples(tmp_path / "elsewhere.csv"))


def test_monitor_writes_parquet_where_the_name_says_so(tmp_path: Path) -> None:
    lines = tmp_path / "s.parquet.csv"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        words = [
            sys.executable,
            "-m",
            "stepwatch",
            "monitor",
            "-o",
            "s.parquet",
            "--interval",
            "0.2",
            "--pid",
            str(process.pid),
        ]
        with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL) as monitor:
            while not lines.exists() or len(lines.read_text().splitlines()) < 6:
                assert monitor.poll() is None
                time.sleep(0.1)
            process.kill()
            process.wait()
            assert monitor.wait(60) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["s.parquet"]
    assert len(read_samples(tmp_path / "s.parquet")) >= 2
