"""What any trainer's log may contain: signs that the process ended, and the name of its card."""

from __future__ import annotations

import re

from stepwatch.readers.records import LONGEST_LINE_KEPT, Records
from stepwatch.run import Fact, Fault, FaultKind

# The first matching kind counts: specific kinds come before general ones.
_KINDS: tuple[tuple[FaultKind, str], ...] = (
    (
        "interrupted",
        r"^KeyboardInterrupt\b|(?<![\"'])\bDetected KeyboardInterrupt\b|^\^C|^stopped by (?:SIG|another rank)"
        r"|\bgot signal: 2\b|\(SIGINT\)",
    ),
    (
        "out of memory",
        r"(?:CUDA|HIP|MPS|XPU)\b.{0,40}\bout of memory|^out of memory$|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
        r"|RESOURCE_EXHAUSTED|ResourceExhaustedError|OOM when allocating|kIOGPUCommandBufferCallbackErrorOutOfMemory",
    ),
    ("disk full", r"No space left on device|Disk quota exceeded|\bErrno (?:28|122)\b"),
    (
        "nccl error",
        r"\bNCCL (?:\w+ )?(?:error|failure)|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError"
        r"|Watchdog caught collective operation timeout|DistBackendError|Timed out waiting \d+ms for (?:send|recv)",
    ),
    (
        "cuda error",
        r"\b(?:CUDA|HIP|cuDNN) (?:driver |runtime )?error\b|CUDA_ERROR_|CUBLAS_STATUS_|CUDNN_STATUS_"
        r"|device-side assert triggered|illegal memory access|^\[\w+ ERROR\] at file|\bNVRM: Xid|uncorrectable ECC",
    ),
    (
        "killed",
        r"^(?:\S+: line \d+: +\d+ )?(?:Killed|Terminated)\b|\bSIG(?:KILL|TERM)\b|DUE TO (?:TIME LIMIT|PREEMPTION|NODE)"
        r"|oom[-_]kill|\bSignalException\b|CANCELLED AT|killed by signal|\bjob killed:|exit(?: ?code|ed with)?:? -9\b",
    ),
    (
        "error",
        r"^(?:[\w.]+\.)?_?[A-Z]\w*(?:Error|Exception|Iteration|Expired)(?::|$)|^Error: |^Segmentation fault|^Bus error"
        r"|\(core dumped\)|^terminate called after|^Fatal Python error|^Aborted\b|(?:can't|[Cc]annot) allocate memory",
    ),
    ("traceback", r"^Traceback \(most recent call last\)"),
)
_PATTERNS = tuple((kind, re.compile(source)) for kind, source in _KINDS)
FAULT_LETTERS = (
    b"KeyboardInterrupt", b"^C", b"stopped by ", b"out of memory", b"OutOfMemory", b"ALLOC_FAILED", b"EXHAUSTED",
    b"Exhausted", b"OOM when", b"No space left", b"quota exceeded", b"Errno ", b"NCCL", b"nccl", b"Watchdog caught",
    b"Timed out waiting", b"rror", b"ERROR", b"_STATUS_", b"device-side", b"illegal memory", b"NVRM", b"ECC",
    b"Killed", b"killed by", b"Terminated", b"SIGKILL", b"SIGTERM", b"DUE TO", b"oom", b"Exception", b"CANCELLED",
    b"exit -", b"exit: -", b"exitcode", b"exit code", b"exited with", b"allocate memory",
    b"Segmentation", b"core dumped", b"terminate called", b"Aborted", b"Traceback (most",
    b"DistBackend", b"StopIteration", b"AsyncIteration", b"Expired", b"got signal", b"SIGINT", b"job killed",
)  # fmt: skip
"""Every line that a fault is read from contains at least one of these."""
CARD = re.compile(r"\b(?:NVIDIA|GeForce|Tesla|Quadro|AMD Instinct|TITAN) [\w -]{0,30}\d")
CARD_LETTERS = (b"NVIDIA ", b"GeForce ", b"Tesla ", b"Quadro ", b"Instinct ", b"TITAN ")
_TEXTS = tuple(letters.decode() for letters in FAULT_LETTERS)


def may_be_fault(text: str) -> bool:
    """Whether a pattern may find a fault: searching for letters takes a tenth of the time."""
    return any(map(text.__contains__, _TEXTS))


def names_fault_by_number(text: str) -> bool:
    """Whether the number in a line may show a fault: `Errno 28`, `exit code: -9`, `got signal: 2`."""
    return "Errno " in text or "exit" in text or "got signal" in text


# What a launcher says when it ends the other processes, a warning, or a caught error: not a reason by itself.
_HARMLESS = re.compile(r"ChildFailedError|closing signal SIG|\bW\d{3,4} \d\d:|WARN|[Ww]arning|TORCH_NCCL|NCCL_\w+ ?=")
# Printed code: a program, a config with its comments, or the code in a traceback.
_CODE = re.compile(
    r"(?:(?:except|raise|class|def|import|from|if|elif|assert|return|with|print)\b[^:]|\w+(?:\.\w+)* = |[#\"'])|.*\s#\s"
)


def fault_in(rest: str, prefix: str, number: int) -> Fault | None:
    """The fault that a line reports; `prefix` is what a launcher or logger put in front of it."""
    start = rest[:500]
    if not may_be_fault(start):
        return None
    for kind, pattern in _PATTERNS:
        if pattern.search(start):
            # Lightning warns of an interrupt, and nobody warns of one that did not happen.
            warned = kind != "interrupted" and _HARMLESS.search((prefix + start)[:150])
            harmless = warned or _CODE.match(start)
            begin = max(start.find("slurmstepd: "), 0)  # it may write into the middle of a line
            return None if harmless else Fault(line=number, kind=kind, text=rest[begin:].strip()[:LONGEST_LINE_KEPT])
    return None


def read_common_line(rest: str, prefix: str, number: int, records: Records) -> bool:
    """Reads what any trainer's log may contain: a sign that the process ended, or the name of a card."""
    fault = fault_in(rest, prefix, number)
    if fault is not None:
        records.events.append(fault)
        return True
    if CARD.search(rest[:300]):
        records.events.append(Fact(line=number, name="gpu_text", value=rest[:200]))
        return True
    return False
