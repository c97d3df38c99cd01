"""Presenters turn a Report into text; they alone speak a language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stepwatch.report import Report

__all__ = ["CHARTS", "PLAN_CHARTS", "Presenter"]

CHARTS = ("times", "anatomy", "throughput", "parts", "forecast")
"""What can be drawn of a run, by the names that `--chart` takes."""
PLAN_CHARTS = ("parts", "memory")


class Presenter(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def suffix(self) -> str: ...

    def render(self, report: Report, language: str) -> str: ...
