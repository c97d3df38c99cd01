"""`make laws`: each law of tests/property with many values, the cheapest first; continues where it ended."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypedDict

from tools import ROOT

PLACE = ROOT / "tests" / "property"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- laws -->", "<!-- end of laws -->"
START_S = 1.5  # of pytest and the imports of a law: not counted in the cost of a value


class Tried(TypedDict):
    values: int
    seconds: float
    """CPU time."""
    passed: bool
    commit: str
    date: str


def laws() -> list[str]:
    """Tests that get their values from hypothesis, under pytest's names."""
    found = []
    for path in sorted(PLACE.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any(map(_gives_values, node.decorator_list)):
                found.append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def _gives_values(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "given"


def try_law(law: str, values: int) -> tuple[Tried, str]:
    """The result, and what pytest printed."""
    before = sum(os.times()[2:4])
    command = [sys.executable, "-m", "pytest", "-n0", "--tb=short", law]
    environment = os.environ | {"STEPWATCH_EXAMPLES": str(values)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    tried = Tried(
        values=values, seconds=round(sum(os.times()[2:4]) - before, 1), passed=done.returncode == 0,
        commit=commit.strip(), date=f"{datetime.now(UTC):%Y-%m-%d}",
    )  # fmt: skip
    return tried, done.stdout + done.stderr


class Before(NamedTuple):
    """What the page says about laws that were tried before; their results may be gone."""

    dates: set[str]
    minutes: float
    left: Counter[str]
    """By file, how many were not tried."""
    commits: Counter[str]


def before_in(page: str) -> Before:
    told = page.partition(BEGIN)[2].partition(END)[0]
    minutes = re.search(r"(\d+) minutes", told)
    return Before(
        dates=set(re.findall(r"\d{4}-\d\d-\d\d", told)),
        minutes=float(minutes[1]) if minutes is not None else 0.0,
        left=Counter({name: int(count) for count, name in re.findall(r"(\d+) of (test_\w+\.py)", told)}),
        commits=Counter({name: int(count) for name, count in re.findall(r"\b([0-9a-f]{7,}) (\d+)", told)}),
    )


def summary(known: dict[str, Tried], values: int, before: Before | None = None) -> str:
    """What was tried with at least `values`, and the number of others by file. `known` must not repeat `before`."""
    everything = laws()
    tried = {law: known[law] for law in everything if law in known and known[law]["values"] >= values}
    failed = [law for law, result in tried.items() if not result["passed"]]
    files = Counter(law.split("::")[0].rpartition("/")[2] for law in everything)
    dates, minutes, left, commits = before or Before(set(), 0.0, files, Counter())
    left = left - Counter(law.split("::")[0].rpartition("/")[2] for law in tried)
    commits = commits + Counter(result["commit"] for result in tried.values())
    dates = dates | {result["date"] for result in tried.values()}
    minutes += sum(result["seconds"] for result in tried.values()) / 60
    days = " to ".join(dict.fromkeys((min(dates), max(dates)))) if dates else "never"
    lines = [
        f"{commits.total()} of {len(everything)} laws were tried with {values:,} values each ({days},"
        f" {minutes:.0f} minutes of CPU time): {len(failed)} failed."
    ]
    lines += [f"Failed: {', '.join(failed)}."] if failed else []
    newer = len(everything) - commits.total() - left.total()  # added since the page was written
    untried = [f"{count} of {name}" for name, count in left.items()] + ([f"{newer} newer"] if newer else [])
    lines += [f"Not yet: {', '.join(untried)}."] if untried else []
    lines += [f"By commit: {', '.join(f'{commit} {count}' for commit, count in commits.most_common())}."]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.laws", description=__doc__)
    parser.add_argument("--values", type=int, default=20_000, help="for each law")
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="leave out laws that take longer")
    parser.add_argument("--only", nargs="+", default=[""], help="laws whose name contains one of these")
    parser.add_argument("--kept", type=Path, default=ROOT / ".laws.json", help="where results are kept")
    parser.add_argument("--add", action="store_true", help="to what the page says of other laws, tried before")
    parser.add_argument("--write-docs", action="store_true", help="write the result to docs/reliability.md")
    asked = parser.parse_args(arguments)
    known: dict[str, Tried] = json.loads(asked.kept.read_text()) if asked.kept.exists() else {}
    chosen = [law for law in laws() if any(part in law for part in asked.only)]

    def attempt(law: str, values: int) -> None:
        known[law], said = try_law(law, values)
        asked.kept.write_text(json.dumps(known, indent=1))
        print(f"{known[law]['seconds']:8.1f} s  {values:6}  {law}", flush=True)
        if not known[law]["passed"]:
            print(said, flush=True)

    def seconds_at(law: str) -> float:
        return (known[law]["seconds"] - START_S) * asked.values / known[law]["values"]

    for law in chosen:
        if law not in known:
            attempt(law, min(asked.values, 100))  # finds out what a value costs
    for law in sorted(chosen, key=seconds_at):
        if known[law]["values"] < asked.values and seconds_at(law) <= asked.most_seconds:
            attempt(law, asked.values)
    page = PAGE.read_text(encoding="utf-8")
    told = summary(known, asked.values, before_in(page) if asked.add else None)
    print(told)
    if asked.write_docs:
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + told + "\n" + END + rest.partition(END)[2], encoding="utf-8")
    return 0 if all(result["passed"] for result in known.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
