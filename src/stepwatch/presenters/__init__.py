"""Presenters turn a Report into text; they alone speak a language."""

from __future__ import annotations

from typing import Protocol

from stepwatch.report import Report

__all__ = ["Presenter"]


class Presenter(Protocol):
    name: str
    suffix: str

    def render(self, report: Report, language: str) -> str: ...
