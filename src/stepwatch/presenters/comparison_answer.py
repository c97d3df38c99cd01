"""The answer to `compare`: two runs side by side."""

from __future__ import annotations

from collections.abc import Iterator

from stepwatch.analysis.comparison import Comparison
from stepwatch.i18n import clean
from stepwatch.messages import Message
from stepwatch.presenters import document as doc
from stepwatch.presenters.document import sections, texts, time, word
from stepwatch.presenters.run_sentences import PART_NAMES

BADGES = {
    "faster": doc.Badge("▼", Message("Faster"), "good"),
    "slower": doc.Badge("▲", Message("Slower"), "poor"),
    "same": doc.Badge("=", Message("No difference"), "open"),
    "not_comparable": doc.Badge("?", Message("Not comparable"), "open"),
}


def comparison_document(c: Comparison) -> doc.Document:
    """The whole document belongs on the first screen."""
    head = (Message("Part"), Message("Before"), Message("After"), Message("Ratio"))
    settings = tuple(tuple(map(word, row)) for row in settings_rows(c))
    settings_head = (Message("Setting"), Message("Before"), Message("After"))
    changed = doc.Table(settings_head, "lll", tuple(settings), doc.Priority.ALWAYS)
    doubts, reasons, notes = (
        doc.Bullets(texts(found, priority=doc.Priority.ALWAYS)) for found in (c.doubts, c.reasons, c.notes)
    )
    sure = doc.Text(certainty(c), priority=doc.Priority.ALWAYS)
    compared = doc.Table(head, "lrrr", tuple(rows(c)), doc.Priority.ALWAYS)
    differing = (doubts, sure, compared, doc.Chart("step", c), doc.Chart("parts", c))
    return doc.Document(
        Message("Two runs side by side"),
        (doc.Headline(((headline(c),),), alarm=c.failed, badge=BADGES[c.verdict]),),
        sections(
            doc.Section("parts", Message("What differs"), differing),
            doc.Section("settings", Message("Settings"), (changed,)),
            doc.Section("reasons", Message("Why, as far as the logs show"), (reasons,)),
            doc.Section("noticed", Message("What else was noticed"), (notes,)),
        ),
    )


def headline(c: Comparison) -> Message:
    facts = {
        "more": abs(c.ratio.mid - 1),
        "low": abs(c.ratio.low - 1),
        "high": abs(c.ratio.high - 1),
        "after": c.names[1],
        "before": c.names[0],
    }
    if c.verdict == "not_comparable":
        return _UNDECIDED[c.ratio.mid >= 1][c.per_token]._replace(params=facts)
    return _DECIDED[c.verdict][c.per_token]._replace(params=facts)


# Keyed by verdict; each pair is for the time per step and for the time per token.
_DECIDED = {
    "same": (
        Message(
            "No difference beyond noise: a step of “{after:word}” takes between {low:pct} less and {high:pct} more than one of “{before:word}”."
        ),
        Message(
            "No difference beyond noise: a token of “{after:word}” takes between {low:pct} less and {high:pct} more than one of “{before:word}”."
        ),
    ),
    "slower": (
        Message("“{after:word}” is slower: {more:pct} more time per step than “{before:word}”."),
        Message("“{after:word}” is slower: {more:pct} more time per token than “{before:word}”."),
    ),
    "faster": (
        Message("“{after:word}” is faster: {more:pct} less time per step than “{before:word}”."),
        Message("“{after:word}” is faster: {more:pct} less time per token than “{before:word}”."),
    ),
}
# Keyed by whether the second run takes more time.
_UNDECIDED = {
    True: (
        Message(
            "Undecided: “{after:word}” shows {more:pct} more time per step than “{before:word}”, which need not mean that it is slower."
        ),
        Message(
            "Undecided: “{after:word}” shows {more:pct} more time per token than “{before:word}”, which need not mean that it is slower."
        ),
    ),
    False: (
        Message(
            "Undecided: “{after:word}” shows {more:pct} less time per step than “{before:word}”, which need not mean that it is faster."
        ),
        Message(
            "Undecided: “{after:word}” shows {more:pct} less time per token than “{before:word}”, which need not mean that it is faster."
        ),
    ),
}


def certainty(c: Comparison) -> tuple[Message, ...]:
    """How certain the verdict is, and whether the limit is kept."""
    facts = {"low": c.ratio.low, "high": c.ratio.high, "limit": c.limit}
    if c.verdict == "not_comparable":
        untested = Message("Whether that is over the {limit:pct} allowed is not judged: the exit code is 0.", facts)
        return () if c.limit is None else (untested,)
    interval = Message("In nine of ten cases the ratio is between {low:ratio} and {high:ratio}.", facts)
    if c.limit is None or c.verdict == "faster":
        return (interval,)
    if c.failed:
        return Message("That is more than the {limit:pct} allowed.", facts), interval
    if c.verdict == "same" and c.ratio.high > 1 + c.limit:
        hidden = Message("It may be over the {limit:pct} allowed, but the noise hides that: the exit code is 0.", facts)
        return interval, hidden
    return Message("That is within the {limit:pct} allowed.", facts), interval


def rows(c: Comparison) -> Iterator[tuple[Message | None, ...]]:
    """Rows of name, before, after and ratio."""
    one, other = c.before.throughput, c.after.throughput
    formats = (c.before.run.format, c.after.run.format)
    cards = tuple(t.gpu.name if t.gpu is not None else None for t in (one, other))
    for name, words in ((Message("Format"), formats), (Message("Card"), cards)):
        if any(words):
            yield name, *(None if text is None else Message("{name:word}", {"name": text}) for text in words), None
    for part in c.parts:
        costs = (None if cost is None else time(cost) for cost in (part.before, part.after))
        yield PART_NAMES[part.name], *costs, None if part.ratio is None else _ratio(part.ratio.mid)
    yield from _pair(Message("Speed"), Message("{value:rate}"), one.tokens_per_s, other.tokens_per_s)
    yield from _pair(Message("MFU"), Message("{value:pct}"), *(t.mfu if t.possible else None for t in (one, other)))
    shares = [
        a.goodput.steps_s / a.goodput.wall_s if a.goodput.wall_s > 0 and a.shows_parts else None
        for a in (c.before, c.after)
    ]
    yield from _pair(Message("Share of training steps"), Message("{value:pct}"), *shares)


def _pair(
    name: Message, figure: Message, before: float | None, after: float | None
) -> Iterator[tuple[Message | None, ...]]:
    if before is not None or after is not None:
        values = (None if value is None else figure._replace(params={"value": value}) for value in (before, after))
        yield name, *values, _ratio(after / before) if before and after else None


def _ratio(ratio: float) -> Message:
    return Message("{ratio:ratio}", {"ratio": ratio})


def settings_rows(c: Comparison) -> list[tuple[str, str, str]]:
    return [(changed.name, _plain(changed.before), _plain(changed.after)) for changed in c.changed]


def _plain(value: object) -> str:
    if not isinstance(value, float):
        return clean(value)
    return f"{value:.0f}" if value.is_integer() else f"{value:.9g}"  # parameter counts may exceed nine digits
