"""The recorder for Lightning, as lightning.pytorch or as pytorch_lightning.

    from stepwatch.recorder.lightning import StepwatchCallback

    Trainer(..., callbacks=[StepwatchCallback("run.jsonl")]).fit(model, loader)

A step lasts from the end of the previous step to the end of its own last batch, so that nothing in between is lost;
evaluations and saves are taken off. There is no event for the wait for a batch or for a written checkpoint: the first
is observed through the calls of the profiler, the second around `Trainer.save_checkpoint`. The sanity check is not
recorded.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

from stepwatch.recorder.events import (
    FILE,
    Events,
    RecordingCallback,
    dtype_of_weights,
    is_compiled,
    n_params,
    plain_number,
    tokens_in,
    unfailing,
)

if TYPE_CHECKING or "pytorch_lightning" not in sys.modules or "lightning.pytorch" in sys.modules:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback
else:
    from pytorch_lightning import Callback

__all__ = ["FILE", "StepwatchCallback"]

_FETCH = "train_dataloader_next"  # the profiler's name for the wait for a batch
_LOSSES = ("val_loss", "val/loss", "valid_loss", "valid/loss", "validation_loss", "eval_loss")


class StepwatchCallback(RecordingCallback, Callback):  # type: ignore[misc]
    """Records where the time of a training goes; without a path, in stepwatch.jsonl in the root directory."""

    _undo: Sequence[Callable[[], None]] = ()
    _steps_done = _tokens = 0
    _waiting_since: float | None = None
    _data_s = 0.0

    # --- the run ------------------------------------------------------------------------------------------------

    @unfailing
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._close()
        run = {"first_step": trainer.global_step, "rank": trainer.global_rank, "world_size": trainer.world_size}
        recorder = self.recorder(trainer.default_root_dir, settings_of(trainer, pl_module), **run)
        self._steps_done, self._tokens, self._data_s, self._waiting_since = trainer.global_step, 0, 0.0, None
        self._undo = [
            _wrap_method(trainer.profiler, "start", self._hear_start),
            _wrap_method(trainer.profiler, "stop", self._hear_stop),
            _wrap_method(trainer, "save_checkpoint", self._hear_save),
        ]
        self._events = Events(recorder)

    @unfailing
    def on_exception(self, *_: Any, **__: Any) -> None:
        self._close()

    @unfailing
    def teardown(self, trainer: Any, pl_module: Any, stage: Any = "fit") -> None:
        """Closes here and not at the end of the training: the last checkpoint comes after that."""
        if stage == "fit":
            self._close()

    def _close(self) -> None:
        events, self._events = self._events, None
        undo, self._undo = self._undo, ()
        for give_back in undo:
            give_back()
        if events is not None:
            events.recorder.close()

    # --- steps --------------------------------------------------------------------------------------------------

    @unfailing
    def on_train_epoch_start(self, *_: Any, **__: Any) -> None:
        self._waiting_since = perf_counter()  # the loader starts its workers

    @unfailing
    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        events = self._events
        if events is None:
            return
        if events.step is None:
            events.begin_step(events.recorder.step())
        if events.step is not None:
            events.step.data_s += self._data_s
        self._data_s, self._waiting_since = 0.0, None

    @unfailing
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any = None, batch: Any = None, *_: Any, **__: Any
    ) -> None:
        events = self._events
        if events is None or events.step is None:
            return
        if tokens := tokens_in(batch):
            self._tokens += tokens * trainer.world_size
        if pl_module.automatic_optimization and trainer.global_step == self._steps_done:
            events.mark = perf_counter()  # gradients are being accumulated
            return
        self._steps_done = trainer.global_step
        loss = plain_number(outputs.get("loss") if isinstance(outputs, Mapping) else outputs)
        if loss is not None:
            events.step.note(loss=loss)
        tokens, self._tokens = self._tokens, 0
        if tokens and self._tokens_per_step is None:  # from the first step; steps that differ note it
            self._tokens_per_step = tokens
            events.recorder.describe(tokens_per_iter=tokens)
        elif tokens and tokens != self._tokens_per_step:
            events.step.note(tokens=tokens)
        events.end_step()

    # --- between the steps --------------------------------------------------------------------------------------

    @unfailing
    def on_validation_start(self, *_: Any, **__: Any) -> None:
        if self._events is not None:
            self._events.begin_evaluation()

    @unfailing
    def on_validation_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        events = self._events
        if events is None or events.evaluation is None:
            return
        metrics = trainer.callback_metrics
        loss = next((plain_number(metrics[name]) for name in _LOSSES if name in metrics), None)
        if loss is not None:
            events.evaluation.note(val_loss=loss)
        events.end_evaluation()

    # --- phases without an event --------------------------------------------------------------------------------

    def _hear_start(self, action_name: str) -> None:
        if action_name.endswith(_FETCH) and self._waiting_since is None:
            self._waiting_since = perf_counter()

    def _hear_stop(self, action_name: str) -> None:
        if action_name.endswith(_FETCH) and self._waiting_since is not None:
            self._data_s += perf_counter() - self._waiting_since
            self._waiting_since = None

    def _hear_save(self, *args: Any, **named: Any) -> AbstractContextManager[None] | None:
        path = args[0] if args else named.get("filepath")
        return self._events.checkpoint(path) if self._events is not None else None


def _wrap_method(owner: Any, name: str, hear: Callable[..., AbstractContextManager[None] | None]) -> Callable[[], None]:
    """Calls `hear` before each call of one object's method, and runs the call in its context; returns the undo."""
    original, own = getattr(owner, name), name in vars(owner)

    @functools.wraps(original)
    def heard(*args: Any, **named: Any) -> Any:
        with hear(*args, **named) or nullcontext():
            return original(*args, **named)

    setattr(owner, name, heard)
    return functools.partial(setattr, owner, name, original) if own else functools.partial(delattr, owner, name)


# --- settings ---------------------------------------------------------------------------------------------------


def settings_of(trainer: Any, module: Any) -> dict[str, Any]:
    """The trainer's settings under our names; as in nanoGPT, accumulation counts the micro-steps of all ranks."""
    size = getattr(trainer.train_dataloader, "batch_size", None)

    last = None  # with manual optimisation a batch is a step; Lightning's limit then counts something else
    if module.automatic_optimization or trainer.max_steps <= 0:
        steps = trainer.estimated_stepping_batches
        last = int(steps) if 0 < steps < math.inf else None

    interval = None
    epochs = trainer.check_val_every_n_epoch or 1
    batches = trainer.val_check_batch if epochs == 1 else epochs * trainer.num_training_batches
    if trainer.limit_val_batches and batches is not None and 0 < batches < math.inf:
        steps, rest = divmod(int(batches), trainer.accumulate_grad_batches)
        interval = steps if not rest else None

    precision = str(trainer.precision)  # "16-mixed" and "bf16-true" in Lightning 2, 16 and "bf16" in Lightning 1
    if precision.startswith("bf16"):
        dtype: str | None = "bfloat16"
    else:
        dtype = "float16" if precision.startswith("16") else dtype_of_weights(module)
    return {
        "batch_size": size if isinstance(size, int) else None,
        "gradient_accumulation_steps": trainer.accumulate_grad_batches * trainer.world_size,
        "max_iters": last,
        "eval_interval": interval,
        "log_interval": trainer.log_every_n_steps or None,
        "dtype": dtype,
        "compile": getattr(module, "_compiler_ctx", None) is not None or is_compiled(module),
        "world_size": trainer.world_size,
        "n_params": n_params(module),
    }
