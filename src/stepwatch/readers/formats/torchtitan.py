"""torchtitan.

No time is printed: it follows from the clock in front of the lines, else from the tokens of a step divided by the
tokens per second, which are those of one card since the previous line. A checkpoint is written after the line of its
step, so that it slows the next; it is subtracted. A validation resets the clock that tokens per second are based on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stepwatch.patterns import Pattern
from stepwatch.readers.records import Records
from stepwatch.readers.text.line import Line
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.readers.text.undo import fine, gaps_of, is_possible_time, rows_after, starts_of, without
from stepwatch.run import (
    IMPOSSIBLE_MFU,
    Checkpoint,
    Evaluation,
    Event,
    EventColumns,
    Fact,
    Floats,
    Ints,
    Iterations,
    Levers,
    Timing,
    Traits,
    column_of,
)

_WORK = "teraflops of a token"
_SIZES = Line(
    "Train<er is initialized;ing starts at step {int},> with <local batch size {local}, global batch size {batch}"
    ";{int} tokens per DP rank, {tokens} tokens per train step>[, gradient accumulation steps {accumulation}], "
    "<sequence;maximum context> length {length}, total steps {last}"
)
_MESH = Line("Building {any}device mesh with ")
_PARALLEL = Pattern(r"\b(?:pp|dp_replicate|dp_shard|cp|tp)=(\d{1,15})")
_OLD_MESH = Pattern(r"Building (?:an? )?\d-D device mesh with \[[^\]]*\], \[(?P<degrees>[\d, ]*)\]")


class _Torchtitan(LineFormat):
    def add(self, records: Records, lines: Ints, found: dict[str, Floats]) -> None:
        super().add(records, lines, found)
        if "tflops" in found:
            records.keep(_WORK, lines, found["tflops"] / np.maximum(found["tokens_per_s"], 1))

    def add_event(
        self, statement: Line, values: dict[str, float], stamp: float | None, number: int, records: Records
    ) -> bool:
        if statement is not _SIZES:
            return super().add_event(statement, values, stamp, number, records)
        told = {"block_size": values["length"], "max_iters": values["last"]}
        told["tokens_per_iter"] = values.get("tokens") or values["batch"] * values["length"]
        if values.get("local"):
            told |= {"batch_size": values["local"], "gradient_accumulation_steps": values["batch"] // values["local"]}
            told["ranks"] = told["gradient_accumulation_steps"] // max(values.get("accumulation", 1.0), 1.0)
        records.events += [Fact(number, name, value, header=name == "tokens_per_iter") for name, value in told.items()]
        return True

    def read_settings(self, rest: str, line: str, number: int, records: Records) -> bool:
        """Also reads the number of cards: the product of all ways to divide the work."""
        old = _OLD_MESH.match(rest)
        listed = old["degrees"].split(",") if old is not None else _PARALLEL.findall(rest)
        degrees = [int(degree) for degree in listed if degree.strip()]
        if degrees:
            records.events.append(Fact(number, "world_size", float(math.prod(degrees))))
        return super().read_settings(rest, line, number, records) or bool(degrees)

    def finish(self, first_line: int, records: Records) -> None:
        super().finish(first_line, records)
        work = records.take_columns(_WORK, 2)[1]
        rows, kinds = records.iterations(), records.by_kind()
        if not len(rows):
            return
        rows = _once(rows, starts_of(rows, kinds.facts))
        told: list[Event] = [*kinds.facts, *kinds.faults]
        mfu = rows.reported_mfu[np.isfinite(rows.reported_mfu)]
        if len(work) and not (len(mfu) and float(np.median(mfu)) > IMPOSSIBLE_MFU):
            told.append(Fact(int(rows.line[0]), "flops_per_token", float(np.median(work)) * 1e12))
        del work, mfu  # there may be millions of rows
        saves = _saves(kinds.checkpoints, [fact.line for fact in kinds.facts if fact.header])
        evaluations = _with_costs(EventColumns.of(Evaluation, kinds.evaluations), saves, rows)
        rows = _timed(rows, kinds.facts, evaluations, saves)
        rows = replace(rows, loss=np.where(rows.loss < 0, np.nan, rows.loss))  # of a stage that does not know it
        records.replace_events(told, evaluations, saves)
        timed = is_possible_time(rows.time_s)
        for line in rows.line[~timed].tolist():
            records.add_unread(line, "")
        cards = next((fact.value for fact in kinds.facts if fact.name == "world_size"), 1.0)
        rows = replace(rows, reported_tokens_per_s=rows.reported_tokens_per_s * cards)  # printed is that of one card
        records.replace_rows(rows if timed.all() else rows.take(timed))


def _once(rows: Iterations, starts: Ints) -> Iterations:
    """Each step of a process once: ranks repeat its line; those of a first stage do so earlier, without its loss."""
    if bool((np.diff(rows.number) > 0).all()):
        return rows
    process = np.searchsorted(starts, np.arange(len(rows)), side="right")
    step = process * (rows.number.max() + 1) + rows.number
    told = ~((rows.loss < 0) & np.isin(step, step[rows.loss >= 0]))
    rows, process = rows.take(told), process[told]
    order = np.lexsort((rows.loss, rows.number, process))
    again = np.diff(order) < 512  # lines of ranks that print the same step
    for column in (process, rows.number, rows.loss):
        again &= column[order[1:]] == column[order[:-1]]
    kept = np.ones(len(rows), bool)
    kept[order[1:][again]] = False
    return rows.take(kept)


def _saves(told: Sequence[Checkpoint], headers: Sequence[int]) -> EventColumns[Checkpoint]:
    """Each save once, from its first line, with the time that the slowest rank reports."""
    saves = EventColumns.of(Checkpoint, told)
    if not len(saves):
        return saves
    process, at = np.searchsorted(headers, column_of(saves, "line")), np.nan_to_num(column_of(saves, "at"), nan=-1.0)
    new = (np.diff(process, prepend=-1) != 0) | (np.diff(at, prepend=np.nan) != 0)
    longest = np.fmax.reduceat(column_of(saves, "took_s"), np.flatnonzero(new))
    return saves.take(new).with_column("took_s", longest)


def _with_costs(
    evaluations: EventColumns[Evaluation], saves: EventColumns[Checkpoint], rows: Iterations
) -> EventColumns[Evaluation]:
    """Evaluations timed by the clock since the line of the same step, without a save in between."""
    line, stamp_s = column_of(evaluations, "line"), column_of(evaluations, "stamp_s")
    above = rows_after(rows, evaluations) - 1
    lines_of_saves, costs = column_of(saves, "line"), np.nan_to_num(column_of(saves, "took_s"))
    begins, ends = (np.searchsorted(lines_of_saves, place) for place in (rows.line[above] + 1, line))
    between = np.zeros(len(line))
    for i in np.flatnonzero(ends > begins).tolist():
        between[i] = sum(costs[begins[i] : ends[i]].tolist())
    since = stamp_s - rows.stamp_s[above] - between
    timed = (above >= 0) & (rows.number[above] == column_of(evaluations, "at")) & ~np.isnan(stamp_s)
    took_s = np.where(timed, np.where(since >= 0, since, np.nan), column_of(evaluations, "took_s"))
    return evaluations.with_column("took_s", took_s)


def _timed(
    rows: Iterations, facts: Sequence[Fact], evaluations: EventColumns[Evaluation], saves: EventColumns[Checkpoint]
) -> Iterations:
    """Times by the clock if it is precise enough and no validation is in between, else from the tokens per second."""
    starts = starts_of(rows, facts)
    steps, seconds = gaps_of(rows, starts)
    plain = np.ones(len(rows), bool)
    after = rows_after(rows, evaluations)
    plain[after[after < len(rows)]] = False
    with np.errstate(invalid="ignore", divide="ignore"):
        by_clock = seconds / steps
        by_rate = _tokens(rows, facts, starts, by_clock * plain) / rows.reported_tokens_per_s
    use_clock = plain & np.isfinite(by_clock) & fine(seconds, rows.stamp_s)
    rows = replace(rows, time_s=np.where(use_clock | ~np.isfinite(by_rate), by_clock, by_rate))
    del seconds, by_clock, by_rate, use_clock, plain  # there may be millions of rows
    # A validation after the save restarts the clock of the rate: then the save is in no row.
    following = np.searchsorted(column_of(evaluations, "line"), column_of(saves, "line"), side="right")
    hidden = np.append(after, -1)[following] == rows_after(rows, saves)
    return replace(rows, time_s=without(rows, steps, saves.take(~hidden)))


def _tokens(rows: Iterations, facts: Sequence[Fact], starts: Ints, by_clock: Floats) -> Floats:
    """The tokens of one step that the rate of each row is based on: by the clock, else as the header shows them."""
    tokens = np.full(len(rows), np.nan)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
        seen = (rows.reported_tokens_per_s * by_clock)[start:end]
        seen = seen[np.isfinite(seen) & (seen > 0)]
        told = {fact.name: fact.value for fact in facts if fact.line < rows.line[start]}
        if len(seen):
            tokens[start:end] = np.median(seen)
        elif told.get("tokens_per_iter"):
            tokens[start:end] = told["tokens_per_iter"] / (told.get("world_size") or told.get("ranks") or 1)
    return tokens


FORMAT = _Torchtitan(
    name="torchtitan",
    timing=Timing.SPANS_LOG_INTERVAL,
    iterations=(
        Line(
            "{colour}step:{pad}{number}  {colour}loss:{pad}{loss}[  {colour}grad_norm:{pad}{word}]"
            "[  {colour}memory:{pad}{word}]  {colour}<t;w>ps:{pad}{tokens_per_s:count}"
            "[  {colour}tflops: {tflops:decimal}][  {colour}mfu: <{mfu_pct}%;N/A>]"
        ),
    ),
    evaluations=(Line("{colour}validate step:{pad}{at}  {colour}loss:{pad}{val_loss}"),),
    checkpoints=(
        Line("Finished <saving;staging> the checkpoint{any}< ;)>in {took_s} seconds"),
        Line("Last step checkpoint completed in {took_s}s"),
        Line("<Saving;Staging> the checkpoint"),
        Line("Saving a <full;model>{any}checkpoint{any}step {at}"),
    ),
    settings=(
        Line("{any}Training starts at step {int}", header=True, opening=True, sets={"begun": "starts"}),
        Line("{name} capacity: {gpu_text} with {decimal}GiB memory"),
        Line("Peak FLOPS used for computing MFU: {mfu_peak_flops}"),
        Line("{colour}Model {any} {colour}size: {n_params} total parameters"),
        Line("Loading the checkpoint <at;from>", sets={"resume": "checkpoint"}),
    ),
    own=(_SIZES, _MESH),
    events_first=False,
    traits=Traits(
        shows_events=True,
        levers=Levers(
            evaluate_every="validation.freq",
            save_every="checkpoint.interval",
            batch="training.local_batch_size",
            accumulates=True,
            log_every="metrics.log_freq",
            compile="compile.enable=true",
            recompute="activation_checkpoint.mode=full",
            length="training.seq_len",
        ),
    ),
)
READER = FORMAT.reader()
