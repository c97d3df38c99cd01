"""`stepwatch watch`: a run in progress."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from stepwatch.answers.from_logs import UserContext, explain_runs, shown
from stepwatch.cli import described, option
from stepwatch.cli.alerts import Alert, arguments_of
from stepwatch.cli.commands import options_of, typed
from stepwatch.cli.notify import Notifier
from stepwatch.errors import NoIterations, UnknownGpu
from stepwatch.gpus.driver import Sensors
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import View, render, screen
from stepwatch.presenters.look_answer import event_line, live_lines, progress_line, waiting
from stepwatch.watch import (
    CRASHED,
    DIVERGED,
    DONE,
    SILENCE,
    SLOWDOWN,
    STALL,
    STOPPED,
    Live,
    Look,
    WatchEvent,
    open_log,
    steady_clock,
)

if TYPE_CHECKING:
    from stepwatch.gpus.driver import CardState


@described(
    texts=(
        Message("Watch a run in progress."),
        Message(
            "Follows a growing log, or a pipe: python train.py … | stepwatch watch -. Shows the progress "
            "and when the run will end, its speed compared with normal and with the card, when the next "
            "evaluation is due, and stalls, crashes and a loss that is not a number as they happen. The "
            "log may not exist yet, be truncated or be replaced. Ends with the report when the run or the "
            "pipe ends, or on Ctrl-C; exit code 3 if the run crashed or diverged."
        ),
        Message(
            "The commands of --on-stall and similar options run without a shell, with STEPWATCH_EVENT, "
            "STEPWATCH_LOG, STEPWATCH_ITERATION, STEPWATCH_LINE, STEPWATCH_TIME_S, STEPWATCH_RATIO and "
            "STEPWATCH_ETA_S in their environment."
        ),
    ),
    params=options_of("watch"),
)
@click.argument("log", default="-", metavar="[LOG]")
@option(
    "--tee",
    is_flag=True,
    help=Message("Also print the lines of a pipe to standard output; everything else goes to standard error."),
)
@option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    metavar="SECONDS",
    help=Message("Time between updates."),
)
@option("--on-stall", metavar="CMD", help=Message("Run this when the run stalls, slows down or stops printing."))
@option(
    "--on-crashed", metavar="CMD", help=Message("Run this when the run crashes (default: the command of --on-stall).")
)
@option("--on-diverged", metavar="CMD", help=Message("Run this when the loss becomes NaN or infinite."))
@option("--on-done", metavar="CMD", help=Message("Run this when the run has reached its last iteration."))
@option("--notify", "addresses", multiple=True, metavar="URL", help=Message("Send a message when it stalls or ends."))
@option("--once", is_flag=True, help=Message("Show the current state of the run and exit."))
def command(
    log: str,
    lang: str,
    tee: bool,
    interval: float,
    on_stall: str | None,
    on_crashed: str | None,
    on_diverged: str | None,
    on_done: str | None,
    addresses: tuple[str, ...],
    once: bool,
    **given: Any,
) -> None:
    known = UserContext(**given, or_this_machine=True)
    display = _display(sys.stderr if tee else sys.stdout, lang, once=once)
    crashed = (on_crashed, "--on-crashed") if on_crashed is not None else (on_stall, "--on-stall")
    commands = {
        (STALL, SLOWDOWN, SILENCE, STOPPED): (on_stall, "--on-stall"),
        (CRASHED,): crashed,
        (DIVERGED,): (on_diverged, "--on-diverged"),
        (DONE,): (on_done, "--on-done"),
    }
    notifier = Notifier(addresses, shown(log), lang, display.warn) if addresses else None
    alerts = _Alerts(commands, log, display, notifier)
    tee = tee and not display.shares_terminal
    with closing(Watching(log, known, display, alerts, interval_s=interval, tee=tee, once=once)) as watching:
        failed = watching.once() if once else watching.to_the_end()
    if failed:
        sys.exit(3)  # the watch is a success, the run is not


def _pass_on(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class Watching:
    """The loop: reads what is new, analyses it, shows it, and notifies."""

    def __init__(
        self,
        log: str,
        known: UserContext,
        display: Display,
        alerts: _Alerts,
        *,
        interval_s: float,
        tee: bool = False,
        once: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._source = open_log(log, tee=_pass_on if tee else None, once=once)
        self._known, self._display, self._alerts = known, display, alerts
        self._clock = clock or steady_clock()
        self._interval_s, self._name, self._log = interval_s, shown(log), log
        self._begun = False
        self._live = Live(self._source.name, known.analyse)

    def once(self) -> bool:
        """Shows the run once; returns whether it has failed."""
        while not (piece := self._feed(0.0)).ended and (piece.more or self._name == "-"):
            pass
        self._feed_rest()
        look = self._live.look(self._clock(), thoroughly=True)
        self._display.show(look)
        self._display.close()
        return look.failed

    def to_the_end(self) -> bool:
        """Follows the run to its end; returns whether it has failed."""
        interrupted = False
        with _interruptible():
            try:
                self._follow()
            except KeyboardInterrupt:
                interrupted = True
        self._feed_rest()
        self._display.close()
        runs = self._live.runs()
        if not runs and interrupted:
            sys.exit(130)  # as a shell reports Ctrl-C
        if not runs:
            raise NoIterations(Message("no iteration found in the log"))
        look = self._live.look(self._clock(), thoroughly=True)
        report = replace(explain_runs(runs, self._known), inputs=(self._name,))
        if look.grave is not None:  # the watch knows more about the end than the lines say
            report = replace(report, runs=(*report.runs[:-1], replace(report.runs[-1], verdict=look.grave)))
        view = View(colour=self._display.colour, typed=typed((self._log,)))
        self._display.write(str(render(report, "terminal", self._display.language, view)))
        self._alerts.close()
        return look.failed

    def close(self) -> None:
        self._source.close()

    def _follow(self) -> None:
        wait = 0.0
        while True:
            piece = self._feed(wait)
            wait = 0.0 if piece.more else self._interval_s
            if piece.more:
                continue
            now = self._clock()
            if not self._begun:
                self._live.begin_watching(now)
                self._begun = True
            if piece.ended:
                self._feed_rest()
                self._live.end()
            look = self._live.look(now, thoroughly=piece.ended)
            news = self._live.news()
            self._display.show(look, news)
            self._alerts.raise_for(news, look)
            if piece.ended or (look.over and not self._source.has_end):
                return

    def _feed(self, wait_s: float) -> Any:
        piece = self._source.poll(wait_s)
        now = self._clock()
        if piece.anew:
            self._live.report_truncation(now)
        if piece.text:
            # Lines that arrive during a watch are new, whatever the clock of the machine with the file says.
            self._live.feed(piece.text, now if self._begun else now - piece.age_s)
            self._display.pass_on(piece.text)
        return piece

    def _feed_rest(self) -> None:
        rest = self._source.rest()
        self._live.feed(rest, self._clock())


@contextmanager
def _interruptible() -> Iterator[None]:
    """Treats a request to end like Ctrl-C: in both cases the report is due, and the cursor must come back."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- notifications -----------------------------------------------------------------------------------------------


class _Alerts:
    """A command and its option, by the kinds of events that call it."""

    def __init__(
        self,
        commands: Mapping[tuple[str, ...], tuple[str | None, str]],
        log: str,
        display: Display,
        notifier: Notifier | None = None,
    ) -> None:
        self._log, self._notifier = log, notifier
        self._alerts = {
            kinds: Alert(arguments_of(command, option), option, display.warn)
            for kinds, (command, option) in commands.items()
        }

    def raise_for(self, news: list[WatchEvent], look: Look) -> None:
        for event in news:
            eta_s = look.remaining_s.mid if look.remaining_s is not None else None
            figures = {"TIME_S": event.time_s, "RATIO": event.ratio, "ETA_S": eta_s}
            facts = {"EVENT": event.kind, "LOG": self._log, "ITERATION": event.iteration, "LINE": event.line}
            facts |= {name: f"{value:.6g}" for name, value in figures.items() if value is not None}
            for kinds, alert in self._alerts.items():
                if event.kind in kinds:
                    alert.call(event.kind, facts, event.at_s)
        for alert in self._alerts.values():
            alert.check()
        if self._notifier is not None:
            self._notifier.raise_for(news, look)

    def close(self) -> None:
        for alert in self._alerts.values():
            alert.close()
        if self._notifier is not None:
            self._notifier.close()


# --- what is shown ----------------------------------------------------------------------------------------------


def _display(out: Any, language: str, *, once: bool) -> Display:
    if once:
        return _Snapshot(out, language)
    if out is None or not out.isatty() or os.environ.get("TERM") == "dumb":
        return Display(out, language)
    from stepwatch.cli.live_screen import LiveScreen

    return LiveScreen(out, language)


class Display:
    """One line per event, and a progress line now and then."""

    shares_terminal = False
    """Whether passed-on lines and the screen are on the same terminal: then the screen must make room."""
    colour: bool | None = False

    def __init__(self, out: Any, language: str) -> None:
        self._out, self.language = out, language
        self._next_s = float("-inf")
        self._waiting = False
        self._last = -1

    def show(self, look: Look, news: Sequence[WatchEvent] = ()) -> None:
        for event in news:
            self.write(event_line(event, self.language) + "\n")
        if look.analysis is None and not self._waiting:
            self._waiting = True
            self.write(say(waiting(look), self.language) + "\n")
        last = look.last_iteration
        if last is not None and last != self._last and (look.now_s >= self._next_s or look.over):
            self._next_s, self._last = look.now_s + 60.0, last  # without a screen, one line a minute
            self.write(progress_line(look, self.language) + "\n")

    def pass_on(self, text: bytes) -> None:
        """Does nothing here: the source passes lines on as they come."""

    def warn(self, message: Message) -> None:
        self.write(f"stepwatch: {say(message, self.language)}\n")

    def write(self, text: str) -> None:
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        self._out.write(text.encode(encoding, "replace").decode(encoding))
        self._out.flush()

    def close(self) -> None: ...


class _Snapshot(Display):
    """The screen once, as text."""

    def show(self, look: Look, news: Sequence[WatchEvent] = ()) -> None:
        width = screen.width_of_output()
        drawn = live_lines(look, self.language, width=width, height=screen.SCREEN_LINES, card=read_card())
        self.write(screen.shown(drawn, width, None if self._out is sys.stdout else False))


def read_card() -> CardState | None:
    sensors = _sensors()
    return sensors.read() if sensors is not None else None


@cache
def _sensors() -> Any:
    try:
        return Sensors()
    except UnknownGpu:
        return None
