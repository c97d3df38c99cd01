"""The case of a log: the whole run, at the prices that the log shows; and rules on what only a log shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from stepwatch.advice.case import Case, Effect, Proposal, Rule
from stepwatch.analysis import Analysis
from stepwatch.analysis.costs import MEASURED
from stepwatch.analysis.findings import SLEEP_RATIO, shows_events
from stepwatch.analysis.goodput import START
from stepwatch.analysis.phases import Phase
from stepwatch.analysis.throughput import workload_of
from stepwatch.estimator.simulate import NOTHING, Loop, Prices
from stepwatch.messages import Message
from stepwatch.run import SLEEP_S, column_of, numbers_of
from stepwatch.settings import NANOGPT_DEFAULTS, Origin, Settings
from stepwatch.units import Z90, Interval

SAVES_AHEAD = (0.5, 1.0, 1.4)  # of the checkpoints that a forecast expects where only a better loss saves


def case_of_log(a: Analysis, *, cards: int | None = None, windows: bool = False) -> Case | None:
    """None where not even a normal iteration is known."""
    known = a.costs.step_known and a.costs.step_s.mid > 0 and np.isfinite(a.goodput.wall_s)
    if not known or not len(a.run.iterations):
        return None
    settings, gpu, parts_s = a.run.settings, a.throughput.gpu, a.goodput.parts_s
    interval = a.phases.eval_interval
    if not interval and len(a.run.evaluations) > 2:
        gaps = np.diff(numbers_of(a.run.evaluations))
        interval = int(np.median(gaps)) if len(gaps) > 1 else None
    if interval and "eval_interval" not in settings:
        settings = settings.overridden_by(Settings.of(Origin.INFERRED, {"eval_interval": interval}))
    if a.run.traits.has_nanogpt_settings:
        if "always_save_checkpoint" not in settings and len(a.run.checkpoints) < a.evaluations_done - 1:
            settings = settings.overridden_by(Settings.of(Origin.INFERRED, {"always_save_checkpoint": False}))
        assumed = {name: NANOGPT_DEFAULTS[name] for name in ("eval_iters", "always_save_checkpoint", "log_interval")}
        settings = Settings.of(Origin.FORMAT_DEFAULT, assumed).overridden_by(settings)
    workload = workload_of(a.run, gpu) if gpu is not None and a.throughput.possible else None
    far_slower = a.expected is not None and a.costs.step_s.mid > 2.0 * a.expected.step_s.high
    if workload is not None and gpu is not None and far_slower:
        from stepwatch.estimator.memory import fits

        if fits(workload, gpu) is not False:  # memory that spills would explain it
            workload = None  # what holds this run up is not in the model
    lost_s = max(parts_s["unexplained"], 0.0) + parts_s.get(START, 0.0)
    lost_s += stalled_s(a) if parts_s["stall"] > 0 else 0.0
    case = Case(
        settings=settings,
        prices=_prices(a),
        loop=_loop(a),
        measured=frozenset(name.removesuffix("_s") for name, how in a.costs.how.items() if how == MEASURED),
        gpu=gpu,
        workload=workload,
        lost_s=Interval.exactly(lost_s),
        cards=max(cards or 1, a.throughput.cards),
        n_params=a.run.saved_params or settings.number("n_params"),
        improvements=_improvements(a),
        analysis=a,
        levers=None if a.run.traits.has_nanogpt_settings else a.run.traits.levers,
        windows=windows,
    )
    return replace(case, loop=case.changed({}))


def _prices(a: Analysis) -> Prices:
    costs, goodput = a.costs, a.goodput
    step = costs.step_s
    if goodput.iterations and goodput.wall_s > 0 and goodput.steps_s > 0:
        usual = goodput.steps_s / goodput.iterations
        down = math.hypot(1 - step.low / step.mid, 1 - goodput.interval_s.low / goodput.wall_s)
        up = math.hypot(step.high / step.mid - 1, goodput.interval_s.high / goodput.wall_s - 1)
        step = Interval(usual * max(1 - down, 0.0), usual, usual * (1 + up))

    # A typical evaluation is not the mean of all: the sum of the parts is the time that the run took.
    prices = ((costs.eval_s, a.evaluations_done), (costs.checkpoint_s, a.checkpoints_done))
    typical = sum(price.mid * count for price, count in prices if price is not None)
    spent = goodput.parts_s["eval"] + goodput.parts_s["checkpoint"]
    mean = spent / typical if spent > 0 and typical > 0 else 1.0

    again = [costs.eval_s, costs.checkpoint_s, costs.pair_s]  # the same in another run, or later in this one
    for place, price in enumerate(again):
        if price is not None:
            slack = 0.01 * price.mid  # what evaluations and checkpoints differ by from one run to the next
            mid = mean * price.mid
            again[place] = Interval(min(max(price.low - slack, 0.0), mid), mid, max(price.high + slack, mid))
    return Prices(step, again[0], again[1], again[2], costs.compile_s or NOTHING)


def _loop(a: Analysis) -> Loop:
    """The whole run: what is in the log and, where its length is known, what is still to come."""
    f, done = a.forecast, a.evaluations_done
    first = 1 if a.phases.first_evaluates and done and not a.phases.first_saves else 0
    ahead = max((f.max_iters or 0) - f.last_iteration, 0) if not f.done else 0
    evaluations = done + f.evals_ahead
    later = evaluations - first
    saves = [a.checkpoints_done + f.saves_ahead * share for share in SAVES_AHEAD]
    if a.checkpoints_done >= done - first or not f.saves_ahead:  # all of them so far, or none to come
        saves = [saves[1]] * 3
    share = Interval(*(min(count / later, 1.0) for count in saves)) if later > 0 else NOTHING
    loop = Loop(a.goodput.iterations + ahead, evaluations, never=first, share=share)
    if a.run.traits.saves_with_evaluations:
        return loop
    return loop._replace(share=NOTHING, apart=Interval.exactly(float(saves[1])))


def stalled_s(a: Analysis) -> float:
    """In stalls of a machine that was awake: one asleep is no part of a run, and late data are a part of their own."""
    if a.phases.baseline is None:
        return 0.0
    rows = np.flatnonzero(a.phases.of(Phase.STALL))
    excess = a.phases.excess_s(a.run, rows)
    ratio = a.run.iterations.time_s[rows] / a.phases.baseline.time_s[rows]
    return max(float(excess[(excess < SLEEP_S) | (ratio < SLEEP_RATIO)].sum()) - a.late_s, 0.0)


def _improvements(a: Analysis) -> Interval | None:
    """The share of evaluations that would save if only a better validation loss did."""
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


# --- what a log shows of the machine, whatever the trainer ------------------------------------------------------


# How much of what a machine loses comes back once its cause is found is a guess, and said to be one.
AVOIDABLE = Interval(0.25, 0.75, 1.0)


_LOADER = "DataLoader(\n  …, num_workers=4, prefetch_factor=4, pin_memory=True, persistent_workers=True)"


def _without(share: float, known: Interval | None = None) -> Interval:
    """Factor of a cost once the cause is found that makes `share` of it, which may be known no better than `known`."""
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
    """The card does far less than it does for others, and the trainer has settings that usually matter."""
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
    """One rank holds all others up, as their records show."""
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
    """Whole stretches were slower than others, and no schedule meant it: heat, a power limit, other users."""
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
    """The steps became longer little by little, as when a card warms up; a schedule makes them so too."""
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
    """The whole run is slower than its card: the trap of emulated bfloat16, or something that holds the card."""
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
                "A step takes {step:time} where a {gpu:word} needs {expected:range} for this model: look at other "
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


# With the findings of which one must be there.
RULES: dict[Rule, tuple[str, ...]] = {
    feed_faster: ("data_wait",),
    fill_card: ("low_mfu",),
    look_at_rank: ("slow_rank",),
    find_stalls: ("stall", "periodic_slowness", "late_data", "late_ranks"),
    slow_stretch: ("regime_change",),
    heat: ("drift",),
    slower_than_normal: ("slower_than_expected",),
}
