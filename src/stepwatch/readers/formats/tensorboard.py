"""TensorBoard event files, of any trainer.

Every number has the time at which it was logged: the step time is the time between two values of the training loss,
without the evaluations in between (their own runtime, or the excess of the clock over the steps). If the trainer logs
the time of an iteration, that is used. Saves are known from the arguments that Hugging Face stores, and are separated
from the steps before them if they stand out. Some trainers count epochs: if each batch was logged, batches are the
steps; else only epochs can be known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from stepwatch.errors import NoIterations
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.readers.formats import BOTH, CHECKPOINT, Reader
from stepwatch.readers.formats.event_files import TextEvent, decode, fields
from stepwatch.readers.formats.recorder_run import with_inside
from stepwatch.readers.formats.tracks import Track, Tracks, keep, take
from stepwatch.readers.records import INSIDE, LONGEST_TIME_S, Records, pieces, rows_of, rows_where
from stepwatch.readers.text.arguments import settings_from
from stepwatch.run import Checkpoint, Evaluation, Fact, Floats, Ints, Timing, Traits, usual_distance
from stepwatch.sources import kind_of

_LOSSES = (
    "train/loss", "loss/train", "train_loss", "train_loss_step", "train/loss_step", "lm loss",
    "loss_metrics/global_avg_loss", "training_loss", "training/loss", "loss", "train/total_loss", "batch_loss",
    "epoch_loss", "train/train_loss_step",
)  # fmt: skip
EVALUATION = Pattern(r"(?i)^(?:eval|val|valid|validation|test)(?:[/_ ]|$)|[/_ ](?:val|valid|validation|eval)(?:[/_]|$)")
_PER_ITERATION = ("iteration-time", "time_metrics/end_to_end(s)")
_DATA = ("data_time", "train/data_time", "time_metrics/data_loading(s)")  # detectron2, mmengine, torchtitan
_TOKENS_PER_S, _MFU_PCT = "throughput(tps)", "mfu(%)"
_EVAL_RUNTIME = Pattern(r"(?i)^eval(?:uation)?[/_].*runtime$")
_WHOLE_RUNTIME = "train/train_runtime"  # logged by Hugging Face when everything is done
_OTHER_AXIS = " vs samples"  # Megatron logs all its figures twice
_OF_EPOCHS = "epoch_"
_OF_TRAINING = ("train/box", "train/cls", "train/dfl")
_TEXT = "/text_summary"
_ARGUMENTS = ("args", "hparams", "config")
_AT_THE_START = "args" + _TEXT  # written by Hugging Face when the training begins


def sniff(head: bytes) -> float:
    return math.inf if kind_of(head) == "events" else 0.0  # nothing else begins like this


def parse(text: bytes, first_line: int, records: Records) -> None:
    data = records.held + text
    scalars, texts, end, damaged = decode(data)
    records.held = data[end:]
    for tag, track in scalars.by_tag():
        keep(records, tag, track)
    records.kept += texts
    for _ in range(damaged):
        records.add_unread(0, "a damaged record")


def finish(first_line: int, records: Records) -> None:
    if records.held:  # the file was cut off, or is being written
        records.add_unread(0, "a record that is cut off")
    records.held = b""
    texts = sorted(records.kept, key=lambda text: text.wall_s)
    records.kept.clear()
    found = take(records)
    if not found:
        raise NoIterations(
            Message("the event file contains no numbers"),
            Message("copy the whole file if it was cut off, or wait for the first numbers"),
        )
    EventHistory(found, texts).add_to(records)


class EventHistory:
    """Everything in a directory's event files, or in a tracker's history of a run, in the order of time."""

    def __init__(self, tracks: Tracks, texts: list[TextEvent], first_line: int = 0) -> None:
        self.first_line = first_line
        self.tracks = tracks
        self.texts = texts
        self.moments = _moments(tracks, np.array([text.wall_s for text in texts]))
        """Serves as the line numbers: each moment at which something was logged."""

    def add_to(self, records: Records) -> None:
        self._count_batches()
        facts = self.facts()
        records.events += facts
        settings = {fact.name: fact.value for fact in facts}
        rows = self._training()
        if rows is None:
            runtime = self.track(_WHOLE_RUNTIME)
            if runtime is None or not len(runtime.step) or runtime.step[-1] < 1:
                return
            # No loss was logged, only the time of the whole training: its mean is all there is.
            loss = _joined_at(self.track("train/train_loss"), runtime.step)
            self._add_rows(runtime._replace(value=loss), runtime.value / runtime.step, records)
            means = {"max_iters": int(runtime.step[-1])} | ({"mean_of_run": 1} if runtime.step[-1] > 1 else {})
            records.events += [Fact(self._line(float(runtime.wall_s[0])), name, value) for name, value in means.items()]
            return
        evaluations = self._evaluations(rows)
        if self._counts_epochs(rows, evaluations):
            self._add_epochs(rows, evaluations, {"holds": BOTH}, records)
            return
        ends = np.zeros(0, np.int64)
        given = next((track for name in _PER_ITERATION if (track := self.track(name)) is not None), None)
        if given is not None:
            rows, times = given._replace(value=_joined_at(rows, given.step)), given.value.astype(np.float64, copy=False)
        else:
            rows, ends = self._with_ends(rows)
            times, evaluations = _between(rows, evaluations, self._starts)
            times, saves = _without_saves(rows, times, settings)
            # The rows at the end also include the last save, and other work that ends a training.
            if len(ends) and np.isfinite(others := np.delete(times, ends)).any():
                times[ends] = np.fmin(times[ends], np.nanmedian(others))
            records.events += [Checkpoint(self._line(wall), at, took_s=took, stamp_s=wall) for at, took, wall in saves]
        records.events += [each._replace(line=self._line(each.stamp_s or 0.0)) for each in evaluations]
        self._add_rows(rows, times, records, ends)
        # Hugging Face logs the end, and the epoch: with the number of epochs, it shows the number of steps.
        ended, epoch, epochs = self.track(_WHOLE_RUNTIME), self.track("train/epoch"), settings.get("num_train_epochs")
        length = 0
        if ended is not None and len(ended.step) and ended.step[-1] > 0:
            length = int(ended.step[-1])
        elif "max_iters" not in settings and isinstance(epochs, float) and epoch is not None and len(rows.step):
            length = round(epochs * float(epoch.step[-1]) / float(epoch.value[-1])) if epoch.value[-1] > 0 else 0
        if length:
            records.events.append(Fact(self._line(float(rows.wall_s[0])), "max_iters", length))

    def add_epochs(self, records: Records, planned: int | None) -> None:
        """Like add_to(), if a step is known to be an epoch. A validation that is logged apart is not in its time."""
        records.events += [fact for fact in self.facts() if fact.name != "max_iters"]  # which would be in steps
        rows = self._training()
        if rows is None:
            return
        evaluations = self._evaluations(rows)
        stamps = np.array([each.stamp_s or 0.0 for each in evaluations])
        places = np.maximum(np.searchsorted(rows.wall_s, stamps, side="right") - 1, 0)
        took = stamps - rows.wall_s[places]
        behind = (rows.step[places] == [each.at for each in evaluations]) & (took >= 0)
        stated: dict[str, object] = {"holds": frozenset({CHECKPOINT})}
        # Two log calls in a row are apart by less than a hundredth of the time.
        if behind.all() and took.sum() > 0.01 * (rows.wall_s[-1] - rows.wall_s[0]):
            evaluations = [each._replace(took_s=float(s)) for each, s in zip(evaluations, took, strict=True)]
        elif evaluations:
            stated["holds"] = BOTH
        self._add_epochs(rows, evaluations, stated | ({"max_iters": planned} if planned else {}), records)

    def _add_epochs(
        self, rows: Track, evaluations: list[Evaluation], stated: dict[str, object], records: Records
    ) -> None:
        if len(rows.step) and rows.step[0] == 0:  # some trainers number the first epoch 0
            rows = rows._replace(step=rows.step + 1)
            evaluations = [each._replace(at=each.at + 1) for each in evaluations]
        records.events += [each._replace(line=self._line(each.stamp_s or 0.0)) for each in evaluations]
        begins = np.diff(rows.step, prepend=0) < 0
        for line in (self.first_line, *map(self._line, rows.wall_s[begins].tolist())):
            records.events += [Fact(line, name, value) for name, value in (stated | {"counts_epochs": True}).items()]
        timed = [each for each in evaluations if each.took_s is not None and stated["holds"] != BOTH]
        self._add_rows(rows, _between(rows, timed, self._starts)[0], records)

    def _count_batches(self) -> None:
        """If the loss has many values per step, spread over the time, steps are epochs and the values are batches."""
        name = self._loss()
        if name is None:
            return
        step, wall, _ = self.tracks[name]
        same, falls = 0, [np.zeros(1, np.int64)]
        pause_s = pauses_s = 0.0
        for rows in pieces(len(step) - 1):
            between = np.diff(step[rows.start : rows.stop + 1])
            gaps = np.diff(wall[rows.start : rows.stop + 1])
            same += int(np.count_nonzero(between == 0))
            pause_s, pauses_s = pause_s + float(gaps[between == 0].sum()), pauses_s + float(gaps.sum())
            falls.append(rows.start + 1 + np.flatnonzero(between < 0))
        # Steps that restart in each epoch are made continuous if all epochs are equally long and follow each other in
        # one process. Two alone may be two trainings.
        begins = np.concatenate(falls)
        # Ranks that log the same step do so at one moment.
        if 2 * same > len(step) and len(begins) == 1 and 2 * pause_s > pauses_s:
            self._count_anew(wall, np.arange(len(wall) + 1))
            return
        if len(begins) < 3:
            return
        first, last = step[begins], step[np.append(begins[1:], len(step)) - 1]
        pauses = wall[begins[1:]] - wall[begins[1:] - 1]
        began = np.searchsorted(wall, [text.wall_s for text in self.texts])
        short = (pauses < (wall[begins[1:] - 1] - wall[begins[:-1]]) / 2).all() and not np.isin(began, begins[1:]).any()
        if short and (first == first[0]).all() and (last[:-1] == last[0]).all():
            apart = usual_distance(step) or 1
            length = int(last[0] - first[0]) + apart
            number = step + length * (np.searchsorted(begins, np.arange(len(step)), side="right") - 1)
            self._count_anew(wall, np.append(number[0], number))

    def _count_anew(self, wall: Floats, number: Ints) -> None:
        """Renumbers everything by the last of these moments before it; the first number is for what precedes them."""
        self.tracks = {
            tag: track._replace(step=number[np.searchsorted(wall, track.wall_s, side="right")])
            for tag, track in self.tracks.items()
        }

    def _counts_epochs(self, rows: Track, evaluations: list[Evaluation]) -> bool:
        """Whether a step is an epoch: Keras names it so, or steps are consecutive and each has been evaluated.

        Hugging Face logs the epoch separately.
        """
        if (self._loss() or "").lower().startswith(_OF_EPOCHS):
            return True
        if len(evaluations) < len(rows.step) or any(tag.lower() in ("epoch", "train/epoch") for tag in self.tracks):
            return False
        evaluated = np.isin(rows.step, [each.at for each in evaluations])
        return len(rows.step) > 1 and bool((np.diff(rows.step) == 1).all() and evaluated.all())

    def _line(self, wall_s: float) -> int:
        return self.first_line + int(np.searchsorted(self.moments, wall_s))

    def track(self, name: str) -> Track | None:
        """A tag's numbers, each step once per run; None if it was not logged."""
        track = self.tracks.get(name)
        if track is None:
            return None
        again = 1 + rows_where(np.equal, track.step[:-1], track.step[1:])
        if (track.step[:1] == -1).any():
            again = np.append(0, again)
        return track.without(again)

    # --- which tags ---------------------------------------------------------------------------------------------

    def _training(self) -> Track | None:
        name = self._loss()
        return self.track(name) if name is not None else None

    def _loss(self) -> str | None:
        """The tag of the training loss."""
        lower = {tag.lower(): tag for tag in reversed(self.tracks)}
        for name in _LOSSES:
            if name in lower:
                return lower[name]
        likely = [
            (len(track.step), tag) for tag, track in self.tracks.items()
            if not EVALUATION.search(tag) and not tag.endswith(_OTHER_AXIS) and len(track.step) > 1
        ]  # fmt: skip
        named = [each for each in likely if "loss" in each[1].lower()]
        if not named:  # YOLOv10 calls the parts of its loss train/box_om and the like
            named = [each for each in likely if each[1].startswith(_OF_TRAINING)]
        return max(named)[1] if named else None

    def _with_ends(self, rows: Track) -> tuple[Track, Ints]:
        """Adds the steps after the last loss that only the runtime of the whole training shows; also returns where."""
        ended = self.track(_WHOLE_RUNTIME)
        if ended is None or not len(rows.step):
            return rows, np.zeros(0, np.int64)
        places = np.searchsorted(rows.wall_s, ended.wall_s)
        before, after = rows.step[np.maximum(places - 1, 0)], np.append(rows.step, 0)[places]
        fits = (places > 0) & (ended.step > before) & (after <= before)  # nothing follows it, or another run does
        places, ended_step, ended_s = places[fits], ended.step[fits], ended.wall_s[fits]
        whole = Track(
            np.insert(rows.step.astype(np.int64), places, ended_step), np.insert(rows.wall_s, places, ended_s),
            np.insert(rows.value, places, np.nan),
        )  # fmt: skip
        return whole, places + np.arange(len(places))

    def _evaluations(self, rows: Track) -> list[Evaluation]:
        """One for each step of a run at which evaluation values were logged; it ends when the last of them was."""
        again = rows.wall_s[1:][rows.step[1:] < rows.step[:-1]]
        tags = [tag for tag in self.tracks if EVALUATION.search(tag) and not tag.endswith(_OTHER_AXIS)]
        found: dict[tuple[int, int], Evaluation] = {}
        timed: dict[tuple[int, int], float] = {}
        for tag in tags:
            track = self.track(tag)
            assert track is not None
            begun = np.searchsorted(again, track.wall_s, side="right")
            for run, step, wall, value in zip(*(column.tolist() for column in (begun, *track)), strict=True):
                each = found.get((run, step), Evaluation(line=0, at=step, stamp_s=wall))
                if _EVAL_RUNTIME.search(tag):
                    each = each._replace(took_s=value if np.isfinite(value) and value >= 0 else None)
                    timed[run, step] = wall
                elif "loss" in tag.lower() and each.val_loss is None:
                    each = each._replace(val_loss=value)
                found[run, step] = each._replace(stamp_s=max(wall, each.stamp_s or wall))
        for place, wall in timed.items():  # some evaluate more, after what is timed
            each = found[place]
            if each.took_s is not None and each.stamp_s is not None:
                found[place] = each._replace(took_s=each.took_s + each.stamp_s - wall)
        return sorted(found.values(), key=lambda each: each.stamp_s or 0.0)

    def _starts(self, wall_s: Floats) -> Floats:
        """For each of these rows, the last process start before it: when arguments or a new file were written.

        The time of the whole training is a better sign of when it began.
        """
        walls = np.array(sorted(text.wall_s for text in self.texts) or [np.nan])
        places = np.searchsorted(walls, wall_s) - 1
        starts = np.where(places >= 0, walls[np.maximum(places, 0)], np.nan)
        ended = self.track(_WHOLE_RUNTIME) or Track(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        for wall, took in zip(ended.wall_s.tolist(), ended.value.tolist(), strict=True):
            starts[(wall_s > wall - took) & (wall_s <= wall)] = wall - took
        return starts

    # --- what is known -------------------------------------------------------------------------------------------

    def facts(self) -> list[Fact]:
        """What the texts say about the settings."""
        facts: list[Fact] = []
        single: dict[str, object] = {}
        for text in self.texts:
            name = text.tag.removesuffix(_TEXT)
            if text.tag.startswith("_hparams_"):
                arguments = _hyperparameters(text.content)
            elif name in _ARGUMENTS:
                arguments = _json(text.content)
            else:
                single[name] = text.content[:100].decode("utf-8", "replace").strip()
                arguments = single  # Megatron writes each of its arguments as a separate text
            line = self._line(text.wall_s)
            facts += [
                Fact(line, key, value, header=name in _ARGUMENTS) for key, value in settings_from(arguments).items()
            ]
            # Needed here, but not one of our settings: how many epochs, and when it saves.
            epochs, every = arguments.get("num_train_epochs"), arguments.get("save_steps")
            if isinstance(epochs, (int, float)) and 0 < epochs < 1e6:
                facts.append(Fact(line, "num_train_epochs", float(epochs)))
            if arguments.get("save_strategy") == "steps" and isinstance(every, int) and every > 0:
                facts.append(Fact(line, "save_steps", every))
        return facts

    def _add_rows(self, rows: Track, times: Floats, records: Records, ends: Ints | None = None) -> None:
        line = np.empty(len(times), np.int32 if self.first_line + len(self.moments) < 1 << 30 else np.int64)
        anew = []
        for part, each in _parts(rows, self._starts):
            line[part] = self.first_line + np.searchsorted(self.moments, each.wall_s)
            anew += (part.start + np.flatnonzero((each.steps < 0) | each.restarted)).tolist()
        strange = rows_where(
            lambda time_s, step: ~((time_s > 0) & (time_s < LONGEST_TIME_S) & (step >= 0)), times, rows.step
        )
        loss = rows.value
        if len(rows_where(lambda value: ~np.isfinite(value), loss)):
            loss = np.where(np.isfinite(loss), loss, np.inf)
        if ends is not None and len(ends):
            loss = loss.copy()
            loss[ends] = np.nan
        mfu = self.track(_MFU_PCT)
        columns = {
            "number": rows.step, "time_s": times, "loss": loss, "stamp_s": rows.wall_s,
            "reported_tokens_per_s": _joined_at(self.track(_TOKENS_PER_S), rows.step),
            "reported_mfu": _joined_at(mfu and mfu._replace(value=mfu.value / 100), rows.step),
            "line": line,
        }  # fmt: skip
        if len(strange):
            fits = np.ones(len(times), bool)
            fits[strange] = False
            columns = dict(zip(columns, rows_of([*columns.values()], fits), strict=True))
        records.add_rows(**columns)
        waits = next((track for name in _DATA if (track := self.track(name)) is not None), None)
        if waits is not None:
            data = np.delete(np.clip(_joined_at(waits, rows.step), 0.0, times), strange)
            records.keep(INSIDE, columns["line"], data, np.nan)
        for row in anew:
            records.events.append(Fact(int(line[row]), "begun_anew", row, header=True))
        stated = [text.wall_s for text in self.texts if text.tag == _AT_THE_START]
        stated += [wall - took for _, wall, took in zip(*(self.track(_WHOLE_RUNTIME) or ((), (), ())), strict=True)]
        begun = np.setdiff1d(np.array([0, *anew] if len(times) else [], np.int64), strange)
        for row, start in zip(begun.tolist(), self._starts(rows.wall_s[begun]).tolist(), strict=True):
            before_s = rows.wall_s[row - 1] if row else -np.inf
            known = any(before_s < wall <= start for wall in stated)
            value = "training" if known else "process" if start > before_s else "unknown"
            records.events.append(Fact(int(line[row]), "start", value))


def _moments(tracks: Tracks, others: Floats) -> Floats:
    """All these times in order, each once; there may be millions, and mostly they are in order already."""
    shared = {id(track.wall_s): track.wall_s for track in tracks.values()}
    whole = max(shared.values(), key=len, default=np.zeros(0))
    rises = len(whole) > 0 and bool((whole[1:] > whole[:-1]).all())
    if rises and all(_are_among(whole, some) for some in (*shared.values(), others) if some is not whole):
        return whole
    whole = np.concatenate((*shared.values(), others))
    whole.sort()
    return np.asarray(whole[np.append(np.ones(1, bool), whole[1:] != whole[:-1])[: len(whole)]])


def _are_among(whole: Floats, some: Floats) -> bool:
    for part in pieces(len(some)):
        if (whole[np.minimum(np.searchsorted(whole, some[part]), len(whole) - 1)] != some[part]).any():
            return False
    return True


def _joined_at(track: Track | None, steps: Ints) -> Floats:
    """A tag's numbers at these steps; nan if missing."""
    if track is None or not len(track.step):
        return np.broadcast_to(np.nan, len(steps))
    order = np.argsort(track.step, kind="stable")
    known = track.step[order]
    places = np.minimum(np.searchsorted(known, steps), len(known) - 1)
    return np.where(known[places] == steps, track.value[order][places], np.nan)


# --- from moments to times --------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Some of the rows, of which there may be millions, and what precedes each."""

    step: Ints
    wall_s: Floats
    steps: Ints
    """Steps since the previous row; for the first row, since 0."""
    before_s: Floats
    """When the previous row was logged; nan if there is none."""
    starts_s: Floats
    """The last process start before each row."""

    @property
    def restarted(self) -> np.ndarray:
        """The rows with which a process resumes from a checkpoint, by the last start before each."""
        waited = self.starts_s - self.before_s
        # A new process, not only another file: more than half of the gap precedes the start.
        return np.asarray((waited > 0) & (waited > 0.5 * (self.wall_s - self.before_s)))

    @property
    def anew(self) -> np.ndarray:
        """The rows that do not continue the previous one."""
        return np.asarray((self.steps <= 0) | np.isnan(self.before_s) | self.restarted)

    def clock(self, usual: float) -> tuple[Floats, Floats, np.ndarray]:
        """Seconds and steps since the previous row, or the start; and where the start of the training is unknown."""
        anew = self.anew
        unknown = anew & (self.starts_s <= self.before_s)  # the process has already trained
        since = np.where(anew, np.where(unknown, np.nan, self.starts_s), self.before_s)
        steps = np.where(anew, np.where(self.step <= 2 * usual, self.step, usual), self.steps.astype(np.float64))
        return self.wall_s - since, steps, unknown


def _parts(rows: Track, starts: Callable[[Floats], Floats]) -> Iterator[tuple[slice, _Part]]:
    for part in pieces(len(rows.step)):
        step, wall = rows.step[part], rows.wall_s[part]
        last = (int(rows.step[part.start - 1]), float(rows.wall_s[part.start - 1])) if part.start else (0, np.nan)
        yield part, _Part(step, wall, np.diff(step, prepend=last[0]), np.append(last[1], wall[:-1]), starts(wall))


def _median(scratch: Floats, values: Iterable[np.ndarray]) -> float:
    """The median of all values, which are copied into `scratch`; nan if there are none."""
    filled = 0
    for some in values:
        scratch[filled : filled + len(some)] = some
        filled += len(some)
    return float(np.median(scratch[:filled], overwrite_input=True)) if filled else math.nan


@np.errstate(divide="ignore", invalid="ignore")
def _between(
    rows: Track, evaluations: list[Evaluation], starts: Callable[[Floats], Floats]
) -> tuple[Floats, list[Evaluation]]:
    """Seconds per step since the previous row, without evaluations; and the evaluations with their times."""
    times = np.empty(len(rows.step))  # used for the medians first: a long column is not copied again
    usual = _median(times, (each.steps[~each.anew] for _, each in _parts(rows, starts)))
    if math.isnan(usual):
        usual = float(rows.step[0] if len(rows.step) else 1)
    places = np.searchsorted(rows.wall_s, [each.stamp_s or 0.0 for each in evaluations])
    by_place = np.argsort(places, kind="stable")
    took_s = np.array([each.took_s for each in evaluations], np.float64)
    gaps = np.full(len(places), np.nan)  # that the evaluations are in

    def inside(part: slice) -> tuple[Ints, Ints]:
        """The evaluations in these rows, and the row of each."""
        own = by_place[slice(*np.searchsorted(places[by_place], (part.start, part.stop)))]
        return own, places[own] - part.start

    def free() -> Iterator[Floats]:
        """The step times where there was no evaluation."""
        for part, each in _parts(rows, starts):
            gap_s, steps, _ = each.clock(usual)
            own, at = inside(part)
            gaps[own] = gap_s[at]
            plain = gap_s / steps
            normal = ~each.anew & np.isfinite(plain)
            normal[at] = False
            yield plain[normal]

    def behind_each() -> Iterator[Floats]:
        """The same, if an evaluation follows each of the rows."""
        for part, each in _parts(rows, starts):
            gap_s, steps, _ = each.clock(usual)
            own, at = inside(part)
            known = np.bincount(at, took_s[own], len(gap_s))
            yield (gap_s / steps - known / steps)[~each.anew]

    step_s = _median(times, free())
    if math.isnan(step_s) and not np.isnan(took_s).any():
        step_s = _median(times, behind_each())
    stated = []
    for place, each, gap in zip(places.tolist(), evaluations, gaps.tolist(), strict=True):
        took = each.took_s
        if took is None and place > 0 and np.isfinite(step_s):
            idle = (each.stamp_s or 0.0) - float(rows.wall_s[place - 1])
            took = max(idle - max(each.at - int(rows.step[place - 1]), 0) * step_s, 0.0)
            took = min(took, gap)  # a gap of nan is ignored
        stated.append(each._replace(took_s=took))
    spent_s = np.array([each.took_s or 0.0 for each in stated], np.float64)
    for part, some in _parts(rows, starts):
        gap_s, steps, unknown = some.clock(usual)
        own, at = inside(part)
        if len(own):
            gap_s -= np.bincount(at, spent_s[own], len(gap_s))
        times[part] = np.where(unknown, step_s, gap_s / steps)
    return times, stated


def _without_saves(
    rows: Track, times: Floats, settings: dict[str, object]
) -> tuple[Floats, list[tuple[int, float, float]]]:
    """The times without the saves that the arguments announce; and these saves, if they stand out from the noise."""
    every = settings.get("save_steps")
    if not isinstance(every, int) or every < 1 or len(times) < 6:
        return times, []
    steps = np.diff(rows.step, prepend=rows.step[0])
    before = rows.step - np.maximum(steps, 0)
    holds = ((rows.step - 1) // every > (before - 1) // every) & (steps > 0) & (before > 0) & np.isfinite(times)
    others = ~holds & np.isfinite(times) & (steps > 0)
    if int(holds.sum()) < 1 or int(others.sum()) < 3:
        return times, []
    usual = float(np.median(times[others]))
    noise = 1.48 * float(np.median(np.abs(times[others] - usual)))
    excess = (times - usual) * steps
    cost = float(np.median(excess[holds]))
    if cost <= 3 * noise * float(np.median(steps[holds])) / int(holds.sum()) ** 0.5:
        return times, []
    cleaned = np.where(holds, times - cost / np.maximum(steps, 1), times)
    saved = ((rows.step[holds] - 1) // every * every).tolist()
    walls = rows.wall_s[np.maximum(np.flatnonzero(holds) - 1, 0)].tolist()
    return np.maximum(cleaned, 0.1 * usual), [(at, cost, wall) for at, wall in zip(saved, walls, strict=True)]


# --- arguments --------------------------------------------------------------------------------------------------


def _json(content: bytes) -> dict[str, object]:
    text = content.decode("utf-8", "replace")
    begin, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[begin : end + 1])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _hyperparameters(content: bytes) -> dict[str, object]:
    """Reads the hparams plugin: plugin data, its content, the start of a session, a map of values."""
    found: dict[str, object] = {}
    try:
        for path in _inside(content, (1, 2, 3, 1)):
            entry = {field: (size, place) for field, size, place in fields(path, 0, len(path))}
            size, place = entry[1]
            name = path[place : place + size].decode("utf-8", "replace")
            size, place = entry[2]
            found[name] = _protobuf_value(path[place : place + size])
    except (ValueError, IndexError, KeyError):
        return found
    return found


def _inside(data: bytes, path: tuple[int, ...]) -> list[bytes]:
    parts = [data]
    for wanted in path:
        parts = [
            part[place : place + size]
            for part in parts for field, size, place in fields(part, 0, len(part)) if field == wanted
        ]  # fmt: skip
    return parts


def _protobuf_value(data: bytes) -> object:
    for field, value, place in fields(data, 0, len(data)):
        if field == 2:
            return float(np.frombuffer(data, "<f8", 1, place)[0])
        if field == 3:
            return data[place : place + value].decode("utf-8", "replace")
        if field == 4:
            return bool(value)
    return None


READER = Reader(
    name="tensorboard", timing=Timing.SPANS_LOG_INTERVAL,
    sniff=sniff, parse=parse, finish=finish, complete=with_inside, strongest=math.inf,
    traits=Traits(may_evaluate=True, unread_lines="cut"),
)  # fmt: skip
