"""How well stepwatch finds costs that were planted: coverage, error and width of its 90 % intervals.

    python benchmarks/planted.py [--runs 200] [--seed 1] [--adapter in-process]

Each random run (tests/builders.py) is written as a log, read by `stepwatch explain --json`, and compared with what was
planted. `table()` returns the same Markdown that the script prints, so that docs/accuracy.md can be written from it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.builders import Record, Saves, a_run, random_truth  # noqa: E402

Report = dict[str, Any]
Explain = Callable[[str, Mapping[str, object]], Report]

ARGUMENTS = ("explain", "-", "--json", "--no-iterations")
SEED, RUNS = 1, 200
COSTS = ("step_s", "eval_s", "checkpoint_s", "compile_s")
NAMES = {"step_s": "step", "eval_s": "evaluation", "checkpoint_s": "checkpoint", "compile_s": "compile"}
NOT_SEPARABLE = "not separable"
LEAST_S = {"compile_s": 1.0}  # below this, a relative error says nothing: eager warm-ups take 0 to 3 s


def by_command(text: str, settings: Mapping[str, object]) -> Report:
    """As a user calls it: `python -m stepwatch explain - --json --no-iterations`."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "stepwatch", *_arguments(settings)]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, input=text.encode(), capture_output=True, env=environment, timeout=120, check=False)
    return _answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_process(text: str, settings: Mapping[str, object]) -> Report:
    """The same command without a new process for each log: about ten times faster."""
    from click.testing import CliRunner

    sys.path[:0] = [str(ROOT / "src")] if str(ROOT / "src") not in sys.path else []
    main = importlib.import_module("stepwatch.cli").main
    done = CliRunner().invoke(main, _arguments(settings), input=text)
    return _answer(done.exit_code, done.stdout, done.stderr or repr(done.exception))


ADAPTERS: dict[str, Explain] = {"command": by_command, "in-process": in_process}


def explain_json(text: str, settings: Mapping[str, object]) -> Report:
    """The report of one log; STEPWATCH_ADAPTER=in-process takes the fast way."""
    return ADAPTERS[os.environ.get("STEPWATCH_ADAPTER", "command")](text, settings)


def _arguments(settings: Mapping[str, object]) -> list[str]:
    return [*ARGUMENTS, *(part for key, value in settings.items() for part in ("--set", f"{key}={value}"))]


def _answer(code: int, out: str, err: str) -> Report:
    if code != 0:
        raise Unanswered(f"exit {code}: {' / '.join(err.strip().splitlines()[-2:]) or 'no message'}")
    report: Report = json.loads(out)
    return report


class Unanswered(Exception):
    """stepwatch refused a log, or failed on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One cost of one run: what was planted, what was said."""

    record: Record
    cost: str
    truth: float
    said: Mapping[str, float] | None
    how: str | None

    @property
    def separable(self) -> bool:
        return self.said is not None and self.how != NOT_SEPARABLE

    @property
    def covers(self) -> bool:
        return self.said is not None and self.said["low"] <= self.truth <= self.said["high"]

    @property
    def comparable(self) -> bool:
        """Whether it is large enough for a relative figure."""
        return self.separable and self.truth > 0 and self.truth >= LEAST_S.get(self.cost, 0.0)

    @property
    def error(self) -> float:
        assert self.said is not None
        return abs(self.said["mid"] - self.truth) / self.truth

    @property
    def width(self) -> float:
        assert self.said is not None
        return (self.said["high"] - self.said["low"]) / self.truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The results of all planted runs."""

    runs: int
    seed: int
    outcomes: Sequence[Outcome]
    unanswered: Sequence[str]
    split: int  # logs of one run that were read as several


GROUPS: Mapping[str, Callable[[Record], bool]] = {
    "all": lambda run: True,
    "noise < 1 %": lambda run: run.truth.noise < 0.01,
    "noise 1 to 5 %": lambda run: 0.01 <= run.truth.noise <= 0.05,
    "noise > 5 %": lambda run: run.truth.noise > 0.05,
    "drift": lambda run: run.truth.drift != 0,
    "heavy tails": lambda run: run.truth.tail_share > 0,
    "stalls": lambda run: run.truth.stall_share > 0,
    "unlogged evaluations": lambda run: run.truth.unlogged_evaluations,
    "with header": lambda run: run.truth.header,
    "without header": lambda run: not run.truth.header,
    "saves at every evaluation": lambda run: run.truth.saves is Saves.ALWAYS,
    "saves on improvement": lambda run: run.truth.saves is Saves.ON_IMPROVEMENT,
    "never saves": lambda run: run.truth.saves is Saves.NEVER,
    "resumed": lambda run: run.truth.first_iter > 0,
    "cut short": lambda run: run.truth.kept < 1,
}


def planted_runs(runs: int = RUNS, seed: int = SEED) -> list[Record]:
    rng = np.random.default_rng(seed)
    return [a_run(random_truth(rng)) for _ in range(runs)]


def truths(record: Record) -> dict[str, float]:
    """What an analysis should find, for the costs that occur in this log."""
    planted = {
        "step_s": record.true_step_s,
        "eval_s": record.true_eval_s,
        "checkpoint_s": record.true_checkpoint_s,
        "compile_s": record.true_compile_s,
    }
    return {cost: value for cost, value in planted.items() if value is not None}


def outcomes_of(record: Record, run: Report) -> Iterable[Outcome]:
    said, how = run["costs"], run["costs"].get("how") or {}
    for cost, truth in truths(record).items():
        yield Outcome(record=record, cost=cost, truth=truth, said=said.get(cost), how=how.get(cost))


def run_case(records: Sequence[Record], seed: int = SEED, explain: Explain = explain_json) -> Trial:
    """Reads every log once; a log that cannot be read is counted, not hidden."""
    outcomes: list[Outcome] = []
    unanswered: list[str] = []
    split = 0
    for place, record in enumerate(records):
        try:
            found = explain(record.text, {})["runs"]
            outcomes.extend(outcomes_of(record, found[0]))
            split += len(found) > 1
        except (Unanswered, ValueError, LookupError, subprocess.TimeoutExpired) as error:
            unanswered.append(f"run {place}: {type(error).__name__}: {error}")
    return Trial(runs=len(records), seed=seed, outcomes=outcomes, unanswered=unanswered, split=split)


def table(runs: int = RUNS, seed: int = SEED, explain: Explain = explain_json) -> str:
    """The whole comparison as Markdown."""
    return as_markdown(run_case(planted_runs(runs, seed), seed, explain))


def as_markdown(trial: Trial) -> str:
    parts = [_summary(trial), *(_table_of(cost, trial) for cost in COSTS)]
    if trial.unanswered:
        parts.append("### Logs without an answer\n\n" + "\n".join(f"- {line}" for line in trial.unanswered))
    return "\n\n".join(parts) + "\n"


HEAD = (
    "| {} | runs | separated | covered by the 90 % interval | median error | median width "
    "| not separable | of these covered | null |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def _summary(trial: Trial) -> str:
    rows = [_row(NAMES[cost], [o for o in trial.outcomes if o.cost == cost]) for cost in COSTS]
    saved = [o for o in trial.outcomes if o.cost == "checkpoint_s"]
    lost = sum(o.how == NOT_SEPARABLE for o in saved)
    return "\n".join(
        (
            f"{trial.runs} planted runs, seed {trial.seed}; {len(trial.unanswered)} without an answer, "
            f"{trial.split} read as more than one run.",
            f"Of {len(saved)} runs that save, {_share(lost, len(saved))} have a checkpoint that is not separable.",
            "",
            HEAD.format("cost"),
            *rows,
        )
    )


def _table_of(cost: str, trial: Trial) -> str:
    mine = [o for o in trial.outcomes if o.cost == cost]
    rows = [_row(name, [o for o in mine if belongs(o.record)]) for name, belongs in GROUPS.items()]
    hows = Counter(o.how or "unsaid" for o in mine if o.separable)
    rows += [_row(f"labelled {how}", [o for o in mine if o.separable and (o.how or "unsaid") == how]) for how in hows]
    return "\n".join((f"### {NAMES[cost].capitalize()}", "", HEAD.format("group"), *filter(None, rows)))


def _row(name: str, outcomes: Sequence[Outcome]) -> str:
    """One line of figures; empty when no run belongs to the group."""
    if not outcomes:
        return ""
    apart = [o for o in outcomes if o.separable]
    lost = [o for o in outcomes if o.said is not None and not o.separable]
    sized = [o for o in apart if o.comparable]
    cells = (
        name,
        str(len(outcomes)),
        str(len(apart)),
        _share(sum(o.covers for o in apart), len(apart)),
        _percent(median([o.error for o in sized])) if sized else "-",
        _percent(median([o.width for o in sized])) if sized else "-",
        str(len(lost)),
        _share(sum(o.covers for o in lost), len(lost)),
        str(sum(o.said is None for o in outcomes)),
    )
    return f"| {' | '.join(cells)} |"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.0f} %"


def misses(trial: Trial) -> str:
    """The runs whose interval missed, worst first: where to look."""
    missed = [o for o in trial.outcomes if o.separable and not o.covers]
    missed.sort(key=lambda o: (o.cost, -(o.error / max(o.width, 1e-9) if o.truth > 0 else 0.0)))
    return "\n".join(f"{o.cost} planted {o.truth:.6g}, said {o.said} ({o.how}): {o.record.truth}" for o in missed)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--runs", type=int, default=RUNS)
    options.add_argument("--seed", type=int, default=SEED)
    options.add_argument("--adapter", choices=sorted(ADAPTERS), help="default: $STEPWATCH_ADAPTER, else command")
    options.add_argument("--misses", action="store_true", help="also list the runs whose interval missed")
    chosen = options.parse_args()
    explain = ADAPTERS[chosen.adapter] if chosen.adapter else explain_json
    trial = run_case(planted_runs(chosen.runs, chosen.seed), chosen.seed, explain)
    print(as_markdown(trial))
    if chosen.misses:
        print(misses(trial))


if __name__ == "__main__":
    main()
