"""Every kind of file with samples becomes the same columns, in our units."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from stepwatch.errors import InputError, UsageError
from stepwatch.i18n import LANGUAGES, say
from stepwatch.samples.columns import Samples
from stepwatch.sources import from_bytes, samples_of_log
from stepwatch.sources.directories import log_in, places_below
from stepwatch.sources.sample_files import read_samples, samples_of

GIB = 1024.0**3


def of(text: str | bytes) -> Samples:
    return samples_of(from_bytes(text if isinstance(text, bytes) else text.encode(), "samples.csv"))


WITH_UNITS = """timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], temperature.gpu, clocks.sm [MHz], clocks_throttle_reasons.active
2026/03/01 10:00:00.120, 0, Card A, 92 %, 10240 MiB, 12288 MiB, 187.50 W, 64, 2475 MHz, 0x0000000000000000
2026/03/01 10:00:00.130, 1, Card A, 3 %, 1024 MiB, 12288 MiB, 21.00 W, 38, 210 MHz, 0x0000000000000001
2026/03/01 10:00:01.120, 0, Card A, 94 %, 10240 MiB, 12288 MiB, 190.50 W, 83, 2100 MHz, 0x0000000000000040
2026/03/01 10:00:01.130, 1, Card A, 1 %, 1024 MiB, 12288 MiB, [N/A], 38, 210 MHz, 0x0000000000000004
"""


def test_rocm_smi_json(tmp_path: Path) -> None:
    card = {
        "Temperature (Sensor edge) (C)": "31.0", "Temperature (Sensor junction) (C)": "44.0",
        "sclk clock speed:": "(800Mhz)",
        "Current Socket Graphics Package Power (W)": "7.222", "GPU use (%)": "19", "Memory Activity": "N/A",
        "VRAM Total Memory (B)": "21458059264", "VRAM Total Used Memory (B)": "27856896",
        "Card Series": "Radeon RX 7900 XT",
    }  # fmt: skip
    (tmp_path / "samples.json").write_text("\n".join(json.dumps({"card0": card, "card1": card}) for _ in range(3)))
    samples = read_samples(tmp_path / "samples.json")
    assert (len(samples), samples.has_clock) == (3, False)
    assert [one.name for one in samples.cards] == ["Radeon RX 7900 XT"] * 2
    assert {name: float(column[0]) for name, column in samples.cards[1].columns.items()} == pytest.approx({
        "temperature_c": 31, "sm_clock_hz": 8e8, "power_w": 7.222, "utilisation": 0.19,
        "memory_total_bytes": 21458059264, "memory_used_bytes": 27856896,
    })  # fmt: skip


def test_nvidia_smi_with_units_and_two_cards_in_alternating_rows() -> None:
    samples = of(WITH_UNITS)
    first, second = samples.cards
    assert len(samples) == 2
    assert np.allclose(np.diff(samples.at_s), 1.0)
    assert (first.number, first.name, second.number) == (0, "Card A", 1)
    assert first.columns["utilisation"].tolist() == pytest.approx([0.92, 0.94])
    assert first.columns["memory_used_bytes"].tolist() == [10 * GIB] * 2
    assert first.columns["sm_clock_hz"].tolist() == [2.475e9, 2.1e9]
    assert first.columns["hot"].tolist() == [0, 1]
    assert second.columns["capped"].tolist() == [0, 1]
    assert np.isnan(second.columns["power_w"][1])


@pytest.mark.parametrize(
    "data",
    [WITH_UNITS.encode("utf-16"), WITH_UNITS.replace("\n", "\r\n").encode(), WITH_UNITS.encode() * 2],
    ids=["PowerShell", "Windows", "header again"],
)
def test_the_same_in_other_clothes(data: bytes) -> None:
    assert of(data).cards[0].columns["utilisation"][:2].tolist()[0] == 0.92


def test_without_units_and_with_seconds_since_1970() -> None:
    samples = of(
        "timestamp,memory.used,memory.total,utilization.gpu\n1764189075,1, 24576, 0\n1764189135,442, 24576, 50\n"
    )
    assert samples.has_clock
    assert samples.at_s.tolist() == [1764189075, 1764189135]
    assert samples.cards[0].columns["utilisation"].tolist() == [0, 0.5]


DEGREES = (36, 38, 41, 60, 37, 39, 40, 36)
EIGHT = {
    "all that people ask for": (
        "timestamp, name, pci.bus_id, driver_version, pstate, pcie.link.gen.max, temperature.gpu, utilization.gpu [%], utilization.memory [%], memory.total [MiB], memory.free [MiB], memory.used [MiB]",
        "2026/03/01 10:00:{s:02}.123, NVIDIA A100-SXM4-80GB, 00000000:{i}7:00.0, 535.104.05, P0, 4, {c}, 97 %, 40 %, 81920 MiB, 2000 MiB, 79000 MiB",
    ),
    "nounits": ("timestamp, index, temperature.gpu, utilization.gpu, power.draw", "2026/03/01 10:00:{s:02}.123, {i}, {c}, 97, 350.12"),
    "the time last, nothing of power": (
        "uuid, temperature.gpu, utilization.gpu [%], power.draw [W], timestamp",
        "GPU-{i}aa-bb, {c}, 97 %, [N/A], 2026/03/01 10:00:{s:02}.123",
    ),
    "what a card does not support": (
        "gpu_name, gpu_serial, index, timestamp, temperature.gpu, temperature.memory, utilization.gpu [%], fan.speed [%], power.draw [W]",
        "NVIDIA H100, [N/A], {i}, 2026/03/01 10:00:{s:02}, {c}, N/A, 97 %, [N/A], [Not Supported]",
    ),
    "names as one word": ("timestamp,index,temperature_gpu,utilization_gpu,memory_used", "2026-03-01T10:00:{s:02},{i},{c},97,79000"),
    "a script of one's own": ("time,gpu_id,gpu_temp,gpu_util,gpu_mem_used", "17723592{s:02}.5,{i},{c},97,79000"),
    "titles": ("Timestamp, GPU ID, GPU Utilization (%), Memory Used (MB), Temperature (C)", "2026-03-01 10:00:{s:02},{i},97,79000,{c}"),
    "a spreadsheet's": ("timestamp;index;temperature.gpu;utilization.gpu [%]", "2026/03/01 10:00:{s:02}.123;{i};{c};97 %"),
    "tabs": ("timestamp\tindex\ttemperature.gpu\tutilization.gpu [%]", "2026/03/01 10:00:{s:02}.123\t{i}\t{c}\t97 %"),
    "quoted": ('"timestamp","index","temperature.gpu","utilization.gpu [%]"', '"2026/03/01 10:00:{s:02}.123","{i}","{c}","97 %"'),
}  # fmt: skip


@pytest.mark.parametrize("form", EIGHT)
def test_eight_cards_as_people_write_them(form: str) -> None:
    header, row = EIGHT[form]
    lines = [row.format(s=second, i=card, c=heat) for second in range(0, 50, 5) for card, heat in enumerate(DEGREES)]
    samples = of("\n".join((header, *lines)) + "\n")
    assert (len(samples), samples.has_clock) == (10, True)
    assert np.diff(samples.at_s).tolist() == [5.0] * 9
    assert [(card.number, float(card.columns["temperature_c"][9])) for card in samples.cards] == list(
        enumerate(map(float, DEGREES))
    )
    assert all(card.columns["utilisation"].tolist() == pytest.approx([0.97] * 10) for card in samples.cards)


def test_without_a_clock_samples_are_counted() -> None:
    samples = of("index, utilization.gpu [%], temperature.gpu\n0, 90 %, 60\n0, 91 %, 61\n")
    assert not samples.has_clock
    assert samples.at_s.tolist() == [0, 1]


def test_reasons_by_name() -> None:
    text = "timestamp, index, clocks_event_reasons.sw_power_cap, clocks_event_reasons.hw_thermal_slowdown\n"
    samples = of(text + "2026/03/01 10:00:00, 0, Active, Not Active\n2026/03/01 10:00:01, 0, Not Active, Active\n")
    assert samples.cards[0].columns["capped"].tolist() == [1, 0]
    assert samples.cards[0].columns["hot"].tolist() == [0, 1]


def test_dmon_with_its_dashes() -> None:
    text = (
        "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk   rxpci  txpci\n"
        "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz    MB/s   MB/s\n"
        " 20260301   10:00:00      0    180     60      -     95     40   9501   2475     100     50\n"
        " 20260301   10:00:01      0    181     61      -     97     41   9501   2475     110     55\n"
    )
    samples = of(text)
    card = samples.cards[0]
    assert np.diff(samples.at_s).tolist() == [1.0]
    assert card.columns["utilisation"].tolist() == pytest.approx([0.95, 0.97])
    assert card.columns["pcie_bytes_per_s"].tolist() == [150e6, 165e6]
    assert card.columns["sm_clock_hz"].tolist() == [2.475e9] * 2


def test_dcgmi_dmon() -> None:
    samples = of("#Entity   GPUTL  POWER  TMPTR\nID\nGPU 0     95     310.2   61\nGPU 1     10     80.0    40\n")
    assert [card.columns["power_w"][0] for card in samples.cards] == [310.2, 80.0]


def test_gpustat_snapshots_one_behind_the_other() -> None:
    def snapshot(second: int) -> str:
        card = {"index": 0, "name": "Card A", "utilization.gpu": 90 + second, "memory.used": 1024, "memory.total": 12288,
                "temperature.gpu": 60, "power.draw": 180, "enforced.power.limit": 200, "processes": []}  # fmt: skip
        return json.dumps({"query_time": f"2026-03-01T10:00:0{second}.500000", "gpus": [card]}, indent=2)

    samples = of(snapshot(0) + "\n" + snapshot(1) + '\n{"query_time": "20')
    assert samples.cards[0].columns["utilisation"].tolist() == pytest.approx([0.90, 0.91])
    assert samples.cards[0].columns["power_limit_w"].tolist() == [200, 200]


def test_prometheus_range_query() -> None:
    def series(name: str, gpu: str, *values: float) -> object:
        points = [[1764189075 + 15 * place, str(value)] for place, value in enumerate(values)]
        return {"metric": {"__name__": name, "gpu": gpu, "modelName": "Card B"}, "values": points}

    result = [
        series("DCGM_FI_DEV_GPU_UTIL", "0", 90, 80),
        series("DCGM_FI_DEV_FB_USED", "0", 1024, 1024),
        series("DCGM_FI_DEV_GPU_UTIL", "1", 5, 6),
    ]
    samples = of(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    assert samples.at_s.tolist() == [1764189075, 1764189090]
    assert [card.columns["utilisation"].tolist() for card in samples.cards] == [[0.9, 0.8], [0.05, 0.06]]
    assert samples.cards[0].columns["memory_used_bytes"].tolist() == [GIB, GIB]


def test_scrapes_of_dcgms_exporter() -> None:
    def scrape(at_ms: int, used: int) -> str:
        labels = 'gpu="0",UUID="GPU-1",modelName="Card B"'
        return f"# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{{{labels}}} {used} {at_ms}\nDCGM_FI_DEV_GPU_TEMP{{{labels}}} 60 {at_ms}\n"

    samples = of(scrape(1764189075000, 90) + scrape(1764189090000, 80))
    assert samples.cards[0].columns["utilisation"].tolist() == [0.9, 0.8]
    assert np.diff(samples.at_s).tolist() == [15.0]


@pytest.mark.parametrize(
    "text", ["", "iter 0: loss 4.2, time 100ms\n", "a,b\n1,2\n", "{}", "[[[[", "# nothing here\n1 2 3\n"]
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="no samples"):
        of(text)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "samples.parquet").write_bytes(b"PAR1 and more")
    with pytest.raises(UsageError, match="needs pyarrow") as raised:
        read_samples(tmp_path / "samples.parquet")
    assert raised.value.remedy is not None
    for message in (raised.value.what, raised.value.remedy):
        assert all(say(message, language) for language in LANGUAGES)


@pytest.mark.parametrize("name", ["kept", "kept/train.log"])
def test_a_log_of_a_run_has_its_samples_beside_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "train.log").write_text("iter 0\n")
    assert samples_of_log(str(tmp_path / name)) is None
    (tmp_path / "kept" / "samples.csv").write_text("")
    assert samples_of_log(str(tmp_path / name)) == str(tmp_path / "kept")


def test_of_the_directory_of_a_run_only_its_log_is_a_log(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for name in ("train.log", "samples.csv", "arrivals.csv", "environment.json"):
        (tmp_path / "kept" / name).write_text("")
    assert dict(places_below(str(tmp_path), print)) == {str(tmp_path): [], str(tmp_path / "kept"): ["train.log"]}
    assert log_in(str(tmp_path / "kept")) == str(tmp_path / "kept" / "train.log")
    assert log_in(str(tmp_path)) == str(tmp_path)


def test_lines_of_a_run_get_the_time_at_which_they_came(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(b"header\r\niter 0\riter 1\niter 2\n")
    (tmp_path / "samples.csv").write_text("# stepwatch.samples/1\ntime_s,cpu\n100,0.5\n101,0.6\n102,")
    (tmp_path / "arrivals.csv").write_text("100.0,8\n101.0,15\n102.5,29\n")
    samples = read_samples(tmp_path)
    assert samples.machine["cpu"].tolist() == [0.5, 0.6]
    assert samples.arrivals is not None
    times, lines = samples.arrivals
    assert times.tolist() == [100.0, 101.0, 102.5]
    assert lines.tolist()[0] == 1
    assert lines.tolist()[-1] == 4


def test_arrivals_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(b"iter 0\niter 1\n")
    (tmp_path / "samples.csv").write_text("# stepwatch.samples/1\ntime_s,cpu\n100,0.5\n101,0.6\n102,")
    (tmp_path / "arrivals.csv").write_bytes(b"1e300,7\n\xff,8\n101.0,1e300\n102.0,\n")
    samples = read_samples(tmp_path)
    assert samples.arrivals is not None
    assert [column.tolist() for column in samples.arrivals] == [[101.0], [2]]


def test_a_clock_of_the_exporter_that_cannot_be_is_none() -> None:
    row = 'DCGM_FI_DEV_GPU_UTIL{{gpu="0",modelName="A"}} 90 {}\n'
    assert not of(row.format("9" * 400) + row.format("1764189075000")).has_clock


@pytest.mark.parametrize("index", ["²", "9" * 5000])
def test_a_number_of_a_card_that_is_none_is_counted_instead(index: str) -> None:
    assert [card.number for card in of(WITH_UNITS.replace(", 1, Card", f", {index}, Card")).cards] == [0, 1]


@pytest.mark.parametrize("value", ["1e300 W", "-5 W", "1e7 W"])
def test_a_value_that_no_machine_can_have_is_unknown_and_counted(value: str) -> None:
    samples = of(WITH_UNITS.replace("187.50 W", value))
    assert samples.outside == ("power_w",)
    assert np.isnan(samples.cards[0].columns["power_w"][0])
    assert samples.cards[0].columns["power_w"][1] == 190.5


def test_a_clock_of_another_century_is_none() -> None:
    rows = "timestamp, index, name, power.draw [W]\n" + "".join(f"{at}, 0, A, 100\n" for at in (1e9, 1e10, 2e9))
    assert not of(rows).has_clock
    assert of(rows).at_s.tolist() == [0.0, 1.0, 2.0]
