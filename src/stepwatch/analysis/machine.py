"""What the machine did during the iterations: samples matched to the rows of a log, and what they explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwatch.analysis.findings import INFO, NOTICE, WARNING, Finding
from stepwatch.analysis.phases import Mask, Phase, Phases
from stepwatch.messages import Message
from stepwatch.run import Floats, Ints, Run
from stepwatch.samples.columns import Card, Samples
from stepwatch.units import HOUR_S, Interval

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis

BUSY = 0.8  # a disk, or all processors
LEAST_SAMPLES = 3  # fewer show nothing about the iterations between them
SWAPPING_BYTES_PER_S = 1e6  # less is not worth a finding


class ClockMatch(StrEnum):
    """How samples were matched to the log."""

    STAMPS = "stamps"
    ARRIVALS = "arrivals"
    MATCHED = "matched"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """Samples and the rows that they fall into."""

    samples: Samples
    row: Ints
    """For each sample the row of the iterations that it falls into, -1 outside."""
    clock: ClockMatch
    steps: Mask
    """The samples inside normal steps; without a common clock, those in which the machine works."""
    causes: tuple[Finding, ...] = ()
    energy_j: Interval | None = None
    """The energy of all cards, from the first to the last sample inside the run."""

    @property
    def slowed_by(self) -> Finding | None:
        """What slows down the whole run now: not a single moment of it, nor something still to come."""
        passing = ("stopped_process", "memory_leak")
        return next((one for one in self.causes if one.severity == WARNING and one.code not in passing), None)

    def levels(self, columns: Mapping[str, Floats]) -> dict[str, float]:
        """Means inside normal steps, of the figures that are known there."""
        means = {name: _mean(column[self.steps]) for name, column in columns.items()}
        return {name: mean for name, mean in means.items() if mean is not None}

    def course(self, most: int) -> list[tuple[int, dict[str, float]]]:
        """At most `most` stretches of the run: the last row of each, and the busy share of each part of the machine."""
        columns = {name: self.samples.machine[name] for name in ("cpu", "disk_busy") if name in self.samples.machine}
        cards = _working(self.samples)
        if cards:
            columns["cards"] = _mean_utilisation(cards)
        inside = np.flatnonzero(self.row >= 0)
        found = []
        for part in np.array_split(inside, min(most, max(len(inside), 1))):
            means = {name: mean for name, column in columns.items() if (mean := _mean(column[part])) is not None}
            if means:
                found.append((int(self.row[part[-1]]), means))
        return found


def find_machine(run: Run, phases: Phases, samples: Samples) -> MachineUse:
    row, clock = _rows(run, phases, samples)
    inside = np.flatnonzero(row >= 0)
    if clock is ClockMatch.NONE or len(inside) < LEAST_SAMPLES:
        row, clock, inside = np.full(len(samples), -1), ClockMatch.NONE, np.arange(len(samples))
    span = slice(int(inside[0]), int(inside[-1]) + 1)
    steps = (row >= 0) & phases.normal[np.maximum(row, 0)]
    if clock is ClockMatch.NONE:  # wherever the machine works at all
        busy = _utilisation(samples)
        steps = np.ones(len(samples), bool) if busy is None else np.nan_to_num(busy) > 0.05
    saves = (row >= 0) & np.isin(phases.phase, (Phase.CHECKPOINT, Phase.EVAL_CHECKPOINT))[np.maximum(row, 0)]
    view = _View(samples, span, steps, saves)
    causes = tuple(cause for rule in _RULES for cause in rule(view))
    return MachineUse(
        samples=samples, row=row, clock=clock, steps=steps, causes=causes, energy_j=_energy(samples, span)
    )


# --- two clocks -------------------------------------------------------------------------------------------------


def _rows(run: Run, phases: Phases, samples: Samples) -> tuple[Ints, ClockMatch]:
    taken_s = run.iterations.time_s * phases.covers
    ends_s: Floats | None = run.iterations.stamp_s
    clock = ClockMatch.STAMPS
    if samples.arrivals is not None:
        times, lines = samples.arrivals
        ends_s, clock = (
            times[np.minimum(np.searchsorted(lines, run.iterations.line, "right"), len(times) - 1)],
            ClockMatch.ARRIVALS,
        )
    elif samples.has_clock and len(run.iterations) and np.isfinite(run.iterations.stamp_s).all():
        ends_s = run.iterations.stamp_s + _zone_s(run.iterations.stamp_s, samples.at_s)
    else:
        ends_s, clock = _matched(np.cumsum(taken_s), phases, samples), ClockMatch.MATCHED
    if ends_s is None or not len(ends_s):
        return np.full(len(samples), -1), ClockMatch.NONE
    begins_s = ends_s - taken_s
    row = np.searchsorted(ends_s, samples.at_s)
    known = np.minimum(row, len(ends_s) - 1)
    return np.where((row < len(ends_s)) & (samples.at_s >= begins_s[known]), known, -1), clock


def _zone_s(ends_s: Floats, at_s: Floats) -> float:
    """What to add to the stamps so that they overlap with the samples: whole quarters of an hour, or nothing."""
    middle = (float(at_s[0]) + float(at_s[-1])) / 2 - (float(ends_s[0]) + float(ends_s[-1])) / 2
    apart = at_s[0] > ends_s[-1] or at_s[-1] < ends_s[0]
    quarter_s = HOUR_S / 4  # zones differ by whole quarters of an hour
    zone = round(middle / quarter_s) * quarter_s if apart else 0.0
    return zone if abs(zone) <= 26 * HOUR_S else 0.0  # from -12 to +14 hours


def _matched(ends_s: Floats, phases: Phases, samples: Samples) -> Floats | None:
    """The ends, shifted so that the cards work in steps and rest outside of them; None if no shift is clearly best."""
    busy = _utilisation(samples)
    if busy is None or len(ends_s) < 2 or np.nanstd(busy) < 0.05:  # too little idle time to match by
        return None
    at_s = samples.at_s - samples.at_s[0]
    count = min(len(at_s), 8192)  # places to try: the work grows with their square
    if not at_s[-1] > 0:
        return None
    grid_s = float(at_s[-1]) / (count - 1)
    seen = np.interp(np.arange(count) * grid_s, at_s, np.nan_to_num(busy))
    places = np.minimum(
        np.searchsorted(ends_s, np.arange(int(min(ends_s[-1] / grid_s, count)) + 1) * grid_s), len(ends_s) - 1
    )
    wanted = phases.normal[places].astype(float)
    if len(wanted) > count or not wanted.mean() > 0:
        return None
    padded = np.concatenate([np.zeros(1), np.cumsum(seen)])
    total = padded[-1]
    # Inside the run the cards work as the phases say, outside they rest: the best shift has most work inside.
    scores = np.correlate(seen, wanted - 0.5, "valid") - 0.5 * (
        total - (padded[len(wanted) :] - padded[: count - len(wanted) + 1])
    )
    best = int(np.median(np.flatnonzero(scores > scores.max() - 1e-6 * total)))  # some are equal except for rounding
    far = np.abs(np.arange(len(scores)) - best) > max(0.02 * len(wanted), 2)
    if far.any() and scores[far].max() > scores[best] - 0.01 * total:
        return None
    return np.asarray(ends_s + samples.at_s[0] + best * grid_s)


def _utilisation(samples: Samples) -> Floats | None:
    cards = _working(samples)
    busy = _mean_utilisation(cards) if cards else samples.machine.get("training_cpu")
    return busy if busy is not None and np.isfinite(busy).any() else None


def _mean_utilisation(cards: list[Card]) -> Floats:
    """For each sample the mean of the cards for which it is known; nan if it is known for none."""
    columns = np.array([card.columns["utilisation"] for card in cards])
    known = np.isfinite(columns)
    total, count = np.where(known, columns, 0.0).sum(axis=0), known.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _working(samples: Samples) -> list[Card]:
    """The cards that the training uses; the others are idle."""
    cards = [card for card in samples.cards if np.isfinite(card.columns.get("utilisation", np.array([np.nan]))).any()]
    means = [float(np.nanmean(card.columns["utilisation"])) for card in cards]
    return [card for card, mean in zip(cards, means, strict=True) if mean >= 0.2 * max(means)]


def _energy(samples: Samples, span: slice) -> Interval | None:
    at_s = samples.at_s[span]
    powers = [card.columns["power_w"][span] for card in samples.cards if "power_w" in card.columns]
    if not powers or len(at_s) < 2:
        return None
    total = 0.0
    for power in powers:
        known = np.isfinite(power)
        if known.sum() > 1:
            total += float(np.trapezoid(power[known], at_s[known]))
    # NVML's documentation says ±5 W: at most a twentieth for a working card of 100 W or more. Sensors of an A100 or
    # H100 measure only a quarter of the time, and may be further off (arXiv 2312.02741).
    error = 0.05
    return Interval(total * (1 - error), total, total * (1 + error)) if total > 0 else None


# --- what it explains -------------------------------------------------------------------------------------------


class _View:
    """The samples of a run by name; None if unknown."""

    def __init__(self, samples: Samples, span: slice, steps: Mask, saves: Mask) -> None:
        self.samples, self.span, self.steps, self.saves = samples, span, steps, saves
        self.cards = _working(samples)

    def column(self, name: str) -> Floats | None:
        column = self.samples.machine.get(name)
        return None if column is None or not np.isfinite(column).any() else column

    def level(self, name: str) -> float | None:
        """Mean inside normal steps."""
        column = self.column(name)
        return None if column is None else _mean(column[self.steps])

    def of_cards(self, name: str) -> float | None:
        levels = [level for card in self.cards if (level := self.of_card(card, name)) is not None]
        return float(np.mean(levels)) if levels else None

    def of_card(self, card: Card, name: str) -> float | None:
        column = card.columns.get(name)
        return None if column is None else _mean(column[self.steps])

    @property
    def others(self) -> float | None:
        """Processors that other programs keep busy."""
        cpu, processors, own = self.level("cpu"), self.level("processors"), self.level("training_cpu")
        return None if cpu is None or processors is None or own is None else max(cpu * processors - own, 0.0)

    @property
    def crowded(self) -> bool:
        """Whether hardly a processor is free, and other programs keep more than a quarter of all busy."""
        cpu, processors, others = self.level("cpu"), self.level("processors"), self.others
        return bool(cpu and processors and others and cpu > BUSY and others > 0.25 * processors)

    @property
    def foreign_disk(self) -> float | None:
        """Bytes per second of other programs, if they use most of a busy disk."""
        names = (
            "disk_busy",
            "disk_read_bytes_per_s",
            "disk_write_bytes_per_s",
            "read_bytes_per_s",
            "write_bytes_per_s",
        )
        busy, read, write, own_read, own_write = map(self.level, names)
        if busy is None or read is None or write is None or own_read is None or own_write is None:
            return None
        others = read + write - own_read - own_write
        return others if busy > BUSY and others > 0.5 * (read + write) else None


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _reached(clocks: Floats) -> float | None:
    """The clock of a card while it works: when it rests for a moment, the clock may be far lower."""
    known = clocks[np.isfinite(clocks)]
    return _mean(known[known > 0.5 * np.quantile(known, 0.9)]) if len(known) else None


def waiting(view: _View) -> Iterator[Finding]:
    """The card, or without one the processors, is idle inside normal steps."""
    used, cpu = view.of_cards("utilisation"), view.level("training_cpu")
    if used is None and (cpu is None or cpu >= 0.5):  # a training step on a processor keeps one busy by itself
        return
    if used is not None and 1 - used < 0.25:  # a card that waits less is not held back by it
        return
    facts: dict[str, Any] = {
        "idle": None if used is None else 1 - used,
        "cpu": cpu,
        "processors": view.level("processors"),
    }
    disk, blocked, busiest, allowed = (
        view.level(name) for name in ("disk_busy", "blocked", "busiest_cpu", "allowed_processors")
    )
    facts |= {"disk": disk, "busiest": busiest, "allowed": allowed}
    if view.foreign_disk is not None:
        return  # other programs use the disk: a separate cause
    if disk is not None and (disk > BUSY or (blocked or 0.0) > 0.2):
        text = Message(
            "The training waits for its disk, which is busy {disk:pct} of the time during normal steps. Move the data to a faster disk, or keep them in memory."
        )
        code = "waits_for_disk"
    elif view.crowded and (cpu or 0.0) < (view.others or 0.0):
        return  # other programs use the processors: a separate cause
    elif (view.level("network_busy") or 0.0) > BUSY:
        return  # the network is a separate cause, too
    elif used is None and facts["processors"] is None:
        text = Message(
            "The training waits: its processes keep a processor busy only {cpu:pct} of the time during normal steps, and the disk does not explain it. Look at where its data come from."
        )
        code = "waits_for_data"
    elif used is None:
        text = Message(
            "The training waits: its processes keep only {cpu:x} of {processors:n} processors busy during normal steps, and the disk does not explain it. Look at where its data come from."
        )
        code = "waits_for_data"
    elif cpu is not None and allowed and facts["processors"] and allowed < facts["processors"] and cpu > 0.9 * allowed:
        text = Message(
            "The card is idle {idle:pct} of the time inside normal steps while the training may use only {allowed:n} of {processors:n} processors, which are busy. Let it use more: taskset, the container or the scheduler sets this."
        )
        code = "few_processors"
    elif cpu is not None and facts["processors"] and cpu > BUSY * facts["processors"]:
        text = Message(
            "The card is idle {idle:pct} of the time inside normal steps while the training keeps {cpu:x} of {processors:n} processors busy: preparing the data is too slow. Use more processors for it, or do less for each sample."
        )
        code = "waits_for_workers"
    elif busiest is not None and busiest >= 0.9 and cpu is not None and cpu < busiest + 0.5:
        text = Message(
            "The card is idle {idle:pct} of the time inside normal steps while one process keeps a single processor busy: the Python code cannot launch work fast enough. Compile the model, or use larger batches."
        )
        code = "waits_for_python"
    elif (view.of_cards("far") or 0.0) > BUSY:
        text = Message(
            "The card is idle {idle:pct} of the time inside normal steps, and its process runs on processors of another NUMA node than the card's: all that moves between them takes the longer way. Bind it to the card's node: numactl, or the launcher, does that."
        )
        code = "far_processors"
    else:
        text = Message(
            "The card is idle {idle:pct} of the time inside normal steps, and neither the processors nor the disk are busy: it waits for data or for another machine. Prefetch, with more loader workers."
        )
        code = "waits_for_data"
    yield Finding(code, WARNING, text._replace(params=facts))


def other_programs(view: _View) -> Iterator[Finding]:
    """Other programs that use the processors or the disk."""
    if view.crowded:
        facts = {"others": view.others, "processors": view.level("processors")}
        text = Message(
            "Other programs keep {others:x} of {processors:n} processors busy during normal steps. The training has to share them.",
            facts,
        )
        yield Finding("busy_processors", WARNING, text)
    if view.foreign_disk is not None:
        facts = {"busy": view.level("disk_busy"), "others": view.foreign_disk}
        text = Message(
            "The disk is busy {busy:pct} of the time, mostly for other programs ({others:size} a second).", facts
        )
        yield Finding("busy_disk", WARNING, text)


def slow_saves(view: _View) -> Iterator[Finding]:
    """Saves that the disk is too slow for."""
    busy, own, whole = (view.column(name) for name in ("disk_busy", "write_bytes_per_s", "disk_write_bytes_per_s"))
    if busy is None or own is None or whole is None:
        return
    at_disk = view.saves & (np.nan_to_num(busy) > BUSY)
    share = float(at_disk.sum() / max(view.span.stop - view.span.start, 1))
    rate, ours = _mean(whole[at_disk]), _mean(own[view.saves])
    if (
        share > 0.05 and rate is not None and ours is not None and ours > 0.5 * (_mean(whole[view.saves]) or 0.0)
    ):  # less of a run is not worth a change
        facts = {"share": share, "rate": rate}
        text = Message(
            "The training waits {share:pct} of the time for a disk that writes checkpoints at {rate:size} a second, as fast as it can. Save less often, or to a faster disk.",
            facts,
        )
        yield Finding("slow_saves", WARNING, text)


def busy_network(view: _View) -> Iterator[Finding]:
    busy, moved = view.level("network_busy"), view.level("network_bytes_per_s")
    if busy is not None and moved is not None and busy > BUSY:
        facts = {"busy": busy, "moved": moved}
        text = Message(
            "The network is busy {busy:pct} of the time during normal steps ({moved:size} a second): the training waits for other machines, or for data from them.",
            facts,
        )
        yield Finding("busy_network", WARNING, text)


def hot_cards(view: _View) -> Iterator[Finding]:
    for card in view.cards:
        hot, clock, heat = (card.columns.get(name) for name in ("hot", "sm_clock_hz", "temperature_c"))
        if hot is None or clock is None or heat is None:
            continue
        slowed, free = (hot > 0) & view.steps, (hot == 0) & view.steps
        share = float(slowed.sum() / max(view.steps.sum(), 1))
        top = card.columns.get("max_sm_clock_hz")
        normal = _reached(clock[free]) if free.any() else (None if top is None else _mean(top))
        lowered, degrees = _reached(clock[slowed]), _mean(heat[slowed])
        if degrees is None or lowered is None or normal is None:
            continue
        if share > 0.05 and lowered < 0.95 * normal:  # less would hardly be felt
            facts = {"card": card.number, "share": share, "slower": 1 - lowered / normal, "heat": degrees}
            text = Message(
                "Card {card:n} was too hot {share:pct} of the time ({heat:n} °C): the driver lowered its clock by {slower:pct}. Improve its cooling, or lower its power limit a little.",
                facts,
            )
            yield Finding("hot_card", WARNING, text)


def power_caps(view: _View) -> Iterator[Finding]:
    for card in view.cards:
        capped, top, clocks = (
            view.of_card(card, "capped"),
            view.of_card(card, "max_sm_clock_hz"),
            card.columns.get("sm_clock_hz"),
        )
        if capped is None or clocks is None or not top:
            continue
        clock = _reached(clocks[view.steps & (card.columns["capped"] > 0)])
        # A card may well run at its power limit; only a clock far below the highest is worth a finding.
        if clock is not None and capped > 0.5 and clock < 0.85 * top:
            facts = {
                "card": card.number,
                "share": capped,
                "slower": 1 - clock / top,
                "limit": view.of_card(card, "power_limit_w"),
            }
            text = Message(
                "Card {card:n} was held back by its power limit {share:pct} of the time: its clock was {slower:pct} below the highest.",
                facts,
            )
            yield Finding("power_cap", NOTICE, text)


def spilled_memory(view: _View) -> Iterator[Finding]:
    for card in view.cards:
        used, total, moved = (
            view.of_card(card, name) for name in ("memory_used_bytes", "memory_total_bytes", "pcie_bytes_per_s")
        )
        # Full memory alone is normal; gigabytes a second between card and host are not.
        if used is not None and total and moved is not None and used > 0.97 * total and moved > 2e9:
            facts = {"card": card.number, "share": used / total, "moved": moved}
            text = Message(
                "The memory of card {card:n} is full ({share:pct}) while {moved:size} a second move between card and host: part of it lies in the host's memory, which is far slower. Use a smaller batch.",
                facts,
            )
            yield Finding("spilled_memory", WARNING, text)


def shared_cards(view: _View) -> Iterator[Finding]:
    for card in view.cards:
        count, size = view.of_card(card, "other_processes"), view.of_card(card, "other_memory_bytes")
        if count is not None and size is not None and count >= 0.5 and size > 200e6:  # an idle process does not matter
            facts = {"card": card.number, "size": size}
            text = Message(
                "Another program uses card {card:n} too, with {size:size} of its memory. The two share its time.", facts
            )
            yield Finding("shared_card", WARNING, text)


def short_memory(view: _View) -> Iterator[Finding]:
    moved, faults = view.level("swap_bytes_per_s"), view.level("major_faults_per_s")
    if moved is not None and moved > SWAPPING_BYTES_PER_S and (faults is None or faults > 50):
        facts = {"moved": moved}
        text = Message(
            "The machine has too little memory: {moved:size} a second move between memory and disk. Use fewer loader workers, or close other programs.",
            facts,
        )
        yield Finding("swapping", WARNING, text)
    used, total = view.column("training_memory_bytes"), view.level("memory_total_bytes")
    free = view.column("memory_used_bytes")
    if used is None or not total or free is None:
        return
    at_s, used, free = view.samples.at_s[view.span], used[view.span], free[view.span]
    known = np.flatnonzero(np.isfinite(used) & np.isfinite(free))
    known = known[len(known) // 5 :]  # every run takes its memory at the start
    if len(known) < 10 or at_s[known[-1]] <= at_s[known[0]]:
        return
    slope, start = np.polyfit(at_s[known] - at_s[known[0]], used[known], 1)
    grown, first = slope * (at_s[known[-1]] - at_s[known[0]]), max(start, 1.0)
    explained = np.corrcoef(at_s[known], used[known])[0, 1] if np.std(used[known]) > 0 else 0.0
    if grown > max(200e6, 0.1 * first) and explained > 0.95:  # small or uneven growth is no leak
        left_s = max(total - float(free[known[-1]]), 0.0) / slope
        facts = {"rate": slope * HOUR_S, "left": left_s}
        text = Message(
            "The memory of the training grows by {rate:size} an hour: at this rate the machine's memory is full in {left:time}. Something keeps what it should let go.",
            facts,
        )
        yield Finding("memory_leak", WARNING, text)


def stopped_process(view: _View) -> Iterator[Finding]:
    stopped = view.column("stopped")
    if stopped is not None and (still := (stopped[view.span] > 0.5)).any():
        at_s = view.samples.at_s[view.span]
        facts = {"time": float(still.sum() * np.median(np.diff(at_s))) if len(at_s) > 1 else 0.0}
        text = Message("The training was stopped by a signal (Ctrl-Z, SIGSTOP) for {time:time}.", facts)
        yield Finding("stopped_process", WARNING, text)


def card_apart(view: _View) -> Iterator[Finding]:
    """One card that differs from all the others."""
    for name, unit, text in (
        ("temperature_c", 1.0, Message("Card {card:n} runs at {level:n} °C, the others at {low:n} to {high:n} °C.")),
        (
            "utilisation",
            1.0,
            Message("Card {card:n} works {level:pct} of the time, the others {low:pct} to {high:pct}."),
        ),
        (
            "sm_clock_hz",
            1e-6,
            Message(
                "Card {card:n} runs at {level:n} MHz, the others at {low:n} to {high:n} MHz: in each step they wait for it."
            ),
        ),
    ):
        # An unused card is no slow rank, and colder. If only one card is used, unused ones still show that it is hot.
        cards = view.cards if name != "temperature_c" or len(view.cards) > 1 else view.samples.cards
        levels = (
            np.array([level if (level := view.of_card(card, name)) is not None else np.nan for card in cards]) * unit
        )
        if len(cards) < 3 or not np.isfinite(levels).all():
            continue
        for place, card in enumerate(cards):
            rest = np.delete(levels, place)
            off = levels[place] - np.median(rest)
            least = {"temperature_c": 12.0, "utilisation": 0.3, "sm_clock_hz": 0.1 * float(np.median(rest))}[name]
            cold = off < 0 and name == "temperature_c"  # which is harmless
            slowed = max(view.of_card(card, reason) or 0.0 for reason in ("hot", "capped"))
            explained = name == "sm_clock_hz" and (off > 0 or slowed > 0.05)  # separate causes
            if abs(off) > least and abs(off) > 2 * (rest.max() - rest.min()) and not cold and not explained:
                facts = {
                    "card": card.number,
                    "level": float(levels[place]),
                    "low": float(rest.min()),
                    "high": float(rest.max()),
                }
                yield Finding("card_apart", NOTICE, text._replace(params=facts))


_RULES: tuple[Callable[[_View], Iterator[Finding]], ...] = (
    stopped_process, waiting, other_programs, busy_network, slow_saves, short_memory, hot_cards, power_caps, spilled_memory, shared_cards, card_apart,
)  # fmt: skip


# --- one slow iteration -----------------------------------------------------------------------------------------

_STALL_CAUSES: tuple[tuple[str, float, Message], ...] = (  # figure, by how much it must exceed its normal level, sentence
    ("stopped", 0.3, Message("Iteration {at:n} took {time:time}: the training was stopped by a signal meanwhile.")),
    ("swap_bytes_per_s", SWAPPING_BYTES_PER_S, Message("Iteration {at:n} took {time:time}: meanwhile {level:size} a second moved between memory and disk ({normal:size} in normal steps).")),
    ("disk_busy", 0.5, Message("Iteration {at:n} took {time:time}: meanwhile the disk was busy {level:pct} of the time ({normal:pct} in normal steps).")),
    ("blocked", 0.5, Message("Iteration {at:n} took {time:time}: meanwhile its processes waited for a disk {level:pct} of the time ({normal:pct} in normal steps).")),
    ("others", 0.5, Message("Iteration {at:n} took {time:time}: meanwhile other programs kept {level:x} processors busy ({normal:x} in normal steps).")),
    ("idle", 0.3, Message("Iteration {at:n} took {time:time}: meanwhile the cards were idle {level:pct} of the time ({normal:pct} in normal steps).")),
)  # fmt: skip


def slow_rows(a: Analysis) -> Iterator[Finding]:
    """The five longest stalls, each explained by what differed from normal steps."""
    use = a.machine
    if use is None or use.clock is ClockMatch.NONE:
        return
    machine = use.samples.machine
    columns = {
        name: machine[name] for name in ("stopped", "swap_bytes_per_s", "disk_busy", "blocked") if name in machine
    }
    if {"cpu", "processors", "training_cpu"} <= machine.keys():
        columns["others"] = machine["cpu"] * machine["processors"] - machine["training_cpu"]
    busy = _utilisation(use.samples) if _working(use.samples) else None
    if busy is not None:
        columns["idle"] = 1 - busy
    lost_s = a.run.iterations.time_s * a.phases.covers * (a.phases.phase == Phase.STALL)
    slow = [int(row) for row in np.argsort(-lost_s, kind="stable")[:5] if lost_s[row] > 0]
    for row in sorted(slow):
        inside = use.row == row
        if not inside.any():
            continue
        facts: dict[str, Any] = {"at": int(a.run.iterations.number[row]), "time": float(lost_s[row])}
        for name, beyond, text in _STALL_CAUSES:
            level, normal = (_mean(columns[name][part]) if name in columns else None for part in (inside, use.steps))
            if level is not None and normal is not None and level > normal + beyond:
                yield Finding(
                    "slow_by_machine", NOTICE, text._replace(params={**facts, "level": level, "normal": normal})
                )
                break


# --- findings ---------------------------------------------------------------------------------------------------


def machine_causes(a: Analysis) -> Iterator[Finding]:
    if a.machine is None:
        return
    if a.machine.clock is ClockMatch.MATCHED:
        text = Message(
            "The samples have no clock in common with the log: they were matched to it by when the cards work and when they rest."
        )
        yield Finding("samples_matched", NOTICE, text)
    elif a.machine.clock is ClockMatch.NONE:
        text = Message(
            "The samples cannot be matched to the log: the two have no clock in common. What they show is of the whole time."
        )
        if len(a.machine.samples) < LEAST_SAMPLES:
            text = Message("There are too few samples to say what the machine did.")
        yield Finding("samples_apart", NOTICE, text)
    outside = a.machine.samples.outside
    if outside:
        text = Message(
            "The samples contain an impossible value ({what:word}): it is not used.", {"count": len(outside), "what": outside[0]},
            "The samples contain {count:n} impossible values, the first of {what:word}: they are not used.", len(outside),
        )  # fmt: skip
        yield Finding("outside_samples", NOTICE, text)
    yield from a.machine.causes
    if not a.machine.causes and a.machine.clock is not ClockMatch.NONE:
        yield Finding(
            "nothing_in_samples", INFO, Message("Nothing in the samples of the machine explains a slow iteration.")
        )


RULES = (machine_causes, slow_rows)
