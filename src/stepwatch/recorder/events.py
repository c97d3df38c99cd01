"""What the callbacks for frameworks share: the phases of a loop that we only know from events.

Some phases begin without an event. They began when the previous one ended: that moment is the mark. Nothing is
imported here: the framework brings torch.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

from stepwatch.recorder import Phase, Recorder
from stepwatch.recorder.lines import WarnOnce

F = TypeVar("F", bound=Callable[..., Any])
FILE = "stepwatch.jsonl"


class RecordingCallback:
    """The options of a callback; without a path, it writes to stepwatch.jsonl in the framework's directory."""

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, tokens_per_step: int | None = None,
        flops_per_step: float | None = None, rotate_bytes: int | None = None, samples: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._path, self._tokens_per_step = path, tokens_per_step
        self._flops_per_step, self._rotate_bytes, self._samples = flops_per_step, rotate_bytes, samples
        self.trouble = WarnOnce()
        self._events: Events | None = None

    def recorder(self, directory: str, settings: Mapping[str, Any], **run: Any) -> Recorder:
        """Creates the recorder of a run that begins, with its first_step, rank and world_size."""
        path = os.path.join(directory, FILE) if self._path is None else self._path
        plain = {name: value for name, value in settings.items() if value is not None}
        return Recorder(
            path, plain, tokens_per_step=self._tokens_per_step, flops_per_step=self._flops_per_step,
            rotate_bytes=self._rotate_bytes, samples=self._samples, **run,
        )  # fmt: skip


class Events:
    """A recorder, its open phases, and the mark."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.mark = perf_counter()
        self.loose_s = 0.0
        """Time before the mark that belongs to no phase; the next step takes it."""
        self.step: Phase | None = None
        self.evaluation: Phase | None = None

    def begin(self, phase: Phase) -> Phase:
        """Enters a phase that began at the mark."""
        phase.__enter__()
        phase.begun = self.mark
        return phase

    def begin_step(self, phase: Phase) -> None:
        self.step = self.begin(phase)
        phase.begun -= self.loose_s
        self.loose_s = 0.0

    def end(self, phase: Phase, ended: float | None = None) -> None:
        self.mark = perf_counter() if ended is None else ended
        self.recorder.stopwatch.leave(phase, self.mark, True)

    def end_step(self, ended: float | None = None) -> None:
        step, self.step = self.step, None
        if step is not None:
            self.end(step, ended)

    def begin_evaluation(self) -> Phase:
        """The evaluation that is open, or a new one that began at the mark."""
        if self.evaluation is None:
            self.evaluation = self.begin(self.recorder.evaluation())
        return self.evaluation

    def end_evaluation(self, ended: float | None = None) -> None:
        evaluation, self.evaluation = self.evaluation, None
        if evaluation is not None:
            self.end(evaluation, ended)

    @contextmanager
    def checkpoint(self, path: object) -> Iterator[None]:
        """A save whose begin and end are both observed; its errors are the training's own."""
        if self.recorder.stopwatch.inner is None:
            self.loose_s += perf_counter() - self.mark
        try:
            with self.recorder.checkpoint(path=path):
                yield
        finally:
            self.mark = perf_counter()


def unfailing(event: F) -> F:
    """Makes an event handler that never fails the training: an error is reported once."""

    @functools.wraps(event)
    def heard(self: Any, *args: Any, **named: Any) -> None:
        try:
            event(self, *args, **named)
        except Exception as error:
            trouble: WarnOnce = self.trouble
            trouble.say(event.__name__, f"{event.__name__} was not recorded: {type(error).__name__}: {error}")

    return heard  # type: ignore[return-value]


# --- what a torch model shows without being run ------------------------------------------------------------------


def n_params(model: Any) -> int | None:
    """The number of parameters, each counted once; DeepSpeed keeps the size of those that it moved elsewhere."""
    if model is None or not hasattr(model, "parameters"):
        return None
    return sum(int(getattr(weights, "ds_numel", None) or weights.numel()) for weights in model.parameters()) or None


def dtype_of_weights(model: Any) -> str | None:
    weights = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    return None if weights is None else str(weights.dtype).removeprefix("torch.")


def is_compiled(model: Any) -> bool:
    """Whether the model, or a part of it, went through torch.compile."""
    parts = model.modules() if hasattr(model, "modules") else ()
    return any(
        type(part).__name__ == "OptimizedModule" or getattr(part, "_compiled_call_impl", None) is not None
        for part in parts
    )


def plain_number(value: Any) -> float | None:
    """A number, or that of a tensor in host memory, so that no device is waited for."""
    if isinstance(value, (int, float)):
        return float(value)
    at_hand = getattr(getattr(value, "device", None), "type", None) == "cpu"
    return float(value.item()) if at_hand and value.numel() == 1 else None


def tokens_in(batch: Any) -> int | None:
    """The tokens of a batch that shows which of its tensors contains tokens."""
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return int(tokens.numel()) if tokens is not None and hasattr(tokens, "numel") else None
