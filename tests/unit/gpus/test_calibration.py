"""This machine as it was measured: its file, when it is used and when not."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.calibrations import a_calibration, figure
from tests.unit.gpus.test_driver import Device, Driver

from stepwatch.cli import main
from stepwatch.errors import InputError, UnknownGpu
from stepwatch.estimator.estimation import estimate
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import calibration
from stepwatch.gpus.calibration import NoCalibration, config_directory, load_calibration, save_calibration
from stepwatch.gpus.names import named_card
from stepwatch.gpus.this_machine import card_of_this_machine
from stepwatch.i18n import LANGUAGES
from stepwatch.presenters import render

CONFIG = (
    "--n_layer=4", "--n_head=4", "--n_embd=128", "--block_size=64", "--batch_size=12", "--vocab_size=65",
    "--gradient_accumulation_steps=1", "--max_iters=2000", "--compile=False",
)  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config directory of its own, and no NVIDIA library."""
    monkeypatch.setattr(calibration, "config_directory", lambda: str(tmp_path / "config"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return tmp_path / "config" / "calibration.json"


def told(*arguments: str) -> Any:
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


# --- the file ---------------------------------------------------------------------------------------------------


def test_what_was_written_is_read(place: Path) -> None:
    assert load_calibration() is None
    assert save_calibration(a_calibration()) == str(place)
    assert load_calibration() == a_calibration()


def test_every_figure_has_a_unit_and_a_spread(place: Path) -> None:
    save_calibration(a_calibration())
    written = json.loads(place.read_text(encoding="utf-8"))
    assert all({"value", "low", "high", "unit"} == set(one) for one in written["figures"].values())
    assert all(one["unit"] and all(len(point) == 3 for point in one["points"]) for one in written["curves"].values())


def test_a_write_that_fails_leaves_what_was_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_calibration(a_calibration())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="No space left"):
        save_calibration(a_calibration(threads=64))
    assert load_calibration() == a_calibration()
    assert [path.name for path in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"schema": "stepwatch.calibration/1"}', '{"schema": 5}', "[" * 100_000, "\x00"]
)
def test_a_damaged_file_is_told_with_the_way_out(place: Path, text: str) -> None:
    place.parent.mkdir()
    place.write_text(text, encoding="utf-8")
    with pytest.raises(NoCalibration) as caught:
        load_calibration()
    assert caught.value.remedy is not None
    assert "stepwatch calibrate" in caught.value.remedy.key


@pytest.mark.parametrize(
    "change",
    [
        {"cores": "many"}, {"cores": 0}, {"threads": 10**7}, {"device": "abacus"}, {"memory_bytes": -1},
        {"memory_bytes": 1e300}, {"memory_bytes": 10**400}, {"curves": {"a": 1}},
        {"figures": {"disk": {"value": 1e-300, "low": 1e-300, "high": 1e300, "unit": "s"}}},
    ],
)  # fmt: skip
def test_figures_that_cannot_be_are_damage(place: Path, change: dict[str, Any]) -> None:
    save_calibration(a_calibration())
    place.write_text(json.dumps(json.loads(place.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(NoCalibration):
        load_calibration()


@pytest.mark.parametrize("part", ["figures", "curves"])
def test_a_part_that_is_missing_or_renamed_is_damage(place: Path, part: str) -> None:
    save_calibration(a_calibration())
    whole = json.loads(place.read_text(encoding="utf-8"))
    optional = {"compile", "compiled_share"}
    for name in whole[part].keys() - optional:
        less = whole[part] | {f"{name}s": whole[part][name]}
        del less[name]
        place.write_text(json.dumps(whole | {part: less}), encoding="utf-8")
        with pytest.raises(NoCalibration):
            load_calibration()


def test_a_curve_over_another_axis_is_damage(place: Path) -> None:
    save_calibration(a_calibration())
    place.write_text(place.read_text(encoding="utf-8").replace('"head_size"', '"head"'), encoding="utf-8")
    with pytest.raises(NoCalibration):
        load_calibration()


def test_another_version_is_told_as_such(place: Path) -> None:
    place.parent.mkdir()
    place.write_text('{"schema": "stepwatch.calibration/9"}', encoding="utf-8")
    with pytest.raises(NoCalibration, match="another version"):
        load_calibration()


def test_each_system_has_its_place() -> None:
    assert config_directory({"XDG_CONFIG_HOME": "/xdg"}, "linux") == os.path.join("/xdg", "stepwatch")
    assert config_directory({}, "linux").endswith(os.path.join(".config", "stepwatch"))
    assert config_directory({"APPDATA": "roaming"}, "win32") == os.path.join("roaming", "stepwatch")
    assert config_directory({}, "darwin").endswith(os.path.join("Library", "Application Support", "stepwatch"))


# --- when it is used --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["this", "cpu", "CPU"])
def test_a_measured_processor_gives_an_estimate(name: str) -> None:
    save_calibration(a_calibration())
    answer = told("estimate", "--gpu", name, *CONFIG)
    assert answer["gpu_origin"] == "calibrated"
    assert 0 < answer["step_s"]["low"] < answer["step_s"]["mid"] < answer["step_s"]["high"]
    assert answer["peak_tflops"] == pytest.approx(0.1)


def test_an_estimate_says_that_its_calibration_was_made_on_a_busy_machine() -> None:
    for waiting, says in ((1.02, False), (1.5, True)):
        quiet = a_calibration()
        save_calibration(replace(quiet, figures={**quiet.figures, "waiting": figure(waiting, "1")}))
        done = CliRunner().invoke(main, ["estimate", "--gpu", "this", *CONFIG, "--lang", "en"])
        assert ("The calibration was made while the machine was busy" in done.stdout) is says


def test_a_device_in_the_config_means_the_measured_processor_too() -> None:
    save_calibration(a_calibration())
    assert told("estimate", "--device=cpu", *CONFIG)["gpu_origin"] == "calibrated"
    assert told("advise", "--gpu", "this", *CONFIG)["schema"]


def test_without_a_calibration_this_asks_for_one() -> None:
    with pytest.raises(UnknownGpu) as caught:
        card_of_this_machine()
    assert caught.value.remedy is not None
    assert "stepwatch calibrate" in caught.value.remedy.key
    done = CliRunner().invoke(main, ["estimate", "--gpu", "cpu", *CONFIG])
    assert done.exit_code == 1
    assert "stepwatch calibrate" in done.output


@pytest.mark.parametrize("elsewhere", [{"processor": "Another CPU"}, {"cores": 999}])
def test_the_calibration_of_another_machine_is_not_used_and_says_so(elsewhere: dict[str, Any]) -> None:
    save_calibration(a_calibration(**elsewhere))
    with pytest.raises(NoCalibration, match="the calibration is of"):
        card_of_this_machine()
    done = CliRunner().invoke(main, ["estimate", "--gpu", "cpu", *CONFIG])
    assert done.exit_code == 1
    assert "the calibration is of" in done.output


def test_explain_says_why_a_calibration_was_not_used(tmp_path: Path) -> None:
    save_calibration(a_calibration(cores=999))
    log = tmp_path / "train.log"
    log.write_text("".join(f"iter {n}: loss 2.0, time {50 + n % 3}.00ms, mfu 1.00%\n" for n in range(40)), "utf-8")
    answer = told("explain", str(log), "--gpu", "cpu")
    assert "the calibration is of" in str(answer["runs"][0]["findings"])


def test_a_named_card_has_no_calibration() -> None:
    save_calibration(a_calibration())
    found = named_card("4070")
    assert found is not None
    assert found[0].calibration is None


def test_a_measured_card_replaces_the_ceilings_of_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Driver(Device()))  # type: ignore[arg-type]
    by_driver, origin = card_of_this_machine()
    assert origin == "driver"
    slow = {"matmul_bfloat16": figure(2e13, "FLOP/s"), "bandwidth": figure(2e11, "B/s")}
    measured = a_calibration(device="cuda", name="NVIDIA GeForce RTX 4070", curves={})
    save_calibration(replace(measured, figures={**measured.figures, **slow}))
    card, origin = card_of_this_machine()
    assert origin == "calibrated"
    nominal, found = estimate(Workload(), by_driver), estimate(Workload(), card)
    assert nominal is not None
    assert found is not None
    assert found.step_s.mid > 1.5 * nominal.step_s.mid
    assert found.checkpoint_s.high / found.checkpoint_s.low < nominal.checkpoint_s.high / nominal.checkpoint_s.low


def test_the_calibration_of_another_card_is_not_used_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Driver(Device()))  # type: ignore[arg-type]
    save_calibration(a_calibration(device="cuda", name="NVIDIA A100-SXM4-40GB", curves={}))
    card, origin = card_of_this_machine()
    assert (card.calibration, origin) == (None, "driver")
    assert card.remark is not None
    assert "A100" in str(told("estimate", "--gpu", "this")["remarks"])


# --- the table --------------------------------------------------------------------------------------------------


def test_a_busy_machine_is_told_in_the_table() -> None:
    calm = a_calibration()
    busy = replace(calm, figures={**calm.figures, "waiting": figure(2.0, "1")})
    assert "was busy" in str(render(busy, "terminal", "en"))
    assert "was busy" not in str(render(calm, "terminal", "en"))


def test_the_table_names_the_next_command() -> None:
    table = str(render(a_calibration(), "terminal", "en"))
    assert "0.100 TFLOPS" in table
    assert "stepwatch estimate CONFIG.py --gpu this" in table
    assert all(str(render(a_calibration(driver="580.65"), "terminal", language)) for language in LANGUAGES)
