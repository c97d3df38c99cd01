"""A stopwatch for training steps: why was that iteration slow, how long will it take, what should I change.

    from stepwatch import explain, render

    report = explain("train.log", gpu="4070")
    print(render(report, "terminal", "en"))

Names are loaded when they are first used, so that `import stepwatch` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwatch.advice import Advice, advise
    from stepwatch.analysis import Analysis, Finding
    from stepwatch.errors import InputError, NoIterations, StepwatchError, UnknownGpu, UnreadableInput, UsageError
    from stepwatch.estimator.plan import Plan
    from stepwatch.gpus import Gpu, find_gpu
    from stepwatch.i18n import say
    from stepwatch.messages import Message
    from stepwatch.notebook import load_ipython_extension
    from stepwatch.presenters import render
    from stepwatch.recorder import Recorder
    from stepwatch.report import Report
    from stepwatch.run import Run
    from stepwatch.settings import Origin, Settings
    from stepwatch.sources import Source, from_file, from_stdin, from_text
    from stepwatch.units import Interval
    from stepwatch.verbs import analyse, explain, plan, read

__version__ = "0.1.0"

__all__ = [
    "Advice",
    "Analysis",
    "Finding",
    "Gpu",
    "InputError",
    "Interval",
    "Message",
    "NoIterations",
    "Origin",
    "Plan",
    "Recorder",
    "Report",
    "Run",
    "Settings",
    "Source",
    "StepwatchError",
    "UnknownGpu",
    "UnreadableInput",
    "UsageError",
    "__version__",
    "advise",
    "analyse",
    "explain",
    "find_gpu",
    "from_file",
    "from_stdin",
    "from_text",
    "load_ipython_extension",
    "plan",
    "read",
    "render",
    "say",
]

_EXPORTS = {
    "advice": ("Advice", "advise"),
    "analysis": ("Analysis", "Finding"),
    "errors": ("InputError", "NoIterations", "StepwatchError", "UnknownGpu", "UnreadableInput", "UsageError"),
    "gpus": ("Gpu", "find_gpu"),
    "i18n": ("say",),
    "messages": ("Message",),
    "estimator.plan": ("Plan",),
    "notebook": ("load_ipython_extension",),
    "presenters": ("render",),
    "recorder": ("Recorder",),
    "report": ("Report",),
    "run": ("Run",),
    "settings": ("Origin", "Settings"),
    "sources": ("Source", "from_file", "from_stdin", "from_text"),
    "units": ("Interval",),
    "verbs": ("analyse", "explain", "plan", "read"),
}
_MODULE_OF = {name: room for room, names in _EXPORTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
