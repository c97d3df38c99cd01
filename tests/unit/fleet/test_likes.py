"""A bad node and a regression are named, with the day, and nothing is in a healthy fleet."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.fleets import Planted, a_fleet, a_sweep

from stepwatch.fleet import likes


def told(planted: Planted) -> list[dict[str, Any]]:
    """As the store tells it."""
    rows = []
    for run in planted.runs:
        started = run["started"]
        assert isinstance(started, datetime)
        known = {
            "work": run["work"], "node": run["node"], "step_s_mid": run["step_s"], "torch_version": run["torch"],
            "dropout": run.get("dropout"),
            "started_at": started.replace(tzinfo=UTC).timestamp(), "source": run["source"], "wall_s": 3600.0,
        }  # fmt: skip
        rows.append({**dict.fromkeys(likes.COLUMNS), **known})
    return rows


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["node", "day"])
def test_what_is_planted_is_named(kind: str, seed: int) -> None:
    planted = a_fleet(seed, kind)
    found = likes.find_suspects(told(planted))
    assert [(suspect.kind, suspect.name) for suspect in found if suspect.kind != "run"] == [(kind, planted.name)]
    if kind == "day":
        assert found[0].changed == (("torch_version", "2.5.1", "2.6.0"),)


@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_fleet_has_neither(seed: int) -> None:
    found = likes.find_suspects(told(a_fleet(seed)))
    assert [suspect for suspect in found if suspect.kind != "run"] == []


@pytest.mark.parametrize("seed", [1, 2, 3, 6, 1006, 1021, 1041, 1082])
def test_values_of_a_setting_that_are_tried_are_neither(seed: int) -> None:
    found = likes.find_suspects(told(a_sweep(seed)))
    assert [suspect for suspect in found if suspect.kind != "run"] == []


def test_a_setting_of_all_kinds_of_work_at_once_is_a_regression() -> None:
    planted = a_fleet(2, "day")
    rows = told(planted)
    for row in rows:
        row["compile"], row["torch_version"] = row["torch_version"] == "2.5.1", None
    assert len({row["work"] for row in rows}) > 1
    found = [suspect for suspect in likes.find_suspects(rows) if suspect.kind == "day"]
    assert [(suspect.name, suspect.changed) for suspect in found] == [(planted.name, (("compile", "True", "False"),))]


def test_a_bad_card_is_named_and_not_its_node() -> None:
    rows = told(a_fleet(3))
    for number, row in enumerate(rows):
        row["gpu_index"] = str(number % 4)
        if (row["node"], row["gpu_index"]) == ("gpu02", "1"):
            row["step_s_mid"] *= 1.25
    assert [(each.kind, each.name) for each in likes.find_suspects(rows) if each.kind != "run"] == [("card", "gpu02:1")]


def test_one_run_far_from_its_like_is_named() -> None:
    rows = told(a_fleet(1))
    rows[7]["step_s_mid"] *= 2
    assert rows[7]["source"] in [suspect.name for suspect in likes.find_suspects(rows) if suspect.kind == "run"]


def test_few_runs_show_nothing() -> None:
    rows = told(a_fleet(1))[: likes.LEAST_LIKE - 1]
    rows[0]["step_s_mid"] *= 2
    assert likes.find_suspects(rows) == []
