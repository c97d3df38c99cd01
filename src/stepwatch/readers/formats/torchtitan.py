"""torchtitan.

No time is printed: the clock in front of the lines tells it, else the tokens of a step over the tokens per second,
which are those of one card since the line before. A checkpoint is written after the line of its step, so that it slows
the next; it is taken out again. A validation resets the clock that the tokens per second come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.assemble import of_kind
from stepwatch.readers.columns import Template
from stepwatch.readers.lines import LOSS, NUMBER, LineFormat, Told
from stepwatch.readers.reader import NOTHING
from stepwatch.readers.records import Records
from stepwatch.readers.undo import credible, fine, gaps_of, rows_after, starts_of, without
from stepwatch.run import IMPOSSIBLE_MFU, Checkpoint, Evaluation, Event, Fact, Fault, Floats, Ints, Iterations, Timing

_REPEATS_WITHIN = 512  # lines of ranks that print the same step
_SIZES = Pattern(
    r"Train(?:er is initialized|ing starts at step \d+,) with (?:"
    r"local batch size (?P<local>\d{1,15}), global batch size (?P<batch>\d{1,15})"
    r"|(?P<own>\d{1,15}) tokens per DP rank, (?P<tokens>\d{1,15}) tokens per train step)"
    r"(?:, gradient accumulation steps (?P<accumulation>\d{1,15}))?"
    r", (?:sequence|maximum context) length (?P<length>\d{1,15}), total steps (?P<last>\d{1,15})"
)
_COLOUR = r"(?:\[[\d;]+m)?"  # what is left of it where a copy lost the escape
_PARALLEL = Pattern(r"\b(?P<name>pp|dp_replicate|dp_shard|cp|tp)=(?P<degree>\d{1,15})")
_OLD_MESH = Pattern(r"Building (?:an? )?\d-D device mesh with \[[^\]]*\], \[(?P<degrees>[\d, ]*)\]")


class _Torchtitan(LineFormat):
    def _add_columns(self, records: Records, lines: np.ndarray, found: dict[str, np.ndarray]) -> None:
        super()._add_columns(records, lines, found)
        if "_tflops" in found:
            work = float(np.median(found["_tflops"] / np.maximum(found["tokens_per_s"], 1))) * 1e12
            records.events.append(Fact(int(lines[0]), "work", work))

    def _add_row(self, groups: Mapping[str, str | None], prefix: str, number: int, records: Records) -> bool:
        tflops, rate = (float((groups.get(name) or "0").replace(",", "")) for name in ("tflops", "tokens_per_s"))
        if 0 < tflops < math.inf and 0 < rate < math.inf:
            records.events.append(Fact(number, "work", tflops / rate * 1e12))
        return super()._add_row(groups, prefix, number, records)

    def _read_event(self, rest: str, prefix: str, number: int, records: Records) -> bool:
        told = _sizes(rest) or _mesh(rest)
        records.events += [Fact(number, name, value, header=name == "tokens_per_iter") for name, value in told.items()]
        return bool(told) or super()._read_event(rest, prefix, number, records)

    def finish(self, first_line: int, records: Records) -> None:
        super().finish(first_line, records)
        rows, events = records.iterations(), records.sorted_events()
        if not len(rows):
            return
        rows = _once(rows, starts_of(rows, events))
        told = [*of_kind(events, Fact), *of_kind(events, Fault)]
        saves = _saves(of_kind(events, Checkpoint), [fact.line for fact in of_kind(events, Fact) if fact.header])
        evaluations = _with_costs(of_kind(events, Evaluation), saves, rows)
        rows = _timed(rows, told, evaluations, saves)
        rows = replace(rows, loss=np.where(rows.loss < 0, np.nan, rows.loss))  # of a stage that does not know it
        records.events = [*told, *_credible(rows, told), *evaluations, *saves]
        timed = credible(rows.time_s)
        for line in rows.line[~timed].tolist():
            records.add_unread(line, "")
        records.replace_rows(_of_all_cards(rows, told).take(timed))


def _sizes(line: str) -> dict[str, float]:
    """What the trainer says of its batches, in the settings' names."""
    found = _SIZES.match(line)
    if found is None:
        return {}
    size = {name: float(text) for name, text in found.groupdict().items() if text is not None}
    told = {"block_size": size["length"], "max_iters": size["last"]}
    told["tokens_per_iter"] = size.get("tokens") or size["batch"] * size["length"]
    if size.get("local"):
        told |= {"batch_size": size["local"], "gradient_accumulation_steps": size["batch"] // size["local"]}
        told["ranks"] = told["gradient_accumulation_steps"] // max(size.get("accumulation", 1.0), 1.0)
    return told


def _mesh(line: str) -> dict[str, float]:
    """The number of cards: the product of all ways to divide the work."""
    if not line.startswith("Building "):
        return {}
    degrees = [int(found["degree"]) for found in _PARALLEL.finditer(line)]
    old = _OLD_MESH.match(line)
    if old is not None:
        degrees = [int(part) for part in old["degrees"].split(",") if part.strip()]
    return {"world_size": float(math.prod(degrees))} if degrees else {}


def _once(rows: Iterations, starts: Ints) -> Iterations:
    """Each step of a process once: ranks repeat its line, those of a first stage without its loss, and earlier."""
    if bool((np.diff(rows.number) > 0).all()):
        return rows
    process = np.searchsorted(starts, np.arange(len(rows)), side="right")
    step = process * (rows.number.max() + 1) + rows.number
    told = ~((rows.loss < 0) & np.isin(step, step[rows.loss >= 0]))
    rows, process = rows.take(told), process[told]
    order = np.lexsort((rows.loss, rows.number, process))
    again = np.diff(order) < _REPEATS_WITHIN
    for column in (process, rows.number, rows.loss):
        again &= column[order[1:]] == column[order[:-1]]
    kept = np.ones(len(rows), bool)
    kept[order[1:][again]] = False
    return rows.take(kept)


def _saves(told: Sequence[Checkpoint], headers: Sequence[int]) -> list[Checkpoint]:
    """Each save once, from its first line, with what the slowest rank says that it took."""
    saves: list[Checkpoint] = []
    before = -1
    for save, process in zip(told, np.searchsorted(headers, [save.line for save in told]).tolist(), strict=True):
        if process != before or save.at != saves[-1].at:
            saves.append(save)
        elif save.took_s is not None:
            saves[-1] = saves[-1]._replace(took_s=max(save.took_s, saves[-1].took_s or 0.0))
        before = process
    return saves


def _with_costs(evaluations: Sequence[Evaluation], saves: Sequence[Checkpoint], rows: Iterations) -> list[Evaluation]:
    """By the clock since the line of the same step, without the save that comes between."""
    if not evaluations:
        return []
    line, at, _, _, _, stamp = (np.array(column) for column in zip(*evaluations, strict=True))
    above = np.searchsorted(rows.line, line) - 1
    begins, ends = (np.searchsorted([save.line for save in saves], place) for place in (rows.line[above] + 1, line))
    between = np.zeros(len(line))
    for i in np.flatnonzero(ends > begins).tolist():
        between[i] = sum(save.took_s or 0.0 for save in saves[begins[i] : ends[i]])
    since = stamp.astype(np.float64) - rows.stamp_s[above] - between
    timed = (above >= 0) & (rows.number[above] == at) & ~np.isnan(stamp.astype(np.float64))
    costs = zip(evaluations, timed.tolist(), since.tolist(), strict=True)
    # As event._replace(took_s=…), which takes four times as long; there may be as many as iterations.
    return [
        tuple.__new__(Evaluation, (*event[:4], took if took >= 0 else None, event[5])) if known else event
        for event, known, took in costs
    ]


def _timed(
    rows: Iterations, facts: Sequence[Event], evaluations: list[Evaluation], saves: list[Checkpoint]
) -> Iterations:
    """Times by the clock where it is fine enough and no validation lies between, else from the tokens per second."""
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
    # A validation after the save starts the rate's clock anew: the save is in no row then.
    following = np.searchsorted([e.line for e in evaluations], [save.line for save in saves], side="right")
    hidden = np.append(after, -1)[following] == rows_after(rows, saves)
    seen = [save for save, hides in zip(saves, hidden.tolist(), strict=True) if not hides]
    return replace(rows, time_s=without(rows, steps, seen))


def _tokens(rows: Iterations, facts: Sequence[Event], starts: Ints, by_clock: Floats) -> Floats:
    """Tokens of one step behind the rate of each row: by the clock, else what the header tells."""
    tokens = np.full(len(rows), np.nan)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
        seen = (rows.reported_tokens_per_s * by_clock)[start:end]
        seen = seen[np.isfinite(seen) & (seen > 0)]
        told = {fact.name: fact.value for fact in facts if isinstance(fact, Fact) and fact.line < rows.line[start]}
        if len(seen):
            tokens[start:end] = np.median(seen)
        elif told.get("tokens_per_iter"):
            tokens[start:end] = told["tokens_per_iter"] / (told.get("world_size") or told.get("ranks") or 1)
    return tokens


def _credible(rows: Iterations, facts: Sequence[Event]) -> list[Fact]:
    """The work of a token, as TFLOP/s and tokens per second tell it; none where their MFU cannot be."""
    work = [fact.value for fact in facts if isinstance(fact, Fact) and fact.name == "work"]
    mfu = rows.reported_mfu[np.isfinite(rows.reported_mfu)]
    if not work or (len(mfu) and float(np.median(mfu)) > IMPOSSIBLE_MFU):
        return []
    return [Fact(int(rows.line[0]), "flops_per_token", float(np.median(work)))]


def _of_all_cards(rows: Iterations, facts: Sequence[Event]) -> Iterations:
    """The rate is that of one card."""
    cards = next((fact.value for fact in facts if isinstance(fact, Fact) and fact.name == "world_size"), 1.0)
    return replace(rows, reported_tokens_per_s=rows.reported_tokens_per_s * cards)


_HEAD = "step:{ }{number}  loss:{ }{loss?}  "
_MEMORY = "memory:{ }{*}  "

FORMAT = _Torchtitan(
    name="torchtitan",
    timing=Timing.SPANS_LOG_INTERVAL,
    holds=NOTHING,
    about=Message(
        "No time is printed: the mean since the line before by the clock of the lines, else from the tokens per second "
        "of a card. Checkpoints slow the line after theirs and are taken out of it; validations are outside."
    ),
    example="""\
[rank0]:[titan] 2025-06-01 12:00:30,118 - root - INFO - step: 1000  loss:  3.41177  grad_norm:  0.4410  \
memory: 41.20GiB(51.50%)  tps: 24,310  tflops: 198.40  mfu: 63.59%
[rank0]:[titan] 2025-06-01 12:00:30,119 - root - INFO - Saving the checkpoint (or staging if async is enabled).
[rank0]:[titan] 2025-06-01 12:00:34,640 - root - INFO - Finished saving the checkpoint (or staging if async is \
enabled) in 4.52 seconds.
[rank0]:[titan] 2025-06-01 12:00:41,381 - root - INFO - step: 1010  loss:  3.40853  grad_norm:  0.4386  \
memory: 41.20GiB(51.50%)  tps: 14,547  tflops: 118.72  mfu: 38.05%
[rank0]:[titan] 2025-06-01 12:00:48,119 - root - INFO - step: 1020  loss:  3.40120  grad_norm:  0.4402  \
memory: 41.20GiB(51.50%)  tps: 24,315  tflops: 198.44  mfu: 63.60%""",
    mark=b"ps: ",
    iteration=Pattern(
        rf"{_COLOUR}step:\s*(?P<number>\d{{1,15}})\s+{_COLOUR}loss:\s*(?P<loss>{LOSS})(?:\s+{_COLOUR}grad_norm:\s*\S+)?"
        rf"(?:\s+{_COLOUR}memory:\s*\S+)?\s+{_COLOUR}[tw]ps:\s*(?P<tokens_per_s>[\d,]+)"
        rf"(?:\s+{_COLOUR}tflops: (?P<tflops>{NUMBER}))?(?:\s+{_COLOUR}mfu: (?:(?P<mfu_pct>{NUMBER})%|N/A))?"
    ),
    templates=(
        Template(
            _HEAD + "grad_norm:{ }{*}  " + _MEMORY + "tps: {tokens_per_s,}  tflops: {_tflops,}  mfu: {mfu_pct}%",
            anywhere=True,
        ),
        Template(_HEAD + _MEMORY + "tps: {tokens_per_s,}  tflops: {_tflops,}  mfu: {mfu_pct}%", anywhere=True),
        Template(_HEAD + _MEMORY + "wps:{ }{tokens_per_s,}  mfu: {mfu_pct}%", anywhere=True),
    ),
    evaluations=(Pattern(rf"{_COLOUR}validate step:\s*(?P<at>\d{{1,15}})\s+{_COLOUR}loss:\s*(?P<val_loss>{LOSS})"),),
    checkpoints=(
        Pattern(rf"Finished (?:saving|staging) the checkpoint.{{0,60}}?[ )]in (?P<took_s>{NUMBER}) seconds"),
        Pattern(rf"Last step checkpoint completed in (?P<took_s>{NUMBER})s"),
        Pattern(r"(?:Saving|Staging) the checkpoint\b"),
        Pattern(r"Saving a (?:full|model)\b.{0,60}checkpoint\b.{0,60}\bstep (?P<at>\d{1,15})"),
    ),
    facts=(
        Told(Pattern(r"^Training (?P<begun>starts) at step \d+"), header=True),
        Told(Pattern(r"^\w+ capacity: (?P<gpu_text>.+?) with [\d.]+GiB memory")),
        Told(Pattern(rf"^Peak FLOPS used for computing MFU: (?P<mfu_peak_flops>{NUMBER})")),
        Told(Pattern(rf"^(?:{_COLOUR})?Model .{{1,120}} {_COLOUR}size: (?P<n_params>[\d,]+) total parameters")),
        Told(Pattern(r"^Loading the (?P<resume>checkpoint) (?:at|from)\b")),
    ),
    words=(
        b"validate step", b"the checkpoint", b"checkpoint completed", b"Saving a ", b"Trainer is", b"Training starts",
        b"capacity: ", b"Peak FLOPS", b"total parameters", b"device mesh",
    ),
    events_first=False,
)  # fmt: skip
READER = FORMAT.reader()
