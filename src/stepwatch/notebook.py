"""In a notebook: a report that shows itself, and `%%stepwatch`, which explains the output of a cell when it ends."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from stepwatch.answers import pasted
from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.errors import StepwatchError, UsageError
from stepwatch.i18n import language_from_environment, say
from stepwatch.messages import Message
from stepwatch.options import OPTIONS
from stepwatch.report import Report
from stepwatch.sources import Source

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

MAGIC_OPTIONS = ("gpu", "lang", "config", "settings", "log_format", "like")


@dataclass(frozen=True, kw_only=True)
class ShownReport(Report):
    """A report that a notebook shows by itself."""

    language: str = "en"

    def _repr_html_(self) -> str:
        """Without scripts, so that it looks the same in viewers that do not run them."""
        from stepwatch.presenters import page_fragment

        return page_fragment(self, self.language)

    def _repr_markdown_(self) -> str:
        """For front ends that cannot show HTML."""
        from stepwatch.presenters import render

        return str(render(self, "md", self.language))


def shown(report: Report, language: str | None = None) -> ShownReport:
    return ShownReport(**vars(report), language=language or language_from_environment())


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext stepwatch`."""

    def stepwatch(line: str, cell: str) -> ShownReport | None:
        """Run the cell, then explain what it printed: %%stepwatch --gpu 4070 --lang de --set max_iters=6000"""
        language = language_from_environment()
        try:
            options = vars(_parser().parse_args(shlex.split(line)))
            language = options.pop("lang") or language
            outputs = _Outputs()
            with outputs.kept(shell):
                shell.run_cell(cell)
            options["settings"] = tuple(options["settings"])
            request = ExplainRequest(logs=(outputs.as_source(),), **options)
            return shown(explain(request), language)
        except StepwatchError as error:
            for message in (error.what, error.remedy):
                if message is not None:
                    print(say(message, language), file=sys.stderr)
            return None

    shell.register_magic_function(stepwatch, "cell")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(
            Message("%%stepwatch: {problem:word}", {"problem": message}),
            Message("options: {names:word}", {"names": ", ".join(_flag(name) for name in MAGIC_OPTIONS)}),
        )


def _flag(name: str) -> str:
    return OPTIONS[name].flag or "--" + name.replace("_", "-")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%stepwatch", add_help=False)
    for name in MAGIC_OPTIONS:
        option = OPTIONS[name]
        if option.repeated:
            parser.add_argument(_flag(name), dest=name, action="append", default=[])
        else:
            parser.add_argument(_flag(name), dest=name, choices=option.choices or None)
    return parser


class _Outputs:
    """Collects what a cell prints and displays, as a notebook file stores it; the cell shows it as usual."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self.displays: dict[str, dict[str, Any]] = {}

    def as_source(self) -> Source:
        cell = {"cell_type": "code", "source": [], "metadata": {}, "outputs": self.found}
        notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        return pasted(json.dumps(notebook).encode(), "cell.ipynb")

    def printed(self, name: str, text: str) -> None:
        if self.found and self.found[-1].get("name") == name:
            self.found[-1]["text"].append(text)
        else:
            self.found.append({"output_type": "stream", "name": name, "text": [text]})

    def displayed(self, data: dict[str, Any], display_id: str | None) -> None:
        """Adds a display; one that is updated, such as a progress bar, is a single output."""
        if display_id in self.displays:
            self.displays[display_id]["data"] = data
            return
        self.found.append({"output_type": "display_data", "data": data, "metadata": {}})
        if display_id is not None:
            self.displays[display_id] = self.found[-1]

    @contextmanager
    def kept(self, shell: InteractiveShell) -> Iterator[None]:
        publisher = shell.display_pub
        publish = publisher.publish

        def publish_and_keep(data: dict[str, Any], metadata: Any = None, **more: Any) -> None:
            self.displayed(data, (more.get("transient") or {}).get("display_id"))
            publish(data, metadata, **more)

        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = _Kept(sys.stdout, "stdout", self), _Kept(sys.stderr, "stderr", self)
        publisher.publish = publish_and_keep
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            publisher.publish = publish


class _Kept:
    """A stream that also keeps what is written to it."""

    def __init__(self, stream: TextIO, name: str, outputs: _Outputs) -> None:
        self._stream, self._name, self._outputs = stream, name, outputs

    def write(self, text: str) -> int:
        self._outputs.printed(self._name, text)
        return self._stream.write(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
