"""How stepwatch did on logs of repositories that were never looked at before: `python -m benchmarks.samples`.

Before any answer was seen, each sample was chosen, and its truths were written by scripts that share nothing with
stepwatch; then stepwatch was asked once. The counts are in data/samples.tsv: these logs belong to others, and are new
only once.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

COUNTS = Path(__file__).parent / "data" / "samples.tsv"
_Z = 1.6449  # 90 % of a normal distribution are within this many deviations


def interval(right: int, of: int) -> tuple[float, float]:
    """Wilson's interval of a share, 90 %."""
    share, z2 = right / of, _Z**2
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def table() -> str:
    lines = [
        "Logs of repositories that had not been looked at before, chosen and with their truths written before any "
        "answer was seen, then asked once. A figure is wrong if the step or, where there is an outside clock, the "
        "total is off by more than 2 %, a count is not exact, or the end is another one. What was wrong in a sample "
        "was fixed afterwards, so that only the next sample shows how good the fix is. Forecasts are of logs cut at "
        "10, 20 and 30 % of their lines.",
        "",
        "| sample | figure | right | of | share | 90 % interval |",
        "|---|---|--:|--:|--:|--:|",
    ]
    with COUNTS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            right, of = int(row["right"]), int(row["of"])
            low, high = interval(right, of)
            lines.append(
                f"| {row['sample']} ({row['date']}) | {row['figure']} | {right} | {of} | {right / of:.0%} "
                f"| {low:.0%} to {high:.0%} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table())
