"""`make fuzz`: damaged inputs through every command. Failing ones are kept, the result goes to docs/reliability.md."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from tools.fuzz.campaign import MEMORY_BYTES, SECONDS, Campaign, again, commit_of_now, minimise, same_source, work
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
    if arguments[:1] == ["--again"]:
        fault = again(arguments[1])
        print(fault)
        return 1 if fault else 0
    options = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    options.add_argument("--seed", type=int, nargs="+", default=[1], help="several run at once")
    options.add_argument("--count", type=int, default=10_000, help="cases of each seed, after those that it has had")
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--corpus", help="a directory of real logs; without it our own examples alone")
    options.add_argument("--kept", type=Path, default=ROOT / ".fuzz", help="where faults and the state are kept")
    options.add_argument("--write-docs", action="store_true", help="write the result to docs/reliability.md")
    asked = options.parse_args(arguments)
    campaigns = [Campaign(seed, asked.corpus, asked.kept) for seed in asked.seed]

    def run(campaign: Campaign) -> None:
        campaign.try_again()
        campaign.run(asked.count, asked.seconds, lambda line: print(line, flush=True))

    with ThreadPoolExecutor(len(campaigns)) as pool:
        list(pool.map(run, campaigns))
    print(summary(campaigns))
    if asked.write_docs:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + summary(campaigns) + "\n" + END + rest.partition(END)[2])
    return 1 if any(campaign.faults for campaign in campaigns) else 0


def summary(campaigns: list[Campaign]) -> str:
    first = campaigns[0]
    date = "no real logs, our own examples alone"
    if first.corpus:
        newest = max(path.stat().st_mtime for path in Path(first.corpus).rglob("*") if path.is_file())
        date = f"real logs as of {datetime.fromtimestamp(newest, UTC):%Y-%m-%d}"
    done = sum(campaign.done for campaign in campaigns)
    seeds = ", ".join(str(campaign.seed) for campaign in campaigns)
    kinds = {fault for campaign in campaigns for fault in campaign.faults}
    count = sum(len(numbers) for campaign in campaigns for numbers in campaign.faults.values())
    mended = {fault for campaign in campaigns for fault in campaign.mended} - kinds
    questions = sum((campaign.questions for campaign in campaigns), Counter[str]())
    commits = sum((campaign.commits for campaign in campaigns), Counter[str]())
    now = sum(commits[commit] for commit in commits if same_source(commit))
    return (
        f"{done:,} damaged inputs (seed {seeds}; {date}; at most {SECONDS:g} s of "
        f"CPU time and {MEMORY_BYTES // 1_000_000} MB each): {count:,} faults of {len(kinds)} kinds; "
        f"{len(mended)} kinds more were found on the way and are mended.\n"
        f"By question: {_counted(questions)}.\n"
        f"{now:,} of them went through the source of {commit_of_now()}, all by commit: {_counted(commits)}."
    )


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
