"""Reads checkpoints: finds the one to use in a directory, and checks all of its content before it is used."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from stepwatch.messages import Message
from stepwatch.trainer import CheckpointError
from stepwatch.trainer.hostile import Refused
from stepwatch.trainer.snapshot import tensors_of

NAME = "ckpt.pt"
STOPPED = "ckpt_stopped_{}.pt"
"""A checkpoint saved because someone asked to stop, if ckpt.pt contains one that should stay."""
KEPT = "ckpt_{}.pt"
"""With `keep`: the newest checkpoints, numbered by iteration."""
SHARDED, MANIFEST = "ckpt_sharded_{}", "manifest.json"
"""The directory that all ranks write, numbered by iteration, and the file that makes it complete."""
RESUME = "resume"
"""The key of the ResumePoint in a checkpoint; nanoGPT's own programs ignore it."""
SHAPE = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size")
_KINDS: dict[str, type | tuple[type, ...]] = {
    "model": dict,
    "optimizer": dict,
    "model_args": dict,
    "iter_num": int,
    "best_val_loss": (int, float, Tensor),
}
_ASKED_FOR = re.compile(r"(?:GLOBAL|global|class|function|Unsupported class) (?P<name>\w+(?:\.\w+)+)")


def newest(directory: Path) -> Path:
    """ckpt.pt, a later save of a stopped run, or a checkpoint that all ranks wrote together, whichever is newest."""
    found = [path for path in (directory / NAME, *directory.glob(STOPPED.format("*"))) if path.is_file()]
    found += sharded_in(directory)

    def saved_ns(path: Path) -> int:
        try:
            return (path / MANIFEST if path.is_dir() else path).stat().st_mtime_ns
        except OSError:  # incomplete, or removed in the meantime
            return -1

    return max(found, key=saved_ns, default=directory / NAME)


def sharded_in(directory: Path) -> list[Path]:
    """Checkpoints that all ranks wrote together; not those in progress, or left by a killed run."""
    return [path for path in directory.glob(SHARDED.format("*")) if path.suffix != ".tmp"]


class Damaged(ValueError):
    """Something differs from what was written; names the file in a sharded checkpoint."""


def load(path: Path) -> dict[str, Any]:
    """A checkpoint, ours or nanoGPT's, as numbers and nothing that could run; its checksums and figures are checked."""
    facts = {"name": str(path)}
    try:
        if path.is_dir():
            from stepwatch.trainer.sharded import read  # most runs have no sharded checkpoint

            return _checked(read(path), path)
        return _checked(_file(path), path)
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        what = Message("there is no file “{name:word}”", facts)
        if path.is_dir():
            facts["keys"] = Path(error.filename or MANIFEST).name
            what = Message("“{name:word}” is not a complete checkpoint: it lacks {keys:word}", facts)
        raise _refused(what) from error
    except OSError as error:
        facts["reason"] = error.strerror or type(error).__name__
        raise _refused(Message("“{name:word}” cannot be read: {reason:word}", facts)) from error
    except Exception as error:  # a damaged file makes torch raise nearly anything
        match = _ASKED_FOR.search(str(error))
        asked = error.asked if isinstance(error, Refused) else match and match["name"]
        if asked is not None:
            facts["asked"] = asked
            raise _refused(
                Message(
                    "“{name:word}” is refused: it asks for {asked:word}, and a checkpoint is tensors and plain data",
                    facts,
                )
            ) from error
        if isinstance(error, Damaged):
            facts["name"] = str(path / str(error))
        if isinstance(error, Damaged) or path.is_dir() or _is_zip(path):
            raise _refused(Message("“{name:word}” is cut off or damaged", facts)) from error
        raise _refused(Message("“{name:word}” is not a checkpoint", facts)) from error


def _is_zip(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.read(2) == b"PK"


def _file(path: Path) -> Any:
    if not path.stat().st_size:
        raise _refused(Message("“{name:word}” is empty", {"name": str(path)}))
    if _is_zip(path):
        # torch does not check the checksums that it writes. Compressed entries could grow to any size.
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()) or archive.testzip():
                raise zipfile.BadZipFile
    # Not memory-mapped: the file may be replaced, which Windows refuses for a mapped one, or cut, which kills us.
    return torch.load(path, map_location="cpu", weights_only=True, mmap=False)


def _checked(loaded: Any, path: Path) -> dict[str, Any]:
    if not isinstance(loaded, dict):
        raise _refused(Message("“{name:word}” is not a checkpoint", {"name": str(path)}))
    lacking = [key for key, kind in _KINDS.items() if not isinstance(loaded.get(key), kind)]
    lacking += [f"model_args.{key}" for key in SHAPE if not lacking and key not in loaded["model_args"]]
    if lacking:
        facts = {"name": str(path), "keys": ", ".join(lacking)}
        raise _refused(Message("“{name:word}” is not a complete checkpoint: it lacks {keys:word}", facts))
    wrong = _wrong_figure(loaded)
    if wrong is not None:
        facts = {"name": str(path), "key": wrong[0], "value": wrong[1]}
        raise _refused(Message("“{name:word}” cannot be resumed from: {key:word} is {value:word}", facts))
    return cast(dict[str, Any], loaded)


def _wrong_figure(loaded: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first figure that no training can have produced, and its value."""
    args, at, best = loaded["model_args"], loaded["iter_num"], loaded["best_val_loss"]
    if type(at) is not int or not 0 <= at < 2**53:  # the largest integer range that a float counts without gaps
        return "iter_num", f"{at:.20g}"
    for key in SHAPE:
        whole = type(args[key]) is int and 0 < args[key] < 2**31
        if not (type(args[key]) is bool if key == "bias" else whole):
            return f"model_args.{key}", repr(args[key])[:20]
    if args["n_embd"] % args["n_head"]:
        return "model_args.n_head", str(args["n_head"])
    if isinstance(best, Tensor) and best.numel() != 1:
        return "best_val_loss", "×".join(map(str, best.shape))
    if not math.isfinite(best):
        return "best_val_loss", str(float(best))
    for name, weight in loaded["model"].items():
        if not isinstance(weight, Tensor) or weight.layout != torch.strided or not weight.is_floating_point():
            return str(name), weight.type() if isinstance(weight, Tensor) else type(weight).__name__
    for tensor in tensors_of({"model": loaded["model"], "optimizer": loaded["optimizer"]}):
        # A single number may be expanded to a tensor of any size: do not look into one like that.
        if tensor.layout != torch.strided or tensor.nbytes > tensor.untyped_storage().nbytes():
            return "model", "×".join(map(str, tensor.shape))
        if not torch.isfinite(tensor).all():
            name = next((name for name, weight in loaded["model"].items() if weight is tensor), "optimizer")
            return str(name), "nan"
    try:
        point_of(loaded)
    except ValueError:
        return RESUME, type(loaded[RESUME]).__name__
    return None


def _refused(what: Message) -> CheckpointError:
    return CheckpointError(
        what, Message("name the directory of another run with --out_dir, or start over with --init_from=scratch")
    )


def model_state(loaded: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights under the names of the plain model: a compiled model puts a prefix in front of each."""
    return {name.removeprefix("_orig_mod."): tensor for name, tensor in loaded["model"].items()}


# --- resuming exactly -------------------------------------------------------------------------------------------


class ResumePoint(NamedTuple):
    """The state of the random numbers and the data, so that a resumed run has the losses of one that never stopped.

    It is taken at the start of a turn, before the evaluation of that turn, which a resumed run repeats. Batches are
    drawn ahead, so it contains those that no step has used yet.
    """

    seed: int
    generator: Tensor
    """The host's state, common to all ranks: for drawing the data, and for dropout on a single CPU."""
    own: tuple[Tensor | None, ...]
    """Each rank's own state, for dropout: its card's, or on CPUs a second one."""
    batches: tuple[Tensor, ...]
    """The starts of the sequences of each batch that was drawn but not trained on yet."""
    scaler: Mapping[str, Any]

    def as_plain(self) -> dict[str, Any]:
        """Names to tensors and plain data, as in a checkpoint."""
        return {**self._asdict(), "own": list(self.own), "batches": list(self.batches), "scaler": dict(self.scaler)}


def point_of(checkpoint: Mapping[str, Any]) -> ResumePoint | None:
    """The resume point in a checkpoint; None in nanoGPT's own. Raises ValueError if it is not valid."""
    if RESUME not in checkpoint:
        return None
    held = checkpoint[RESUME]
    try:
        point = ResumePoint(**{name: held[name] for name in ResumePoint._fields})
        point = point._replace(own=tuple(point.own), batches=tuple(point.batches))
        torch.Generator().set_state(point.generator)
        fits = (
            type(point.seed) is int
            and all(own is None or own.dtype == torch.uint8 for own in point.own)
            and all(starts.dtype == torch.int64 and starts.dim() == 1 and len(starts) for starts in point.batches)
            and (not point.scaler or set(point.scaler) == set(torch.amp.GradScaler("cpu").state_dict()))
            and all(isinstance(value, int | float) and math.isfinite(value) for value in point.scaler.values())
        )
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(RESUME) from error
    if not fits:
        raise ValueError(RESUME)
    return point
