"""The tables of a store, column by column; docs/fleet.md shows the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stepwatch.analysis.goodput import START, WITH_DATA
from stepwatch.messages import Message
from stepwatch.settings import KINDS, PRIVATE

SCHEMA = "stepwatch.store/1"

TEXT, COUNT, NUMBER, FLAG, TIME = "text", "integer", "number", "yes or no", "timestamp"
_KINDS = {int: COUNT, float: NUMBER, bool: FLAG, str: TEXT}


class Column(NamedTuple):
    name: str
    kind: str
    unit: str
    about: str


def _interval(name: str, unit: str, about: str) -> Iterator[Column]:
    """Nine of ten true values are between low and high."""
    for end, words in (("low", "low end"), ("mid", "middle"), ("high", "high end")):
        yield Column(f"{name}_{end}", NUMBER, unit, f"{about}: {words}")


_KEY = (
    Column("log", TEXT, "", "what was read together: a file, the newest of its pieces, a directory or an archive"),
    Column("source", TEXT, "", "the file or directory of the run, as found; unique together with `run_index`"),
    Column("run_index", COUNT, "", "which run of that source, from 0"),
)

COSTS: Mapping[str, str] = {
    "step_s": "a normal step",
    "data_s": "waiting for data in a step",
    "eval_s": "an evaluation",
    "checkpoint_s": "a checkpoint",
    "compile_s": "compilation",
    "eval_and_checkpoint_s": "an evaluation with its checkpoint",
}
SETTINGS = tuple(name for name in KINDS if name not in PRIVATE and name != "world_size")
VERSIONS = ("torch_version", "cuda_version", "driver_version", "python_version", "code_version")


def _runs() -> Iterator[Column]:
    yield from _KEY
    yield Column("format", TEXT, "", "format of the log")
    yield Column("project", TEXT, "", "W&B's project, a part of the path named project=…, else the directory")
    yield Column("directory", TEXT, "", "where the source lies")
    yield Column("node", TEXT, "", "the machine: from the log, files beside it, or a part of the path (node=…)")
    yield Column("gpu", TEXT, "", "the card, by its name in the catalogue")
    yield Column("gpu_origin", TEXT, "", "how the card is known")
    yield Column("gpu_index", TEXT, "", "which cards of the node, where the log says so")
    yield Column("world_size", COUNT, "cards", "how many cards train together; 1 where the log does not say")
    yield Column("iterations", COUNT, "", "iterations in the logged span")
    yield Column("first_iteration", COUNT, "", "number of the first logged iteration")
    yield Column("last_iteration", COUNT, "", "number of the last logged iteration")
    yield Column("resumed", FLAG, "", "the log says that the run goes on from a checkpoint")
    yield Column("done", FLAG, "", "the last iteration was reached")
    for name, about in COSTS.items():
        yield from _interval(name, "s", about)
    yield Column("wall_s", NUMBER, "s", "wall time of the logged span")
    yield Column("wall_s_low", NUMBER, "s", "wall time: low end")
    yield Column("wall_s_high", NUMBER, "s", "wall time: high end")
    for part in (*WITH_DATA, START):
        yield Column(f"parts_{part}_s", NUMBER, "s", f"of the wall time: {part}")
    yield from _interval("total_s", "s", "forecast of the whole run")
    yield from _interval("remaining_s", "s", "forecast of what is left")
    yield from _interval("per_thousand_iterations_s", "s", "forecast of a thousand iterations")
    yield from _interval("early_total_s", "s", "forecast of the whole made at 10 % of the iterations (--forecasts)")
    yield Column("early_true_s", NUMBER, "s", "what the same iterations took in the end (--forecasts)")
    yield Column("tokens_per_s", NUMBER, "tokens/s", "normal steps, all cards together")
    yield Column("effective_tokens_per_s", NUMBER, "tokens/s", "with everything between the steps")
    yield Column("achieved_flops", NUMBER, "FLOP/s", "of each card")
    yield Column("peak_flops", NUMBER, "FLOP/s", "of the card, in the precision of the run")
    yield Column("mfu", NUMBER, "0–1", "share of the peak that normal steps use")
    yield Column("reported_mfu", NUMBER, "0–1", "as the trainer printed it")
    yield from _interval("expected_step_s", "s", "what the estimator expects of a step on this card")
    yield Column("verdict", TEXT, "", "status of the run, as in the report")
    yield Column("verdict_text", TEXT, "", "the same as a sentence, in English")
    yield from _interval("saves_s", "s", "what the first remedy saves")
    yield Column("fault", TEXT, "", "why the process ended, where the log says so")
    yield from _interval("energy_j", "J", "energy of the cards, where it was sampled")
    yield Column("started_at", TIME, "UTC", "start of the process, or of its log")
    yield Column("first_step_at", TIME, "UTC", "end of the first logged iteration")
    yield Column("ended_at", TIME, "UTC", "last sign of life")
    yield Column(
        "times_from", TEXT, "", "`log`, or `file` where the end is the time of the file and the log has no clock"
    )
    for name in VERSIONS:
        yield Column(
            name, TEXT, "", name.replace("_version", "") + " version, where the log or a file beside it says so"
        )
    yield Column("work", TEXT, "", "key of runs that do the same work: trainer, model, batch, precision, card, cards")
    for name in SETTINGS:
        yield Column(name, _KINDS[KINDS[name]], "", "setting of the run, as nanoGPT calls it")
    yield Column("other_settings", TEXT, "JSON", "settings that have no column of their own")
    yield Column("collected_at", TIME, "UTC", "when the log was read")
    yield Column("stepwatch_version", TEXT, "", "what read it")


TABLES: Mapping[str, tuple[Column, ...]] = {
    "runs": tuple(_runs()),
    "parts": (
        *_KEY,
        Column("part", TEXT, "", "step, data, eval, checkpoint, compile, stall, unexplained or start"),
        Column("seconds", NUMBER, "s", "of the wall time; empty where the log cannot show it"),
        Column("share", NUMBER, "0–1", "of the wall time"),
    ),
    "findings": (
        *_KEY,
        Column("code", TEXT, "", "code of the finding, the same in every language"),
        Column("severity", TEXT, "", "info, notice or warning"),
        Column("text", TEXT, "", "the finding as a sentence, in English"),
    ),
    "advice": (
        *_KEY,
        Column("rule", TEXT, "", "rule that proposes the change, as in docs/advice.md"),
        Column("change", TEXT, "JSON", "settings with their old and new value"),
        Column("text", TEXT, "", "the change as a sentence, in English"),
        Column("said", TEXT, "JSON", "the same sentence, to be said in other languages"),
        *_interval("saves_s", "s", "what it saves of the run"),
    ),
    "restarts": (
        *_KEY,
        Column("from_iteration", COUNT, "", "first logged iteration after the restart"),
        Column("reached_iteration", COUNT, "", "last logged iteration before it"),
        Column("redone_iterations", COUNT, "", "iterations that were done twice"),
        Column("redone_s", NUMBER, "s", "what these had taken the first time"),
        Column("gap_s", NUMBER, "s", "from the last sign of life to the first new step; empty without a clock"),
    ),
    "failures": (
        Column("log", TEXT, "", "what could not be read"),
        Column("cause", TEXT, "", "unreadable, empty, no iterations, too large, memory, time, died or unreachable"),
        Column("text", TEXT, "", "why, as a sentence, in English"),
        Column("collected_at", TIME, "UTC", "when it was tried"),
    ),
    "sources": (
        Column("log", TEXT, "", "everything that was looked at"),
        Column("fingerprint", TEXT, "", "of names, sizes and times or tags of its files; empty: to be tried again"),
        Column("files", COUNT, "", "how many files it is"),
        Column("size_bytes", COUNT, "bytes", "of all its files"),
        Column("outcome", TEXT, "", "`runs`, `no log` or `failed`"),
        Column("runs", COUNT, "", "how many runs were found"),
        Column("processor_s", NUMBER, "s", "processor time that reading it took"),
        Column("collected_at", TIME, "UTC", "when it was read"),
    ),
    "iterations": (
        *_KEY,
        Column("iter", COUNT, "", "number of the iteration"),
        Column("time_s", NUMBER, "s", "as the log prints it"),
        Column("phase", TEXT, "", "step, eval, eval+checkpoint, checkpoint, first or stall"),
        Column("certainty", TEXT, "", "seen, deduced or guessed"),
        Column("loss", NUMBER, "", "as the log prints it"),
        Column("at", TIME, "UTC", "by the clock of the log"),
    ),
}


# --- a sentence as a column that is JSON ------------------------------------------------------------------------


def as_json(what: Message) -> dict[str, Any] | None:
    """The message as JSON, with the messages in it; None if a value cannot be written as JSON."""
    params = {name: as_json(value) if isinstance(value, Message) else value for name, value in what.params.items()}
    plain = all(isinstance(value, (int, float, str, dict)) for value in params.values())
    return {**what._asdict(), "params": params} if plain else None


def from_json(said: Mapping[str, Any]) -> Message:
    params = {name: from_json(value) if isinstance(value, dict) else value for name, value in said["params"].items()}
    return Message._make({**said, "params": params}[name] for name in Message._fields)
