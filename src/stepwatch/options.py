"""Every option of every question, once: the command line, the API and its OpenAPI document are made from this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stepwatch.i18n import LANGUAGES
from stepwatch.messages import Message
from stepwatch.settings import MODELS
from stepwatch.sources import LARGEST_EXPANSION_BYTES

SIDES = ("A", "B")
COMPARED = ("before", "after")
"""The names of the SIDES in the API."""
FORMS = {"json": "application/json", "md": "text/markdown", "html": "text/html"}
"""The output formats of the API, each with its media type."""


@dataclass(frozen=True)
class Option:
    """What click, the API and its OpenAPI document need to know about an option."""

    name: str
    """Its name in the requests of `answers`."""
    help: Message | Mapping[str, Message] | None = None
    """Its help on the command line; by command if that differs."""
    api: str = ""
    """Its description in the OpenAPI document."""
    kind: type[str] | type[int] | type[bool] = str
    metavar: str | None = None
    flag: str | None = None
    """How it is typed, if that is not its name."""
    choices: tuple[str, ...] = ()
    default: int | None = None
    most: int | None = None
    """The largest value of a number; the smallest is always 1."""
    api_most: int = 1_000_000
    """The same for the API if there is no `most`, so that it never reads endless digits."""
    repeated: bool = False
    for_each_run: bool = False
    """In `compare` it may be given for one of the SIDES, as in A:4070, and stays text until the side is known."""


_ALL = (
    Option(
        "gpu",
        metavar="NAME",
        for_each_run=True,
        help={
            "explain": Message("The card the run used: 4070, rtx4090, a100-80gb, cpu, …"),
            "estimate": Message("The card: 4070, rtx4090, a100-80gb, …; `this` or nothing asks the driver."),
            "advise": Message("The card: 4070, rtx4090, a100-80gb, …; `this` asks the driver."),
            "compare": Message("The card that the runs used (default: that of each log)."),
            "watch": Message("The card: 4070, … (default: that of the log, then this machine's)."),
        },
        api="The card, as people type it or drivers report it; `this` asks the driver of the server.",
    ),
    Option(
        "lang",
        choices=LANGUAGES,
        help=Message("Language of the answer (default: from the environment)."),
        api="Language of all that is said.",
    ),
    Option("format", choices=(*FORMS, "page"), api="Form of the answer; `page` is what the page shows."),
    Option("name", api="Name of the log, as it may be shown."),
    Option(
        "file",
        repeated=True,
        api="Of a plain body that is several logs one after the other: the bytes and the name of each, 1234:train.log.",
    ),
    Option(
        "before_bytes",
        kind=int,
        api_most=999_999_999,
        api="Of a plain body, which is both logs one after the other: how many bytes the first one has.",
    ),
    Option(
        "gpus",
        kind=int,
        metavar="N",
        api_most=100_000,
        help={"estimate": Message("Train on N cards with DDP."), "advise": Message("Number of cards available.")},
        api="Number of cards, with DDP.",
    ),
    Option(
        "link",
        metavar="NAME",
        help=Message("How the cards are connected: nvlink, pcie3, pcie4, pcie5, infiniband, …"),
        api="How the cards are connected: nvlink, pcie4, …",
    ),
    Option(
        "settings",
        flag="--set",
        metavar="KEY=VALUE",
        repeated=True,
        for_each_run=True,
        help={
            "explain": Message("Override a setting, or supply one the log does not show: max_iters=6000."),
            "estimate": Message("Override a setting of the config."),
            "advise": Message("Override a setting of the log or the config."),
            "compare": Message("Supply a setting that the logs do not show."),
            "watch": Message("Override a setting, or supply one the log does not show: max_iters=6000."),
        },
        api="A setting as key=value; may be repeated.",
    ),
    Option(
        "config",
        metavar="FILE.py",
        help={
            "explain": Message("The nanoGPT config of the run; read, never executed."),
            "advise": Message("The nanoGPT config of the run in the log."),
            "watch": Message("The nanoGPT config of the run; read, never executed."),
        },
        api="The nanoGPT config of the run; read, never executed.",
    ),
    Option("model", choices=tuple(MODELS), help=Message("A named model shape."), api="A named model shape."),
    Option(
        "depth",
        kind=int,
        metavar="N",
        most=200,
        help=Message("The shape of nanochat's --depth N."),
        api="The shape that nanochat's --depth means.",
    ),
    Option(
        "claim",
        metavar="FIGURE",
        help=Message("Is this possible? 100ms or 2s: an iteration; 20min: the run; 2M-tokens/s."),
        api="Is this possible? 100ms: an iteration; 20min: the run; 2M-tokens/s.",
    ),
    Option(
        "run",
        kind=int,
        metavar="N",
        for_each_run=True,
        help={
            "explain": Message("Explain only the N-th run of the log."),
            "advise": Message("Advise on the N-th run of the log."),
            "compare": Message("Compare the N-th run of a log (default: the longest)."),
        },
        api="Explain only this run of the log.",
    ),
    Option(
        "log_format",
        metavar="NAME",
        for_each_run=True,
        help={
            "explain": Message("The format of the log (default: detected)."),
            "compare": Message("The format of the logs (default: detected)."),
        },
        api="The format of the log (default: detected).",
    ),
    Option(
        "like",
        metavar="LINE",
        for_each_run=True,
        help={
            "explain": Message('Read lines like this one, of an unknown format: "it 12 | 0.34 s".'),
            "compare": Message('Read lines like this one: "it 12 | 0.34 s".'),
        },
        api="Read lines like this one, of an unknown format.",
    ),
    Option(
        "samples",
        metavar="FILE",
        help=Message(
            "Samples of the machine during the run, from `stepwatch monitor`, nvidia-smi, gpustat, DCGM or Prometheus."
        ),
    ),
    Option(
        "price_per_hour", metavar="PRICE", help=Message("Price of an hour of the machine, for the cost of the run.")
    ),
    Option("price_per_kwh", metavar="PRICE", help=Message("Price of a kWh, if the samples show the power.")),
    Option(
        "max_size",
        kind=int,
        metavar="BYTES",
        default=LARGEST_EXPANSION_BYTES,
        help=Message("Largest log to read, after decompression (default: 2 GB)."),
    ),
    Option("history", metavar="STORE", help=Message("Learn from your own runs, in a store of `stepwatch collect`.")),
    Option("fail_over", metavar="PERCENT", help=Message("Exit code 3 if B is slower by more than this: 5%.")),
    # How much of the answer is shown.
    Option("full", kind=bool, help=Message("Show everything, not only the first screen.")),
    Option("no_iterations", kind=bool, help=Message("Leave the list of iterations out of the JSON.")),
    Option("iterations", kind=bool, api="False leaves the list of iterations out."),
    Option("with_lines", kind=bool, help=Message("Show lines of the log that were not understood.")),
    Option("front_matter", kind=bool, help=Message("Start the Markdown with front matter for a site.")),
    Option(
        "why",
        kind=bool,
        help=Message("Show how the step time adds up."),
        api="With the terms behind the step time, in Markdown.",
    ),
)
# In the API, `compare` takes the options of each log under separate names.
_OF_EACH = ("gpu", "name", "log_format", "run")
_ASIDE = tuple(
    replace(option, name=f"{side}_{option.name}", api=f"Of the log “{side}”: {option.api[0].lower()}{option.api[1:]}")
    for side in COMPARED
    for option in _ALL
    if option.name in _OF_EACH
)
OPTIONS: Mapping[str, Option] = {option.name: option for option in (*_ALL, *_ASIDE)}

# Which command takes which options, in the order of its help. Options of a single command are declared in it.
COMMAND_LINE: Mapping[str, tuple[str, ...]] = {
    "explain": (
        *("gpu", "lang", "config", "settings", "full", "run", "no_iterations", "with_lines", "front_matter"),
        *("log_format", "like", "samples", "price_per_hour", "price_per_kwh", "max_size", "history"),
    ),
    "estimate": ("gpu", "gpus", "link", "settings", "model", "depth", "claim", "why", "history", "lang"),
    "advise": ("gpu", "gpus", "link", "settings", "config", "model", "depth", "run", "history", "lang"),
    "compare": ("gpu", "settings", "run", "log_format", "like", "fail_over", "lang"),
    "watch": ("gpu", "lang", "config", "settings"),
    "collect": ("max_size", "lang"),
    "fleet": ("full", "lang"),
    **dict.fromkeys(("calibrate", "convert", "gpus", "monitor", "prepare", "run"), ("lang",)),
    **dict.fromkeys(("sample", "serve", "train"), ("lang",)),
}
# What the API takes in the query or the JSON, besides the log or config itself and `settings`.
API: Mapping[str, tuple[str, ...]] = {
    "explain": ("gpu", "lang", "format", "name", "file", "config", "log_format", "like", "run", "iterations"),
    "estimate": ("gpu", "lang", "format", "gpus", "link", "claim", "model", "depth", "why"),
    "advise": ("gpu", "lang", "format", "name", "config", "log_format", "run", "gpus", "link", "model", "depth"),
    "compare": ("lang", "format", "before_bytes", *(option.name for option in _ASIDE)),
    "gpus": ("gpu", "lang", "format"),
}
# `gpus` has no input, and so takes no settings either.
API_INPUT = {"explain": ("log",), "estimate": ("config",), "advise": ("log",), "compare": COMPARED, "gpus": ()}
