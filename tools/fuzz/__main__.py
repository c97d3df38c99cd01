"""`make fuzz`: damaged inputs through every command; what breaks is kept, the result goes to docs/reliability.md."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from tools.fuzz.campaign import Campaign, minimise, work
from tools.fuzz.limits import MEMORY_BYTES, SECONDS
from tools.fuzz.material import ROOT

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- fuzz -->", "<!-- end of fuzz -->"


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--worker"]:
        seed, begin, end, *corpus = arguments[1:]
        work(int(seed), int(begin), int(end), corpus[0] if corpus else None)
        return 0
    if arguments[:1] == ["--minimise"]:
        seed, number, path, *corpus = arguments[1:]
        minimise(int(seed), int(number), path, corpus[0] if corpus else None)
        return 0
    options = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=10_000, help="cases, after those that this seed has had")
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--corpus", help="a directory of real logs; without it our own examples alone")
    options.add_argument("--kept", type=Path, default=ROOT / ".fuzz", help="where faults and the state are kept")
    options.add_argument("--write-docs", action="store_true", help="write the result to docs/reliability.md")
    asked = options.parse_args(arguments)
    campaign = Campaign(asked.seed, asked.corpus, asked.kept)
    campaign.run(asked.count, asked.seconds, lambda line: print(line, flush=True))
    campaign.minimise(lambda line: print(line, flush=True))
    print(summary(campaign))
    if asked.write_docs:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + summary(campaign) + "\n" + END + rest.partition(END)[2])
    return 1 if campaign.faults else 0


def summary(campaign: Campaign) -> str:
    count = sum(map(len, campaign.faults.values()))
    date = "no real logs, our own examples alone"
    if campaign.corpus:
        newest = max(path.stat().st_mtime for path in Path(campaign.corpus).rglob("*") if path.is_file())
        date = f"real logs as of {datetime.fromtimestamp(newest, UTC):%Y-%m-%d}"
    return (
        f"{campaign.done:,} damaged inputs (seed {campaign.seed}, {date}; at most {SECONDS:g} s of the processor and "
        f"{MEMORY_BYTES // 1_000_000} MB each): {count:,} faults of {len(campaign.faults)} kinds."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
