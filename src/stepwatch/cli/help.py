"""Help and wrong usage in the reader's language: click's commands and options, with Messages for their texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import click

from stepwatch.errors import UsageError
from stepwatch.i18n import LANGUAGES, language_from_environment, say
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.presenters.screen import cell_width, padded, wrapped

LANGUAGE = "stepwatch.language"
_PLACES = re.compile(r"[A-Z]+")
# What stands for a value in usage and options. Words that are not here are the same in every language.
_WORDS = {
    word.key: word
    for word in (
        *(Message("ARGS"), Message("BYTES"), Message("CMD"), Message("COLUMNS"), Message("COMMAND")),
        *(Message("CONFIG"), Message("DIR"), Message("FIGURE"), Message("FILE"), Message("HOST")),
        *(Message("KEY"), Message("LINE"), Message("LOG"), Message("NAME"), Message("OPTIONS")),
        *(Message("PERCENT"), Message("PORT"), Message("PRICE"), Message("SECONDS"), Message("SHARE")),
        *(Message("STORE"), Message("TEXT"), Message("TOKEN"), Message("VALUE"), Message("WHEN")),
        *(Message("WHERE"),),
    )
}


def language_among(arguments: Iterable[str]) -> str | None:
    """What --lang asks for, wherever it stands: help and errors are said before options are read, or instead."""
    before = takewhile(lambda argument: argument != "--", arguments)  # behind it stands another program's command
    words = " ".join(before).replace("--lang=", "--lang ").split(" ")
    asked = words[words.index("--lang") + 1 :][:1] if "--lang" in words else []
    return asked[0] if asked and asked[0] in LANGUAGES else None


def language_of(context: click.Context) -> str:
    return context.meta.get(LANGUAGE) or language_from_environment()


def placeholders(text: str, language: str) -> str:
    """`--config FILE.py` with the reader's word for FILE."""
    return _PLACES.sub(lambda found: say(_WORDS[found[0]], language) if found[0] in _WORDS else found[0], text)


class Formatter(click.HelpFormatter):
    """By columns of a terminal: click counts characters, of which those of Chinese and Japanese take two."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        begin = f"{prefix}{prog} "
        lines = wrapped(args, self.width - cell_width(begin))
        self.write(begin + f"\n{' ' * cell_width(begin)}".join(lines) + "\n")

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':{self.current_indent}}{heading}\n")

    def write_text(self, text: str) -> None:
        for line in wrapped(text, self.width - self.current_indent):
            self.write(f"{'':{self.current_indent}}{line}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        rows = list(rows)
        first = min(max(cell_width(term) for term, _ in rows), col_max) + col_spacing
        begin = " " * self.current_indent
        for term, text in rows:
            lines = wrapped(text, self.width - first - self.current_indent)
            if cell_width(term) > col_max:
                lines.insert(0, "")
            self.write(f"{begin}{padded(term, first)}{lines[0]}".rstrip() + "\n")
            for line in lines[1:]:
                self.write(f"{begin}{'':{first}}{line}\n")


class Context(click.Context):
    formatter_class = Formatter


class Option(click.Option):
    """One whose meaning is a Message."""

    def __init__(self, *declared: Any, help: Message, **attributes: Any) -> None:
        shown = attributes.get("default") is not None
        super().__init__(*declared, **{"show_default": shown, **attributes, "help": help.key})
        self.meaning = help

    def make_metavar(self, ctx: click.Context) -> str:
        return placeholders(super().make_metavar(ctx), language_of(ctx))

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None:
            return None
        language, extra = language_of(ctx), self.get_help_extra(ctx)
        notes = []
        if "default" in extra:
            notes.append(say(Message("default: {value:word}", {"value": extra["default"]}), language))
        if "range" in extra:
            notes.append(extra["range"])
        if "required" in extra:
            notes.append(say(Message("required"), language))
        text = say(self.meaning, language)
        return record[0], f"{text}  [{TABLE[language].semicolon.join(notes)}]" if notes else text

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter as error:
            raise self._refused(ctx, value) from error

    def _refused(self, ctx: click.Context, value: Any) -> UsageError:
        """With the first of several values that is wrong, and what would be right."""
        for each in value if self.multiple else (value,):
            try:
                self.type(each, self, ctx)
            except click.BadParameter:
                wrong = {"value": str(each), "name": self.opts[0]}
                return UsageError(
                    Message("“{value:word}” is not a value for {name:word}", wrong), _demand(self.opts[0], self.type)
                )
        raise AssertionError(f"{value!r} was refused, and none of it is wrong")


def _demand(name: str, kind: click.ParamType[Any]) -> Message:
    facts: dict[str, Any] = {"name": name}
    if isinstance(kind, click.Choice):
        return Message("{name:word} is one of {words:word}", facts | {"words": " | ".join(kind.choices)})
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        facts["range"] = kind._describe_range()
        if isinstance(kind, click.IntRange):
            return Message("{name:word} is a whole number: {range:word}", facts)
        return Message("{name:word} is a number: {range:word}", facts)
    if isinstance(kind, click.Path):
        return Message("{name:word} is a directory that exists", facts)
    return Message("{name:word} is a number", facts)


class Command(click.Command):
    """Help from Messages, a paragraph each."""

    context_class = Context
    allow_extra_args = True  # here they are refused in words

    def __init__(
        self, *declared: Any, texts: tuple[Message, ...], options: Sequence[Option] = (), **attributes: Any
    ) -> None:
        super().__init__(*declared, **attributes | {"help": texts[0].key, "add_help_option": False})
        self.texts = texts
        self.params += options
        click.help_option("-h", "--help", cls=Option, help=Message("Show this message and exit."))(self)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta.setdefault(LANGUAGE, language_among(args))
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser does not say where
            raise
        if rest and not isinstance(self, click.Group):
            raise UsageError(
                Message("too many arguments: {words:list}", {"words": " ".join(rest)}),
                Message("all options: {command:list}", {"command": f"{ctx.command_path} --help"}),
            )
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        language = language_of(ctx)
        return [placeholders(piece, language) for piece in super().collect_usage_pieces(ctx)]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        pieces = " ".join(self.collect_usage_pieces(ctx))
        formatter.write_usage(ctx.command_path, pieces, prefix=say(Message("Usage: "), language_of(ctx)))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for text in self.texts:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(say(text, language_of(ctx)))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = (param for param in self.get_params(ctx) if isinstance(param, click.Option))
        rows = [record for option in options if (record := option.get_help_record(ctx)) is not None]
        with formatter.section(say(Message("Options:"), language_of(ctx))):
            formatter.write_dl(rows)


option = partial(click.option, cls=Option)
described = partial(click.command, cls=Command)
