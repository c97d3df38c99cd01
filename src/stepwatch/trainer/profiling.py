"""A trace of a few steps by PyTorch's profiler, for Perfetto or chrome://tracing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

_AFTER, _STEPS = 10, 5  # steps: the first ones allocate memory and fill caches


class Profile:
    """Asked before each step; begins when the steps are steady and writes its file after some of them."""

    def __init__(self, path: Path, first: int, last: int) -> None:
        """`first` and `last` are the iterations of the run: a short one is traced from its second step on."""
        self.path = path
        self.begin = min(first + _AFTER, max(first + 1, last - _STEPS))
        self.end = min(self.begin + _STEPS, last + 1)
        self._profiler: Any = None

    def before(self, number: int) -> str | None:
        """What to say in the log, once the trace is written."""
        if number == self.begin < self.end:
            self._profiler = torch.profiler.profile()  # of the processor, and of the card where there is one
            self._profiler.start()
        if self._profiler is None or number < self.end:
            return None
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        profiler.export_chrome_trace(str(self.path))
        return f"profile of iterations {self.begin} to {number - 1}: {self.path}"
