"""What the first rank reports on request besides the log: Weights & Biases, TensorBoard, a profile of some steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from stepwatch.errors import InputError
from stepwatch.messages import Message
from stepwatch.trainer.config import TrainConfig

_AFTER, _STEPS = 10, 5  # steps; the first ones allocate memory and fill caches


def trackers(config: TrainConfig, directory: Path) -> list[_WeightsAndBiases | _TensorBoard]:
    """Opened at the start, so that a missing package is reported before an hour of training."""
    found: list[_WeightsAndBiases | _TensorBoard] = [_WeightsAndBiases(config, directory)] if config.wandb_log else []
    return [*found, _TensorBoard(directory)] if config.tensorboard_log else found


class _WeightsAndBiases:
    """Reports as nanoGPT does, under its names; WANDB_MODE=offline keeps the run on this machine."""

    def __init__(self, config: TrainConfig, directory: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb_log", "wandb") from error
        try:
            self._run: Any = wandb.init(
                project=config.wandb_project, name=config.wandb_run_name, config=config.plain(), dir=str(directory)
            )
        except (wandb.Error, OSError) as error:
            reason = {"reason": str(error).splitlines()[0] if str(error) else type(error).__name__}
            raise InputError(
                Message("Weights & Biases does not start: {reason:word}", reason),
                Message("log in with `wandb login`, or keep the run on this machine with WANDB_MODE=offline"),
            ) from error

    def figures(self, number: int, values: Mapping[str, float]) -> None:
        self._run.log({"iter": number, **values})

    def close(self) -> None:
        import wandb

        self._run.finish()
        wandb.teardown()  # its service is a separate process, and would stay as long as this one


class _TensorBoard:
    """Event files next to the checkpoints."""

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard_log", "tensorboard") from error
        self._writer: Any = SummaryWriter(str(directory))

    def figures(self, number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)

    def close(self) -> None:
        self._writer.close()


def _missing(setting: str, package: str) -> InputError:
    return InputError(
        Message("{setting:word}=True needs {package:word}", {"setting": setting, "package": package}),
        Message("pip install {package:word}, or leave the setting out", {"package": package}),
    )


class Profile:
    """A trace of a few steady steps by PyTorch's profiler, for Perfetto or chrome://tracing."""

    def __init__(self, path: Path, first: int, last: int, say: Callable[[str], object]) -> None:
        """`first` and `last` are the iterations of the run: a short one is traced from its second step on."""
        self.path, self._say = path, say
        self.begin = min(first + _AFTER, max(first + 1, last - _STEPS))
        self.end = min(self.begin + _STEPS, last + 1)
        self._profiler: Any = None

    def before(self, number: int) -> None:
        """Called before each step, and after the last one."""
        if number == self.begin < self.end:
            self._profiler = torch.profiler.profile()  # of the processor, and of the card if there is one
            self._profiler.start()
        if self._profiler is None or number < self.end:
            return
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        profiler.export_chrome_trace(str(self.path))
        self._say(f"profile of iterations {self.begin} to {number - 1}: {self.path}")
