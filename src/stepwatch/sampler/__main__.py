"""`python -m stepwatch.sampler FILE PID RECORDER`: samples a training in a separate process until its recorder ends.

Imports only what it needs: neither the command line nor numpy.
"""

from __future__ import annotations

import signal
import sys

from stepwatch.sampler import Sampler
from stepwatch.sampler.host import runs

if __name__ == "__main__":
    recorder = int(sys.argv[3])  # getppid may already be another process if it ended at once
    sampler = Sampler(sys.argv[1], pid=int(sys.argv[2]), append=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sampler.run(until=lambda: not runs(recorder))
