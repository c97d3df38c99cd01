"""The verdict as every form shows it: a badge, one sentence, and the first thing to do."""

from __future__ import annotations

from stepwatch.messages import Message
from stepwatch.presenters.document import Badge, Headline
from stepwatch.verdict import Status, Verdict

# A shape for each tone: colour alone would be lost on one reader in twelve.
BADGES = {
    Status.CRASHED: Badge("✖", Message("Crashed"), "bad"),
    Status.DIVERGED: Badge("✖", Message("Diverged"), "bad"),
    Status.STOPPED: Badge("■", Message("Stopped"), "bad"),
    Status.ASLEEP: Badge("▲", Message("Asleep"), "poor"),
    Status.STALLING: Badge("▲", Message("Stalling"), "poor"),
    Status.SLOW: Badge("▲", Message("Slow"), "poor"),
    Status.SLOWING: Badge("▲", Message("Slowing down"), "poor"),
    Status.UNSTEADY: Badge("▲", Message("Unsteady"), "poor"),
    Status.OVERHEAD: Badge("◆", Message("Overhead"), "poor"),
    Status.HEALTHY: Badge("✔", Message("Healthy"), "good"),
    Status.BEGUN: Badge("○", Message("Begun"), "open"),
    Status.UNKNOWN: Badge("?", Message("Unknown"), "open"),
}


def verdict_headline(verdict: Verdict) -> Headline:
    """Where no change is priced below, the remedy is said at once."""
    paragraphs = [(verdict.text,)]
    if verdict.remedy is not None and verdict.saves_s is None:
        paragraphs.append((verdict.remedy,))
    badge = BADGES[verdict.status]
    return Headline(tuple(paragraphs), alarm=badge.tone == "bad", badge=badge)
