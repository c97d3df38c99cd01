"""`python -m stepwatch.sampler.parquet LINES PATH`: converts the lines of samples to Parquet when sampling has ended.

Lines survive if a sampler is killed; a Parquet file is readable only once its last byte is written. This runs in a
separate process: threads of pyarrow can abort a Python that exits, and ours has the training's exit code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

from stepwatch.samples import SCHEMA


def available() -> bool:
    return find_spec("pyarrow") is not None


def convert(lines: str, path: str) -> None:
    """Converts in another process; raises OSError if it fails."""
    words = [sys.executable, "-m", "stepwatch.sampler.parquet", lines, path]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise OSError(0, done.stdout.strip() or "pyarrow")


def write_parquet(lines: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """The same columns, all of them doubles; the schema and the cards are in the file's metadata."""
    from pyarrow import ArrowException, csv, float64, parquet

    with open(lines, "rb") as file:
        cards = file.readline().decode("utf-8", "replace").rstrip("\n").split("\t")[1:]
        names = file.readline().decode("utf-8", "replace").rstrip("\n").split(",")
    try:
        table = csv.read_csv(
            os.fspath(lines),
            read_options=csv.ReadOptions(use_threads=False, skip_rows=2, column_names=names),
            parse_options=csv.ParseOptions(invalid_row_handler=lambda row: "skip"),  # a row that was cut off
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, float64())),
        )
        table = table.replace_schema_metadata({"schema": SCHEMA, "cards": "\t".join(cards)})
        partial = f"{os.fspath(path)}.part"
        parquet.write_table(table, partial, compression="zstd")
    except ArrowException as error:
        raise OSError(0, str(error)) from error
    os.replace(partial, path)


if __name__ == "__main__":
    try:
        write_parquet(sys.argv[1], sys.argv[2])
    except OSError as error:
        print(error.strerror or type(error).__name__, flush=True)
        os._exit(1)
    os._exit(0)  # without waiting for the threads of libraries
