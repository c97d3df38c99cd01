"""A single line: its prefix, and what a statement such as `iter {number}: loss {loss}` reads from it.

From one statement follow the pattern for a single line, the letters that find such lines in a text, and, with one line
of a log as a model, the shape that is matched on all lines of a block at once (shape.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import NamedTuple

LONGEST_LINE = 4000  # bytes of a line that are read
MOST_SNIFFED = 60
"""A `sniff` counts at most this many hits: enough to distinguish formats."""
ONE_DIGIT = bytes(ord("0") if chr(byte).isdigit() else byte for byte in range(128)) + bytes(range(128, 256))
# Commas only separate thousands: ignoring a decimal comma would make 0,34 s a hundred times as long.
NUMBER = r"[-+]?(?:(?:[1-9]\d?\d?(?:,\d\d\d)+|\d+)(?:\.\d*)?|\.\d+)(?!,?\d)(?:[eE][-+]?\d+)?"
FLOAT = rf"(?:{NUMBER}|[-+]?(?:nan|NaN|inf|Infinity))"
KINDS: Mapping[str, str] = {
    "int": r"\d{1,15}",
    "decimal": NUMBER,
    "cell": r"(?>[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|NaN|inf|Infinity))",  # a comma ends it
    "figure": r"[\d.]{1,12}",  # with two points it is not a number, and the line is not understood
    "float": FLOAT,  # may be nan or inf
    "whole": r"(?>\d+(?:,\d{3}(?!\d))*)",  # optional commas between thousands
    "count": r"\d+(?:,\d+)*",
    "amount": r"\d[\d.,]*\s?[KMBkmb]?",
    "clock": r"\d{1,6}(?::\d\d){1,2}(?:\.\d{1,9})?(?![\d:])",
    "duration": r"\d{1,7}[dhms](?: \d{1,7}[dhms]){0,3}",
    "word": r"\S+",
    "name": r"\w+",
    "bar": r"[^|]*",
    "drawing": r"(?:\[[=>.\s]{5,80}\](?:\s*-)?|\u2501{2,80}|-)",  # a Keras bar
    "quoted": r"[^'\"]*",
    "eta": r"[^\s,\]]*",  # never read, so it may be anything
    "pad": r"\s*",
    "gap": r"\s+",  # written as two spaces in a statement
    "dots": r"\.*",
    "colour": r"(?:\[[\d;]{1,12}m)?",  # the remains of a colour code whose escape was lost in a copy
    "any": r".*?",
    "rest": r".*",
    "end": r"\s*$",
}
# Fields whose kind need not be stated; fields that are not listed are counts.
FIELDS: Mapping[str, str] = {
    "number": "int", "last": "int", "at": "int", "loss": "float", "train_loss": "float", "val_loss": "float",
    "mfu": "decimal", "mfu_pct": "decimal", "per_s": "decimal", "tokens_per_s": "decimal", "took_s": "decimal",
    "took_ms": "decimal", "time_us": "decimal", "time_ms": "decimal", "time_s": "decimal", "time_min": "decimal",
    "mfu_peak_flops": "decimal", "flops_per_token": "decimal", "dtype": "name", "gpu_text": "any",
}  # fmt: skip
_TIMES = ("time_", "per_s", "tokens_per_s", "elapsed", "average_")
_TOKEN = re.compile(
    r"\\(?P<escaped>.)|\{(?P<name>\w+)(?::(?P<kind>\w+))?\}|(?P<gap> {2,})|(?P<bracket>[\[\]<>;])"
    r"|(?P<plain>(?:[^\\{\[\]<>; ]| (?! ))+)"
)
_WORD_BEGINS = r"(?<![\w*])"  # letters after an open part start a word
_SCALES = {"K": 1e3, "M": 1e6, "B": 1e9}


class Field(NamedTuple):
    group: str
    """In the pattern; each name is used once."""
    name: str
    """Empty if the value is skipped."""
    kind: str


class Found(NamedTuple):
    """What a statement found in a line."""

    texts: dict[str, str]
    spans: list[tuple[int, int, Field]]
    """The position of each field, in order."""
    begin: int
    """The end of what the statement leaves open at its beginning."""
    end: int
    """The end of the statement; after it, the pieces follow in any order."""
    whole: bool
    """Whether no optional part is missing."""

    def values(self) -> dict[str, float]:
        """The numbers by name."""
        return {field.name: value_of(self.texts[field.name], field.kind) for *_, field in self.spans if field.name}


class Line:
    """A statement about one kind of line. The package's docstring explains the syntax."""

    def __init__(
        self, statement: str, *pieces: str, header: bool = False, opening: bool = False, scale: float = 1.0,
        sets: Mapping[str, str | float] | None = None, needs: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.statement, self.pieces, self.needs = statement, pieces, needs
        self.header, self.opening, self.scale, self.sets = header, opening, scale, dict(sets or {})

    @staticmethod
    def literally(text: str) -> str:
        """Escapes a text so that, as a statement, it matches itself."""
        return re.sub(r"([\\{\[\]<>;]|  )", r"\\\1", text)

    # --- a single line ----------------------------------------------------------------------------------------

    @cached_property
    def _patterns(self) -> list[_Pattern]:
        """The patterns of the statement and its pieces, needed pieces first."""
        pieces = [_Pattern("{any}" + piece, self.needs) for piece in self.pieces]
        return [_Pattern(self.statement, self.needs), *sorted(pieces, key=lambda piece: not piece.is_needed)]

    def find(self, line: str) -> Found | None:
        """Reads the line from its beginning; None if it does not fit, or contains none of the needed fields."""
        pieces: list[tuple[_Pattern, re.Match[str]]] = []
        for pattern in self._patterns:
            if self.needs and not pattern.is_needed and len(pieces) == 1:
                return None
            behind = pieces[0][1].end() if pieces else 0
            match = None
            if pattern.letters in line:  # most lines of a log do not fit most statements
                pattern.compiled = pattern.compiled or re.compile(pattern.source, re.DOTALL)
                match = pattern.compiled.match(line, behind)
            if match is not None:
                pieces.append((pattern, match))
            elif not pieces:
                return None
        if self.needs and len(pieces) == 1:
            return None
        texts: dict[str, str] = {}
        spans: list[tuple[int, int, Field]] = []
        whole = len(pieces) == len(self._patterns)
        for pattern, piece in pieces:
            for field, (begin, end) in zip(pattern.fields, piece.regs[1:], strict=True):
                if begin < 0:
                    whole = False
                elif field is not pattern.opens:
                    spans.append((begin, end, field))
                    if field.name:
                        texts.setdefault(field.name, line[begin:end])
        head, match = pieces[0]
        begin = match.end(head.opens.group) if head.opens else 0
        return Found(texts, sorted(spans), begin, match.end(), whole)

    def fits(self, line: str) -> bool:
        return self.find(line) is not None

    # --- many lines -------------------------------------------------------------------------------------------

    @cached_property
    def marks(self) -> tuple[bytes, ...]:
        """Every line that fits contains at least one of these."""
        needed = [pattern.letters for pattern in self._patterns if pattern.is_needed]
        return self.marks_of_time or tuple(letters.encode() for letters in needed or [self._patterns[0].letters])

    @cached_property
    def marks_of_time(self) -> tuple[bytes, ...]:
        """The letters next to the time, in each of its forms: a line with them that does not fit should have fitted."""
        return tuple(dict.fromkeys(pattern.mark.encode() for pattern in self._patterns if pattern.mark))

    @cached_property
    def letters(self) -> bytes:
        """The longest letters that every line that fits contains."""
        return self._patterns[0].letters.encode()


class _Pattern:
    """A statement as a regular expression, with its fields and letters."""

    def __init__(self, statement: str, needs: tuple[str, ...]) -> None:
        self.fields: list[Field] = []
        self._items: list[str | Field] = []  # of every line that fits, in order: letters and fields
        tokens = list(_TOKEN.finditer(statement))
        self.source, rest = self._sequence(tokens, 0)
        self.compiled: re.Pattern[str] | None = None
        """Set on first use."""
        if rest != len(tokens) or sum(map(len, (token[0] for token in tokens))) != len(statement):
            raise ValueError(f"a bracket without its other in {statement!r}")
        self.opens = self.fields[0] if statement.startswith("{any}") else None
        """The open beginning of the line, if the statement has one."""
        self.is_needed = any(field.name in needs for field in self.fields)
        runs: list[str | Field] = []  # the items, with adjacent letters joined
        for item in self._items:
            if isinstance(item, str) and item and runs and isinstance(runs[-1], str) and runs[-1]:
                runs[-1] += item
            else:
                runs.append(item)
        self.letters = max((run for run in runs if isinstance(run, str)), key=len, default="")
        """The longest letters that every line that fits contains."""
        if not self.letters.strip():
            raise ValueError(f"no letters that all such lines have in {statement!r}")
        self.mark = ""
        """The letters before the time, or after it; empty if there is no time."""
        for place, run in enumerate(runs):
            if isinstance(run, Field) and run.name.startswith(_TIMES):
                beside = [*runs[max(place - 1, 0) : place], *runs[place + 1 : place + 2]]
                words = [each for each in beside if isinstance(each, str) and re.search(r"\w", each)]
                self.mark = words[0] if words else self.letters
                break

    def _sequence(self, tokens: list[re.Match[str]], at: int, depth: int = 0) -> tuple[str, int]:
        """Returns the tokens up to the closing bracket as an expression, and the index of that bracket."""
        source, opened = "", False
        while at < len(tokens):
            token = tokens[at]
            bracket = token["bracket"]
            if bracket == "[" or bracket == "<":
                if opened and (tokens[at + 1]["plain"] or " ")[0].isalpha():
                    source += _WORD_BEGINS
                before = len(self.fields)
                inner, at = self._sequence(tokens, at + 1, depth + 1)
                source += f"(?:{inner})?" if bracket == "[" else f"(?:{inner})"
                if depth == 0:
                    times = (field for field in self.fields[before:] if field.name.startswith(_TIMES))
                    self._items.append(next(times, ""))
            elif bracket == ";" and depth:
                source += "|"
            elif bracket in ("]", ">") and depth:
                return source, at
            elif token["name"] or token["gap"]:
                name, kind = token["name"] or "gap", token["kind"]
                if kind is None and name in KINDS:
                    name, kind = "", name
                group = f"{name or 'skipped'}_{len(self.fields)}"
                field = Field(group, name, kind or FIELDS.get(name, "count"))
                self.fields.append(field)
                source += f"(?P<{field.group}>{KINDS[field.kind]})"
                opened = field.kind == "any"
                if depth == 0:
                    self._items.append(field)
                at += 1
                continue
            else:
                letters = token["escaped"] or token["plain"] or token[0]
                source += (_WORD_BEGINS if opened and letters[0].isalpha() else "") + re.escape(letters)
                if depth == 0:
                    self._items.append(letters)
            opened = False
            at += 1
        return source, at


def value_of(text: str, kind: str) -> float:
    """A field's text as a number, for clocks in seconds; nan if it is not a number."""
    if kind == "clock":
        seconds = 0.0
        for part in text.split(":"):
            seconds = 60 * seconds + float(part)
        return seconds
    if kind == "duration":
        return sum(int(part[:-1]) * _SECONDS[part[-1]] for part in text.split(" "))
    plain = text.replace(",", "").strip()
    scale = _SCALES.get(plain[-1:].upper(), 1.0) if kind == "amount" else 1.0
    try:
        value = float(plain.rstrip("KMBkmb ") if kind == "amount" else plain) * scale
    except ValueError:
        return math.nan
    return math.nan if math.isinf(value) and kind not in ("float", "cell") else value


_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def lines_with_marks(head: bytes, marks: tuple[bytes, ...], *, prefixes: bool = True) -> list[str]:
    """The first lines that contain one of the marks; without their prefixes if `prefixes` is set."""
    lines: list[str] = []
    for mark in marks:
        at = head.find(mark)
        while at >= 0 and len(lines) < MOST_SNIFFED:
            begin, end = head.rfind(b"\n", 0, at) + 1, head.find(b"\n", at)
            begin = max(begin, at - LONGEST_LINE // 2)
            line = head[begin : end if end >= 0 else len(head)][:LONGEST_LINE].decode("utf-8", "replace")
            lines.append(strip_prefix(line)[0] if prefixes else line)
            at = head.find(mark, end) if end >= 0 else -1
    return lines


# --- timestamps and launcher prefixes in front of a line --------------------------------------------------------


_TIME_OF_DAY = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?: (?P<half>[AP]M)\b)?"
_DATE_TIME = re.compile(rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ]{_TIME_OF_DAY}")
# The usual datefmt of the Hugging Face examples, and that of detectron2 and mmengine, which has no year: it only
# matches a month and a day, because a count and its total may also precede a clock.
_MONTH_FIRST = re.compile(rf"(?<![\d/])(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{{4}})[T ]{_TIME_OF_DAY}")
_RICH = re.compile(rf"(?<![\d/])(?P<month>\d\d)/(?P<day>\d\d)/(?P<short>\d\d) {_TIME_OF_DAY}")  # of rich's log handler
_POINTED = re.compile(rf"(?<![\d.])(?P<month>\d\d)\.(?P<day>\d\d)\.(?P<short>\d\d)\|{_TIME_OF_DAY}")  # ST-GCN
_MONTH_DAY = r"(?P<month>0[1-9]|1[0-2])/(?P<day>0[1-9]|[12]\d|3[01]) "
_YEARLESS = re.compile(rf"(?<![\d/]){_MONTH_DAY}{_TIME_OF_DAY}")
_GLOG = re.compile(rf"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) {_TIME_OF_DAY}")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SYSLOG = re.compile(
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
    rf"(?P<name>{'|'.join(_MONTHS)}) {{1,2}}(?P<day>\d{{1,2}}) {_TIME_OF_DAY}(?: \d{{4}}\b(?!-))?"
)
_CLOCK = re.compile(rf"(?<![\d:]){_TIME_OF_DAY}(?![\d:])")
EPOCH = re.compile(r"(?<![\d.])(?P<epoch>1\d{9}(?:\.\d{1,9})?)(?![\d.])")
_LONGEST = 160  # letters that are searched for a clock
_DATED = (_DATE_TIME, _MONTH_FIRST, _RICH, _POINTED, _YEARLESS, _GLOG, _SYSLOG)
_CLOCKS = (*_DATED, _CLOCK, EPOCH)
_DOUBTFUL = re.compile(  # its digits decide whether it begins a clock
    r"(?<![\d/])\d\d/\d\d (?=\d\d:\d\d:\d\d)|(?<![\d.])\d(?=\d{9}(?:\.\d{1,9})?(?![\d.]))", re.ASCII
)
_DECIDED = re.compile(rf"{_MONTH_DAY}|1")
_MORE_OF_CLOCK = re.compile(r"[\w:.]|,\d| [AP]M\b")
_BEGINNING = re.compile(r"[\[(]?(?:\d|[IWEF]\d|[A-Z][a-z]{2},? )")  # how any clock begins; most lines have none
_AFTER_CLOCK = re.compile(r"(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?[\])]?[:,]?\s*")
_NAME_IN_BRACKET = re.compile(r"\s[A-Za-z_][\w.]{0,60}\]:?\s*")  # detectron2: `[05/04 09:30:07 d2.engine]: `

# Launchers, loggers and copies put these in front of a line. Only what cannot be the program's own output.
_PIECES = re.compile(
    r"""(?:\s+
    |>\s?
    |"(?=\S)
    |`{3,}(?:(?:bash|console|log|output|plaintext|python|sh|shell|text|txt)\b)?\s*
    |\[\d+,\d+\]<std(?:out|err)>:\s*                                 # mpirun
    |\[(?!(?:train|eval)\])[\w.]{1,40}\]:?\s*                        # torchrun, levels, logger names
    |\[rank:\s?\d{1,6}\]:?\s*                                         # Lightning's
    |\[\w{1,40}\.py:\d{1,6}:\w{1,60}\]\s*                          # DeepSpeed: file, line and function
    |\[(?:INFO|DEBUG|WARNING|ERROR)\s(?=\d{4}-)                     # DeepSpeed of 2020
    |\(\w[\w ]{0,20}pid=\d{1,9}(?:,[^)]{0,40})?\)\s*                 # ray
    |\d{1,4}:\s+                                                     # srun
    |\d{1,9}\s+[\w./-]{1,60}:\d{1,6}\]\s*                            # glog: process and place
    |[\w.-]{1,40}\s[\w./-]{1,40}\[\d{1,9}\]:\s*                      # syslog: host and process
    |(?:INFO|DEBUG|WARNING|ERROR):[\w.]{1,40}:
    |(?:INFO|DEBUG|WARNING|ERROR|std(?:out|err)(?:\s[FP]\b)?)[:\s]\s*
    |[\w.]{1,40}(?::[\w.<>]{1,40}){0,2}\s+-\s+                       # logger name, function and line
    |[\w.]{1,40}\s(?:INFO|DEBUG|WARNING|ERROR):\s+                   # detectron2's file: logger name and level
    |(?<=\s)[\w-]{1,40}\.py\s+                                       # a logger's file behind its clock
    |-[\w-]{1,40}\.py-(?:INFO|DEBUG|WARNING|ERROR):                  # PraNet's: file and level behind its clock
    |[A-Za-z][\w.-]{0,60}\s+\|\s                                     # docker compose
    |[\w.@-]{1,100}:\s+(?=step\s\d|saving\s|tokens\sper\s|number\sof\sp|Overriding|Initializing|\[?\d{4}-\d\d-
        |step:\s*\d+/|stopping_early:|final_\w+\s|iteration\s+\d+/|steps:\s\d|validation\s|successfully\s|using\s|>\s
        |\w+\s\.{3,}|[\w-]+\s\.{3,}:)                              # pdsh, or the name of a run
    |[|:\-–]\s+
    )""",
    re.VERBOSE,
)

_PLAIN_STARTS = ("step ", "saving ", "iter ")  # most lines have no prefix


def stamp_of(prefix: str, own: str = "") -> float | None:
    """The clock in front of a line, in seconds from an arbitrary but fixed zero; None if there is none."""
    found = clock_in(prefix, own)
    if found is None:
        return None
    parts = found.groupdict()
    if parts.get("epoch"):
        return float(parts["epoch"])
    name = parts.get("name")
    month = _MONTHS.index(name) + 1 if name else int(parts.get("month") or 1)
    hour = int(parts["hour"] or 0)
    if parts.get("half"):
        hour = hour % 12 + (12 if parts["half"] == "PM" else 0)
    try:
        moment = datetime(
            int(parts.get("year") or 2000) + int(parts.get("short") or 0), month, int(parts.get("day") or 1),
            hour, int(parts["minute"] or 0), min(int(parts["second"] or 0), 59), tzinfo=UTC,
        )  # fmt: skip
    except ValueError:
        return None
    return moment.timestamp() + float("0." + (parts.get("fraction") or "0"))


def clock_in(prefix: str, own: str = "") -> re.Match[str] | None:
    """Finds a clock in a prefix, or a date in the open part after it, where other clocks may belong to a bar."""
    whole = (prefix + own)[:_LONGEST]
    found = (pattern.search(whole if pattern in _DATED else prefix[:_LONGEST]) for pattern in _CLOCKS)
    return next(filter(None, found), None) if whole else None


def ambiguous_clock_starts(prefix: str) -> Iterator[re.Match[str]]:
    """The parts that begin a clock, or do so in other lines, depending on their digits."""
    return _DOUBTFUL.finditer(prefix[:_LONGEST])


def starts_clock(doubt: str) -> bool:
    return _DECIDED.fullmatch(doubt) is not None


def clock_independent_of_digits(line: str) -> bool:
    """Whether nothing in front of it would become a clock with other digits."""
    return all(starts_clock(doubt[0]) for doubt in ambiguous_clock_starts(line))


def is_more_of_clock(behind: str) -> bool:
    """Whether the text after a clock may change it."""
    return _MORE_OF_CLOCK.match(behind) is not None


@lru_cache(1024)  # every candidate format reads the first lines of a log
def strip_prefix(line: str) -> tuple[str, str]:
    """Splits a line into its text and its launcher and timestamp prefix."""
    if line.startswith(_PLAIN_STARTS):
        return line, ""
    begin = 0
    for _ in range(12):
        end = _end_of_piece(line, begin)
        if end == begin:
            break
        begin = end
    return line[begin:], line[:begin]


def _end_of_piece(line: str, begin: int) -> int:
    if _BEGINNING.match(line, begin):
        bracket = line.startswith(("[", "("), begin)
        for pattern in _CLOCKS:
            found = pattern.match(line, begin + bracket)
            if found:
                named = _NAME_IN_BRACKET.match(line, found.end()) if bracket else None
                after = named or _AFTER_CLOCK.match(line, found.end())
                return after.end() if after else found.end()
    piece = _PIECES.match(line, begin)
    return piece.end() if piece else begin
