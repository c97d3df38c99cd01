"""The card in this machine, told by a stand-in for NVIDIA's library, and cards computed by formula."""

# ruff: noqa: N802, the functions bear NVIDIA's own names
from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from stepwatch.errors import UnknownGpu
from stepwatch.gpus import Gpu, find_gpu, gpus
from stepwatch.gpus.driver import DriverLibrary, Sensors, ThisCard, this_card
from stepwatch.gpus.formula import gpu_by_formula

T = TypeVar("T")
GIB = 2**30
TERA = 1e12


class DriverError(Exception):
    """As NVMLError: not supported, no permission, card lost, function not in this driver."""


@dataclass(kw_only=True)
class Device:
    """What the driver would say of one device; None is what it refuses to say. An RTX 4070 unless told."""

    name: str | bytes | None = "NVIDIA GeForce RTX 4070"
    total: int | None = 12282 * 2**20
    free: int | None = 11 * GIB
    capability: tuple[int, int] | None = (8, 9)
    cores: int | None = 5888
    bus_bits: int | None = 192
    max_mhz: dict[int, int] | None = field(default_factory=lambda: {1: 3105, 2: 10501})
    mhz: dict[int, int] | None = field(default_factory=lambda: {1: 210, 2: 405})
    enforced_mw: int | None = 200_000
    limit_mw: int | None = 200_000
    default_mw: int | None = 200_000
    parts: tuple[Device | None, ...] = ()
    multiprocessors: int | None = None
    celsius: int | None = 71
    drawn_mw: int | None = 187_400
    busy_percent: int | None = 97
    reasons: int | None = 0
    pcie_kb: int | None = 1000
    processes: dict[int, int | None] | None = field(default_factory=dict)
    near: tuple[int, ...] | None = None


class Driver:
    """A small NVML: handles are the devices themselves, a figure that is None is an error."""

    def __init__(self, *devices: Device | None, version: str | bytes | None = "580.65.06", starts: bool = True) -> None:
        self.devices = devices
        self.version = version
        self.starts = starts
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.starts:
            raise DriverError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self._told(self.version)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> Device:
        return self._told(self.devices[index])

    def nvmlDeviceGetName(self, handle: Device, /) -> Any:
        return self._told(handle.name)

    def nvmlDeviceGetMemoryInfo(self, handle: Device, /) -> SimpleNamespace:
        return SimpleNamespace(total=self._told(handle.total), free=self._told(handle.free))

    def nvmlDeviceGetCudaComputeCapability(self, handle: Device, /) -> tuple[int, int]:
        return self._told(handle.capability)

    def nvmlDeviceGetNumGpuCores(self, handle: Device, /) -> int:
        return self._told(handle.cores)

    def nvmlDeviceGetMemoryBusWidth(self, handle: Device, /) -> int:
        return self._told(handle.bus_bits)

    def nvmlDeviceGetMaxClockInfo(self, handle: Device, kind: int, /) -> int:
        return self._told(handle.max_mhz)[kind]

    def nvmlDeviceGetClockInfo(self, handle: Device, kind: int, /) -> int:
        return self._told(handle.mhz)[kind]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Device, /) -> int:
        return self._told(handle.enforced_mw)

    def nvmlDeviceGetPowerManagementLimit(self, handle: Device, /) -> int:
        return self._told(handle.limit_mw)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Device, /) -> int:
        return self._told(handle.default_mw)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Device, /) -> int:
        return len(handle.parts)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Device, index: int, /) -> Device:
        return self._told(handle.parts[index])

    def nvmlDeviceGetAttributes(self, handle: Device, /) -> SimpleNamespace:
        return SimpleNamespace(multiprocessorCount=self._told(handle.multiprocessors))

    def nvmlDeviceGetTemperature(self, handle: Device, sensor: int, /) -> int:
        return self._told(handle.celsius if sensor == 0 else None)

    def nvmlDeviceGetPowerUsage(self, handle: Device, /) -> int:
        return self._told(handle.drawn_mw)

    def nvmlDeviceGetUtilizationRates(self, handle: Device, /) -> SimpleNamespace:
        return SimpleNamespace(gpu=self._told(handle.busy_percent))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Device, /) -> int:
        return self._told(handle.reasons)

    def nvmlDeviceGetPcieThroughput(self, handle: Device, counter: int, /) -> int:
        return self._told(handle.pcie_kb) if counter in (0, 1) else self._told(None)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Device, /) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self._told(handle.processes).items()]

    def nvmlDeviceGetCpuAffinity(self, handle: Device, words: int, /) -> tuple[int, ...]:
        return self._told(handle.near)[:words]

    def _told(self, figure: T | None) -> T:
        if self.open != 1 or figure is None:
            raise DriverError("Uninitialized" if self.open != 1 else "Not Supported")
        return figure


A100 = Device(
    name="NVIDIA A100-SXM4-40GB",
    total=40 * GIB,
    capability=(8, 0),
    cores=6912,
    bus_bits=5120,
    max_mhz={1: 1410, 2: 1215},
    default_mw=400_000,
)
SILENT: dict[str, Any] = {
    "total": None, "free": None, "capability": None, "cores": None, "bus_bits": None, "max_mhz": None, "mhz": None,
    "enforced_mw": None, "limit_mw": None, "default_mw": None,
}  # fmt: skip
# No such card exists.
UNKNOWN_GEFORCE = Device(name="NVIDIA GeForce RTX 4065", total=10 * GIB, cores=36 * 128, bus_bits=160)


# The card.


def test_a_card_of_the_catalogue_is_found_with_the_state_it_is_in() -> None:
    card = this_card(Driver(Device()))
    assert card == ThisCard(gpu=find_gpu("4070"), name="NVIDIA GeForce RTX 4070", count=1, driver_version="580.65.06")
    (device,) = Sensors(Driver(Device())).devices
    assert (device.vram_bytes, device.free_vram_bytes) == (12282 * 2**20, 11 * GIB)
    assert (device.power_limit_w, device.default_power_limit_w) == (200, 200)
    assert (device.max_sm_clock_hz, device.current_sm_clock_hz) == (3105e6, 210e6)


def test_names_and_versions_may_be_bytes() -> None:
    card = this_card(Driver(Device(name=b"NVIDIA GeForce RTX 4070"), version=b"470.82"))
    assert card.gpu is find_gpu("4070")
    assert (card.name, card.driver_version) == ("NVIDIA GeForce RTX 4070", "470.82")


def test_bytes_that_are_no_text_are_still_a_name() -> None:
    assert this_card(Driver(Device(name=b"NVIDIA \xf8\xff"))).gpu.vram_bytes == 12282 * 2**20


def test_a_laptop_card_is_not_the_desktop_card_of_its_number() -> None:
    device = Device(name="NVIDIA GeForce RTX 4070 Laptop GPU", total=8188 * 2**20, cores=4608, bus_bits=128)
    assert this_card(Driver(device)).gpu is find_gpu("RTX 4070 Laptop")


def test_old_names_of_laptop_cards_are_understood() -> None:
    device = Device(name="GeForce RTX 3070 with Max-Q Design", total=8 * GIB, capability=(8, 6), cores=5120)
    assert this_card(Driver(device)).gpu.name == "GeForce RTX 3070 Laptop GPU"


@pytest.mark.parametrize(
    ("name", "gib", "capability", "cores", "meant"),
    [
        ("NVIDIA GeForce RTX 3080", 12, (8, 6), 8960, "GeForce RTX 3080 12GB"),
        ("NVIDIA GeForce RTX 3080", 10, (8, 6), 8704, "GeForce RTX 3080 10GB"),
        ("NVIDIA GeForce RTX 3050", 6, (8, 6), 2304, "GeForce RTX 3050 6GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 16, (8, 9), 4352, "GeForce RTX 4060 Ti 16GB"),
        ("GeForce RTX 2060", 12, (7, 5), 2176, "GeForce RTX 2060 12GB"),
    ],
)
def test_memory_and_cores_decide_between_cards_of_one_name(
    name: str, gib: int, capability: tuple[int, int], cores: int, meant: str
) -> None:
    device = Device(name=name, total=gib * GIB, capability=capability, cores=cores)
    assert this_card(Driver(device)).gpu is find_gpu(meant)


def test_a_card_with_more_multiprocessors_than_its_name_promises_is_computed_from_them() -> None:
    device = Device(name="NVIDIA GeForce RTX 3050 Laptop GPU", total=6 * GIB, capability=(8, 6), cores=20 * 128)
    found, known = this_card(Driver(device)).gpu, find_gpu("RTX 3050 Laptop")
    assert known.bf16_flops
    assert found.bf16_flops == pytest.approx(known.bf16_flops * 20 / 16)
    assert (found.sm_count, found.vram_bytes, found.confidence) == (20, 6 * GIB, "C")
    assert found.name == "GeForce RTX 3050 Laptop GPU (20 SMs)"
    assert find_gpu(found.name) is known


def test_a_power_limit_below_the_default_is_reported_and_leaves_the_peak_alone() -> None:
    driver = Driver(Device(enforced_mw=100_000, limit_mw=100_000))
    assert this_card(driver).gpu is find_gpu("4070")
    (device,) = Sensors(driver).devices
    assert (device.power_limit_w, device.default_power_limit_w) == (100, 200)


def test_the_limit_that_was_set_stands_in_for_the_one_in_force() -> None:
    assert Sensors(Driver(Device(enforced_mw=None, limit_mw=150_000))).devices[0].power_limit_w == 150


def test_figures_that_the_driver_refuses_are_unknown() -> None:
    driver = Driver(Device(**SILENT), version=None)
    assert this_card(driver) == ThisCard(gpu=find_gpu("4070"), name="NVIDIA GeForce RTX 4070", count=1)
    (device,) = Sensors(driver).devices
    assert (device.vram_bytes, device.free_vram_bytes, device.power_limit_w) == (None, None, None)
    assert (device.default_power_limit_w, device.max_sm_clock_hz, device.current_sm_clock_hz) == (None, None, None)


@pytest.mark.parametrize("figure", sorted(SILENT))
def test_one_refused_figure_costs_no_other(figure: str) -> None:
    refused: dict[str, Any] = {figure: None}
    driver = Driver(Device(**refused))
    card = this_card(driver)
    assert card.gpu is find_gpu("4070")
    (device,) = Sensors(driver).devices
    told = [device.current_sm_clock_hz, device.default_power_limit_w, card.driver_version]
    assert sum(value is None for value in told) <= 1


@pytest.mark.parametrize("nothing", [0, 2**32 - 1])
def test_zero_and_the_mark_for_not_available_are_unknown(nothing: int) -> None:
    device = Device(enforced_mw=nothing, limit_mw=nothing, default_mw=nothing, mhz={1: nothing}, cores=nothing)
    (found,) = Sensors(Driver(device)).devices
    assert (found.power_limit_w, found.default_power_limit_w, found.current_sm_clock_hz) == (None, None, None)
    assert this_card(Driver(device)).gpu is find_gpu("4070")


def test_memory_that_is_all_in_use_is_zero_and_not_unknown() -> None:
    assert Sensors(Driver(Device(free=0))).devices[0].free_vram_bytes == 0


# Cards that the catalogue does not know.


def test_an_unknown_card_is_computed_below_its_highest_clock() -> None:
    card = this_card(Driver(UNKNOWN_GEFORCE))
    assert card.gpu.name == "GeForce RTX 4065"
    assert card.gpu.bf16_flops == pytest.approx(36 * 512 * 3105e6 / 1.25)
    assert card.gpu.impossible_above_flops("bfloat16") == pytest.approx(36 * 512 * 3105e6)
    assert card.gpu.bandwidth_bytes_per_s == pytest.approx(160 / 8 * 2 * 10501e6)
    assert (card.gpu.sm_count, card.gpu.vram_bytes, card.gpu.tdp_w) == (36, 10 * GIB, 200)
    assert (card.gpu.confidence, card.gpu.segment) == ("C", "geforce")
    assert "computed" in card.gpu.sources


def test_an_unknown_data_centre_card_is_computed_at_its_highest_clock() -> None:
    card = this_card(Driver(Device(name="NVIDIA A101", capability=(8, 0), cores=6912, max_mhz={1: 1410})))
    assert card.gpu.bf16_flops == pytest.approx(312 * TERA, rel=0.001)


@pytest.mark.parametrize(
    ("name", "highest_mhz"),
    [("GeForce RTX 3090", 2100), ("GeForce RTX 4070", 3105), ("GeForce RTX 4090", 3120), ("NVIDIA RTX A6000", 2100)],
)
def test_the_computed_clock_is_near_the_advertised_one(name: str, highest_mhz: int) -> None:
    known = find_gpu(name)
    assert known.sm_count
    stranger = Device(
        name=name.replace("RTX", "RTX Y"),
        capability=known.compute_capability,
        cores=known.sm_count * 128,
        max_mhz={1: highest_mhz},
    )
    assert this_card(Driver(stranger)).gpu.fp32_flops == pytest.approx(known.fp32_flops, rel=0.08)


@pytest.mark.parametrize(
    "lacking", [{"capability": (13, 0)}, {"capability": (5, 2)}, {"cores": None}, {"max_mhz": None}]
)
def test_a_card_that_cannot_be_computed_keeps_what_is_known_and_no_peak(lacking: dict[str, Any]) -> None:
    device = Device(name="NVIDIA GeForce GTX 9999", total=10 * GIB, **lacking)
    gpu = this_card(Driver(device)).gpu
    assert (gpu.name, gpu.vram_bytes, gpu.confidence) == ("GeForce GTX 9999", 10 * GIB, "C")
    assert gpu.peak_flops().flops is None
    assert gpu.has_bf16 == (lacking.get("capability") != (5, 2))


# Parts of a card.


def test_a_mig_part_has_its_share_of_the_card() -> None:
    own = {"total": 4864 * 2**20, "free": 4800 * 2**20, "multiprocessors": 14}
    part = Device(name="NVIDIA A100-SXM4-40GB MIG 1g.5gb", **(SILENT | own))
    # A card that is split does not tell its cores.
    split = replace(A100, cores=None, parts=(None, part, part))
    card = this_card(Driver(split))
    assert card.gpu.name == "NVIDIA A100 SXM4 40GB MIG 1g.5gb"
    assert card.gpu.bf16_flops == pytest.approx(312 * TERA * 14 / 108)
    assert card.gpu.bandwidth_bytes_per_s == pytest.approx(1555e9 / 8)
    assert (card.gpu.sm_count, card.gpu.vram_bytes, card.gpu.confidence) == (14, 4864 * 2**20, "C")
    assert (card.gpu.link, card.gpu.tdp_w) == (None, None)
    assert (card.name, card.count) == ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 1)
    (whole,) = Sensors(Driver(split)).devices
    first = whole.first_part()
    assert first is not None
    assert (first.free_vram_bytes, whole.default_power_limit_w) == (4800 * 2**20, 400)


def test_a_mig_part_of_unknown_size_has_no_peak() -> None:
    device = Device(name="NVIDIA A100-SXM4-40GB MIG 1g.5gb", **SILENT)
    gpu = this_card(Driver(device)).gpu
    assert gpu.name == "NVIDIA A100 SXM4 40GB MIG 1g.5gb"
    assert (gpu.peak_flops().flops, gpu.vram_bytes, gpu.bandwidth_bytes_per_s) == (None, None, None)


def test_a_device_that_calls_itself_a_mig_part_is_one() -> None:
    device = Device(name="NVIDIA H100 80GB HBM3 MIG 2g.20gb", total=20 * GIB, capability=(9, 0), multiprocessors=32)
    gpu = this_card(Driver(device)).gpu
    assert gpu.bf16_flops == pytest.approx(989.4 * TERA * 32 / 132)
    assert gpu.bandwidth_bytes_per_s == pytest.approx(3352e9 / 4)


# Several cards, none, and the library itself.


def test_of_several_cards_the_fastest_is_taken_and_all_are_counted() -> None:
    display = Device(name="NVIDIA GeForce GTX 1080", capability=(6, 1), cores=2560, total=8 * GIB)
    card = this_card(Driver(display, A100, Device()))
    assert card.gpu is find_gpu("A100-SXM4-40GB")
    assert card.count == 3


def test_of_equal_cards_the_first_is_taken() -> None:
    first, second = Device(name="GeForce RTX 4070"), Device()
    assert this_card(Driver(first, second)).name == "GeForce RTX 4070"
    assert this_card(Driver(second, first)).name == "NVIDIA GeForce RTX 4070"


def test_a_card_that_is_lost_is_passed_over() -> None:
    assert this_card(Driver(None, Device(name=None), Device())).gpu is find_gpu("4070")


@pytest.mark.parametrize(
    "driver", [Driver(), Driver(starts=False), Driver(None), Driver(Device(name=None)), Driver(Device(name=" "))]
)
def test_without_a_card_the_error_says_how_to_name_one(driver: Driver) -> None:
    with pytest.raises(UnknownGpu, match="no NVIDIA card was found in this machine") as caught:
        this_card(driver)
    assert caught.value.remedy is not None
    assert "--gpu" in caught.value.remedy.in_english()
    assert driver.open == 0


def test_the_library_is_closed_after_use() -> None:
    driver = Driver(Device())
    this_card(driver)
    assert driver.open == 0


def test_a_library_that_does_not_close_does_no_harm() -> None:
    class Stuck(Driver):
        def nvmlShutdown(self) -> None:
            raise DriverError("Uninitialized")

    assert this_card(Stuck(Device())).gpu is find_gpu("4070")


def test_a_machine_answers_with_its_card_or_says_that_it_has_none() -> None:
    try:
        answer = this_card().gpu.vendor
    except UnknownGpu as error:
        answer = str(error)
    assert answer in ("NVIDIA", "no NVIDIA card was found in this machine")


def test_every_function_that_is_asked_for_is_in_the_real_library() -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    wanted = [name for name in vars(DriverLibrary) if name.startswith("nvml")]
    assert len(wanted) > 10
    assert [name for name in wanted if not callable(getattr(pynvml, name, None))] == []
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (1, 2)


def test_importing_the_cards_loads_neither_driver_nor_formula() -> None:
    code = "import stepwatch.gpus, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "stepwatch.gpus.names" in loaded
    assert {"stepwatch.gpus.driver", "stepwatch.gpus.formula", "pynvml"}.isdisjoint(loaded)


# The formula.

KNOWN = [
    gpu
    for gpu in gpus()
    if gpu.vendor == "NVIDIA"
    and gpu.sm_count
    and gpu.boost_hz
    and gpu.compute_capability != (5, 2)
    and gpu.name != "GeForce RTX 5090 D"  # capped for export, nobody knows how far
]


def computed(gpu: Gpu) -> Gpu:
    assert gpu.sm_count
    assert gpu.boost_hz
    assert gpu.compute_capability
    found = gpu_by_formula(
        gpu.name,
        compute_capability=gpu.compute_capability,
        sm_count=gpu.sm_count,
        sm_clock_hz=gpu.boost_hz,
        vram_bytes=gpu.vram_bytes,
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
        tdp_w=gpu.tdp_w,
    )
    assert found is not None
    return found


def test_the_formula_agrees_with_the_catalogue() -> None:
    for gpu in KNOWN:
        found = computed(gpu)
        same = ("name", "vendor", "segment", "architecture", "compute_capability", "sm_count", "vram_bytes", "has_bf16")
        assert [getattr(found, name) for name in same] == [getattr(gpu, name) for name in same], gpu.name
        # Advertised TOPS of laptop cards imply other clocks than the advertised ones; Hopper's tensor cores run slower.
        tolerance = 0.27 if gpu.is_laptop else 0.19 if gpu.architecture == "Hopper" else 0.09
        for peak in ("fp32_flops", "tf32_flops", "fp16_flops", "bf16_flops", "fp8_flops", "int8_ops"):
            known = getattr(gpu, peak)
            assert getattr(found, peak) == (None if known is None else pytest.approx(known, rel=tolerance)), (
                gpu.name,
                peak,
            )


@pytest.mark.parametrize(
    ("name", "capability", "fp16_rate"),
    [
        ("NVIDIA GeForce RTX 3065", (8, 6), 512),
        ("rtx 3060", (8, 6), 512),
        ("NVIDIA RTX A4700", (8, 6), 1024),
        ("NVIDIA RTX A3000 Laptop GPU", (8, 6), 1024),
        ("NVIDIA A10G", (8, 6), 512),
        ("NVIDIA A10", (8, 6), 1024),
        ("NVIDIA L40", (8, 9), 512),
        ("NVIDIA L40S", (8, 9), 1024),
        ("NVIDIA RTX 3500 Ada Generation Laptop GPU", (8, 9), 1024),
        ("NVIDIA RTX 4000 Ada Generation", (8, 9), 1024),
        ("NVIDIA GeForce RTX 4065 Laptop GPU", (8, 9), 512),
        ("NVIDIA RTX PRO 4500 Blackwell", (12, 0), 1024),
        ("NVIDIA GeForce RTX 5055", (12, 0), 512),
        ("NVIDIA H20-3e", (9, 0), 1024),
        ("NVIDIA H200", (9, 0), 4096),
        ("GeForce RTX 2080 Ti", (7, 5), 512),
        ("Quadro RTX 3000 with Max-Q Design", (7, 5), 1024),
        ("GRID RTX6000-8Q", (7, 5), 1024),
        ("TITAN RTX", (7, 5), 1024),
        ("Tesla T4", (7, 5), 1024),
        ("GRID T4-16Q", (7, 5), 1024),
        ("NVIDIA GeForce GTX 1660 Ti", (7, 5), None),
        ("NVIDIA GeForce MX450", (7, 5), None),
        ("NVIDIA T400 4GB", (7, 5), None),
        ("NVIDIA T1000", (7, 5), None),
        ("NVIDIA GeForce GTX 1060", (6, 1), None),
    ],
)
def test_the_name_tells_the_class_within_a_compute_capability(
    name: str, capability: tuple[int, int], fp16_rate: int | None
) -> None:
    gpu = gpu_by_formula(name, compute_capability=capability, sm_count=10, sm_clock_hz=1e9, vram_bytes=None)
    assert gpu is not None
    assert gpu.fp16_flops == (None if fp16_rate is None else 10 * fp16_rate * 1e9)
    assert gpu.peak_flops("float32").flops is not None


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("NVIDIA GeForce RTX 4065", "geforce"),
        ("NVIDIA GeForce RTX 4065 Laptop GPU", "laptop"),
        ("GeForce RTX 2070 with Max-Q Design", "laptop"),
        ("NVIDIA GeForce MX450", "laptop"),
        ("NVIDIA RTX 3500 Ada Generation Laptop GPU", "workstation"),
        ("Quadro P4000", "workstation"),
        ("NVIDIA T1000", "workstation"),
        ("TITAN RTX", "titan"),
        ("Tesla P40", "datacentre"),
        ("GRID T4-16Q", "datacentre"),
        ("NVIDIA A40-8Q", "datacentre"),
    ],
)
def test_the_name_tells_the_segment(name: str, segment: str) -> None:
    gpu = gpu_by_formula(name, compute_capability=(8, 6), sm_count=10, sm_clock_hz=1e9, vram_bytes=None)
    assert gpu is not None
    assert gpu.segment == segment


def test_a_computed_card_says_so() -> None:
    gpu = computed(find_gpu("4090"))
    assert gpu.confidence == "C"
    assert gpu.sources == "[SM] computed: 128 SMs x 512 x 2.520 GHz"
    assert gpu.bf16_flops == pytest.approx(165.2 * TERA, rel=0.001)


@pytest.mark.parametrize("capability", [(3, 5), (5, 2), (8, 7), (10, 3), (12, 1), (13, 0)])
def test_a_compute_capability_without_rates_gives_nothing(capability: tuple[int, int]) -> None:
    gpu = gpu_by_formula("NVIDIA X", compute_capability=capability, sm_count=9, sm_clock_hz=1e9, vram_bytes=GIB)
    assert gpu is None


# --- what a card is doing ---------------------------------------------------------------------------------------


def test_sensors_read_the_card_with_most_memory_in_use() -> None:
    driver = Driver(
        Device(name="NVIDIA T1000", total=4 * GIB, free=4 * GIB), replace(A100, free=10 * GIB, mhz={1: 1395})
    )
    sensors = Sensors(driver)
    reading = sensors.read()
    assert (reading.name, reading.sm_clock_hz, reading.temperature_c) == ("NVIDIA A100-SXM4-40GB", 1395e6, 71)
    assert (reading.power_w, reading.used_vram_bytes, reading.vram_bytes) == (187.4, 30 * GIB, 40 * GIB)
    sensors.close()
    assert driver.open == 0


def test_sensors_that_say_nothing_are_none_and_the_rest_still_counts() -> None:
    reading = Sensors(Driver(Device(celsius=None, drawn_mw=None, free=None))).read()
    assert (reading.temperature_c, reading.power_w, reading.used_vram_bytes) == (None, None, None)
    assert reading.sm_clock_hz == 210e6


@pytest.mark.parametrize("driver", [Driver(starts=False), Driver(), Driver(None)])
def test_without_a_card_there_are_no_sensors(driver: Driver) -> None:
    with pytest.raises(UnknownGpu):
        Sensors(driver)
    assert driver.open == 0
