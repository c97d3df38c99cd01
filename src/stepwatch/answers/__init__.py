"""The questions that stepwatch answers, once for the command line, the page, `watch` and Python callers.

A request says what is asked; its answer is a value for `presenters.render`. Nothing is printed and nothing ends the
process: remarks besides the answer, such as that one of several logs cannot be read, are returned as notices of the
answer or of the error.

`from_logs` answers `explain` and `compare`, `from_plans` answers `estimate` and `advise`: a question loads only what it
needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from stepwatch.errors import InputError, UnknownGpu
from stepwatch.gpus import Gpu, find_gpu, gpus
from stepwatch.messages import Message
from stepwatch.platforms import quoted, quoted_path
from stepwatch.settings import Settings, config_settings
from stepwatch.sources import LARGEST_EXPANSION_BYTES, Source, from_bytes, from_file, from_text


def pasted(text: str | bytes, name: str = "-", *, limit: int = LARGEST_EXPANSION_BYTES) -> Source:
    """A log or config in memory; bytes may be compressed."""
    return from_text(text, name) if isinstance(text, str) else from_bytes(text, name, limit=limit)


def text_of(config: str | Source) -> str:
    source = from_file(config) if isinstance(config, str) else config
    return source.text.decode("utf-8", "replace")


def is_log(source: Source) -> bool:
    """Whether it looks like a log, not like a config."""
    from stepwatch.readers import detect

    return detect(source) is not None


# --- cards and configs -----------------------------------------------------------------------------------------


def cards(name: str | None = None) -> Sequence[Gpu]:
    """All known cards, or the one with this name."""
    return gpus() if name is None else [find_gpu(name)]


@cache
def own_card() -> Gpu | None:
    """The card that the driver of this machine reports; asked only once, since cards do not come and go."""
    from stepwatch.gpus.driver import this_card

    try:
        return this_card().gpu
    except UnknownGpu:
        return None


def of_config(config: str | Source) -> tuple[Settings, tuple[Message, ...]]:
    """The settings of a config, and remarks on what was left out."""
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
