"""Rules on the machine, where the log shows signs of trouble: they name what to look at, not a setting."""

from __future__ import annotations

from stepwatch.advice.case import Case, Effect
from stepwatch.advice.kinds import Advice, changing, pays
from stepwatch.advice.logs import stalled_s
from stepwatch.analysis.costs import MEASURED
from stepwatch.messages import Message
from stepwatch.units import Interval

# How much of what a machine loses comes back once its cause is found is a guess, and said to be one.
AVOIDABLE = Interval(0.25, 0.75, 1.0)
CLEAR_DRIFT = 0.05
LOOK = "nvidia-smi --format=csv -l 5 \\\n  --query-gpu=clocks.sm,power.draw,temperature.gpu,memory.used"
LOADER = "DataLoader(\n  …, num_workers=4, prefetch_factor=4, pin_memory=True, persistent_workers=True)"
_BESIDE = Message("In a second terminal, while it trains:")
_NOTHING = Message("None.")


def find_stalls(case: Case) -> Advice | None:
    if case.analysis is None or case.lost_s.mid <= 0:
        return None
    lost = stalled_s(case.analysis)
    kept = [1 - share * lost / case.lost_s.mid for share in (AVOIDABLE.high, AVOIDABLE.mid, AVOIDABLE.low)]
    effect = Effect(lost=Interval(*(max(share, 0.0) for share in kept)))
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    return Advice(
        "find_stalls", Message("Find what holds the machine in the stalls."),
        Message(
            "{lost:time} went into slow iterations that hold neither evaluation nor checkpoint: other jobs, a slow or "
            "full disk, a virus scanner on out_dir, swapping.",
            {"lost": lost},
        ),
        _NOTHING, saves, "modelled", patch=LOOK, where=_BESIDE, effect=effect, remedy=False,
    )  # fmt: skip


def slow_stretch(case: Case) -> Advice | None:
    """Whole stretches were slower than others, and no schedule meant it: heat, a power limit, other users."""
    a = case.analysis
    if a is None or a.run.traits.schedules or len(a.regimes.regimes) < 2 or a.goodput.parts_s["step"] <= 0:
        return None
    lengths = [regime.to_iteration - regime.from_iteration + 1 for regime in a.regimes.regimes]
    best = min(regime.step_s for regime in a.regimes.regimes)
    spent = sum(length * regime.step_s for length, regime in zip(lengths, a.regimes.regimes, strict=True))
    gained = 1 - best * sum(lengths) / spent
    effect = Effect(step=Interval(*(1 - gained * share for share in (AVOIDABLE.high, AVOIDABLE.mid, AVOIDABLE.low))))
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    facts = {"fast": best, "slow": max(regime.step_s for regime in a.regimes.regimes)}
    return Advice(
        "slow_stretch", Message("Find out why whole stretches were slower."),
        Message(
            "A step takes {fast:time} at best and {slow:time} at worst, for long stretches: another job on the card, "
            "heat, or a power limit (laptops: the charger and the energy profile).",
            facts,
        ),
        _NOTHING, saves, "modelled", patch=LOOK, where=_BESIDE, effect=effect, remedy=False,
    )  # fmt: skip


def heat(case: Case) -> Advice | None:
    """The steps became longer little by little, as when a card warms up; a schedule makes them so too."""
    a = case.analysis
    if a is None or a.run.traits.schedules or a.regimes.drift is None or len(a.regimes.regimes) > 1:
        return None
    if a.regimes.drift < CLEAR_DRIFT:
        return None
    gained = a.regimes.drift / (1 + a.regimes.drift)
    effect = Effect(step=Interval(*(1 - gained * share for share in (AVOIDABLE.high, AVOIDABLE.mid, AVOIDABLE.low))))
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    return Advice(
        "heat", Message("Look at the card's temperature and clock."),
        Message(
            "The steps became {change:pct} longer in the course of the run, little by little, as when a card heats up.",
            {"change": a.regimes.drift},
        ),
        _NOTHING, saves, "modelled", patch=LOOK, where=_BESIDE, effect=effect, remedy=False,
    )  # fmt: skip


def slower_than_normal(case: Case) -> Advice | None:
    """The whole run is slower than its card: the trap of emulated bfloat16, or something that holds the card."""
    a = case.analysis
    if a is None or a.expected is None or not case.noticed("slower_than_expected") or case.spills:
        return None
    if a.costs.how.get("step_s") != MEASURED:
        return None
    step, expected, gpu = a.costs.step_s.mid, a.expected.step_s, case.gpu
    effect = Effect(step=Interval(*(min(end / step, 1.0) for end in (expected.low, expected.mid, expected.high))))
    saves = case.saving({}, effect)
    if gpu is None or not pays(saves, case.total_s):
        return None
    facts = {"step": step, "expected": expected, "gpu": gpu.name}
    if not gpu.has_bf16 and case.settings.text("dtype") is None:
        return Advice(
            "dtype", Message("Set dtype = '{dtype:word}'.", {"dtype": "float16"}),
            Message(
                "A step takes {step:time} where {expected:range} is to be expected. The {gpu:word} has no bfloat16; "
                "nanoGPT chooses it all the same, and PyTorch emulates it.",
                facts,
            ),
            Message("float16 needs loss scaling, which nanoGPT switches on with it."), saves, "modelled",
            changing(case, {"dtype": "float16"}), effect=effect,
        )  # fmt: skip
    return Advice(
        "slower_than_normal", Message("Find out what slows the card down."),
        Message(
            "A step takes {step:time} where a {gpu:word} needs {expected:range} for this model: look at other jobs on "
            "the card, its clock and power limit, its memory (full is too much), and the data's disk.",
            facts,
        ),
        _NOTHING, saves, "modelled", patch=LOOK, where=_BESIDE, effect=effect, remedy=False,
    )  # fmt: skip


def feed_faster(case: Case) -> Advice | None:
    """The steps wait for their data, as a record tells."""
    a = case.analysis
    if a is None or a.run.inside is None:
        return None
    from stepwatch.analysis.recorded import data_share

    share = data_share(a) or 0.0
    effect = Effect(step=Interval(*(1 - share * part for part in (AVOIDABLE.high, AVOIDABLE.mid, AVOIDABLE.low))))
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    return Advice(
        "feed_faster", Message("Prepare the data while the card computes."),
        Message("The steps wait {share:pct} of their time for data.", {"share": share}),
        Message("Memory and cores of the host."), saves, "modelled", patch=LOADER,
        where=Message("Where the loader is made, with as many workers as there are cores to spare:"), effect=effect,
        remedy=False,
    )  # fmt: skip


def look_at_rank(case: Case) -> Advice | None:
    """One rank holds all others up, as their records tell."""
    ranks = case.analysis.ranks if case.analysis is not None else None
    if ranks is None or not ranks.chronic or case.prices.step_s.mid <= 0:
        return None
    gained = min(ranks.per_step_s / case.prices.step_s.mid, 1.0)
    effect = Effect(step=Interval(*(1 - gained * share for share in (AVOIDABLE.high, AVOIDABLE.mid, AVOIDABLE.low))))
    saves = case.saving({}, effect)
    if not pays(saves, case.total_s):
        return None
    return Advice(
        "look_at_rank", Message("Find out what slows rank {rank:n} down.", {"rank": ranks.slowest}),
        Message(
            "It takes {each:time} longer for a step than the others, and they wait for it: another job on its card, "
            "heat, a power limit, a slower link, or more data than the others.",
            {"each": ranks.per_step_s},
        ),
        _NOTHING, saves, "modelled", patch=LOOK, where=_BESIDE, effect=effect, remedy=False,
    )  # fmt: skip


RULES = (feed_faster, look_at_rank, find_stalls, slow_stretch, heat, slower_than_normal)
