"""This machine and the processes of a training, as psutil reports them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import psutil

from stepwatch.samples import MACHINE


def runs(pid: int) -> bool:
    """Whether the process exists and has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def processor_of(pid: int) -> int | None:
    """The processor on which it ran last; None if the system does not say."""
    try:
        asked = getattr(psutil.Process(pid), "cpu_num", None)  # not on Windows and macOS
        return None if asked is None else int(asked())
    except (psutil.Error, OSError):
        return None


def quota_of(pid: int, proc: str = "/proc", root: str = "/sys/fs/cgroup") -> float | None:
    """How many processors' worth of time its control groups (a container's) allow; None without a limit.

    See docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max; in version 1 cpu.cfs_quota_us.
    """
    limits = []
    with contextlib.suppress(OSError, ValueError):
        for line in Path(proc, str(pid), "cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            top = Path(root, "cpu") if controllers else Path(root)
            place = top / group.strip("/")
            for directory in (place, *place.parents):
                for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
                    with contextlib.suppress(OSError, ValueError):  # missing, or "max"
                        words = " ".join((directory / name).read_text() for name in names).split()
                        limits += [float(words[0]) / float(words[1])] if float(words[0]) > 0 else []
                if directory == top:
                    break
    return min(limits, default=None)


class Machine:
    """Figures since the last reading. What this system does not provide is left out."""

    def __init__(self, pid: int | None = None) -> None:
        self._family = ProcessTree(pid) if pid is not None else None
        self._seen: set[str] = set()
        self._before: dict[str, float] = {}
        self._readings = 0
        self._at_s = time.monotonic()

    @property
    def pids(self) -> frozenset[int]:
        """The processes of the training."""
        return frozenset() if self._family is None else self._family.pids

    @property
    def unavailable_columns(self) -> tuple[str, ...]:
        """Empty before the second reading, since rates need two."""
        if self._readings < 2:
            return ()
        of_training = tuple(MACHINE)[tuple(MACHINE).index("processes") :]
        wanted = MACHINE if self._family is not None else MACHINE.keys() - set(of_training)
        return tuple(name for name in MACHINE if name in wanted and name not in self._seen)

    def read(self) -> dict[str, float]:
        now_s = time.monotonic()
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        figures: dict[str, float] = {"processors": float(os.cpu_count() or 1)}
        counters: dict[str, float] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # psutil warns in a container without swap figures
            family = (partial(self._family.read, now_s),) if self._family is not None else ()
            for question in (_processors, _memory, _disks, _network, *family):
                with contextlib.suppress(Exception):  # each may fail, in containers or without rights
                    levels, counts = question()
                    figures |= levels
                    counters |= counts
        if self._before and elapsed_s > 0:
            gone = {
                name: max(value - self._before[name], 0.0) for name, value in counters.items() if name in self._before
            }
            figures |= _rates(gone, elapsed_s)
        self._before = counters
        self._readings += 1
        self._seen |= figures.keys()
        return {name: figures[name] for name in MACHINE if name in figures}


def _rates(gone: dict[str, float], elapsed_s: float) -> dict[str, float]:
    """What was counted, as a share of the time or per second."""
    whole_s = sum(gone.get(name, 0.0) for name in ("busy_s", "idle_s", "iowait_s"))
    rates = {name: value / elapsed_s for name, value in gone.items() if name in MACHINE}
    if whole_s > 0:
        rates["cpu"] = gone["busy_s"] / whole_s
        if "iowait_s" in gone:
            rates["iowait"] = gone["iowait_s"] / whole_s
    disks = [value for name, value in gone.items() if name.startswith("disk:")]
    if disks:
        rates["disk_busy"] = min(max(disks) / elapsed_s, 1.0)
    links = [value for name, value in gone.items() if name.startswith("link:")]
    if links:
        rates["network_busy"] = min(max(links) / elapsed_s, 1.0)
    each = [value for name, value in gone.items() if name.startswith("process:")]
    if each:
        rates["training_cpu"], rates["busiest_cpu"] = sum(each) / elapsed_s, max(each) / elapsed_s
    return rates


_Answer = tuple[dict[str, float], dict[str, float]]  # levels as they are, counters that only grow


def _processors() -> _Answer:
    times = psutil.cpu_times()
    iowait_s = getattr(times, "iowait", None)
    idle_s = times.idle
    # Linux already counts guests as user. Time stolen from a virtual machine counts as busy: it cannot be used.
    busy_s = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
    counters = {"busy_s": busy_s, "idle_s": idle_s} | ({} if iowait_s is None else {"iowait_s": iowait_s})
    return {"load": psutil.getloadavg()[0]}, counters


def _memory() -> _Answer:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    levels = {
        "memory_used_bytes": float(memory.total - memory.available),
        "memory_total_bytes": float(memory.total),
        "swap_used_bytes": float(swap.used),
    }
    return levels, {"swap_bytes_per_s": float(swap.sin + swap.sout)}


def _disks() -> _Answer:
    whole, each = psutil.disk_io_counters(), psutil.disk_io_counters(perdisk=True)
    counters = {}
    if whole is not None:
        counters["disk_read_bytes_per_s"] = float(whole.read_bytes)
        counters["disk_write_bytes_per_s"] = float(whole.write_bytes)
    for name, disk in each.items():
        busy_ms = getattr(disk, "busy_time", None)  # Linux and FreeBSD count it
        if busy_ms is not None:
            counters[f"disk:{name}"] = busy_ms * 1e-3
    return {}, counters


def _network() -> _Answer:
    links = psutil.net_io_counters(pernic=True)
    total = sum(link.bytes_sent + link.bytes_recv for name, link in links.items() if not name.startswith("lo"))
    counters = {"network_bytes_per_s": float(total)}
    for name, link in psutil.net_if_stats().items():
        if link.speed and name in links:  # in megabits per second, 0 if unknown
            for way in ("sent", "recv"):
                counters[f"link:{name}:{way}"] = getattr(links[name], f"bytes_{way}") / (link.speed * 1e6 / 8)
    return {}, counters


class ProcessTree:
    """A process and its children, including the figures of those that have ended."""

    def __init__(self, pid: int) -> None:
        self._pid, self._quota = pid, quota_of(pid)
        self._members: dict[int, psutil.Process] = {}
        self._look_s, self._pause_s = float("-inf"), 0.5  # seconds; workers start in the first moments
        self._done: dict[str, float] = {}
        self._last: dict[int, dict[str, float]] = {}

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(self._members)

    def read(self, now_s: float) -> _Answer:
        if now_s >= self._look_s:
            self._look_s, self._pause_s = now_s + self._pause_s, min(2 * self._pause_s, 5.0)
            self._look()  # rarely, since the search goes through all processes of the machine
        hidden, allowed = False, set[int]()
        levels = dict.fromkeys(("processes", "training_memory_bytes", "threads", "blocked", "stopped"), 0.0)
        counters: dict[str, float] = {}
        last: dict[int, dict[str, float]] = {}
        for pid, process in list(self._members.items()):
            try:
                with process.oneshot():
                    status = process.status()
                    if status == psutil.STATUS_ZOMBIE:
                        raise psutil.NoSuchProcess(pid)
                    times = process.cpu_times()
                    figures = {"cpu_s": times.user + times.system}
                    if sys.platform != "darwin":  # psutil counts none there
                        with contextlib.suppress(psutil.Error, AttributeError, NotImplementedError, OSError):
                            moved = process.io_counters()
                            figures["read_bytes_per_s"] = float(moved.read_bytes)
                            figures["write_bytes_per_s"] = float(moved.write_bytes)
                    # psutil does not count major faults; they are field 12 of Linux's /proc/PID/stat.
                    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:
                        figures["major_faults_per_s"] = float(file.read().rpartition(b")")[2].split()[9])
                    last[pid] = figures
                    levels["training_memory_bytes"] += process.memory_info().rss
                    levels["threads"] += process.num_threads()
                    levels["blocked"] += status == psutil.STATUS_DISK_SLEEP
                    levels["stopped"] += status == psutil.STATUS_STOPPED
                    levels["processes"] += 1
                    if sys.platform != "darwin":
                        with contextlib.suppress(psutil.Error, OSError):
                            allowed.update(process.cpu_affinity())
            except psutil.AccessDenied:  # it runs, but its figures cannot be read
                hidden = True
            except psutil.Error:
                del self._members[pid]
        if hidden and not levels["processes"]:
            return {}, {}
        for pid in self._last.keys() - last.keys():
            for name, value in self._last[pid].items():
                self._done[name] = self._done.get(name, 0.0) + value
        self._last = last
        for name in ("read_bytes_per_s", "write_bytes_per_s", "major_faults_per_s"):
            if any(name in figures for figures in last.values()):
                counters[name] = self._done.get(name, 0.0) + sum(figures.get(name, 0.0) for figures in last.values())
        counters |= {f"process:{pid}": figures["cpu_s"] for pid, figures in last.items()}
        if allowed:
            levels["allowed_processors"] = min(len(allowed), self._quota or len(allowed))
        for name in ("blocked", "stopped"):
            levels[name] /= max(levels["processes"], 1.0)
        return levels, counters

    def _look(self) -> None:
        with contextlib.suppress(psutil.Error):
            first = self._members.get(self._pid) or psutil.Process(self._pid)
            for process in (first, *first.children(recursive=True)):
                if process.pid != os.getpid():  # a sampler that the training itself has started
                    self._members.setdefault(process.pid, process)
