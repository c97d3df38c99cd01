"""What `run` does with the log of its training: messages while it runs, and the report at the end."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable

import click

from stepwatch.answers.from_logs import ExplainRequest, UserContext, explain
from stepwatch.cli.notify import Notifier
from stepwatch.errors import StepwatchError
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import View, render
from stepwatch.samples import LOG_FILE
from stepwatch.watch import Live, open_log

FOLLOW_S = 1.0  # how late a message may be


class Follower:
    """Reads the log as `watch` does, for the messages. A failure is reported once, and the run goes on."""

    def __init__(self, directory: str, gpu: str | None, notifier: Notifier, warn: Callable[[Message], None]) -> None:
        self._source = open_log(os.path.join(directory, LOG_FILE))
        self._live: Live | None = Live(self._source.name, UserContext(gpu=gpu).analyse)
        self._notifier, self._warn = notifier, warn

    def look(self, ended: bool) -> None:
        if self._live is None:
            time.sleep(0.0 if ended else FOLLOW_S)
            return
        try:
            self._look(self._live, ended)
        except Exception as error:
            self._live = None
            text = Message("the log can no longer be followed, so no message will be sent: {why:word}")
            self._warn(text._replace(params={"why": type(error).__name__}))

    def _look(self, live: Live, ended: bool) -> None:
        piece = self._source.poll(0.0 if ended else FOLLOW_S)
        now_s = time.time()
        while piece.text:
            live.feed(piece.text, now_s)
            piece = self._source.poll(0.0)
        if ended:
            live.feed(self._source.rest(), now_s)
            live.end()
        look = live.look(now_s, thoroughly=ended)
        self._notifier.raise_for(live.news(), look)
        if ended:
            self._notifier.close()
            self._source.close()


def report(directory: str, gpu: str | None, language: str) -> None:
    try:
        report = explain(ExplainRequest(logs=(directory,), gpu=gpu))
        click.echo(str(render(report, "terminal", language, View(colour=None))), err=True)
    except StepwatchError as error:  # the training matters most: its output may be in no known format
        click.echo(f"stepwatch: {say(error.what, language)}", err=True)
    kept = Message("Log and samples are in {path:word}; for the whole report: {command:list}")
    facts = {"path": directory, "command": f"stepwatch explain {shlex.quote(directory)} --full"}
    click.echo(f"stepwatch: {say(kept._replace(params=facts), language)}", err=True)
