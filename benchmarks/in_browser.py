"""Whether Python in a browser gives the same answers as the command line: every log of a corpus, figure by figure.

    python -m benchmarks.in_browser --corpus DIR [--most-bytes 3000000]

The worker of the page runs in node; both answer with JSON, which has nine digits. A figure may differ in the last
digit; such figures are counted, every other difference is printed.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools import ROOT
from tools.site import build

from stepwatch.web.in_browser import answer

LIMIT = 64_000_000
LAST_DIGIT = 1.01e-8  # a difference of one in the ninth digit, and the rounding of the comparison itself


def pairs(one: Any, other: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places in which two answers differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from pairs(one.get(key), other.get(key), f"{where}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from pairs(left, right, f"{where}[{place}]")
    elif one != other:
        yield where, one, other


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--most-bytes", type=int, default=3_000_000)
    options = parser.parse_args()
    found = [*sorted((ROOT / "examples").glob("*.log")), *sorted(options.corpus.rglob("*"))]
    logs = [path for path in found if path.is_file() and path.stat().st_size <= options.most_bytes]
    with tempfile.TemporaryDirectory() as temporary:
        site = Path(temporary) / "site"
        build(site, documentation=False)
        questions = [
            {"id": place, "kind": "explain", "query": json.dumps([["name", path.name], ["iterations", "false"]]),
             "path": str(path), "limit": LIMIT}
            for place, path in enumerate(logs)
        ]  # fmt: skip
        script = ROOT / "tests" / "integration" / "worker_in_node.cjs"
        command = ["node", str(script), str(site / "page" / "worker.js"), f"{site / 'python'}/"]
        done = subprocess.run(command, input="\n".join(map(json.dumps, questions)), capture_output=True, text=True)
    answered = refused = digits = differing = 0
    for line in done.stdout.splitlines():
        reply = json.loads(line)
        path = logs[reply["id"]]
        status, body = answer("explain", questions[reply["id"]]["query"], path.read_bytes(), LIMIT)
        theirs = json.loads(base64.b64decode(reply["body"]))
        answered, refused = answered + (status == 200), refused + (status != 200)
        other = []
        for where, one, two in pairs(json.loads(body), theirs):
            figures = isinstance(one, float) and isinstance(two, float)
            close = figures and math.isclose(one, two, rel_tol=LAST_DIGIT, abs_tol=1e-12)
            digits += close
            other += [] if close else [f"  {where}: {one!r:.80} here, {two!r:.80} there"]
        if other or status != reply["status"]:
            differing += 1
            print(f"{path.name}: {status} here, {reply['status']} there", *other[:5], sep="\n")
    print(f"{answered} answered, {refused} refused by both, {differing} differ; {digits} figures in their last digits")
    if done.returncode or answered + refused != len(logs):
        sys.exit(f"{len(logs) - answered - refused} logs without an answer: {done.stderr[-500:]}")


if __name__ == "__main__":
    main()
