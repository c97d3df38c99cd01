"""What all tests share: the project's root on the path, and one steady profile for hypothesis."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# Whoever runs the tests may have measured the machine: that must not change an answer.
os.environ["XDG_CONFIG_HOME"] = os.environ["APPDATA"] = os.path.join(tempfile.gettempdir(), "stepwatch-tests-nothing")

# A mistake is to be seen as it is, not as two lines.
os.environ["STEPWATCH_DEBUG"] = "1"

# Tests run side by side and their models are tiny: threads of linear algebra would only wait for each other.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Cycles are searched for less often, and never among modules and tests, which are most objects and no garbage. At the
# end once, while pytest still reports what it finds; pytest itself would search all of them several times.
gc.set_threshold(100_000)


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.collect()
    gc.freeze()


# What is started in the background, as by nohup, ignores Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine, however slow: a red build must mean a changed program. STEPWATCH_EXAMPLES=20000
# tries as many values of each law. Python for browsers has no hypothesis; the units that need none run there too.
with suppress(ModuleNotFoundError):
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "steady", derandomize=True, deadline=None, database=None,
        max_examples=int(os.environ.get("STEPWATCH_EXAMPLES", "40")),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    settings.load_profile("steady")
