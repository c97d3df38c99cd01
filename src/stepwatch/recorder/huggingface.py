"""The recorder for Hugging Face's Trainer.

    from stepwatch.recorder.huggingface import StepwatchCallback

    Trainer(..., callbacks=[StepwatchCallback("run.jsonl")]).train()

After a step the Trainer logs, evaluates and saves, in this order, and reports each when it is over: an evaluation or
a save began when the previous event ended. Reading the loss waits for the device, so it is part of the step. The time
that remains between two steps is getting the batches.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any

from transformers import TrainerCallback

from stepwatch.recorder import Recorder
from stepwatch.recorder.events import (
    FILE,
    Events,
    RecordingCallback,
    dtype_of_weights,
    is_compiled,
    n_params,
    unfailing,
)

__all__ = ["FILE", "StepwatchCallback"]


class StepwatchCallback(RecordingCallback, TrainerCallback):  # type: ignore[misc]
    """Records where the time of a training goes; without a path, in stepwatch.jsonl in the output directory."""

    _tokens: _Tokens | None = None
    _step_ended: float | None = None
    """When a step ended that still waits for its loss."""

    # --- the run ------------------------------------------------------------------------------------------------

    @unfailing
    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._close()  # the Trainer has restarted the training with a smaller batch
        run = {"first_step": state.global_step, "rank": args.process_index, "world_size": args.world_size}
        recorder = self.recorder(args.output_dir, settings_of(args, state, model), **run)
        self._tokens = _Tokens(recorder, state, model) if self._tokens_per_step is None else None
        self._events = Events(recorder)

    @unfailing
    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._close()

    def _close(self) -> None:
        events = self._settled()
        self._events = None
        if events is not None:
            events.recorder.close()

    def _settled(self) -> Events | None:
        """The events, after ending the step and the evaluation that may still have continued."""
        events, step_ended = self._events, self._step_ended
        self._step_ended = None
        if events is not None and step_ended is not None:
            events.end_step(step_ended)
        if events is not None:
            events.end_evaluation(events.mark)
        return events

    # --- steps --------------------------------------------------------------------------------------------------

    @unfailing
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        events = self._settled()
        if events is None:
            return
        events.end(events.begin(events.recorder.data()))
        if events.step is None:  # otherwise a step that older Trainers leave unfinished at the end of an epoch
            events.begin_step(events.recorder.step(int(state.global_step)))

    @unfailing
    def on_substep_end(self, *_: Any, **__: Any) -> None:
        if self._events is not None:
            self._events.mark = perf_counter()

    on_pre_optimizer_step = on_optimizer_step = on_substep_end

    @unfailing
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        events = self._events
        if events is None or events.step is None:
            return
        now = perf_counter()
        events.end_evaluation(events.mark)
        if self._tokens is not None:
            self._tokens.count_step(state, events.step)
        if control.should_log:
            events.mark = self._step_ended = now
        else:
            events.end_step(now)

    @unfailing
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        events = self._events
        if events is None or events.step is None or self._step_ended is None or "loss" not in (logs or {}):
            return
        self._step_ended = None
        events.step.note(loss=logs["loss"])
        events.end_step()
        if self._tokens is not None:
            self._tokens.look(state)

    # --- between the steps --------------------------------------------------------------------------------------

    @unfailing
    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        self._evaluating()

    @unfailing
    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        events = self._evaluating()
        if events is None:
            return
        metrics = metrics or {}
        losses = {name: value for name, value in metrics.items() if name.endswith("_loss")}  # of several sets, by name
        events.begin_evaluation().note(**({"val_loss": metrics["eval_loss"]} if "eval_loss" in metrics else losses))
        events.mark = perf_counter()
        if "eval_runtime" in metrics:  # else it is one of several sets, which form one evaluation
            events.end_evaluation()

    @unfailing
    def on_predict(self, *_: Any, **__: Any) -> None:
        events = self._evaluating()
        if events is not None:
            events.end_evaluation()

    @unfailing
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        events = self._settled()
        if events is not None:
            path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            events.end(events.begin(events.recorder.checkpoint(path=path if os.path.isdir(path) else None)))

    def _evaluating(self) -> Events | None:
        """The first event of an evaluation ends the step before it."""
        events = self._events if self._events is None or self._events.evaluation is not None else self._settled()
        if events is not None:
            events.begin_evaluation()
        return events


class _Tokens:
    """How many tokens the steps take: as counted by the Trainer, else derived from its count of operations.

    That count is 6 x tokens x parameters without embeddings, summed over all ranks each time the Trainer logs.
    """

    def __init__(self, recorder: Recorder, state: Any, model: Any) -> None:
        self._recorder = recorder
        self._seen = getattr(state, "num_input_tokens_seen", 0)
        self._first, self._flos, self._known = state.global_step, state.total_flos, 0.0
        self._per_token = 0
        if getattr(model, "main_input_name", "") == "input_ids" and hasattr(model, "num_parameters"):
            self._per_token = 6 * int(model.num_parameters(exclude_embeddings=True))

    def count_step(self, state: Any, step: Any) -> None:
        """The exact count, if include_num_input_tokens_seen is set."""
        seen = getattr(state, "num_input_tokens_seen", 0)
        if seen > self._seen:
            step.note(tokens=int(seen - self._seen))
            self._seen, self._per_token = seen, 0

    def look(self, state: Any) -> None:
        steps, flos = state.global_step - self._first, state.total_flos - self._flos
        if not self._per_token or steps <= 0 or flos <= 0:
            return
        tokens = flos / self._per_token
        if abs(tokens - round(tokens)) > 1e-6 * tokens:  # the model counts its operations differently
            self._per_token = 0
        # The tokens of a step are only written again when their mean has changed by more than 1 %.
        elif abs(tokens / steps - self._known) > 0.01 * self._known:
            self._known = tokens / steps
            self._recorder.describe(tokens_per_iter=round(self._known))


def settings_of(args: Any, state: Any, model: Any) -> dict[str, Any]:
    """The Trainer's arguments under our names; as in nanoGPT, accumulation counts the micro-steps of all ranks."""
    evaluates = getattr(args, "eval_strategy", None) or getattr(args, "evaluation_strategy", None)
    return {
        "batch_size": args.train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps * args.world_size,
        "max_iters": state.max_steps if state.max_steps > 0 else None,
        "eval_interval": _interval(evaluates, state, args, "eval_steps"),
        "log_interval": _interval(args.logging_strategy, state, args, "logging_steps"),
        "learning_rate": args.learning_rate,
        "dtype": "bfloat16" if args.bf16 else "float16" if args.fp16 else dtype_of_weights(model),
        "compile": bool(getattr(args, "torch_compile", False)) or is_compiled(model),
        "activation_checkpointing": bool(args.gradient_checkpointing),
        "world_size": args.world_size,
        "n_params": n_params(model),
    }


def _interval(strategy: Any, state: Any, args: Any, name: str) -> int | None:
    """The interval in steps; the state has converted a share of the run to steps."""
    steps = getattr(state, name, None) or getattr(args, name, None)
    return int(steps) if strategy == "steps" and steps is not None and steps >= 1 else None
