"""Writes any document on a terminal: a first screen with what matters most, or everything. Needs no colour."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from stepwatch.i18n import say, say_all
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters.screen import (
    MARK_STYLES,
    SCREEN_LINES,
    Line,
    Row,
    Side,
    TableColumn,
    cell_width,
    cut,
    fitted,
    in_columns,
    padded,
    wrapped,
)

LEAST_CHART_HEIGHT = 3  # lines; 5 if the first screen has room, 7 in the full report
_MARKS = {
    "warning": ("!", "bold red"),
    "notice": ("•", "yellow"),
    "change": ("→", "bold"),
    "info": ("·", "dim"),
    "news": ("·", "green"),
}
_TONES = {"bad": "bold red", "poor": "bold yellow", "good": "bold green", "open": "bold"}
_STYLES = {"lead": "bold", "aside": "dim"}
_DONE, _AHEAD = "━", "─"
# Groups of the first screen that follow each other without an empty line.
_TOGETHER = {("answer", "remark"), ("answer", "text"), ("lead", "table"), ("table", "text"), ("remark", "text")}


@dataclass(slots=True)
class _Item:
    """A part of the first screen, as lines."""

    group: str
    section: str
    block: doc.Block
    priority: int
    lines: list[Line] = field(default_factory=list)
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class TerminalWriter:
    """Writes any document as lines."""

    language: str
    width: int
    wide: int
    """The width for tables with many columns."""

    # --- the first screen -----------------------------------------------------------------------------------

    def screen(self, document: doc.Document) -> list[Line]:
        """Whole blocks in order: the most important ones that there is room for."""
        items = list(_candidates(document))
        if not items:
            return self.whole(document)
        rows = [place for place, item in enumerate(items) if item.group == "row"]
        remarks = [place for place, item in enumerate(items) if item.group == "remark"]
        if rows and remarks:  # keep the remarks together, after the labelled rows, the most pressing first
            begin = max(remarks[0], rows[-1] + 1)
            before, after = ([i for i in part if i.group != "remark"] for part in (items[:begin], items[begin:]))
            items = [*before, *sorted((items[place] for place in remarks), key=lambda item: item.priority), *after]
        self._lay_out(items)
        limited = any(item.priority != doc.Priority.ALWAYS for item in items)
        always = sum(len(item.lines) for item in items if item.priority == doc.Priority.ALWAYS)
        room = SCREEN_LINES - always if limited else math.inf
        chart = next((item for item in items if item.group == "chart"), None)
        height, reserved, crowded = LEAST_CHART_HEIGHT, 0, False
        steps: list[tuple[int, int, _Item | None]] = [(item.priority, at, item) for at, item in enumerate(items)]
        steps += [(doc.Priority.TALLER, 0, None)] * (5 - LEAST_CHART_HEIGHT) + [(doc.Priority.GAP, 0, None)]
        for priority, _, item in sorted(steps, key=lambda step: step[:2]):
            if item is not None and (priority == doc.Priority.ALWAYS or len(item.lines) <= room):
                item.chosen = True
                room -= len(item.lines) if priority != doc.Priority.ALWAYS else 0
            elif item is None and priority == doc.Priority.GAP:
                reserved = max(min(len(_gaps(items)), int(min(room, SCREEN_LINES))), 0)
                room -= reserved
            elif item is not None:
                crowded = True
            elif chart is not None and chart.chosen and room > 0 and not crowded:
                height, room = height + 1, room - 1
        items = [item for item in items if item.chosen]
        gaps = _gaps(items)[: max(reserved + int(min(room, SCREEN_LINES)), 0)]
        lines: list[Line] = []
        for place, item in enumerate(items):
            lines += [[]] if place in gaps else []
            if isinstance(item.block, doc.Chart):
                least = len(self._block(item.block, LEAST_CHART_HEIGHT))
                lines += [*self._block(item.block, height), *item.lines[least:]]
            else:
                lines += item.lines
        asked = (section for section in document.sections if section.asked)
        return [*lines, *(line for section in asked for line in self._section(section))]

    def _lay_out(self, items: list[_Item]) -> None:
        """Fills in the lines of each item, with an empty line after the answer, a table and a chart."""
        labels = {}
        for item in items:
            if isinstance(item.block, doc.Text):
                label = self._cell(item.block.label)
                mark, style = _MARKS.get(item.block.kind, ("", "bold"))
                labels[id(item)] = f"{mark} {label}" if mark else label, style
        for place, item in enumerate(items):
            block = item.block
            if isinstance(block, doc.Text) and block.label is not None:
                label, style = labels[id(item)]
                longest = max(cell_width(labels[id(i)][0]) for i in items if i.group == item.group and id(i) in labels)
                text = say_all(block.brief or block.messages, self.language)
                item.lines = self._labelled(label, text, longest + (1 if block.kind else 2), style)
            elif isinstance(block, doc.Text):
                item.lines = self._text(block, block.brief or block.messages, marked=item.group == "remark")
            elif isinstance(block, doc.Table):
                item.lines = self._table(block, block.shown)
            else:
                item.lines = self._block(block, LEAST_CHART_HEIGHT)  # a chart is drawn again when its height is known
            following = items[place + 1].group if place + 1 < len(items) else None
            apart = following is not None and (following != item.group or item.group == "table")
            if item.group not in ("row", "remark") and apart and (item.group, following) not in _TOGETHER:
                item.lines = [*item.lines, []]

    # --- everything -----------------------------------------------------------------------------------------

    def whole(self, document: doc.Document) -> list[Line]:
        lines = []
        if document.title is not None and not any(isinstance(block, doc.Headline) for block in document.blocks):
            answered = any(isinstance(block, doc.Text) and block.kind == "lead" for block in document.blocks)
            lines += [] if answered else self._paragraph([document.title], "bold")
        lines += self._blocks(document.blocks)
        return [*lines, *(line for section in document.sections for line in self._section(section))]

    def _section(self, section: doc.Section) -> list[Line]:
        if section.number is not None:
            head = self._labelled(
                str(section.number), say_all(filter(None, (section.heading, section.beside)), self.language), 3
            )
            inner = replace(self, width=self.width - 3)
            below = (line for part in section.sections for line in inner._section(part))
            return [[], *head, *([("   ", ""), *line] for line in (*inner._blocks(section.blocks), *below))]
        if section.beside is not None:
            head = self._paragraph([section.heading, section.beside], "bold")
        else:
            head = [] if section.prompt else [[(say(section.heading, self.language), "bold underline")]]
        inner_lines = (line for inner in section.sections for line in self._section(inner))
        return [[], *head, *self._blocks(section.blocks), *inner_lines]

    def _blocks(self, blocks: Iterable[doc.Block]) -> list[Line]:
        """The lines of all blocks, with an empty line around tables and charts."""
        lines: list[Line] = []
        apart = False
        for block in blocks:
            found = self._block(block)
            tall = isinstance(block, doc.Table | doc.Chart | doc.Headline)
            tall |= isinstance(block, doc.Labelled) and not block.figures
            if found and lines and (apart or tall):
                lines.append([])
            lines += found
            apart = tall if found else apart
        return lines

    def _block(self, block: doc.Block, height: int = 7) -> list[Line]:
        match block:
            case doc.Headline():
                first, *others = block.paragraphs
                style = "bold red" if block.alarm else "bold"
                badge = block.badge
                marked: list[Line] = [] if badge is None else [[(self._cell(badge), _TONES[badge.tone])]]
                lines = (line for other in others for line in self._paragraph(other))
                return [*marked, *self._paragraph(first, style), *lines]
            case doc.Text():
                return self._text(block, block.messages, marked=block.kind in ("warning", "notice"))
            case doc.Bullets():
                return [line for item in block.items for line in self._text(item, item.messages, marked=True)]
            case doc.Table():
                return self._table(block)
            case doc.Labelled():
                if block.figures and block.priority is None:
                    return []
                labels = [self._cell(item.label) for item in block.items]
                indent = max(map(cell_width, labels), default=0) + 2
                rows: list[Line] = []
                for label, item in zip(labels, block.items, strict=True):
                    style = "bold red" if item.kind == "warning" else "bold"
                    rows += self._labelled(label, say_all(item.messages, self.language), indent, style)
                return rows
            case doc.Code():
                removed = "-" if block.language == "diff" else None
                return [[("  " + line, "red" if line[:1] == removed else "green")] for line in block.text.splitlines()]
            case doc.Command():
                why = self._paragraph([block.why], "dim") if block.why is not None else []
                pieces = [block.arguments[0]]  # on one line if it fits, else with continuation lines of the shell
                for argument in block.arguments[1:]:
                    # cmd.exe does not know the backslash
                    if len(pieces[-1]) + len(argument) + 6 > self.width and sys.platform != "win32":
                        pieces[-1] += " \\"
                        pieces.append("  " + argument)
                    else:
                        pieces[-1] += " " + argument
                return [*why, *([("  " + piece, "bold green")] for piece in pieces)]
            case doc.Quoted():
                return [
                    line
                    for number, text in block.lines
                    for line in self._labelled(say(doc.count(number), self.language), text, 8)
                ]
            case doc.Chart():
                if block.points is None:
                    return []
                from stepwatch.presenters.text_chart import text_chart  # imports numpy; other answers do not need it

                return text_chart(block.points, self.language, self.width, height)
            case doc.Progress():
                return list(self._progress(block))
            case doc.Shares():
                from stepwatch.presenters.text_chart import stacked_bar  # imports numpy; other answers do not need it

                return [stacked_bar(block.parts, self.width)]

    # --- lines ----------------------------------------------------------------------------------------------

    def _cell(self, cell: doc.Cell) -> str:
        if isinstance(cell, doc.Badge):
            return f"{cell.sign} {say(cell.word, self.language)}"
        return say(cell, self.language) if cell is not None else ""

    def _paragraph(self, messages: Iterable[Message], style: str = "") -> list[Line]:
        return [[(line, style)] for line in wrapped(say_all(messages, self.language), self.width)]

    def _labelled(self, label: str, text: str, indent: int, style: str = "bold") -> list[Line]:
        """A label in front of the first line of a text, the others indented."""
        lines = wrapped(text, self.width - indent)
        space = " " * max(indent - cell_width(label), 1)
        return [[(label, style), (space + lines[0], "")], *([(" " * indent + line, "")] for line in lines[1:])]

    def _text(self, text: doc.Text, messages: Iterable[Message], *, marked: bool) -> list[Line]:
        if not messages:
            return []
        if not marked:
            return self._paragraph(messages, _STYLES.get(text.kind, ""))
        mark, style = _MARKS[text.kind or "info"]
        return self._labelled(mark, say_all(messages, self.language), 2, style)

    def _table(self, table: doc.Table, chosen: tuple[int, ...] | None = None) -> list[Line]:
        if not table.rows:
            return []
        sides: dict[str, tuple[Side, str]] = {"l": ("left", ""), "r": ("right", ""), "d": ("left", "dim")}
        heads = [say(head, self.language) for head in table.head] or [""] * len(table.align)
        columns = [TableColumn(head, *sides[align]) for head, align in zip(heads, table.align, strict=True)]
        if table.marks:
            columns.insert(-1, TableColumn(""))
        rows = []
        for place in range(len(table.rows)) if chosen is None else chosen:
            cells = [self._cell(cell) for cell in table.rows[place]]
            if table.marks:
                cells.insert(-1, table.marks[place])
            mark_style = MARK_STYLES.get(table.marks[place], "") if table.marks else ""
            rows.append(Row(cells, "bold" if place == table.strong else "", mark_style))
        if table.left_out:
            lines, missing = fitted(columns, rows, self.wide, table.left_out, table.name, table.state)
            lines += [[]] if missing else []
        else:
            indent = 0 if table.head else 2
            lines, missing = in_columns(columns, rows, self.width - indent)
            lines = [[(" " * indent, ""), *line] for line in lines]
        named = {"columns": TABLE[self.language].comma.join(missing)}
        left_out = Message("Left out for lack of space: {columns:word}.", named)
        return [*lines, *(self._paragraph([left_out], "dim") if missing else [])]

    def _progress(self, progress: doc.Progress) -> Iterator[Line]:
        where = say(progress.where, self.language)
        room = self.width - cell_width(where) - 2
        name = progress.name if cell_width(progress.name) <= room else cut(progress.name, max(room - 1, 0)) + "…"
        yield [(padded(name, self.width - cell_width(where)), "bold"), (where, "")]
        if progress.share is not None:
            done = min(round(progress.share * self.width), self.width)
            yield [(_DONE * done, "green"), (_AHEAD * (self.width - done), "dim")]


# --- what belongs on the first screen ---------------------------------------------------------------------------


def _candidates(part: doc.Document | doc.Section) -> Iterator[_Item]:
    name = part.name if isinstance(part, doc.Section) else ""
    for block in part.blocks:
        match block:
            case doc.Bullets():
                items = (item._replace(kind=item.kind or "info") for item in block.items)
                yield from (_Item("remark", name, item, item.priority) for item in items if item.priority is not None)
                continue
            case doc.Chart(points=None) | doc.Code() | doc.Quoted():
                continue
            case doc.Headline() | doc.Progress():
                group = "answer"
            case doc.Labelled():
                group = "row"
            case doc.Text() if block.kind in _MARKS:
                group = "remark"
            case doc.Text():
                group = "row" if block.label is not None else "lead" if block.kind == "lead" else "text"
            case _:
                group = type(block).__name__.lower()
        if block.priority is not None:
            yield _Item(group, name, block, block.priority)
    for section in part.sections:
        if not section.below and not section.asked:
            yield from _candidates(section)


def _gaps(items: list[_Item]) -> list[int]:
    """Places where an empty line may go: between rows, remarks and the command. The last place comes first."""
    rows = any(item.group == "row" for item in items)
    places = []
    for place, (one, other) in enumerate(pairwise(items), start=1):
        same = one.group == other.group and (rows or one.section == other.section)
        if one.group in ("row", "remark") and not same and (one.group, other.group) not in _TOGETHER:
            places.append(place)
    return places[::-1]
