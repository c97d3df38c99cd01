"""This machine as `stepwatch calibrate` measured it: the value, its file, and whether the file is from this machine."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stepwatch import bounds
from stepwatch.errors import InputError, UnknownGpu
from stepwatch.messages import Message
from stepwatch.platforms import allowed_processors

SCHEMA = "stepwatch.calibration/1"
FILE_NAME = "calibration.json"
AGAIN = Message("measure again: stepwatch calibrate")
SEQUENCES = 8  # that the attention is measured over
COMPILED_LAYERS = 2  # of the model that is compiled
# Names of the figures in every calibration, of those only for a processor, and of its curves with their axes.
FIGURES = {"bandwidth", "launch", "save_tensor", "save_rate"}
OF_PROCESSOR = {"matmul_float32", "dropout_element", "bias", "batch_sequence"}
PARTS = {
    "layer": ("tokens", "n_embd"),
    "attention": ("block_size", "head_size"),
    "scores": ("block_size", "head_size"),
    "head": ("logits", "vocab_size", "n_embd"),
    "embedding": ("elements",),
}
CURVES = {f"{part}_{passes}": axes for part, axes in PARTS.items() for passes in ("forward", "both")}
CURVES["optimizer"] = ("elements",)


class Measurement(NamedTuple):
    """The median and the quartiles of a repeated measurement."""

    value: float
    low: float
    high: float
    unit: str = "s"

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, as a share of the value."""
        return (self.high - self.low) / 2 / self.value

    def over(self, divisor: float, unit: str | None = None) -> Measurement:
        return Measurement(self.value / divisor, self.low / divisor, self.high / divisor, unit or self.unit)


class Axis(NamedTuple):
    name: str
    points: tuple[float, ...]


class Curve(NamedTuple):
    """Figures over a grid, the last axis running fastest."""

    axes: tuple[Axis, ...]
    figures: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """`figures` and `curves` have the names that docs/calibrate.md explains."""

    device: str  # cpu or cuda
    name: str  # of the card as its driver spells it, or of the processor
    processor: str
    cores: int
    threads: int
    memory_bytes: float
    torch: str
    driver: str | None
    made: str  # ISO 8601, UTC
    figures: Mapping[str, Measurement]
    curves: Mapping[str, Curve]

    @property
    def waiting(self) -> float:
        """How many times longer everything took because other programs used the processors, too."""
        return max(self.figures["waiting"].value, 1.0) if "waiting" in self.figures else 1.0

    @property
    def noise(self) -> float:
        """How unsteady the machine was: the median spread of all figures, or the slowdown by others if larger."""
        spreads = sorted(figure.spread for curve in self.curves.values() for figure in curve.figures)
        return max(spreads[len(spreads) // 2] if spreads else 0.0, self.waiting - 1)

    @property
    def is_busy(self) -> bool:
        """Whether the machine was not idle when it was measured."""
        return self.noise > 0.1


class NoCalibration(UnknownGpu):
    """The calibration is missing, cannot be read, or is from another machine."""


# --- the file ---------------------------------------------------------------------------------------------------


def config_directory(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> str:
    """The user's configuration directory; stepwatch keeps only the calibration there."""
    home = os.path.expanduser("~")
    if system == "win32":
        return os.path.join(environment.get("APPDATA") or os.path.join(home, "AppData", "Roaming"), "stepwatch")
    if system == "darwin":
        return os.path.join(home, "Library", "Application Support", "stepwatch")
    base = environment.get("XDG_CONFIG_HOME") or ""
    return os.path.join(base if os.path.isabs(base) else os.path.join(home, ".config"), "stepwatch")


def calibration_path() -> str:
    return os.path.join(config_directory(), FILE_NAME)


def save_calibration(found: Calibration, path: str | None = None) -> str:
    """Saves it atomically: writes a new file next to the old one, then renames it. Returns its path."""
    path = path or calibration_path()
    text = json.dumps(calibration_json(found), ensure_ascii=False, indent=1) + "\n"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".calibration-")
        try:
            with open(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        reason = {"reason": error.strerror or type(error).__name__}
        raise InputError(
            Message("the calibration cannot be written: {reason:word}", reason),
            Message("free some space in the user's config directory, or make it writable"),
        ) from error
    return path


def load_calibration() -> Calibration | None:
    """The saved calibration, or None if there is none. Raises NoCalibration if the file cannot be used."""
    try:
        with open(calibration_path(), encoding="utf-8") as stream:
            text = stream.read(1_000_000)  # a larger file is not ours
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise NoCalibration(Message("the calibration of this machine cannot be read"), AGAIN) from error
    try:
        data = json.loads(text)
        schema = data["schema"]
        if schema == SCHEMA:
            return _calibration(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NoCalibration(Message("the calibration of this machine is damaged"), AGAIN) from error
    raise NoCalibration(
        Message("the calibration of this machine is of another version: {schema:word}", {"schema": schema}), AGAIN
    )


def calibration_json(found: Calibration) -> dict[str, Any]:
    curves = {
        name: {
            "unit": curve.figures[0].unit,  # the same for all points
            "axes": {axis.name: list(axis.points) for axis in curve.axes},
            "points": [list(_rounded(figure)[:3]) for figure in curve.figures],  # value, low and high
        }
        for name, curve in found.curves.items()
    }
    plain = ("device", "name", "processor", "cores", "threads", "memory_bytes", "torch", "driver", "made")
    return {
        "schema": SCHEMA,
        **{name: getattr(found, name) for name in plain},
        "figures": {name: _rounded(figure)._asdict() for name, figure in found.figures.items()},
        "curves": curves,
    }


def _rounded(figure: Measurement) -> Measurement:
    value, low, high = (float(f"{number:.6g}") for number in (figure.value, figure.low, figure.high))
    return Measurement(value, low, high, figure.unit)


def _calibration(data: Mapping[str, Any]) -> Calibration:
    if data["device"] not in ("cpu", "cuda"):
        raise ValueError(data["device"])
    found = Calibration(
        device=data["device"],
        name=str(data["name"]),
        processor=str(data["processor"]),
        cores=int(_inside(data["cores"], bounds.CORES)),
        threads=int(_inside(data["threads"], bounds.CORES)),
        memory_bytes=_inside(data["memory_bytes"]),
        torch=str(data["torch"]),
        driver=None if data["driver"] is None else str(data["driver"]),
        made=str(data["made"]),
        figures={
            str(name): _figure((figure["value"], figure["low"], figure["high"]), figure["unit"])
            for name, figure in data["figures"].items()
        },
        curves={str(name): _curve(value) for name, value in data["curves"].items()},
    )
    is_processor = found.device == "cpu"
    axes = {name: tuple(axis.name for axis in curve.axes) for name, curve in found.curves.items()}
    if not (FIGURES | OF_PROCESSOR if is_processor else FIGURES) <= found.figures.keys():
        raise ValueError("figures are missing")
    if is_processor and not CURVES.items() <= axes.items():
        raise ValueError("curves are missing")
    return found


def _curve(data: Mapping[str, Any]) -> Curve:
    axes = tuple(Axis(str(name), tuple(map(_inside, points))) for name, points in data["axes"].items())
    if any(len(axis.points) < 2 or list(axis.points) != sorted(set(axis.points)) for axis in axes):
        raise ValueError("an axis that does not rise")
    figures = tuple(_figure(point, data["unit"]) for point in data["points"])
    if len(figures) != math.prod(len(axis.points) for axis in axes):
        raise ValueError("points are missing")
    return Curve(axes, figures)


def _figure(point: Sequence[Any], unit: object) -> Measurement:
    value, low, high = map(_inside, point)
    if not low <= value <= high:
        raise ValueError("a value outside its spread")
    return Measurement(value, low, high, str(unit))


def _inside(value: Any, limits: bounds.Range = bounds.CALIBRATED) -> float:
    number = bounds.within(limits, value)
    if number is None:
        raise ValueError(f"no such figure: {value}")
    return number


# --- the machine ------------------------------------------------------------------------------------------------


def processor_name() -> str:
    """The model name of the processor; only its architecture if the system does not say more."""
    if sys.platform == "linux":
        try:
            with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
                named = next((line for line in stream if line.startswith("model name")), "")
        except OSError:
            named = ""
        if named:
            return " ".join(named.partition(":")[2].split())
    return platform.processor() or platform.machine() or "cpu"


def check_processor(found: Calibration) -> None:
    """Raises NoCalibration if the file is from another machine, for example in a shared home directory."""
    here = (processor_name(), allowed_processors())
    if (found.processor, found.cores) != here:
        facts = {"name": found.processor, "cores": found.cores, "here": here[0], "now": here[1]}
        raise NoCalibration(
            Message("the calibration is of {name:word} with {cores:n} cores, this is {here:word} with {now:n}", facts),
            AGAIN,
        )
