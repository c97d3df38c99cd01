"""Parquet files of samples, ours or of a table that another program has made: read as the same table in lines."""

from __future__ import annotations

import io

from stepwatch.errors import UnreadableInput, UsageError
from stepwatch.messages import Message
from stepwatch.sources.contents import too_large

MARK = b"PAR1"  # how such a file begins


def lines_of(path: str, limit: int) -> bytes:
    """Raises UnreadableInput where it is damaged or would be larger than the limit."""
    try:
        from pyarrow import ArrowException, csv, parquet
    except ImportError:
        raise UsageError(
            Message("to read and write Parquet, stepwatch needs pyarrow"), Message('pip install "stepwatch[parquet]"')
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            if file.metadata.num_rows * file.metadata.num_columns * 8 > limit:  # bytes of a number
                raise too_large(limit)
            table = file.read(use_threads=False)
        text = io.BytesIO()
        csv.write_csv(table, text)
    except (ArrowException, OSError) as error:
        facts = {"name": path, "reason": type(error).__name__}
        raise UnreadableInput(Message("“{name:word}” cannot be read: {reason:word}", facts)) from error
    known = table.schema.metadata or {}
    head = b"# " + known[b"schema"] + b"\t" + known.get(b"cards", b"") if b"schema" in known else b""
    return (head + b"\n" if head else b"") + text.getvalue()
