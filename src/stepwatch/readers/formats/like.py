"""Any numbered line with a time, described by one example: `it 12 | 0.34 s`.

The text of the example shows what its numbers may be (like_claims.py): a number next to a word such as `iter`, or
before its end as in `12/500`, is the iteration's; one with a unit of time is a time; one after `loss` is the loss.
Other numbers match any number, words match themselves. All lines together then decide which number counts up, whether
it restarts in each epoch, and what the times are (like_readings.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stepwatch.errors import NoIterations, UsageError
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH, NOTHING, Reader
from stepwatch.readers.formats.json_rows import first_of_each
from stepwatch.readers.formats.like_claims import PLAIN, THOUSANDS, Claim, Piece, claims_of, pieces_of, word_before
from stepwatch.readers.formats.like_readings import (
    Counted,
    Reading,
    Rows,
    TimeColumn,
    chosen,
    counted,
    counts_down,
    through_epochs,
    times_of,
)
from stepwatch.readers.formats.running import WHOLE_SECONDS
from stepwatch.readers.records import (
    LARGEST_KEPT,
    LONGEST_LINE_KEPT,
    LONGEST_TIME_S,
    SHOWN_LETTERS,
    Kinds,
    Records,
    through_midnight,
)
from stepwatch.readers.text.block import Block
from stepwatch.readers.text.line import FLOAT, LONGEST_LINE, Line, stamp_of, strip_prefix
from stepwatch.readers.text.line_format import LineFormat, at_of
from stepwatch.run import (
    Checkpoint,
    Evaluation,
    Fact,
    Floats,
    Ints,
    Iterations,
    Run,
    Timing,
)
from stepwatch.run.more import ReadLine, Understood
from stepwatch.units import DAY_S

NAME = "like"
_COUNT = r"(?:global[_ ]?step|it|iters?|iterations?|steps?|(?:mini_?)?batch(?:es)?|updates?)"
_VALIDATION = rf"\b(?:val|valid|validation|eval|test)[ _]loss\W{{1,4}}(?P<val_loss>{FLOAT})"
_EVALUATIONS = tuple(
    Pattern(rf"(?i){at}{{0,120}}?{_VALIDATION}")
    for at in (rf"[^\d]{{0,40}}\b{_COUNT}\W{{1,4}}(?P<at>\d+)\b[^\n]", r"[^\n]")
)
_SAVE = Pattern(r"(?i)(?:sav(?:ing|ed)|writing|wrote)\b[^\n]{0,40}\b(?:checkpoint|ckpt)")
_EVENTS = tuple(Line("{any}{pad}" + word) for word in ("loss", "Loss", "checkpoint", "Checkpoint", "ckpt"))

_PLACES = "like"
"""The table of epoch, last epoch, numbers, their ends and times of each line."""


class Implausible(NoIterations):
    """Lines are like the example, but what they say cannot be iterations and times."""

    about = "like"


def reader_like(example: str) -> Reader:
    """A reader for lines like the example. Raises UsageError if it has no number, or nothing that shows a time."""
    whole = example.strip()
    if len(whole) > LONGEST_LINE:
        raise UsageError(
            Message("the example has more than {most:n} characters", {"most": LONGEST_LINE}),
            Message("give a shorter line of the log, with its number and its time"),
            about="like",
        )
    stripped, prefix = strip_prefix(whole)
    stamped = stamp_of(prefix) is not None
    # A number in front may be a launcher's or the iteration's; a comma may separate two numbers.
    lines = dict.fromkeys((stripped, whole))
    ways = dict.fromkeys((line, tuple(pieces_of(line, figure))) for line in lines for figure in (THOUSANDS, PLAIN))
    found = [(line, pieces, claims_of(line, pieces)) for line, pieces in ways]
    for by_clock in (False, True):  # a clock is enough if no time is printed
        for line, pieces, claims in found:
            kinds = {claim.kind for claim in claims.values()}
            timed = "time" in kinds or (by_clock and ("stamp" in kinds or (stamped and line == stripped)))
            if timed and kinds & {"number", "epoch"}:
                if _decimal_comma(line, pieces, claims):
                    raise UsageError(
                        Message("the time in “{line:word}” has a decimal comma", {"line": example[:SHOWN_LETTERS]}),
                        Message("write the log with decimal points: a comma is read as a thousands separator"),
                        about="like",
                    )
                return _format(example, line, pieces, claims, prefixes=line != whole or prefix == "").reader()
    raise UsageError(
        Message("“{line:word}” shows no iteration number, or no time", {"line": example[:SHOWN_LETTERS]}),
        Message("give a line of the log that has both, such as: it 12 | 0.34 s; a timestamp in front is a time too"),
        about="like",
    )


def _decimal_comma(line: str, pieces: Sequence[Piece], claims: Mapping[int, Claim]) -> bool:
    """Whether the time is the part after the comma of a number; in a row of a table it would be a separate cell."""
    times = [place for place, claim in claims.items() if claim.kind == "time"]
    place = max(times, key=lambda place: claims[place].weight, default=0)
    if place < 2:
        return False
    whole, comma = pieces[place - 2], pieces[place - 1]
    beside = line[: whole.begin][-1:] not in ("", ",")
    unnamed = place - 2 not in claims or claims[place - 2].weight < 0
    return comma.text == "," and whole.is_whole and "." not in pieces[place].text and beside and unnamed


# --- the format -------------------------------------------------------------------------------------------------------


def _format(example: str, line: str, pieces: Sequence[Piece], claims: Mapping[int, Claim], *, prefixes: bool) -> _Like:
    names: dict[int, str] = {}

    def heaviest(kind: str, most: int) -> list[int]:
        places = [place for place, claim in claims.items() if claim.kind == kind]
        return sorted(places, key=lambda place: -claims[place].weight)[:most]

    for kind in ("epoch", "loss", "tokens_per_s", "stamp"):
        names |= dict.fromkeys(heaviest(kind, 1), kind)
    numbers, times = heaviest("number", 6), heaviest("time", 10)  # one of these few is the right one
    names |= {place: f"number_{rank}" for rank, place in enumerate(numbers)}
    names |= {place: f"time_{rank}" for rank, place in enumerate(times)}
    for place, name in list(names.items()):
        if name.startswith(("number", "epoch")):  # the number after `/` or `of`, directly after this one
            following = [i for i in range(place + 1, len(pieces)) if pieces[i].kind != "space"][:2]
            if len(following) == 2 and pieces[following[0]].text in ("/", "of") and pieces[following[1]].is_whole:
                names.setdefault(following[1], "epochs" if name == "epoch" else name.replace("number", "last"))
    described = []
    for place in times:
        decimals = pieces[place].text.lower().partition("e")[0].partition(".")[2]
        error = 0.5 * 10.0 ** -len(decimals) if pieces[place].kind == "number" else WHOLE_SECONDS
        described.append((claims[place], word_before(line, pieces[place]), error))
    return _Like(
        name=NAME,
        timing=Timing.SPANS_ITERATION,
        holds=BOTH,
        example=example,
        iterations=(Line(_statement(pieces, names)),),
        own=_EVENTS,
        prefixes=prefixes,
        numbers=len(numbers),
        times=tuple(described),
    )


def _statement(pieces: Sequence[Piece], names: Mapping[int, str]) -> str:
    """The example as a statement. Columns of figures are padded: spaces may vary before a number, but not after a word.

    What follows the last figure that counts, and the word next to it, may be anything.
    """
    statement, before = "", ""
    behind = [place for place in range(max(names) + 1, len(pieces)) if pieces[place].kind == "space"]
    for place, piece in enumerate(pieces[: behind[1] if len(behind) > 1 else len(pieces)]):
        name = names.get(place)
        if piece.kind == "space":  # if it only pads, a wider number leaves none of it
            following = pieces[place + 1].kind if place + 1 < len(pieces) else ""
            statement += "{pad}" if before == "other" and following in _FIGURES else "{gap}"
        elif piece.kind in ("bar", "drawing"):
            statement += f"{{{piece.kind}}}"
        elif piece.kind == "stamp":
            mark = piece.text[4]
            date = "{year:int}" + mark + "{month:int}" + mark + "{day:int}" if name else mark.join(["{int}"] * 3)
            statement += date + ("T" if "T" in piece.text else " ") + ("{daytime:clock}" if name else "{clock}")
        elif piece.kind in _FIGURES:
            following = pieces[place + 1].text if place + 1 < len(pieces) else ""
            kind = piece.kind if piece.kind != "number" else _kind(name, following)
            name = "unix" if name == "stamp" else name
            statement += ("{pad}" if before not in ("", "space") else "") + f"{{{name}:{kind}}}".replace("None:", "")
        else:
            # Mixed letters and digits are an identifier or an amount, and differ in each line.
            mixed = any(c.isdigit() for c in piece.text) and any(c.isalpha() for c in piece.text)
            statement += "{name}" if piece.kind == "word" and mixed else Line.literally(piece.text)
        before = piece.kind
    return statement


_FIGURES = ("number", "clock", "duration")


def _kind(name: str | None, following: str) -> str:
    """The kind of a number: a comma after it in the example is not part of it."""
    if name is not None and name.startswith(("number", "last", "epoch")):
        return "int" if following == "," else "whole"
    if following == ",":
        return "cell"
    return "decimal" if name in ("tokens_per_s", "unix") else "float"  # the first times are sometimes nan


# --- what all lines show ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Like(LineFormat):
    """Lines of one shape, whose numbers and times are interpreted once all are read."""

    example: str
    numbers: int
    """How many may be the iteration's; if none, the epoch's number is used."""
    times: tuple[tuple[Claim, str, float], ...]
    """What may be its time, the word for it in the example, and half of its last digit."""

    @cached_property
    def marks_of_time(self) -> tuple[str, ...]:
        """Near misses are recognised by the longest word of the line: next to the time there may be only a letter."""
        return tuple(line.letters.decode() for line in self.iterations)

    def reader(self) -> Reader:
        return super().reader()._replace(complete=_complete)

    def read_block(self, block: Block, left: Ints, numbers: np.ndarray, records: Records) -> None:
        before = len(records.columns["line"])
        super().read_block(block, left, numbers, records)
        added = records.columns["line"][before:]
        lines = np.sort(np.concatenate(added)) if added else np.empty(0)
        for line in map(int, (*lines[:2], *lines[-1:])):  # to be shown to the user; the last may be a copy
            text = block.line(line - int(numbers[0]))[:LONGEST_LINE_KEPT].decode("utf-8", "replace")
            records.kept.append((line, text.strip()))

    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        unknown = np.full(len(lines), np.nan)
        plain = {name: values for name, values in found.items() if name in ("loss", "tokens_per_s", "stamp_s")}
        if "stamp_s" not in plain and "unix" in found:
            plain["stamp_s"] = found["unix"]
        elif "stamp_s" not in plain and "daytime" in found:
            plain["stamp_s"] = _seconds(*(found[name] for name in ("year", "month", "day", "daytime")))
        first = found["number_0"] if self.numbers else found["epoch"]
        super().add(records, lines, {**plain, "number": np.minimum(first, LARGEST_KEPT)})
        times = []
        for rank, (claim, _, _) in enumerate(self.times):
            values = found[f"time_{rank}"]
            with np.errstate(divide="ignore"):
                values = 1 / values if claim.is_rate else values * claim.scale
            times.append(np.where((values >= 0) & (values <= LONGEST_TIME_S), values, np.nan))
        counts = [found.get(f"{name}_{rank}", unknown) for name in ("number", "last") for rank in range(self.numbers)]
        records.keep(_PLACES, lines, found.get("epoch", unknown), found.get("epochs", unknown), *counts, *times)

    def read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        found = next((found for pattern in _EVALUATIONS if (found := pattern.match(rest))), None)
        if found is not None:
            at = at_of({"at": float(found.groupdict().get("at") or "nan")})
            loss = float(found["val_loss"].replace(",", ""))
            evaluation = Evaluation(line=number, at=at or 0, val_loss=loss, stamp_s=stamp_of(prefix))
            (records.events if at is not None else records.unplaced).append(evaluation)
        elif _SAVE.match(rest):
            records.unplaced.append(Checkpoint(line=number, at=None, stamp_s=stamp_of(prefix)))
        return found is not None or _SAVE.match(rest) is not None

    def finish(self, first_line: int, records: Records) -> None:
        rows = records.iterations()
        if len(rows):
            table = records.take_table(_PLACES, 3 + 2 * self.numbers + len(self.times))
            table = table[np.searchsorted(table[:, 0], rows.line)].T
            numbers, lasts = np.split(table[3 : 3 + 2 * self.numbers], 2)
            found = counted(numbers, lasts, table[1], table[2])
            if found is None:
                raise Implausible(
                    Message("no number in lines like “{line:word}” counts up", {"line": self.example[:SHOWN_LETTERS]}),
                    Message("give a line with the number of its iteration, such as: it 12 | 0.34 s"),
                )
            known = np.isfinite(found.number)
            if (np.diff(found.number) <= 0).any():  # a file may contain its log twice, and ranks print the same
                times = table[3 + 2 * self.numbers :]
                known &= first_of_each(found.number, found.epoch, rows.loss, rows.stamp_s, *times)
            rows, table, found = rows.take(known), table[:, known], found.take(known)
            rows, end = through_epochs(replace(rows, number=found.number.astype(np.int64)), records, found)
            if 0 < end <= LARGEST_KEPT:
                super().add_last(records, int(rows.line[0]), end)
            columns = [
                TimeColumn(claim, values, error * claim.scale)
                for (claim, _, error), values in zip(self.times, table[3 + 2 * self.numbers :], strict=True)
            ]
            self._add_times(rows, found, end, columns, records)
        super().finish(first_line, records)

    def _add_times(
        self, rows: Iterations, found: Counted, end: float, columns: list[TimeColumn], records: Records
    ) -> None:
        """Adds the rows with the times of their iterations, and how they were interpreted."""
        counts_epochs = found.of_epochs
        length = float(np.nanmax([rows.number.max() - rows.number.min() + 1, end]))
        seen = Rows(rows.number, found.number, found.epoch, through_midnight(rows.stamp_s), length)
        # A time per iteration is not that of an epoch.
        usable = [column for column in columns if not (counts_epochs and column.claim.each)]
        reading, doubtful = chosen(seen, usable)
        times = np.full(len(rows), np.nan) if reading is None else times_of(seen, usable, reading)
        timed = np.isfinite(times)
        if reading is None or not timed.any():
            raise self._implausible(seen, columns, counts_epochs)
        if reading.meaning != "step":
            since_start = reading.meaning in ("elapsed", "mean")
            kept = seen.of(timed)
            gaps = kept.covers()
            for row in np.flatnonzero(np.diff(kept.number, prepend=kept.number[0] + 1) < 0).tolist():
                line, done = int(rows.line[timed][row]), int(kept.inside[row])
                records.events.append(Fact(line=line, name="averaged", value=True))
                if since_start and 0 < done <= gaps[min(row + 1, len(gaps) - 1)]:
                    records.events.append(Fact(line=line, name="first_covers", value=done))
        beside = [type(event) for event in (*records.sorted_events(), *records.unplaced_events())]
        if reading.meaning == "step" and 2 * max(map(beside.count, (Evaluation, Checkpoint))) > len(rows) > 2:
            # What comes with most lines could not be separated from the steps: only the steps have a time.
            records.events.append(Fact(line=int(rows.line[0]), name="holds", value=NOTHING))
        places = [place for place, column in enumerate(columns) if any(column is each for each in usable)]
        place = None if reading.column is None else places[reading.column]
        records.kept = [self._understood(rows, columns, place, reading, counts_epochs, doubtful, records)]
        records.replace_rows(replace(rows, time_s=times).take(timed))

    def _understood(
        self, rows: Iterations, columns: list[TimeColumn], place: int | None, reading: Reading, counts_epochs: bool,
        doubtful: bool, records: Records,
    ) -> Understood:  # fmt: skip
        shown = []
        texts = {line: text for line, text in records.kept if line in rows.line}
        for line in sorted({min(texts), max(texts)} if texts else ()):
            row = int(np.searchsorted(rows.line, line))
            if row == len(rows) or rows.line[row] != line:  # its number was invalid
                continue
            printed = float(columns[place].values[row]) * reading.scale if place is not None else np.nan
            loss = float(rows.loss[row])
            known_loss, time_s = (value if np.isfinite(value) else None for value in (loss, printed))
            shown.append(ReadLine(line, texts[line], int(rows.number[row]), known_loss, time_s))
        claim, word, _ = self.times[place] if place is not None else (Claim("stamp"), "", 0.0)
        assumed = place is not None and not claim.unit
        unit = claim.unit or ("" if place is None else "s" if reading.scale == 1.0 else "ms")
        return Understood(
            meaning=reading.meaning, word=word, unit=unit, counts_epochs=counts_epochs, unit_assumed=assumed,
            doubtful=doubtful, disagrees=place is None and any(claim.weight > 0 for claim, _, _ in self.times),
            lines=tuple(shown),
        )  # fmt: skip

    def _implausible(self, rows: Rows, columns: list[TimeColumn], counts_epochs: bool) -> Implausible:
        example = {"line": self.example[:SHOWN_LETTERS]}
        remedy = Message(
            "give a line with the time of an iteration or the time since the start, or a log with timestamps"
        )
        for column, (_, word, _) in zip(columns, self.times, strict=True):
            if counts_down(rows, column):
                return Implausible(
                    Message("“{word:word}” counts down: it is the time left, not that of an iteration", {"word": word}),
                    remedy,
                )
        if counts_epochs and columns:
            what = Message("lines like “{line:word}” count epochs, but their time is that of an iteration", example)
            return Implausible(what, remedy)
        return Implausible(Message("no time in lines like “{line:word}” can be that of an iteration", example), remedy)


def _complete(run: Run, kinds: Kinds, records: Records) -> Run:
    understood = next((kept for kept in records.kept if isinstance(kept, Understood)), None)
    if understood is None:
        return run
    return replace(run, understood=understood, traits=replace(run.traits, counts_epochs=understood.counts_epochs))


def _seconds(year: Floats, month: Floats, day: Floats, daytime: Floats) -> Floats:
    """A date and a time of day as seconds since 1970."""
    months = (12 * (year - 1970) + month - 1).astype(np.int64).astype("datetime64[M]")
    return (months.astype("datetime64[D]").astype(np.int64) + day - 1) * DAY_S + daytime
