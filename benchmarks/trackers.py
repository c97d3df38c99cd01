"""Rows of W&B's own file against wandb's own reader, and the parts of reinforcement learning against the printed step.

    python -m benchmarks.trackers                      # rl logs of the corpus; W&B if wandb is installed
    python -m benchmarks.trackers --corpus DIR --rows 3000

wandb is not a dependency of the project: install it into a separate environment. An offline run is written by wandb and
read by stepwatch; all values of all rows are compared with what was logged, and with what wandb's own `DataStore`
reads, which versions from 0.22 on no longer have.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any

_TIMING = re.compile(rb"timing_s/(\w+):(?:np\.\w+\()?([-+\d.eE]+)")


def written_by_wandb(folder: str, rows: int) -> tuple[Path, list[dict[str, Any]]]:
    """An offline run with numbers of all kinds, long rows that span blocks, and rows with different keys."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": folder, "WANDB_SILENT": "true"}
    import wandb

    rng, logged = random.Random(1), []
    run = wandb.init(project="stepwatch", config={"batch_size": 8, "max_steps": rows}, dir=folder)
    for step in range(rows):
        row: dict[str, Any] = {"train/loss": rng.lognormvariate(0, 3), "train/global_step": step, "lr": 1e-4}
        if step % 7 == 0:
            row |= {"eval/loss": rng.random(), "flag": step % 2 == 0, "name": "ä" * (step % 40), "nan": math.nan}
        if step % 500 == 499:
            row["long"] = "x" * 70_000  # more than two blocks
        run.log(row)
        logged.append(row)
    run.finish()
    (file,) = Path(folder).rglob("*.wandb")
    size = -1
    while file.stat().st_size != size:  # its service may write for a moment after the end
        size = file.stat().st_size
        time.sleep(3)
    return file, logged


def by_wandb(file: Path) -> list[dict[str, Any]]:
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store, found = DataStore(), []
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            found.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return found


def compare_wandb(rows: int) -> None:
    from stepwatch.readers.formats.wandb_records import decode

    with tempfile.TemporaryDirectory() as folder:
        file, logged = written_by_wandb(folder, rows)
        ours, known = decode(file.read_bytes()).history, {"as logged": logged}
        try:
            known["by wandb's reader"] = by_wandb(file)
        except ImportError:
            print("W&B: this version has no reader of its own")
    for name, theirs in known.items():
        pairs = [(own.get(key), value) for row, own in zip(theirs, ours, strict=True) for key, value in row.items()]
        same = sum(own == value or str(own).lower() == str(value).lower() == "nan" for own, value in pairs)
        print(f"W&B: {len(theirs)} rows {name}: {same} of {len(pairs)} values equal")


def compare_parts(corpus: Path) -> None:
    """Compares what verl prints for a step, found by a separate pattern, with what stepwatch takes for its parts."""
    from stepwatch.errors import StepwatchError
    from stepwatch.readers import read
    from stepwatch.sources import from_file

    for file in sorted((corpus / "rl").glob("*")):
        printed = [dict(_TIMING.findall(line)) for line in file.read_bytes().splitlines() if b"timing_s/step:" in line]
        try:
            runs = read(from_file(str(file)))
        except StepwatchError as error:
            print(f"{file.name}: {error}")
            continue
        for run in runs:
            if not run.parts:
                print(f"{file.name}: {run.format}, {len(run.iterations)} rows, no parts are printed")
                continue
            sums, steps = sum(run.parts.values()), run.iterations.time_s
            gaps = abs(sums / steps - 1)
            whole = sum(float(row[b"step"]) for row in printed)
            print(
                f"{file.name}: {run.format}, {int((gaps <= 0.02).sum())} of {len(gaps)} rows within 2 %, largest "
                f"{gaps.max():.2%}, all {sums.sum() / steps.sum() - 1:+.2%}; steps as printed {whole:.1f} s, read "
                f"{steps.sum() + sum(e.took_s or 0 for e in (*run.evaluations, *run.checkpoints)):.1f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    corpus = os.environ.get("STEPWATCH_CORPUS") or Path(__file__).parents[2] / "shared" / "corpus"
    parser.add_argument("--corpus", type=Path, default=Path(corpus))
    parser.add_argument("--rows", type=int, default=2000)
    options = parser.parse_args()
    compare_parts(options.corpus)
    try:
        import wandb  # noqa: F401
    except ImportError:
        print("W&B: wandb is not installed")
    else:
        compare_wandb(options.rows)


if __name__ == "__main__":
    main()
