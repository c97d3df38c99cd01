"""What only a log shows: rules on the machine and the time lost to it, for any trainer."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from stepwatch.advice.case import Case, Effect, Proposal, Rule
from stepwatch.analysis import Analysis
from stepwatch.analysis.costs import MEASURED
from stepwatch.analysis.findings import SLEEP_RATIO, shows_events
from stepwatch.analysis.phases import Phase
from stepwatch.messages import Message
from stepwatch.run import SLEEP_S, column_of
from stepwatch.units import Z90, Interval


def stalled_s(a: Analysis) -> float:
    """Time in stalls of a machine that was awake: sleep is not part of a run, and late data are a separate part."""
    if a.phases.baseline is None:
        return 0.0
    rows = np.flatnonzero(a.phases.of(Phase.STALL))
    excess = a.phases.excess_s(a.run, rows)
    ratio = a.run.iterations.time_s[rows] / a.phases.baseline.time_s[rows]
    return max(float(excess[(excess < SLEEP_S) | (ratio < SLEEP_RATIO)].sum()) - a.late_s, 0.0)


def improvements(a: Analysis) -> Interval | None:
    """The share of evaluations that would save if only a better validation loss did; None if it is not shown."""
    losses = column_of(a.run.evaluations, "val_loss")
    losses = losses[~np.isnan(losses)]
    if len(losses) < 4:  # too few for a trend
        return None
    lowest = int((losses[1:] < np.minimum.accumulate(losses)[:-1]).sum())
    fell = int((losses[1:] < losses[:-1]).sum())
    later = len(losses) - 1
    chance = Z90 * math.sqrt(max(lowest * (later - lowest), 1) / later) / later
    share = lowest / later
    return Interval(max(share - chance, 0.0), share, min(max(fell / later, share) + chance, 1.0))


# --- what a log shows about the machine, for any trainer --------------------------------------------------------


# How much of the lost time comes back once its cause is found: a guess, and reported as one.
AVOIDABLE = Interval(0.25, 0.75, 1.0)


_LOADER = "DataLoader(\n  …, num_workers=4, prefetch_factor=4, pin_memory=True, persistent_workers=True)"


def _without(share: float, known: Interval | None = None) -> Interval:
    """The factor of a cost once the cause of `share` of it is found; `known` is the uncertainty of that share."""
    surely = known.low / known.mid if known is not None and known.mid > 0 else 1.0
    parts = (AVOIDABLE.high, AVOIDABLE.mid, AVOIDABLE.low * surely)
    return Interval(*(max(1 - share * part, 0.0) for part in parts))


def _look(rule: str, effect: Effect, what: Message, because: Message) -> Proposal:
    return Proposal(
        rule=rule,
        effect=effect,
        what=what,
        because=because,
        price=Message("None."),
        patch="nvidia-smi --format=csv -l 5 \\\n  --query-gpu=clocks.sm,power.draw,temperature.gpu,memory.used",
        where=Message("In a second terminal, while it trains:"),
        remedy=False,
    )


def feed_faster(case: Case) -> Iterator[Proposal]:
    """The steps wait for their data, as a record or the trainer shows."""
    a = case.analysis
    share = a.data_share if a is not None else None
    if a is None or not share:
        return
    wait, levers = a.costs.data_s, a.run.traits.levers
    known = [Message("{name:word}", {"name": name}) for name in (levers.workers, levers.prefetch, levers.cache) if name]
    what = Message("Prepare the data while the card computes.")
    if known:
        what = Message(
            "Prepare the data while the card computes: more workers, or data in memory or on a faster disk "
            "({settings:said}).",
            {"settings": known},
        )
    yield Proposal(
        rule="feed_faster",
        effect=Effect(step=_without(share, wait)),
        most_s=a.goodput.parts_s["data"] / a.goodput.iterations * case.loop.iterations,
        own={},
        what=what,
        because=Message("The steps wait {share:pct} of their time for data.", {"share": share}),
        price=Message("Memory and cores of the host."),
        patch=None if known else _LOADER,
        where=None if known else Message("Where the loader is made, with as many workers as there are cores to spare:"),
    )


def fill_card(case: Case) -> Iterator[Proposal]:
    """The card does far less than in other people's runs, and the trainer has settings that usually matter."""
    a, levers = case.analysis, case.levers
    names = [name for name in (levers.batch, levers.precision, levers.compile) if name] if levers is not None else []
    if a is None or a.throughput.normal_mfu is None or not a.throughput.mfu or not names:
        return
    normal = a.throughput.normal_mfu
    if a.throughput.mfu >= normal.mid:
        return
    yield _look(
        rule="fill_card",
        effect=Effect(step=_without(1 - a.throughput.mfu / normal.mid)),
        what=Message(
            "Give the card more to do at a time: {settings:said}.",
            {"settings": [Message("{name:word}", {"name": name}) for name in names]},
        ),
        because=Message(
            "The normal iterations use {mfu:pct} of the card; {low:pct} to {high:pct} is usual.",
            {"mfu": a.throughput.mfu, "low": normal.low, "high": normal.high},
        ),
    )


def look_at_rank(case: Case) -> Iterator[Proposal]:
    """One rank holds up all others, as their records show."""
    ranks = case.analysis.ranks if case.analysis is not None else None
    if ranks is None or not ranks.chronic or case.prices.step_s.mid <= 0:
        return
    yield _look(
        rule="look_at_rank",
        effect=Effect(step=_without(min(ranks.per_step_s / case.prices.step_s.mid, 1.0))),
        what=Message("Find out what slows rank {rank:n} down.", {"rank": ranks.slowest}),
        because=Message(
            "It takes {each:time} longer for a step than the others, and they wait for it: another job on its card, "
            "heat, a power limit, a slower link, or more data than the others.",
            {"each": ranks.per_step_s},
        ),
    )


def find_stalls(case: Case) -> Iterator[Proposal]:
    if case.analysis is None or case.lost_s.mid <= 0:
        return
    lost = stalled_s(case.analysis)
    because = Message(
        "{lost:time} were lost in slow iterations with neither evaluation nor checkpoint: other jobs, a slow or "
        "full disk, a virus scanner on out_dir, swapping.",
        {"lost": lost},
    )
    if not shows_events(case.analysis.run):
        because = Message(
            "{lost:time} were lost in slow iterations that the log does not explain: evaluations or checkpoints, "
            "other jobs, a slow or full disk, swapping.",
            {"lost": lost},
        )
    yield _look(
        rule="find_stalls",
        effect=Effect(lost=_without(lost / case.lost_s.mid)),
        what=Message("Find out what blocks the machine during the stalls."),
        because=because,
    )


def slow_stretch(case: Case) -> Iterator[Proposal]:
    """Whole stretches were slower than others, not because of a schedule: heat, a power limit, other users."""
    a = case.analysis
    if a is None or len(a.regimes.regimes) < 2 or a.goodput.steps_s <= 0:
        return
    lengths = [regime.to_iteration - regime.from_iteration + 1 for regime in a.regimes.regimes]
    steps_s = [regime.step_s for regime in a.regimes.regimes]
    spent_s = sum(length * step_s for length, step_s in zip(lengths, steps_s, strict=True))
    yield _look(
        rule="slow_stretch",
        effect=Effect(step=_without(1 - min(steps_s) * sum(lengths) / spent_s)),
        what=Message("Find out why whole stretches were slower."),
        because=Message(
            "A step takes {fast:time} at best and {slow:time} at worst, for long stretches: another job on the card, "
            "heat, or a power limit (laptops: the charger and the energy profile).",
            {"fast": min(steps_s), "slow": max(steps_s)},
        ),
    )


def heat(case: Case) -> Iterator[Proposal]:
    """The steps became longer little by little, as when a card warms up; not if a schedule may have caused it."""
    a = case.analysis
    if a is None or a.run.traits.schedules or a.regimes.drift is None or len(a.regimes.regimes) > 1:
        return
    if a.regimes.drift < 0.05:  # less is not clearly a drift
        return
    yield _look(
        rule="heat",
        effect=Effect(step=_without(a.regimes.drift / (1 + a.regimes.drift))),
        what=Message("Look at the card's temperature and clock."),
        because=Message(
            "The steps became {change:pct} longer over the run, gradually, as when a card heats up.",
            {"change": a.regimes.drift},
        ),
    )


def slower_than_normal(case: Case) -> Iterator[Proposal]:
    """The whole run is slower than its card: the trap of emulated bfloat16, or something that slows the card."""
    a, gpu = case.analysis, case.gpu
    if a is None or a.expected is None or gpu is None or case.spills:
        return
    if a.costs.how.get("step_s") != MEASURED:
        return
    step, expected = a.costs.step_s.mid, a.expected.step_s
    effect = Effect(step=Interval(*(min(end / step, 1.0) for end in (expected.low, expected.mid, expected.high))))
    facts = {"step": step, "expected": expected, "gpu": gpu.name}
    if gpu.has_bf16 or case.settings.text("dtype") is not None:
        yield _look(
            rule="slower_than_normal",
            effect=effect,
            what=Message("Find out what slows the card down."),
            because=Message(
                "A step takes {step:time} where the {gpu:word} needs {expected:range} for this model: look at other "
                "jobs on the card, its clock and power limit, its memory (it must not be full), and the data's disk.",
                facts,
            ),
        )
    else:
        yield Proposal(
            rule="dtype",
            new_settings={"dtype": "float16"},
            effect=effect,
            what=Message("Set dtype = '{dtype:word}'.", {"dtype": "float16"}),
            because=Message(
                "A step takes {step:time} where {expected:range} is expected. The {gpu:word} has no bfloat16; nanoGPT"
                " selects it anyway, and PyTorch emulates it.",
                facts,
            ),
            price=Message("float16 needs loss scaling, which nanoGPT enables automatically."),
        )


# Each rule with the findings of which it needs one.
RULES: dict[Rule, tuple[str, ...]] = {
    feed_faster: ("data_wait",),
    fill_card: ("low_mfu",),
    look_at_rank: ("slow_rank",),
    find_stalls: ("stall", "periodic_slowness", "late_data", "late_ranks"),
    slow_stretch: ("regime_change",),
    heat: ("drift",),
    slower_than_normal: ("slower_than_expected",),
}
