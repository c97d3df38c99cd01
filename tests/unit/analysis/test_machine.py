"""Planted causes are named, and nothing is said of a machine that does what it should."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from stepwatch.analysis import Analysis, analyse
from stepwatch.analysis.machine import RULES, ClockMatch, find_machine
from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message
from stepwatch.readers import read
from stepwatch.run import Floats, Run
from stepwatch.samples.columns import Card, Samples
from stepwatch.sources import from_text
from stepwatch.verdict import Status, judge

GB, START_S, STEP_S = 1e9, 1_770_000_000.0, 2.0

QUIET: Mapping[str, float] = {
    "cpu": 0.3, "iowait": 0.0, "load": 2, "memory_used_bytes": 8 * GB, "memory_total_bytes": 64 * GB,
    "swap_used_bytes": 0, "swap_bytes_per_s": 0, "disk_read_bytes_per_s": 1e6, "disk_write_bytes_per_s": 1e6,
    "disk_busy": 0.03, "network_bytes_per_s": 1e4, "processors": 16, "processes": 5, "training_cpu": 4,
    "busiest_cpu": 1.2, "training_memory_bytes": 6 * GB, "threads": 80, "read_bytes_per_s": 1e6,
    "write_bytes_per_s": 0, "major_faults_per_s": 0, "blocked": 0, "stopped": 0, "network_busy": 0.01,
    "allowed_processors": 16,
}  # fmt: skip
BUSY_CARD: Mapping[str, float] = {
    "utilisation": 0.97, "memory_used_bytes": 10 * GB, "memory_total_bytes": 12 * GB, "sm_clock_hz": 2.4e9,
    "max_sm_clock_hz": 2.5e9, "power_w": 180, "power_limit_w": 200, "temperature_c": 65, "hot": 0, "capped": 0,
    "pcie_bytes_per_s": 1e8, "other_memory_bytes": 0, "other_processes": 0, "far": 0,
}  # fmt: skip


def a_log(count: int = 60, *, stamped: bool = True, slow: Mapping[int, float] | None = None) -> str:
    """Iterations of two seconds, some of them slower, each with the time at which it was printed."""
    at_s, lines = START_S, []
    for number in range(count):
        took_s = (slow or {}).get(number, STEP_S)
        at_s += took_s
        stamp = np.datetime_as_string(np.datetime64(int(at_s * 1000), "ms")).replace("T", " ").replace(".", ",")
        lines.append(
            f"{f'[{stamp}] ' if stamped else ''}iter {number}: loss 4.0000, time {took_s * 1000:.2f}ms, mfu 30.00%\n"
        )
    return "".join(lines)


def samples(
    seconds: int,
    machine: Mapping[str, float | Floats] | None = None,
    cards: tuple[Mapping[str, float | Floats], ...] = ({},),
    *,
    start_s: float = START_S,
) -> Samples:
    def columns(usual: Mapping[str, float], other: Mapping[str, float | Floats]) -> dict[str, Floats]:
        return {
            name: np.broadcast_to(np.asarray(other.get(name, value), float), (seconds,)).copy()
            for name, value in usual.items()
        }

    made = tuple(Card(number, "Card A", columns(BUSY_CARD, card)) for number, card in enumerate(cards))
    return Samples(
        at_s=start_s + np.arange(seconds, dtype=float) + 0.5, machine=columns(QUIET, machine or {}), cards=made
    )


@cache
def the_run(log: str) -> Run:
    """Read once: most tests differ in their samples alone."""
    (run,) = read(from_text(log))
    return run


def explained(log: str, made: Samples) -> Analysis:
    return analyse(the_run(log), samples=made)


def codes(analysis: Analysis) -> set[str]:
    assert analysis.machine is not None
    return {cause.code for cause in analysis.machine.causes}


def test_a_moment_at_which_no_card_is_known_is_unknown() -> None:
    unknown = np.where(np.arange(130) == 40, np.nan, 0.97)
    found = explained(a_log(), samples(130, cards=({"utilisation": unknown}, {"utilisation": unknown})))
    assert found.machine is not None
    assert [means["cards"] for _, means in found.machine.course(3)] == pytest.approx([0.97] * 3)


def test_a_quiet_machine_explains_nothing_and_says_so() -> None:
    analysis = explained(a_log(), samples(120))
    assert codes(analysis) == set()
    assert "nothing_in_samples" in {finding.code for finding in analysis.findings}


RISING = np.linspace(6 * GB, 20 * GB, 120)
PLANTED: dict[str, tuple[Mapping[str, float | Floats], Mapping[str, float | Floats]]] = {
    "waits_for_disk": ({"disk_busy": 0.97, "blocked": 0.4, "disk_read_bytes_per_s": 2e8, "read_bytes_per_s": 1.9e8}, {"utilisation": 0.4}),
    "waits_for_workers": ({"cpu": 0.97, "training_cpu": 15.0}, {"utilisation": 0.5}),
    "waits_for_python": ({"training_cpu": 1.1, "busiest_cpu": 1.0}, {"utilisation": 0.45}),
    "few_processors": ({"training_cpu": 1.9, "busiest_cpu": 1.0, "allowed_processors": 2}, {"utilisation": 0.5}),
    "far_processors": ({"training_cpu": 1.2, "busiest_cpu": 0.5}, {"utilisation": 0.5, "far": 1.0}),
    "busy_network": ({"network_busy": 0.93, "network_bytes_per_s": 1.1e9}, {"utilisation": 0.5}),
    "waits_for_data": ({"training_cpu": 0.6, "busiest_cpu": 0.3}, {"utilisation": 0.4}),
    "busy_processors": ({"cpu": 0.99, "training_cpu": 3.0}, {}),
    "busy_disk": ({"disk_busy": 0.95, "disk_write_bytes_per_s": 3e8}, {}),
    "swapping": ({"swap_bytes_per_s": 5e7, "major_faults_per_s": 900, "swap_used_bytes": 4 * GB}, {}),
    "memory_leak": ({"training_memory_bytes": RISING, "memory_used_bytes": RISING + 2 * GB}, {}),
    "hot_card": ({}, {"hot": np.repeat([0.0, 1.0], 60), "sm_clock_hz": np.repeat([2.4e9, 1.8e9], 60), "temperature_c": np.repeat([70.0, 90.0], 60)}),
    "power_cap": ({}, {"capped": 1.0, "sm_clock_hz": 1.9e9}),
    "spilled_memory": ({}, {"memory_used_bytes": 11.9 * GB, "pcie_bytes_per_s": 8e9}),
    "shared_card": ({}, {"other_processes": 1, "other_memory_bytes": 3 * GB}),
    "stopped_process": ({"stopped": np.repeat([0.0, 1.0, 0.0], 40)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_named_and_no_other(cause: str) -> None:
    machine, card = PLANTED[cause]
    assert codes(explained(a_log(), samples(120, machine, (card,)))) == {cause}


@pytest.mark.parametrize("cause", PLANTED)
def test_what_holds_a_run_back_is_said_first(cause: str) -> None:
    machine, card = PLANTED[cause]
    analysis = explained(a_log(), samples(120, machine, (card,)))
    verdict = judge(analysis)
    slows = cause not in ("memory_leak", "stopped_process", "power_cap")
    assert (verdict.status is Status.SLOW) == slows
    assert (verdict.because == (cause,)) == slows


@pytest.mark.parametrize("cause", PLANTED)
def test_every_sentence_can_be_said_whatever_is_unknown(cause: str) -> None:
    """Containers, laptops and other systems leave out any figure: one column less is never an error."""
    machine, card = PLANTED[cause]
    made = samples(120, machine, (card,))
    run = the_run(a_log())
    plain = analyse(run)

    def found(sampled: Samples) -> list[Message]:
        beside = replace(plain, machine=find_machine(run, plain.phases, sampled))
        return [finding.message for rule in RULES for finding in rule(beside)]

    messages = []
    for name in QUIET:
        messages += found(replace(made, machine={key: row for key, row in made.machine.items() if key != name}))
    for name in BUSY_CARD:
        columns = {key: column for key, column in made.cards[0].columns.items() if key != name}
        unknown = {**columns, name: np.full(120, np.nan)}
        for cards in (columns, unknown):
            messages += found(replace(made, cards=(Card(0, "Card A", cards),)))
    for message in messages:
        for language in LANGUAGES:
            say(message, language)


def test_values_that_no_machine_can_have_are_counted() -> None:
    found = explained(a_log(), replace(samples(120), outside=("power_w", "cpu"))).findings
    (said,) = (say(finding.message, "en") for finding in found if finding.code == "outside_samples")
    assert said == "The samples contain 2 impossible values, the first of power_w: they are not used."


LEAK = np.linspace(0.0, 1.0, 120)
LATE = np.arange(120) >= 60
SPILLED: Mapping[str, float | Floats] = {"memory_used_bytes": 11.9 * GB, "pcie_bytes_per_s": 8e9}
# What is planted, the figure that is moved, by what it is moved: to where nothing is said, and to where it is. The edges
# are claims on when something is worth saying; each row fails when one of them moves.
EDGES: list[tuple[str, Mapping[str, float | Floats], Mapping[str, float | Floats], str, float | Floats, float | Floats]] = [
    ("waits_for_data", {"training_cpu": 0.6, "busiest_cpu": 0.3}, {}, "utilisation", 0.76, 0.74),
    ("waits_for_disk", {"disk_read_bytes_per_s": 2e8, "read_bytes_per_s": 1.9e8}, {"utilisation": 0.4}, "disk_busy", 0.78, 0.82),
    ("waits_for_disk", {"disk_busy": 0.5, "read_bytes_per_s": 1.9e8}, {"utilisation": 0.4}, "blocked", 0.18, 0.22),
    ("waits_for_workers", {"cpu": 0.97}, {"utilisation": 0.5}, "training_cpu", 12.6, 13.0),
    ("waits_for_python", {"training_cpu": 1.1}, {"utilisation": 0.45}, "busiest_cpu", 0.88, 0.92),
    ("waits_for_python", {"busiest_cpu": 1.0}, {"utilisation": 0.45}, "training_cpu", 1.55, 1.45),
    ("few_processors", {"busiest_cpu": 1.0, "allowed_processors": 2}, {"utilisation": 0.5}, "training_cpu", 1.75, 1.85),
    ("far_processors", {"training_cpu": 1.2, "busiest_cpu": 0.5}, {"utilisation": 0.5}, "far", 0.78, 0.82),
    ("busy_network", {"network_bytes_per_s": 1.1e9}, {}, "network_busy", 0.78, 0.82),
    ("busy_processors", {"training_cpu": 3.0}, {}, "cpu", 0.78, 0.82),
    ("busy_processors", {"cpu": 0.95}, {}, "training_cpu", 11.3, 11.1),
    ("busy_disk", {"disk_write_bytes_per_s": 3e8}, {}, "disk_busy", 0.78, 0.82),
    ("busy_disk", {"disk_busy": 0.95, "disk_read_bytes_per_s": 1e8, "disk_write_bytes_per_s": 0.0}, {}, "read_bytes_per_s", 5.2e7, 4.8e7),
    ("swapping", {"major_faults_per_s": 900}, {}, "swap_bytes_per_s", 0.9e6, 1.1e6),
    ("swapping", {"swap_bytes_per_s": 5e7}, {}, "major_faults_per_s", 48.0, 52.0),
    ("memory_leak", {}, {}, "training_memory_bytes", 1 * GB + 2.4e8 * LEAK, 1 * GB + 2.6e8 * LEAK),
    ("memory_leak", {}, {}, "training_memory_bytes", 10 * GB + 1.2e9 * LEAK, 10 * GB + 1.4e9 * LEAK),
    ("memory_leak", {}, {}, "training_memory_bytes", 5 * GB + 9 * GB * LATE, 5 * GB + 9 * GB * LEAK),
    ("hot_card", {}, {"hot": 1.0 * LATE, "temperature_c": 90.0}, "sm_clock_hz", np.where(LATE, 2.3e9, 2.4e9), np.where(LATE, 2.26e9, 2.4e9)),
    ("hot_card", {}, {"sm_clock_hz": np.where(LATE, 1.8e9, 2.4e9), "temperature_c": 90.0}, "hot", 1.0 * (np.arange(120) >= 115), 1.0 * (np.arange(120) >= 113)),
    ("power_cap", {}, {"capped": 1.0}, "sm_clock_hz", 2.14e9, 2.11e9),
    ("power_cap", {}, {"sm_clock_hz": 1.9e9}, "capped", 1.0 * (np.arange(120) % 20 < 9), 1.0 * (np.arange(120) % 20 < 11)),
    ("spilled_memory", {}, SPILLED, "memory_used_bytes", 0.965 * 12 * GB, 0.975 * 12 * GB),
    ("spilled_memory", {}, SPILLED, "pcie_bytes_per_s", 1.9e9, 2.1e9),
    ("shared_card", {}, {"other_processes": 1}, "other_memory_bytes", 190e6, 210e6),
    ("shared_card", {}, {"other_memory_bytes": 3 * GB}, "other_processes", 0.4, 0.6),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "machine", "card", "moved", "quiet", "said"),
    EDGES,
    ids=[f"{edge[0]}-{edge[3]}-{place}" for place, edge in enumerate(EDGES)],
)
def test_each_threshold_is_where_it_is_meant_to_be(
    cause: str,
    machine: Mapping[str, float | Floats],
    card: Mapping[str, float | Floats],
    moved: str,
    quiet: float | Floats,
    said: float | Floats,
) -> None:
    found = []
    for value in (quiet, said):
        of_machine, of_card = (
            {**part, moved: value} if moved in usual else part for part, usual in ((machine, QUIET), (card, BUSY_CARD))
        )
        found.append(cause in codes(explained(a_log(), samples(120, of_machine, (of_card,)))))
    assert found == [False, True]


def test_without_a_card_a_training_that_sleeps_waits_for_its_data() -> None:
    assert codes(explained(a_log(), samples(120, {"training_cpu": 0.2, "busiest_cpu": 0.2}, ()))) == {"waits_for_data"}
    assert codes(explained(a_log(), samples(120, {"training_cpu": 0.48, "busiest_cpu": 0.48}, ()))) == {
        "waits_for_data"
    }
    assert codes(explained(a_log(), samples(120, {"training_cpu": 0.52, "busiest_cpu": 0.52}, ()))) == set()


def test_a_training_waits_on_any_number_of_processors() -> None:
    made = samples(120, {"training_cpu": 0.2, "busiest_cpu": 0.2}, ())
    made = replace(made, machine={**made.machine, "processors": np.full(120, np.nan)})
    analysis = explained(a_log(), made)
    assert analysis.machine is not None
    (cause,) = analysis.machine.causes
    assert "keep a processor busy only 20.0 % of the time" in say(cause.message, "en")


def test_the_one_hot_card_of_eight_is_named() -> None:
    cards = tuple({"temperature_c": 36.0 + number % 5} for number in range(7))
    analysis = explained(a_log(), samples(120, {}, (*cards[:3], {"temperature_c": 60.0}, *cards[3:])))
    assert analysis.machine is not None
    (cause,) = analysis.machine.causes
    assert (cause.code, cause.message.params["card"], cause.message.params["level"]) == ("card_apart", 3, 60.0)


def test_a_disk_that_others_use_is_their_doing_even_where_the_training_waits_for_it() -> None:
    disk = {"disk_busy": 0.95, "disk_write_bytes_per_s": 3e8, "blocked": 0.5}
    assert codes(explained(a_log(), samples(120, disk, ({"utilisation": 0.3},)))) == {"busy_disk"}


def test_a_slow_rank_is_named_by_its_clock_unless_its_driver_gives_the_reason() -> None:
    slow = {"sm_clock_hz": 1.9e9}
    (cause,) = explained(a_log(), samples(120, {}, ({}, slow, {}, {}))).machine.causes  # type: ignore[union-attr]
    assert (cause.code, cause.message.params["card"], round(cause.message.params["level"])) == ("card_apart", 1, 1900)
    assert codes(explained(a_log(), samples(120, {}, ({}, {**slow, "capped": 1.0}, {}, {})))) == {"power_cap"}
    assert codes(explained(a_log(), samples(120, {}, ({}, {"sm_clock_hz": 2.2e9}, {}, {})))) == set()


@pytest.mark.parametrize("clock", ["hot", "capped"])
def test_moments_of_rest_do_not_count_as_a_lowered_clock(clock: str) -> None:
    resting = np.tile([2.4e9, 2.1e8, 2.4e9, 2.4e9], 30)
    assert (
        codes(
            explained(a_log(), samples(120, {}, ({clock: np.tile([0.0, 1.0, 1.0, 1.0], 30), "sm_clock_hz": resting},)))
        )
        == set()
    )


@pytest.mark.parametrize(
    ("seconds", "said"), [((8,) * 6, True), ((2, 2, 2, 1, 1, 1), True), ((2, 2, 1, 1, 1, 1), False)]
)
def test_saves_that_a_slow_disk_holds_up_are_named(seconds: tuple[int, ...], said: bool) -> None:
    """Every tenth iteration saves, for some seconds at the disk's full speed; under a twentieth of the time it is not said."""
    at_s, lines, busy = START_S, [], np.full(200, 0.03)
    for number in range(60):
        took_s = 10.0 if number % 10 == 9 else STEP_S
        if took_s > STEP_S:
            lines.append("saving checkpoint to out\n")
            busy[int(at_s - START_S) : int(at_s - START_S + seconds[number // 10])] = 1.0
        at_s += took_s
        stamp = np.datetime_as_string(np.datetime64(int(at_s * 1000), "ms")).replace("T", " ").replace(".", ",")
        lines.append(f"[{stamp}] iter {number}: loss 4.0000, time {took_s * 1000:.2f}ms, mfu 30.00%\n")
    written = np.where(busy > 0.5, 1.5e8, 1e6)
    disk: dict[str, float | Floats] = {
        "disk_busy": busy,
        "disk_write_bytes_per_s": written,
        "write_bytes_per_s": 0.52 * written,
    }
    assert codes(explained("".join(lines), samples(170, {name: column[:170] for name, column in disk.items()}))) == (
        {"slow_saves"} if said else set()
    )  # type: ignore[index]
    neighbour = {**disk, "write_bytes_per_s": 0.48 * written}
    assert (
        codes(explained("".join(lines), samples(170, {name: column[:170] for name, column in neighbour.items()})))
        == set()
    )  # type: ignore[index]


def test_an_idle_second_card_is_not_averaged_in() -> None:
    assert codes(explained(a_log(), samples(120, {}, ({}, {"utilisation": 0.0, "power_w": 12})))) == set()


@pytest.mark.parametrize(
    ("name", "level", "words"),
    [
        ("disk_busy", 0.99, "disk was busy"),
        ("swap_bytes_per_s", 9e7, "memory and disk"),
        ("stopped", 1.0, "stopped by a signal"),
        ("cpu", 0.95, "other programs"),
    ],
)
def test_a_slow_iteration_is_explained_by_what_differed_in_it(name: str, level: float, words: str) -> None:
    column = np.full(140, QUIET[name])
    column[62:80] = level  # iteration 31 takes the seconds 62 to 84
    analysis = explained(a_log(slow={31: 22.0}), samples(140, {name: column}))
    (finding,) = (finding for finding in analysis.findings if finding.code == "slow_by_machine")
    assert finding.message.params["at"] == 31
    assert words in finding.message.key


@pytest.mark.parametrize(
    ("name", "quiet", "said"),
    [
        ("stopped", 0.28, 0.32),
        ("swap_bytes_per_s", 0.9e6, 1.1e6),
        ("disk_busy", 0.51, 0.55),
        ("blocked", 0.48, 0.52),
        ("cpu", 0.3 + 0.45 / 16, 0.3 + 0.55 / 16),
        ("utilisation", 0.69, 0.65),
    ],
)
def test_what_must_differ_in_a_slow_iteration_is_where_it_is_meant_to_be(name: str, quiet: float, said: float) -> None:
    found = []
    for level in (quiet, said):
        column = np.full(140, QUIET.get(name, BUSY_CARD.get(name, 0.0)), float)
        column[62:84] = level  # all of iteration 31
        machine, card = ({name: column} if name in usual else {} for usual in (QUIET, BUSY_CARD))
        analysis = explained(a_log(slow={31: 22.0}), samples(140, machine, (card,)))
        found.append("slow_by_machine" in {finding.code for finding in analysis.findings})
    assert found == [False, True]


@pytest.mark.parametrize(
    ("name", "rest", "quiet", "said"),
    [
        ("temperature_c", (40.0, 40.0, 40.0), 51.5, 52.5),
        ("temperature_c", (36.0, 40.0, 43.0), 53.0, 55.0),  # twice as far as the others lie apart
        ("utilisation", (0.95, 0.95, 0.95), 0.67, 0.63),
        ("sm_clock_hz", (2.4e9, 2.4e9, 2.4e9), 2.18e9, 2.14e9),
    ],
)
def test_how_far_apart_a_card_must_be(name: str, rest: tuple[float, ...], quiet: float, said: float) -> None:
    found = []
    for level in (quiet, said):
        cards = tuple({name: value} for value in (*rest, level))
        found.append("card_apart" in codes(explained(a_log(), samples(120, {}, cards))))
    assert found == [False, True]


@pytest.mark.parametrize(("count", "said"), [(11, False), (13, True)])
def test_a_leak_needs_ten_samples_behind_the_start(count: int, said: bool) -> None:
    rising = np.linspace(6 * GB, 20 * GB, count)
    made = samples(count, {"training_memory_bytes": rising, "memory_used_bytes": rising + 2 * GB})
    assert ("memory_leak" in codes(explained(a_log(), made))) == said


def test_samples_of_one_moment_show_no_growth() -> None:
    made = replace(samples(30, {}), at_s=np.full(30, START_S + 5.0))
    assert "memory_leak" not in codes(explained(a_log(), made))  # numpy warns of a line through one moment


@pytest.mark.parametrize(("share", "counts"), [(0.18, False), (0.22, True)])
def test_a_card_that_hardly_works_is_not_of_the_training(share: float, counts: bool) -> None:
    """Beside it the other is busy: with it in the mean, half of the time would be idle."""
    found = codes(explained(a_log(), samples(120, {}, ({}, {"utilisation": share * 0.97}))))
    assert ("waits_for_data" in found) == counts


def test_stamps_of_another_zone_are_laid_over_the_samples() -> None:
    analysis = explained(a_log(), samples(120, {"cpu": 0.99, "training_cpu": 3.0}, start_s=START_S - 5.5 * 3600))
    assert analysis.machine is not None
    assert analysis.machine.clock is ClockMatch.STAMPS
    assert (analysis.machine.row >= 0).sum() > 100


def test_a_training_of_which_nothing_is_known_is_no_clock() -> None:
    machine = explained(a_log(stamped=False), samples(120, {"training_cpu": float("nan")}, ())).machine
    assert machine is not None
    assert machine.clock is ClockMatch.NONE


def test_without_stamps_the_place_is_found_by_work_and_rest() -> None:
    used = np.concatenate([np.full(50, 0.02), np.full(120, 0.97), np.full(30, 0.01)])
    made = replace(samples(200, {}, ({"utilisation": used},)), has_clock=False)
    analysis = explained(a_log(stamped=False), made)
    assert analysis.machine is not None
    assert analysis.machine.clock is ClockMatch.MATCHED
    first = int(np.flatnonzero(analysis.machine.row >= 0)[0])
    assert abs(first - 50) <= 2


@pytest.mark.parametrize(("other", "clock"), [(0.948, ClockMatch.MATCHED), (0.953, ClockMatch.NONE)])
def test_a_second_job_that_works_as_much_within_a_hundredth_makes_the_place_unsure(
    other: float, clock: ClockMatch
) -> None:
    rest = np.zeros(50)
    used = np.concatenate([rest, np.full(1000, 0.97), rest, np.full(1000, other), rest])
    made = replace(samples(len(used), {}, ({"utilisation": used},)), has_clock=False)
    analysis = explained(a_log(500, stamped=False), made)
    assert analysis.machine is not None
    assert analysis.machine.clock is clock


@pytest.mark.parametrize(("others", "clock"), [(0.9, ClockMatch.MATCHED), (1.2, ClockMatch.NONE)])
def test_where_others_work_more_than_the_run_its_place_is_unsure(others: float, clock: ClockMatch) -> None:
    """A place that is a fiftieth of the run away fits worse by a fiftieth of its work: a hundredth of twice as much."""
    bursts = np.tile(np.repeat([0.97, 0.0], 10), round(100 * others))
    used = np.concatenate([np.zeros(50), np.full(1000, 0.97), np.zeros(50), bursts])
    made = replace(samples(len(used), {}, ({"utilisation": used},)), has_clock=False)
    analysis = explained(a_log(500, stamped=False), made)
    assert analysis.machine is not None
    assert analysis.machine.clock is clock


@pytest.mark.parametrize(("varies", "clock"), [(0.045, ClockMatch.NONE), (0.055, ClockMatch.MATCHED)])
def test_cards_that_hardly_rest_are_no_clock(varies: float, clock: ClockMatch) -> None:
    made = replace(samples(120, {}, ({"utilisation": 0.9 + varies * np.tile([-1.0, 1.0], 60)},)), has_clock=False)
    analysis = explained(a_log(59, stamped=False), made)
    assert analysis.machine is not None
    assert analysis.machine.clock is clock


@pytest.mark.parametrize(("resting", "said"), [(0.045, set()), (0.055, {"waits_for_data"})])
def test_without_a_clock_only_samples_at_work_are_judged(resting: float, said: set[str]) -> None:
    used = np.tile([0.9, resting], 200)
    machine = {"training_cpu": 0.6, "busiest_cpu": 0.3}
    analysis = explained(
        a_log(stamped=False), replace(samples(400, machine, ({"utilisation": used},)), has_clock=False)
    )
    assert analysis.machine is not None
    assert (analysis.machine.clock, codes(analysis)) == (ClockMatch.NONE, said)


def test_a_long_time_between_samples_costs_no_work() -> None:
    """Neither the clock of the samples nor the times of the log are a measure of the work."""
    used = np.tile([0.0, 0.9, 0.9, 0.1], 30)
    at_s = np.append(np.arange(119.0), 1e7)
    made = replace(samples(120, {}, ({"utilisation": used},)), has_clock=False, at_s=at_s)
    began = time.process_time()
    explained(a_log(12, stamped=False, slow=dict.fromkeys(range(12), 50_000.0)), made)
    assert time.process_time() - began < 2


def test_samples_that_fit_nowhere_are_not_laid_beside_the_log() -> None:
    analysis = explained(a_log(stamped=False), replace(samples(300), has_clock=False))
    assert analysis.machine is not None
    assert analysis.machine.clock is ClockMatch.NONE
    assert "samples_apart" in {finding.code for finding in analysis.findings}


def test_two_samples_are_called_too_few() -> None:
    analysis = explained(a_log(), samples(2))
    said = {finding.code: finding.message.key for finding in analysis.findings}
    assert "too few samples" in said["samples_apart"]


def test_energy_is_the_area_under_the_power() -> None:
    power = np.linspace(100, 300, 120)
    analysis = explained(a_log(), samples(120, {}, ({"power_w": power}, {"power_w": 20.0})))
    assert analysis.machine is not None
    assert analysis.machine.energy_j is not None
    assert analysis.machine.energy_j.mid == pytest.approx(200 * 119 + 20 * 119, rel=0.02)
    wide = analysis.machine.energy_j
    assert (wide.low / wide.mid, wide.high / wide.mid) == pytest.approx((0.95, 1.05))  # NVML's documented error


def test_three_samples_inside_the_run_are_enough() -> None:
    for took_s, clock in ((1.0, ClockMatch.NONE), (2.0, ClockMatch.STAMPS)):
        analysis = explained(a_log(2, slow={0: 1.0, 1: took_s}), samples(120))
        assert analysis.machine is not None
        assert analysis.machine.clock is clock


@pytest.mark.parametrize(("hours", "overlap"), [(25, True), (27, False)])
def test_zones_are_at_most_26_hours_apart(hours: int, overlap: bool) -> None:
    analysis = explained(a_log(), samples(120, start_s=START_S - hours * 3600))
    assert analysis.machine is not None
    assert (analysis.machine.clock is ClockMatch.STAMPS) == overlap


@pytest.mark.parametrize(("count", "said"), [(2, False), (3, True)])
def test_a_card_differs_from_at_least_two_others(count: int, said: bool) -> None:
    cards = ({"temperature_c": 70.0}, *({"temperature_c": 40.0} for _ in range(count - 1)))
    assert ("card_apart" in codes(explained(a_log(), samples(120, {}, cards)))) == said


@pytest.mark.parametrize(("capped", "said"), [(5, True), (7, False)])
def test_a_limit_of_power_explains_a_clock_from_a_twentieth_of_the_time_on(capped: int, said: bool) -> None:
    slow = {"sm_clock_hz": 1.9e9, "capped": 1.0 * (np.arange(120) >= 120 - capped)}
    assert ("card_apart" in codes(explained(a_log(), samples(120, {}, ({}, slow, {}, {}))))) == said


def test_a_card_that_rests_most_of_the_time_is_judged_by_its_clock_at_work() -> None:
    working = np.arange(120) % 5 == 0
    card = {"capped": 1.0, "sm_clock_hz": np.where(working, 2.4e9, 0.4e9)}
    assert "power_cap" not in codes(explained(a_log(), samples(120, {}, (card,))))
