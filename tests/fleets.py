"""Planted fleets: restart chains and many runs of the same work, written as logs whose truth is known.

Imports nothing from stepwatch, as `builders` does not.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

STARTED = datetime(2026, 3, 2, 8, 0, 0)
HEADER = (
    "tokens per iteration will be: 16,384",
    "number of parameters: 10.65M",
    "num decayed parameter tensors: 26, with 10,740,096 parameters",
    "num non-decayed parameter tensors: 13, with 4,992 parameters",
)


class Chain(NamedTuple):
    """A training that crashed some times."""

    files: dict[str, str]
    starts: int
    redone: int
    gap_s: float
    """From each crash to the first step after it, in all."""
    goodput: float


def stamped(moment: datetime, text: str) -> str:
    return f"{moment.isoformat(sep=' ', timespec='milliseconds').replace('.', ',')} {text}\n"


def a_chain(seed: int) -> Chain:
    """Crashes at printed iterations, goes on from the last checkpoint; in one log, or in one for each start."""
    rng = random.Random(seed)
    step_s, interval = rng.uniform(0.2, 2.0), rng.choice((1, 5, 10))
    save = interval * rng.randint(8, 25)
    last = save * rng.randint(6, 12)
    eval_s, in_one_log = rng.uniform(2, 8) * step_s, rng.random() < 0.5
    files: dict[str, str] = {}
    now = began = STARTED + timedelta(days=seed % 300)
    begin, useful_s, redone, gap_s, reached, starts = 0, 0.0, 0, 0.0, -1, 0
    crashes = rng.randint(1, 4)
    crashed_at: datetime | None = None
    while True:
        starts += 1
        name = "train.log" if in_one_log else f"slurm-{4000 + starts}.out"
        lines = [stamped(now, text) for text in HEADER]
        now += timedelta(seconds=rng.uniform(1, 4) * step_s)
        end = last
        if starts <= crashes:  # behind a checkpoint, or nothing of it would be left
            end = min(
                max(begin + interval, begin // save * save + save + interval * rng.randint(1, 30)), last - interval
            )
        for number in range(begin, end + 1):
            took = step_s * rng.gauss(1, 0.01)
            if number >= reached + 1:
                useful_s += took
            else:
                redone += 1
            if number == begin:
                took += 10 * step_s  # compilation
            if number % save == 0:
                now += timedelta(seconds=eval_s)
                lines.append(stamped(now, f"step {number}: train loss 2.0000, val loss {9 - number / last:.4f}"))
                if number:
                    lines.append(stamped(now, "saving checkpoint to out"))
                took += eval_s
                now -= timedelta(seconds=eval_s)
            now += timedelta(seconds=took)
            if crashed_at is not None:
                gap_s += (now - crashed_at).total_seconds()
                crashed_at = None
            if number % interval == 0:
                mfu = "-100.00" if number - begin < 5 else "9.00"
                lines.append(stamped(now, f"iter {number}: loss 2.0000, time {took * 1000:.2f}ms, mfu {mfu}%"))
        files[name] = files.get(name, "") + "".join(lines)
        ended = now
        reached = max(reached, end)
        if end == last:
            break
        files[name] += stamped(now, "RuntimeError: CUDA error: an illegal memory access was encountered")
        crashed_at = now
        begin = end // save * save
        now += timedelta(seconds=rng.uniform(30, 900))
    return Chain(files, starts, redone, gap_s, useful_s / (ended - began).total_seconds())


class Planted(NamedTuple):
    """A fleet, and what is wrong with it."""

    runs: list[dict[str, object]]
    kind: str
    """`node`, `day` or nothing."""
    name: str


def a_fleet(seed: int, kind: str = "") -> Planted:
    """What a log tells of each of some hundred runs: a few kinds of work, on some nodes, over some weeks."""
    rng = random.Random(seed)
    nodes = [f"gpu{number:02}" for number in range(rng.randint(5, 20))]
    offsets = {node: rng.gauss(0, 0.005) for node in nodes}
    works = {f"work{number}": rng.uniform(0.05, 3.0) for number in range(rng.randint(1, 4))}
    count, days = rng.randint(80, 400), rng.randint(20, 90)
    noise, effect = rng.uniform(0.005, 0.02), rng.uniform(0.08, 0.3)
    bad = rng.choice(nodes)
    moments = sorted(rng.uniform(0, days) for _ in range(count))
    day = int(rng.uniform(0.3, 0.7) * days)
    begin = next(moment for moment in moments if moment >= day)
    runs: list[dict[str, object]] = []
    for number, moment in enumerate(moments):
        work, node = rng.choice(list(works)), rng.choice(nodes)
        slower = rng.gauss(0, noise) + offsets[node] + (rng.random() < 0.02) * rng.uniform(0, 0.3)
        slower += effect * ((kind == "node" and node == bad) or (kind == "day" and moment >= begin))
        runs.append(
            {
                "work": work,
                "node": node,
                "step_s": works[work] * (1 + slower),
                "started": STARTED + timedelta(days=moment),
                "torch": "2.6.0" if kind == "day" and moment >= begin else "2.5.1",
                "source": f"/runs/{number:04}.log",
            }
        )
    named = bad if kind == "node" else (STARTED + timedelta(days=begin)).date().isoformat() if kind == "day" else ""
    return Planted(runs, kind, named)


def a_sweep(seed: int) -> Planted:
    """A healthy fleet in which somebody tries values of a setting that changes the speed of one kind of work.

    The values come in any order, in turns, or one after the other. Logs may not tell the setting; but two values one
    after the other, all that the fleet does, are a regression for whoever does not know of them.
    """
    rng = random.Random(seed)
    runs = a_fleet(seed).runs
    works = sorted({str(run["work"]) for run in runs})
    work = rng.choice(works)
    swept = [run for run in runs if run["work"] == work]
    speeds = sorted(rng.uniform(1.0, 1.6) for _ in range(rng.randint(2, 5)))
    order = rng.choice(("any", "in turns", "one after the other"))
    told = rng.random() < 0.5 or (order == "one after the other" and len(works) == 1 and len(speeds) == 2)
    turn = rng.randint(2, 15)
    for number, run in enumerate(swept):
        value = {
            "any": rng.randrange(len(speeds)),
            "in turns": number // turn % len(speeds),
            "one after the other": number * len(speeds) // len(swept),
        }[order]
        run["step_s"] = float(str(run["step_s"])) * speeds[value]
        run["dropout"] = value / 10 if told else None
    return Planted(runs, "", "")


class Scaled(NamedTuple):
    """Runs of one model with one card and with more, and what a card does then against one alone."""

    files: dict[str, str]
    efficiency: dict[int, float]


def a_scaling(seed: int) -> Scaled:
    """In parameter-golf's lines, which tell cards, tokens and parameters; a run on some cards now and then."""
    rng = random.Random(seed)
    step_s, params, noise = rng.uniform(0.05, 1.0), rng.randint(10**7, 10**9), rng.uniform(0.0, 0.02)
    efficiency, files = {1: 1.0}, {}
    for cards in sorted(rng.sample((2, 4, 8, 16), rng.randint(1, 4))):
        efficiency[cards] = efficiency[max(efficiency)] * rng.uniform(0.7, 1.0)
    for cards, share in efficiency.items():
        for number in range(rng.randint(1, 5)):
            own_s = 1000 * step_s / share * rng.gauss(1, noise)
            lines = [f"world_size:{cards}", f"train_batch_tokens:{65536 * cards}", f"model_params:{params}"]
            lines += [
                f"step:{step}/2000 train_loss:3.0 train_time:{own_s * step:.0f}ms step_avg:{own_s:.2f}ms"
                for step in range(0, 2001, 50)
            ]
            files[f"{params}-{cards}-{number}.log"] = "\n".join(["val_bpb:enabled", *lines, ""])
    return Scaled(files, efficiency)


def write_fleet(planted: Planted, top: Path) -> None:
    """The same as short logs, which name their node and version."""
    for run in planted.runs:
        started, step_s = run["started"], float(str(run["step_s"]))
        assert isinstance(started, datetime)
        lines = [stamped(started, f"hostname: {run['node']}"), stamped(started, f"torch version: {run['torch']}")]
        size = int(str(run["work"]).removeprefix("work"))
        lines += [
            stamped(started, f"tokens per iteration will be: {16384 * (size + 1):,}"),
            *(stamped(started, text) for text in HEADER[1:]),
        ]
        for number in range(12):
            took = step_s * (30 if number == 0 else 1)
            started += timedelta(seconds=took)
            lines.append(
                stamped(
                    started,
                    f"iter {number}: loss 2.0000, time {took * 1000:.2f}ms, mfu {-100.0 if number < 5 else 9.0:.2f}%",
                )
            )
        (top / str(run["source"]).rpartition("/")[2]).write_text("".join(lines))
