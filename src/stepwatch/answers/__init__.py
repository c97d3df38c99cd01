"""The questions that stepwatch answers, once for the command line, the page, `watch` and Python callers.

A request says what is asked, the answer is a value for `presenters.render`. Nothing is printed and nothing ends the
process: what should be said beside the answer, such as a log among several that cannot be read, comes back as notices,
of the answer or of the error.

`from_logs` answers `explain` and `compare`, `from_plans` answers `estimate` and `advise`: a question loads only what it
needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from stepwatch.errors import InputError, Notice, StepwatchError, UnknownGpu, UsageError
from stepwatch.gpus import Gpu, find_gpu, gpus
from stepwatch.messages import Message
from stepwatch.platforms import quoted, quoted_path
from stepwatch.settings import Origin, Settings, config_settings, parse_assignment
from stepwatch.sources import LARGEST_EXPANSION_BYTES, Source, from_bytes, from_file, from_text

# --- what can be asked ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """The names of the fields are those of the options in `stepwatch.options`."""

    logs: tuple[str | Source, ...] = ("-",)
    """Files, directories, `-` for standard input, or logs that are at hand."""
    gpu: str | None = None
    gpus: int | None = None
    """How many cards there are, for the advice."""
    config: str | Source | None = None
    settings: tuple[str, ...] = ()
    """As `--set` takes them: key=value."""
    run: int | None = None
    log_format: str | None = None
    like: str | None = None
    samples: str | None = None
    """A file of samples of the machine, or the directory of `stepwatch run`."""
    price_per_hour: str | None = None
    price_per_kwh: str | None = None
    max_size: int = LARGEST_EXPANSION_BYTES


class NoSuchRun(UsageError):
    def __init__(self, number: int, count: int) -> None:
        self.count = count
        super().__init__(
            Message(
                "there is no run {number:n}: the log holds {count:n} run",
                {"number": number, "count": count},
                "there is no run {number:n}: the log holds {count:n} runs",
                count,
            ),
            Message("runs are numbered from 1"),
            about="run",
        )


def pasted(text: str | bytes, name: str = "-", *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """A log or config that is at hand; bytes may be packed."""
    return from_text(text, name) if isinstance(text, str) else from_bytes(text, name, limit=limit)


def text_of(config: str | Source) -> str:
    source = from_file(config) if isinstance(config, str) else config
    return source.text.decode("utf-8", "replace")


def is_log(source: Source) -> bool:
    """Whether it looks like a log, not like a config."""
    from stepwatch.readers import detect

    return detect(source) is not None


def shown(log: str | Source) -> str:
    """A relative path is as typed; of any other only the name, since a report is made to be passed on."""
    if isinstance(log, Source):
        return log.name
    parts = set(log.replace("\\", "/").split("/"))
    return os.path.basename(log) if os.path.isabs(log) or {"..", "~"} & parts else log


@contextmanager
def saying_first(notices: Sequence[Notice]) -> Iterator[None]:
    """Adds these notices to an error that is raised inside, so that they are not lost."""
    try:
        yield
    except StepwatchError as error:
        error.notices = (*notices, *error.notices)
        raise


# --- cards and configs -----------------------------------------------------------------------------------------


def cards(name: str | None = None) -> Sequence[Gpu]:
    """All that are known, or the one of that name."""
    return gpus() if name is None else [find_gpu(name)]


@cache
def own_card() -> Gpu | None:
    """What the driver of this machine reports; asked once, since cards do not come and go."""
    from stepwatch.gpus.driver import this_card

    try:
        return this_card().gpu
    except UnknownGpu:
        return None


def assigned(settings: Sequence[str]) -> Settings:
    return Settings.of(Origin.USER, dict(parse_assignment(text) for text in settings))


def of_config(config: str | Source | None) -> tuple[Settings, tuple[Message, ...]]:
    if config is None:
        return Settings({}), ()
    source = from_file(config) if isinstance(config, str) else config
    try:
        return config_settings(source.text.decode("utf-8", "replace"))
    except InputError as error:
        if is_log(source):
            named = {"name": source.name, "command": f"stepwatch explain {quoted_path(str(config))}"}
            raise InputError(
                Message("“{name:word}” is a log, not a config", named),
                Message("to explain it: {command:list}", named) if isinstance(config, str) else None,
            ) from error
        from stepwatch.readers.refusals import config_given

        given = config_given(source)
        if given is not None and given.settings:
            settings = " ".join(f"--set {quoted(f'{name}={value}')}" for name, value in given.settings.items())
            error.remedy = Message("give its settings instead: {settings:list}", {"settings": settings})
        raise
