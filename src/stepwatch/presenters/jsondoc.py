"""The report as JSON, per docs/json.md: the same figures as everywhere, for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stepwatch.analysis import Analysis
from stepwatch.i18n import clean, say
from stepwatch.presenters.advice_sentences import list_json
from stepwatch.report import SCHEMA, Report, run_json


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonPresenter:
    iterations: bool = True
    with_lines: bool = False
    name: str = "json"
    suffix: str = ".json"

    def render(self, report: Report, language: str) -> str:
        return json.dumps(self.document(report, language), ensure_ascii=False, allow_nan=False) + "\n"

    def document(self, report: Report, language: str) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "language": language,
            "runs": [self._run(report, analysis, language) for analysis in report.analyses],
        }

    def _run(self, report: Report, analysis: Analysis, language: str) -> dict[str, Any]:
        findings = [*report.remarks, *analysis.findings]
        texts: dict[str, list[dict[str, Any]]] = {
            "findings": [
                {"code": finding.code, "severity": finding.severity, "text": say(finding.message, language)}
                for finding in findings
            ],
            "advice": list_json(report.advice_of(analysis), language),
        }
        if self.with_lines:
            texts["unread"] = [{"line": unread.line + 1, "text": clean(unread.text)} for unread in analysis.run.unread]
        return run_json(analysis, texts, iterations=self.iterations)
