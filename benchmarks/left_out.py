"""The allowances of forecasts, fitted to the logs of all trainers but one, and how many of its forecasts they cover.

The two allowances (for what machines do later, for evaluations that no line shows yet) are the least that cover nine in
ten of the others' forecasts, each log counted as one. More folders of logs, like those of the corpus, can be added.
    python -m benchmarks.left_out [folder]…
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.adapter import corpus_or_exit
from benchmarks.cut_logs import SHARES, Outcome, cases, forecast, logs

from stepwatch import explain
from stepwatch.analysis import forecast as room
from stepwatch.errors import StepwatchError

WANTED = 0.9
LATER = ((0.025, 0.035), (0.04, 0.05), (0.05, 0.065), (0.055, 0.075), (0.06, 0.08), (0.07, 0.09), (0.08, 0.11))
EVALUATIONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)


class Allowed(NamedTuple):
    """The constants of the forecast that are fitted."""

    later: tuple[float, float]
    evaluations: float


class Cut(NamedTuple):
    """One forecast: whether it is covered, and how wide it is, for each allowance."""

    trainer: str
    log: str
    may_evaluate: bool
    plain: bool
    """Whether it only allows for what machines do later."""
    covered: dict[Allowed, bool]
    width: dict[Allowed, float]


def cuts(places: Sequence[Path]) -> list[Cut]:
    """Every cut of every log in the folders."""
    return [_cut(outcome) for place in places for outcome in _outcomes(place)]


def _outcomes(place: Path) -> Iterator[Outcome]:
    for ident, path in logs(place):
        if path.suffix == ".ipynb":  # its lines are not lines of a log
            continue
        try:
            runs = [run.analysis for run in explain(path).runs]
        except StepwatchError:
            continue
        for case in cases(f"{place.name} {ident}", path, runs):
            if not isinstance(case, tuple):
                yield from filter(None, (forecast(case, share) for share in SHARES))


def _cut(outcome: Outcome) -> Cut:
    """Repeats the forecast with each of the allowances."""
    a, truth_s = outcome.analysis, outcome.case.truth_s
    covered, width = {}, {}
    usual = Allowed((room.LATER_DOWN, room.LATER_UP), room.UNSEEN_EVALUATIONS)
    for allowed in (Allowed(later, share) for later in LATER for share in EVALUATIONS):
        _allow(allowed)
        total = room.find_forecast(a.run, a.phases, a.costs, a.goodput, a.regimes, a.expected).total_s
        _allow(usual)
        if total is not None:
            covered[allowed] = total.low * 0.999 <= truth_s <= total.high * 1.001
            width[allowed] = total.high / max(total.low, 1e-9)
    reasons = a.forecast.reasons
    log = re.sub(r", run \d+$", "", outcome.case.ident)
    return Cut(outcome.case.trainer, log, "evaluations" in reasons, not reasons, covered, width)


def _allow(allowed: Allowed) -> None:
    (room.LATER_DOWN, room.LATER_UP), room.UNSEEN_EVALUATIONS = allowed


def fitted(found: Sequence[Cut]) -> Allowed:
    """The least that covers nine in ten: first of those that allow nothing else, then of those that may evaluate."""
    plain, evaluating = [each for each in found if each.plain], [each for each in found if each.may_evaluate]
    later = next((each for each in LATER if _covered(plain, Allowed(each, 0.0)) >= WANTED), LATER[-1])
    choices = [Allowed(later, share) for share in EVALUATIONS]
    return next((each for each in choices if _covered(evaluating, each) >= WANTED), choices[-1])


def _covered(found: Sequence[Cut], allowed: Allowed) -> float:
    """The share of covered logs: each counts as one, regardless of its number of runs or cuts."""
    shares = []
    for log in sorted({each.log for each in found}):
        of_log = [each.covered[allowed] for each in found if each.log == log]
        shares.append(sum(of_log) / len(of_log))
    return sum(shares) / len(shares) if shares else 1.0


def table(found: Sequence[Cut]) -> str:
    out = [
        "What forecasts allow for is fitted to the logs of all other trainers (the least that covers nine in ten of "
        "them), and the trainer's own forecasts are judged by that. Only these two allowances are fitted so: the rules "
        "themselves, and the figures of single trainers, were made with these logs in view.", "",
        "| left out | logs | faster, slower later | later evaluations | forecasts | covered | median high/low |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    all_covered: list[bool] = []
    widths: list[float] = []
    for trainer in sorted({each.trainer for each in found}):
        own = [each for each in found if each.trainer == trainer]
        allowed = fitted([each for each in found if each.trainer != trainer])
        covered, width = [each.covered[allowed] for each in own], [each.width[allowed] for each in own]
        down, up = allowed.later
        out.append(
            f"| {trainer} | {len({each.log for each in own})} | {down:.1%}, {up:.1%} | {allowed.evaluations:.0%} "
            f"| {len(own)} | {sum(covered)} ({sum(covered) / len(own):.0%}) | {median(width):.3f} |"
        )
        all_covered += covered
        widths += width
    share = sum(all_covered) / len(all_covered)
    logs_of = len({each.log for each in found})
    out.append(f"| **all** | {logs_of} | | | {len(found)} | {sum(all_covered)} ({share:.0%}) | {median(widths):.3f} |")
    down, up = (later := fitted(found)).later
    out += [
        "",
        f"Fitted to all of them: {down:.1%} and {up:.1%}, {later.evaluations:.0%}. Allowed for are "
        f"{room.LATER_DOWN:.1%} and {room.LATER_UP:.1%}, {room.UNSEEN_EVALUATIONS:.0%}: the constants were fitted to "
        "more logs than these, 288.",
    ]
    return "\n".join(out)


if __name__ == "__main__":
    print(table(cuts([corpus_or_exit(), *map(Path, sys.argv[1:])])))
