"""From the text of a log to runs; `formats` holds one file per trainer."""

from __future__ import annotations

from stepwatch.readers.assemble import joined_ranks
from stepwatch.readers.formats import Reader
from stepwatch.readers.reading import detect, read, read_all, settings_of

__all__ = ["Reader", "detect", "joined_ranks", "read", "read_all", "settings_of"]
