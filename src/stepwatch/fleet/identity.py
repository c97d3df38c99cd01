"""Which machine, versions and project a log is from, by its first lines, the files next to it and its path.

Reports never name a host; a store may, because the machines belong to those who keep it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from stepwatch.errors import StepwatchError
from stepwatch.fleet.logs import ENVIRONMENT_FILE
from stepwatch.patterns import Pattern
from stepwatch.readers.text.line import stamp_of, strip_prefix
from stepwatch.sources.contents import head_of
from stepwatch.sources.directories import RECORD

_VERSION = r"(\d+\.\d+(?:[\w.+-]*\w)?)"
# For each fact, words of which the text must contain one (faster to look for), and the pattern of a line.
_SAID = {
    "node": (
        (b"host", b"node"),
        Pattern(
            r"(?i)^(?:.{0,60}[\s\[])?(?:SLURMD_NODENAME|host ?name|host|node(?: ?name)?)\s*[:=]\s*[\"']?"
            r"(?!localhost\b)([a-z][\w.-]{0,62})\b"
        ),
    ),
    "gpu_index": ((b"visible_devices",), Pattern(r"(?i)CUDA_VISIBLE_DEVICES\s*[:=]\s*[\"']?([\d,]{1,40})")),
    "torch_version": (
        (b"torch",),
        Pattern(rf"(?i)\b(?:py)?torch(?:[ _]version)?\s*(?:[:=]{{1,2}}|\s)\s*[\"']?v?{_VERSION}"),
    ),
    "cuda_version": ((b"cuda",), Pattern(rf"(?i)\bcuda(?:[ _](?:version|runtime))?\s*[:=]?\s*[\"']?{_VERSION}")),
    "driver_version": ((b"driver",), Pattern(rf"(?i)\bdriver(?:[ _]version)?\s*[:=]?\s*[\"']?{_VERSION}")),
    "python_version": ((b"python",), Pattern(rf"(?i)\bpython(?:[ _]version)?\s*[:=]?\s*[\"']?{_VERSION}")),
    "code_version": (
        (b"commit", b"revision"),
        Pattern(r"(?i)\b(?:commit|revision)(?:[ _]?(?:hash|id|sha))?\s*[:=]?\s*[\"']?([0-9a-f]{7,40})\b"),
    ),
}
_NODE_IN_PATH = Pattern(r"(?i)(?:node|host)[-_]?\w*\d\w*(?:[.-][\w.-]+)?")


def identity_of(paths: list[str], name: str) -> dict[str, str | None]:
    """The identity of the log with these local files; `name` is where it was found."""
    found: dict[str, str | None] = dict.fromkeys(("project", *_SAID))
    for path in paths:
        said: dict[str, Any] = {}
        with suppress(OSError, ValueError, TypeError, AttributeError, StepwatchError):
            base = os.path.basename(path)
            if base in (ENVIRONMENT_FILE, "wandb-metadata.json"):
                said = _of_object(json.loads(head_of(path, 1 << 20)))
            elif base == "config.yaml" or base.endswith((".csv", ".parquet", ".wandb")) or ".tfevents." in base:
                continue
            else:
                head = head_of(path, 1 << 15)  # headers are shorter
                is_record = head.startswith(RECORD)
                said = _of_object(json.loads(head.partition(b"\n")[0])) if is_record else _of_text(head)
        found |= {key: str(value) for key, value in said.items() if value and not found.get(key)}
    parts = name.replace(os.sep, "/").split("/")
    stated = dict(part.split("=", 1) for part in parts if part.count("=") == 1)
    for key in ("project", "node", "gpu_index"):
        found[key] = stated.get(key) or found[key]
    if found["node"] is None:
        found["node"] = next((part for part in reversed(parts[:-1]) if _NODE_IN_PATH.fullmatch(part)), None)
    return found


def first_stamp_s(path: str) -> float | None:
    """The timestamp of the first line of a text, if it has one."""
    with suppress(OSError, StepwatchError):
        line = head_of(path, 1 << 10).partition(b"\n")[0].decode("utf-8", "replace")
        return stamp_of(strip_prefix(line)[1])
    return None


def _of_text(head: bytes) -> dict[str, str]:
    """Each fact from the first line that states it."""
    lower = head.lower() + b"\n"
    kinds = b"\n".join({*lower.translate(None, b"0123456789").split(b"\n")})  # most lines only differ in their digits
    said: dict[str, str] = {}
    for key, (words, pattern) in _SAID.items():
        at = 0 if any(word in kinds for word in words) else len(lower)
        while key not in said and (places := [place for word in words if (place := lower.find(word, at)) >= 0]):
            begin, at = lower.rfind(b"\n", 0, min(places)) + 1, lower.index(b"\n", min(places))
            match = pattern.search(head[begin:at].decode("utf-8", "replace"))
            if match is not None:
                said[key] = match[1]
    return said


def _of_object(known: dict[str, Any]) -> dict[str, Any]:
    """Facts from environment.json of `stepwatch run`, the first line of a record, or W&B's metadata."""
    versions = known.get("versions") or {}
    card = known.get("card") or {}
    commit = known.get("commit") or (known.get("git") or {}).get("commit")
    return {
        "node": known.get("host") or known.get("node"),
        "project": known.get("project"),
        "torch_version": versions.get("torch") or known.get("torch"),
        "cuda_version": known.get("cudaVersion") or known.get("cuda"),
        "driver_version": card.get("driver") or known.get("driver"),
        "python_version": versions.get("python") or known.get("python"),
        "code_version": commit,
    }
