"""From the text of a log to runs; `formats` holds one file per trainer."""

from __future__ import annotations

from stepwatch.readers.detection import detect
from stepwatch.readers.formats import READERS
from stepwatch.readers.inputs import read_all
from stepwatch.readers.rank_joining import joined_ranks
from stepwatch.readers.reader import Reader
from stepwatch.readers.reading import read, settings_of

__all__ = ["READERS", "Reader", "detect", "joined_ranks", "read", "read_all", "settings_of"]
