"""A stopwatch for training steps: why was that iteration slow, how long will it take, what should I change."""

from __future__ import annotations

__version__ = "0.1.0"
