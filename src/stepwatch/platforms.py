"""What Linux, macOS and Windows do differently. Other modules check the system only to choose their wording."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO
from weakref import WeakSet

if TYPE_CHECKING:
    from mmap import mmap

WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags for os.open: do not wait for the other end of a named pipe. Windows has no pipes in directories."""


def claim(descriptor: int) -> bool:
    """Locks the file until it is closed. False if another process holds the lock; True if locks are not supported."""
    if sys.platform == "win32":
        import msvcrt

        try:
            # A byte far beyond the end: Windows keeps readers from locked bytes.
            os.lseek(descriptor, 2**40, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        except OSError:
            return True
        finally:
            os.lseek(descriptor, 0, os.SEEK_END)
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return True
    return True


def replace_durably(new: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Replaces `path` by `new`, durably: even after a power cut. Raises OSError."""
    if sys.platform == "win32":
        for wait_s in (0.1, 0.4, 1.6):  # a virus scanner or an indexer may hold the file for a moment
            try:
                os.replace(new, path)
                return
            except PermissionError:
                time.sleep(wait_s)
        os.replace(new, path)
        return
    os.replace(new, path)
    sync_names(os.path.dirname(path) or ".")


def sync_names(directory: str | os.PathLike[str]) -> None:
    """Flushes the names in the directory to disk; Windows has no equivalent."""
    if sys.platform != "win32":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def opened_to_follow(path: str, *, waiting: bool = True) -> BinaryIO:
    """Opens a log that its writer may still rename or remove; `waiting` blocks until a pipe has a writer.

    Raises OSError.
    """
    if sys.platform == "win32":
        import ctypes
        import msvcrt
        from ctypes import wintypes

        create = ctypes.WinDLL("kernel32", use_last_error=True).CreateFileW
        create.restype = wintypes.HANDLE
        create.argtypes = (
            wintypes.LPCWSTR, wintypes.DWORD, wintypes.DWORD, wintypes.LPVOID, wintypes.DWORD, wintypes.DWORD,
            wintypes.HANDLE,
        )  # fmt: skip
        reading, sharing_all, existing, normal = 0x80000000, 0x7, 3, 0x80  # GENERIC_READ, FILE_SHARE_*, OPEN_EXISTING
        handle = create(path, reading, sharing_all, None, existing, normal, None)
        if handle == wintypes.HANDLE(-1).value:
            raise ctypes.WinError(ctypes.get_last_error())
        return open(msvcrt.open_osfhandle(handle, os.O_RDONLY | os.O_BINARY), "rb")
    return open(path, "rb") if waiting else open(os.open(path, os.O_RDONLY | WITHOUT_WAITING), "rb")


def limit_memory(most_bytes: int) -> bool:
    """Limits the memory of this process. Returns False if the system cannot do that.

    macOS accepts the limit but does not enforce it. Windows enforces it through a job object, to which a process may
    assign itself.
    """
    if sys.platform == "win32":
        import ctypes
        from ctypes import wintypes

        class Limits(ctypes.Structure):
            """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

            _fields_ = [
                ("times", ctypes.c_int64 * 2), ("flags", wintypes.DWORD), ("working_set", ctypes.c_size_t * 2),
                ("processes", wintypes.DWORD), ("affinity", ctypes.c_size_t), ("classes", wintypes.DWORD * 2),
                ("io", ctypes.c_uint64 * 6), ("process_bytes", ctypes.c_size_t), ("job_bytes", ctypes.c_size_t),
                ("peaks", ctypes.c_size_t * 2),
            ]  # fmt: skip

        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = kernel.GetCurrentProcess.restype = wintypes.HANDLE
        job = wintypes.HANDLE(kernel.CreateJobObjectW(None, None))
        limits = Limits(flags=0x100, process_bytes=most_bytes)  # JOB_OBJECT_LIMIT_PROCESS_MEMORY
        extended = 9  # JobObjectExtendedLimitInformation
        set_ = kernel.SetInformationJobObject(job, extended, ctypes.byref(limits), ctypes.sizeof(limits))
        return bool(set_ and kernel.AssignProcessToJobObject(job, wintypes.HANDLE(kernel.GetCurrentProcess())))
    if sys.platform == "darwin":
        return False
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
        return True
    return False


def lower_priority() -> None:
    """Lowers the priority of this thread; does nothing on systems where only whole processes have one."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.nice(10)  # a tenth of the weight of a training thread: enough to get its work done


def drop_from_cache(descriptor: int) -> None:
    """Drops a file that will not be read soon from the page cache, if the system allows that."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


_ASIDE: WeakSet[mmap] = WeakSet()


def spill_to_disk(parts: Iterable[bytes]) -> mmap | None:
    """Moves these bytes into an unnamed file that is mapped into memory.

    None if the system cannot release pages that were read, or has no room for the file.
    """
    if sys.platform in ("win32", "emscripten"):
        return None
    import mmap
    import tempfile

    try:
        with tempfile.TemporaryFile() as file:
            file.writelines(parts)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            mapped.madvise(mmap.MADV_DONTNEED)
    except (OSError, ValueError, AttributeError):
        return None
    _ASIDE.add(mapped)
    return mapped


def release_pages() -> None:
    """Releases the memory of everything that was put aside; it is loaded again when it is read."""
    if sys.platform != "win32" and _ASIDE:
        import mmap

        for mapped in [*_ASIDE]:
            mapped.madvise(mmap.MADV_DONTNEED)


def keep_freed_memory() -> None:
    """Keeps freed memory in this process: returning it and getting it again page by page costs time in each step.

    Only for glibc; other C libraries are left alone.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL("libc.so.6")
            # M_MMAP_THRESHOLD of malloc.h: blocks up to this size come from the heap. 32 MiB is glibc's maximum.
            # Larger blocks would leave holes there: without a limit, peak memory rose by a quarter.
            library.mallopt(-3, 32 << 20)
            library.mallopt(-1, -1)  # M_TRIM_THRESHOLD: the heap never shrinks


def load_average() -> float | None:
    """How many programs ran or waited for a processor, on average over the last minute; None on Windows."""
    if sys.platform == "win32":
        return None
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def physical_memory_bytes() -> float:
    if sys.platform == "win32":
        import ctypes

        installed = ctypes.c_ulonglong(0)
        ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(installed))
        return installed.value * 1024.0
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def peak_memory_bytes() -> int | None:
    """The peak memory of this process so far; None on Windows, which needs a library for it."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def allowed_processors() -> int:
    """The processors that this process may use: containers and job schedulers may allow fewer than there are."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_files_limit() -> int:
    """How many files, pipes and connections this process may have open."""
    if sys.platform == "win32":
        return 512  # the limit of select(), and also of the C library of Windows
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2**20


def hide_argument(text: str) -> bool:
    """Hides an argument of this process, such as a password, in the list of processes. Returns whether it worked."""
    if sys.platform != "linux":
        return False
    try:
        with open("/proc/self/stat", "rb") as stream:
            begin, end = map(int, stream.read().rpartition(b")")[2].split()[45:47])  # arg_start and arg_end: man 5 proc
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            arguments = memory.read(end - begin)
            secret = os.fsencode(text)
            memory.seek(begin)
            memory.write(arguments.replace(secret, b"x" * len(secret)))
        with open("/proc/self/cmdline", "rb") as stream:
            return secret not in stream.read()
    except (OSError, ValueError):  # forbidden by some kernels
        return False


# --- arguments as they can be pasted into a shell ---------------------------------------------------------------


_PLAIN = re.compile(r"(?!=)[\w@%+=:,./-]+")  # zsh expands `=name`
_PLAIN_IN_CMD = re.compile(r"[\w@+=:./\\-]+")
_SPECIAL = set('$`"!\\')
"""Characters that double quotes do not protect; `!` recalls a command from the history."""

_KEPT = {chr(code) for code in range(32, 127)} - set("\\'")


def quoted(text: str, *, for_cmd: bool = os.sep == "\\") -> str:
    """Quotes an argument, if possible with double quotes: they work in every shell, single ones not in cmd.exe."""
    if for_cmd:
        return _quoted_for_cmd(text)
    if not text.isprintable():  # an escape would reach the terminal, and a newline would end the command
        letters = (chr(byte) if chr(byte) in _KEPT else f"\\x{byte:02x}" for byte in os.fsencode(text))
        return f"$'{''.join(letters)}'"
    if _PLAIN.fullmatch(text):
        return text
    return shlex.quote(text) if _SPECIAL & set(text) else f'"{text}"'


def _quoted_for_cmd(text: str) -> str:
    """Windows programs split their command line themselves: backslashes before a quote have to be doubled.

    cmd.exe cannot quote a `%`: it replaces a name between two of them if there is a variable of that name.
    """
    text = "".join(letter if letter.isprintable() else "?" for letter in text)  # not allowed in file names
    if _PLAIN_IN_CMD.fullmatch(text):
        return text
    pieces = (piece + piece[len(piece.rstrip("\\")) :] for piece in text.split('"'))
    return '"' + '\\"'.join(pieces) + '"'


def quoted_path(path: str) -> str:
    """Quotes a path; a name that looks like an option gets its directory in front. `-` alone is standard input."""
    return quoted(os.path.join(os.curdir, path) if path.startswith("-") and path != "-" else path)
