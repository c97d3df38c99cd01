"""`stepwatch watch`: a run while it goes on."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import click

from stepwatch.analysis import Analysis, analyse
from stepwatch.cli.alerts import Alert, arguments_of
from stepwatch.cli.explain import config_given, shown
from stepwatch.cli.options import language_option, speaking
from stepwatch.errors import NoIterations, UnknownGpu, UsageError
from stepwatch.explanation import card_of, explain, laid_over
from stepwatch.gpus.choice import card_of_this_machine, named_card
from stepwatch.i18n import say
from stepwatch.messages import Message
from stepwatch.presenters import lines
from stepwatch.presenters.live import event_line, progress_line, screen, waiting
from stepwatch.run import Run
from stepwatch.settings import Origin, Settings, parse_assignment
from stepwatch.sources import unreadable
from stepwatch.sources.follow import Growing, GrowingFile, GrowingPipe
from stepwatch.watch import DONE, Live, Look, Occurrence

if TYPE_CHECKING:
    from stepwatch.gpus import Gpu, Reading

PROGRESS_S = 60.0  # between two lines on progress where there is no screen
INTERRUPTED = 130


@click.command(name="watch", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("log", default="-", metavar="[LOG]")
@click.option("--gpu", metavar="NAME", help="The card: 4070, …; else the log's, else this machine's, else unknown.")
@language_option()
@click.option("--config", metavar="FILE.py", help="The nanoGPT config of the run; read, never executed.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE",
    help="A setting the log does not tell, such as max_iters=6000.",
)  # fmt: skip
@click.option("--tee", is_flag=True, help="Pass the lines of a pipe on to standard output; the rest goes to the other.")
@click.option(
    "--interval", type=click.FloatRange(0.05, 3600), default=1.0, show_default=True, metavar="SECONDS",
    help="How often to look.",
)  # fmt: skip
@click.option("--on-stall", metavar="CMD", help="Run this when the run stalls, slows down or prints nothing any more.")
@click.option("--on-done", metavar="CMD", help="Run this when the run has reached its last iteration.")
@click.option("--once", is_flag=True, help="Show how the run stands and leave.")
def command(
    log: str, gpu: str | None, lang: str | None, config: str | None, assignments: tuple[str, ...], tee: bool,
    interval: float, on_stall: str | None, on_done: str | None, once: bool,
) -> None:  # fmt: skip
    """Watch a run while it goes on.

    Follows a growing log, or a pipe: python train.py … | stepwatch watch -. Shows how far the run is and when it
    ends, how fast it is against its normal speed and the card, when the next evaluation comes, and stalls as they
    happen. The log may not exist yet, be cut or be replaced. Ends with the report when the run does, when the pipe
    ends or by Ctrl-C.

    The commands of --on-stall and --on-done are run without a shell; STEPWATCH_EVENT, STEPWATCH_LOG,
    STEPWATCH_ITERATION, STEPWATCH_TIME_S, STEPWATCH_RATIO and STEPWATCH_ETA_S are in their environment.
    """
    with speaking(lang) as language:
        given = _Given(gpu, config, assignments)
        out = sys.stderr if tee else sys.stdout
        view = _view(out, language, once=once)
        alerts = _Alerts(on_stall, on_done, log, view)
        source = _source(log, tee and not view.shares_terminal, once=once)
        watching = Watching(source, given, view, alerts, interval_s=interval, name=shown(log))
        try:
            if once:
                watching.once()
            else:
                watching.to_the_end()
        finally:
            source.close()


class _Given:
    """What the user knows of the run, and the report with it."""

    def __init__(self, gpu: str | None, config: str | None, assignments: tuple[str, ...]) -> None:
        self._card = named_card(gpu)
        self._config, self._remarks = config_given(config)
        self._user = Settings.of(Origin.USER, dict(parse_assignment(text) for text in assignments))

    def explain(self, run: Run) -> Analysis:
        gpu, origin = card_of(run, self._card)
        if gpu is None:
            gpu, origin = _machine_card() or (None, None)
        return analyse(replace(run, settings=laid_over(run.settings, self._config, self._user)), gpu, origin)

    def report(self, runs: tuple[Run, ...], name: str, language: str, *, colour: bool | None) -> str:
        from stepwatch.presenters.terminal import TerminalPresenter

        told = any(card_of(run, self._card)[0] is not None for run in runs)
        card = self._card if told else _machine_card()
        report = explain(runs, card, config=self._config, user=self._user, remarks=self._remarks)
        return TerminalPresenter(colour=colour).render(replace(report, inputs=(name,)), language)


@cache
def _machine_card() -> tuple[Gpu, str] | None:
    """A log is watched on a laptop too: that its processor was measured does not mean that the run is there."""
    try:
        card, origin = card_of_this_machine()
    except UnknownGpu:
        return None
    return None if card.segment == "cpu" else (card, origin)


def _source(log: str, tee: bool, *, once: bool) -> Growing:
    if log == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                Message("there is no log to watch"),
                Message("name it: stepwatch watch train.log, or pipe it: python train.py … | stepwatch watch -"),
            )
        return GrowingPipe(sys.stdin.buffer, tee=_pass_on if tee else None)
    try:
        if stat.S_ISFIFO(os.stat(log).st_mode):
            return GrowingPipe(open(log, "rb", buffering=0), name=os.path.basename(log), tee=_pass_on if tee else None)
    except OSError as error:
        if once or not isinstance(error, FileNotFoundError):
            raise unreadable(log, error) from error
    return GrowingFile(log)


def _pass_on(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class Watching:
    """The loop: what is new, what it means, what is shown, whom to call."""

    def __init__(
        self, source: Growing, given: _Given, view: View, alerts: _Alerts, *, interval_s: float, name: str,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._source, self._given, self._view, self._alerts = source, given, view, alerts
        self._interval_s, self._name, self._clock = interval_s, name, clock
        self._live = Live(source.name, given.explain)

    def once(self) -> None:
        while not (piece := self._feed(0.0)).ended and (piece.more or self._name == "-"):
            pass
        self._feed_rest()
        self._view.show(self._live.look(self._clock(), thoroughly=True))
        self._view.close()

    def to_the_end(self) -> None:
        interrupted = False
        with _interruptible():
            try:
                self._follow()
            except KeyboardInterrupt:
                interrupted = True
        self._feed_rest()
        self._view.close()
        runs = self._live.runs()
        if not runs and interrupted:
            sys.exit(INTERRUPTED)
        if not runs:
            raise NoIterations(Message("no iteration found in the log"))
        self._view.write(self._given.report(runs, self._name, self._view.language, colour=self._view.colour))
        self._alerts.close()

    def _follow(self) -> None:
        wait = 0.0
        begun = False
        while True:
            piece = self._feed(wait)
            wait = 0.0 if piece.more else self._interval_s
            if piece.more:
                continue
            now = self._clock()
            if not begun:
                self._live.begin_watching(now)
                begun = True
            look = self._live.look(now, thoroughly=piece.ended)
            news = self._live.news()
            self._view.show(look, news)
            self._alerts.tell(news, look)
            if piece.ended or (look.done and not isinstance(self._source, GrowingPipe)):
                return

    def _feed(self, wait_s: float) -> Any:
        piece = self._source.poll(wait_s)
        now = self._clock()
        if piece.anew:
            self._live.tell_anew(now)
        if piece.text:
            self._live.feed(piece.text, now - piece.age_s)
            self._view.pass_on(piece.text)
        if not piece.more:
            self._live.settle()
        return piece

    def _feed_rest(self) -> None:
        rest = self._source.rest()
        self._live.feed(rest, self._clock())
        self._live.settle()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Being asked to end is as good as Ctrl-C: the report is due either way, and the cursor too."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- whom to call -----------------------------------------------------------------------------------------------


class _Alerts:
    def __init__(self, on_stall: str | None, on_done: str | None, log: str, view: View) -> None:
        self._log = log
        self._stall = Alert(arguments_of(on_stall, "--on-stall"), "--on-stall", view.warn)
        self._done = Alert(arguments_of(on_done, "--on-done"), "--on-done", view.warn)

    def tell(self, news: list[Occurrence], look: Look) -> None:
        for event in news:
            if event.is_alarm:
                self._stall.call(event.kind, self._facts(event, look), event.at_s)
            elif event.kind == DONE:
                self._done.call(event.kind, self._facts(event, look), event.at_s)
        self._stall.check()
        self._done.check()

    def close(self) -> None:
        self._stall.close()
        self._done.close()

    def _facts(self, event: Occurrence, look: Look) -> Mapping[str, object]:
        left = look.remaining_s
        return {
            "EVENT": event.kind, "LOG": self._log, "ITERATION": event.iteration, "TIME_S": _figure(event.time_s),
            "RATIO": _figure(event.ratio), "ETA_S": _figure(left.mid if left is not None else None),
        }  # fmt: skip


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}"


# --- what is shown ----------------------------------------------------------------------------------------------


class View(Protocol):
    language: str
    colour: bool | None
    shares_terminal: bool
    """What is passed on and what is drawn go to the same terminal: the screen must make room."""

    def show(self, look: Look, news: list[Occurrence] | None = None) -> None: ...
    def pass_on(self, text: bytes) -> None: ...
    def warn(self, message: Message) -> None: ...
    def write(self, text: str) -> None: ...
    def close(self) -> None: ...


def _view(out: Any, language: str, *, once: bool) -> View:
    if once:
        return _Snapshot(out, language)
    terminal = out is not None and out.isatty() and os.environ.get("TERM") != "dumb"
    if not terminal:
        return _Plain(out, language)
    from stepwatch.cli.live_screen import LiveScreen

    both = out is sys.stderr and sys.stdout is not None and sys.stdout.isatty()
    return LiveScreen(out, language, shares_terminal=both)


class _Plain:
    """A line for each event, and one on progress now and then."""

    shares_terminal = False
    colour: bool | None = False

    def __init__(self, out: Any, language: str) -> None:
        self._out, self.language = out, language
        self._next_s = float("-inf")
        self._waiting = False
        self._last = -1

    def show(self, look: Look, news: list[Occurrence] | None = None) -> None:
        for event in news or ():
            self.write(event_line(event, self.language) + "\n")
        if look.analysis is None and not self._waiting:
            self._waiting = True
            self.write(say(waiting(look), self.language) + "\n")
        last = look.last_iteration
        if last is not None and last != self._last and (look.now_s >= self._next_s or look.done):
            self._next_s, self._last = look.now_s + PROGRESS_S, last
            self.write(progress_line(look, self.language) + "\n")

    def pass_on(self, text: bytes) -> None:
        """Whoever passes lines on does it as they come."""

    def warn(self, message: Message) -> None:
        self.write(f"stepwatch: {say(message, self.language)}\n")

    def write(self, text: str) -> None:
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        self._out.write(text.encode(encoding, "replace").decode(encoding))
        self._out.flush()

    def close(self) -> None: ...


class _Snapshot(_Plain):
    """The screen once, as text."""

    def show(self, look: Look, news: list[Occurrence] | None = None) -> None:
        width = lines.width_of_output()
        drawn = screen(look, self.language, width=width, height=lines.SCREEN_LINES, card=read_card())
        self.write(lines.shown(drawn, width, None if self._out is sys.stdout else False))


def read_card() -> Reading | None:
    sensors = _sensors()
    return sensors.read() if sensors is not None else None


@cache
def _sensors() -> Any:
    from stepwatch.gpus import Sensors

    try:
        return Sensors()
    except UnknownGpu:
        return None
