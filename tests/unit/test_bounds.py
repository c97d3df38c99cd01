"""What no training can have is left out where it is read, and said so."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.builders import Truth, a_log

from stepwatch import bounds
from stepwatch.analysis import analyse
from stepwatch.errors import UsageError
from stepwatch.readers import read
from stepwatch.readers.records import Records
from stepwatch.run import Checkpoint, Evaluation, Fact
from stepwatch.samples import CARD, MACHINE
from stepwatch.settings import KINDS, as_kind, config_settings, parse_assignment
from stepwatch.sources import from_text


def rows(**columns: list[float]) -> Records:
    records = Records()
    count = len(next(iter(columns.values())))
    whole = {"number": list(range(count)), "time_s": [0.1] * count, "line": list(range(count)), **columns}
    kinds = {"number": np.int64, "line": np.int64}
    records.add_rows(**{name: np.array(column, kinds.get(name, np.float64)) for name, column in whole.items()})
    return records


def test_rows_that_cannot_be_are_left_out_with_their_lines() -> None:
    records = rows(number=[0, -5, 2, 10**13, 4, 5], time_s=[0.1, 0.1, -1.0, 0.1, 1e7, math.nan])
    records.admit()
    assert records.iterations().number.tolist() == [0, 5]
    assert records.outside_lines == [1, 2, 3, 4]
    assert [value.text for value in records.outside[:2]] == ["number = -5", "time_s = -1.0"]


def test_a_time_that_its_digits_round_to_nothing_is_the_shortest_that_can_be() -> None:
    records = rows(time_s=[0.0, 1e-12, 0.5])
    records.admit()
    assert records.iterations().time_s.tolist() == [bounds.STEP_S.low, bounds.STEP_S.low, 0.5]
    assert not records.outside


def test_other_columns_are_unknown_where_they_cannot_be_and_a_loss_is_lost() -> None:
    strange = {"loss": [1e300, 2.0], "reported_mfu": [1e9, 0.3], "reported_tokens_per_s": [-4.0, 5.0]}
    records = rows(**strange, stamp_s=[1e12, 1.7e9])
    records.admit()
    found = records.iterations()
    assert found.loss.tolist() == [math.inf, 2.0]
    for name, right in (("reported_mfu", 0.3), ("reported_tokens_per_s", 5.0), ("stamp_s", 1.7e9)):
        assert np.isnan(getattr(found, name)[0])
        assert getattr(found, name)[1] == right


def test_events_and_settings_too() -> None:
    records = rows(number=[0])
    records.events = [
        Evaluation(1, -3), Evaluation(2, 5, took_s=1e9, stamp_s=-1.0), Checkpoint(3, 10**15),
        Fact(4, "max_iters", 10**30), Fact(5, "max_iters", -1), Fact(6, "n_layer", 12.0), Fact(7, "dtype", "bfloat16"),
    ]  # fmt: skip
    records.admit()
    assert records.events == [Evaluation(2, 5), Fact(6, "n_layer", 12), Fact(7, "dtype", "bfloat16")]
    assert records.outside_lines == [1, 2, 3, 4]  # -1 is how trainers write that nothing was set


def test_to_admit_twice_changes_nothing_more() -> None:
    records = rows(number=[0, -1, 2], loss=[math.inf, 1.0, -1e300])
    records.admit()
    before = records.iterations(), list(records.outside)
    records.admit()
    assert repr((records.iterations(), records.outside)) == repr(before)


def test_the_report_says_what_was_left_out_and_answers_the_rest() -> None:
    text = a_log(Truth(max_iters=400, log_interval=10, eval_interval=100))
    broken = text + "iter 401: loss 2.0, time 99999999999.00ms, mfu 12.00%\n"
    a, whole = analyse(read(from_text(broken))[0]), analyse(read(from_text(text))[0])
    assert a.run.outside_count == 1
    assert a.costs.step_s == whole.costs.step_s
    (finding,) = (finding for finding in a.findings if finding.code == "outside_values")
    assert finding.message.params["line"] == text.count("\n") + 1


def test_every_number_among_the_settings_has_its_range() -> None:
    assert set(bounds.SETTINGS) == {name for name, kind in KINDS.items() if kind in (int, float)}
    assert all(limits.low <= limits.high and limits.why for limits in bounds.SETTINGS.values())


@pytest.mark.parametrize("name", bounds.SETTINGS)
def test_settings_outside_are_no_values(name: str) -> None:
    limits = bounds.SETTINGS[name]
    for strange in (limits.high * 2 + 1, limits.low - abs(limits.low) - 1, math.nan, math.inf, 10**400):
        assert as_kind(name, strange) is None
    assert as_kind(name, limits.high) == limits.high


def test_a_config_and_the_command_line_say_so() -> None:
    settings, remarks = config_settings("max_iters = 10**18\nbatch_size = 0\nn_layer = 12\nbias = " + "0x" + "f" * 9000)
    assert list(settings) == ["n_layer"]
    assert {"max_iters", "batch_size", "bias"} <= set(remarks[0].params["names"].split(", "))
    with pytest.raises(UsageError) as raised:
        parse_assignment("n_layer=1000000000")
    assert raised.value.remedy is not None
    assert raised.value.remedy.params["most"] == bounds.SETTINGS["n_layer"].high


def test_every_column_of_samples_has_its_range() -> None:
    columns = {**MACHINE, **CARD}
    assert bounds.of_sample("temperature_c").holds(-20.0)
    assert not bounds.of_sample("utilisation").holds(2.1)
    assert not bounds.of_sample("power_w").holds(1e6 + 1)
    assert bounds.of_sample("pcie_bytes_per_s").high < bounds.of_sample("memory_used_bytes").high
    for name in columns:
        limits = bounds.of_sample(name)
        assert limits.holds(0.0)
        assert not limits.holds(-300.0)
        assert not limits.holds(1e19)
        assert not limits.holds(float("nan"))
