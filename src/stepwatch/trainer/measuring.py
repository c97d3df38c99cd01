"""Measures this machine in about a minute: products, memory, launches, the parts of a step, torch.save, compiling."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from stepwatch.errors import InputError, UnknownGpu, UsageError
from stepwatch.gpus.calibration import COMPILED_LAYERS, SEQUENCES, Axis, Calibration, Curve, Measurement, processor_name
from stepwatch.gpus.driver import this_card
from stepwatch.messages import Message
from stepwatch.platforms import allowed_processors, load_average, physical_memory_bytes
from stepwatch.trainer import parts
from stepwatch.trainer.model import GPT, GPTConfig

Clock = Callable[[], float]
Report = Callable[[Message], None]

ROUNDS = 2  # over everything, so that a disturbance of some seconds affects only half of the samples of a point
ROUND_S = 0.05
LONG_S = 0.4  # what takes longer is done once per round
LAYER = (Axis("tokens", (32, 128, 512, 2048)), Axis("n_embd", (64, 128, 256, 512)))
ATTENTION = (Axis("block_size", (32, 128, 512, 1024)), Axis("head_size", (16, 64)))
SCORES = (Axis("block_size", (32, 128, 512)), Axis("head_size", (16, 64)))
# On both sides of 32 MB, above which glibc takes fresh pages for every tensor.
HEAD = (
    Axis("logits", (2**14, 2**21, 7 * 2**20, 9 * 2**20, 12 * 2**20)),
    Axis("vocab_size", (2048, 32768)),
    Axis("n_embd", (64, 256)),
)
EMBEDDING = (Axis("elements", (2**12, 2**18, 2**22, 7 * 2**20, 9 * 2**20, 2**24)),)
OPTIMIZER = Axis("elements", (2**6, 2**16, 2**20, 2**22, 7 * 2**20, 9 * 2**20, 2**24))
MOST_TENSORS, ENOUGH_ELEMENTS = 32, 2**22  # this many, or until they exceed any cache
MATMUL_SIZES = {"cpu": (64, 128, 256, 512, 1024, 2048), "cuda": (512, 1024, 2048, 4096, 8192)}
DTYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "tf32", "float16", "bfloat16")}
COPY_BYTES = {"cpu": 2**27, "cuda": 2**29}
LAUNCHES = 1000
SAVE_BYTES, LEAST_SAVE_BYTES, SMALL_TENSORS = 120 * 2**20, 2**20, 120


class Timer:
    """Times an act repeatedly, with any clock; waits for the work that is queued on a card."""

    def __init__(self, clock: Clock, finish: Callable[[], None]) -> None:
        self._clock, self._finish = clock, finish

    def samples(self, act: parts.Act, *, warm: bool = True, fewest: int = 1) -> Iterator[float]:
        """As many samples as a round allows; the first try is left out if the act is not warm yet."""
        first = self.once(act) if warm else 0.0
        spent, count = 0.0, 0
        while count < fewest or spent < ROUND_S or (count < 2 and max(first, spent) < LONG_S):
            taken = self.once(act)
            spent, count = spent + taken, count + 1
            yield taken

    def once(self, act: parts.Act) -> float:
        start = self._clock()
        act()
        self._finish()
        return self._clock() - start

    def figure(self, act: parts.Act) -> Measurement:
        return figure_of([taken for _ in range(ROUNDS) for taken in self.samples(act)])


def figure_of(samples: Sequence[float], *, unit: str = "s", amount: float | None = None) -> Measurement:
    """The median and the quartiles; with an amount, as a rate."""
    values = sorted(amount / max(taken, 1e-9) if amount else max(taken, 1e-9) for taken in samples)
    quarter = len(values) // 4
    return Measurement(statistics.median(values), values[quarter], values[-1 - quarter], unit)


def calibrate(
    device: str | None = None,
    directory: str = ".",
    *,
    compiles: bool = True,
    clock: Clock = time.perf_counter,
    report: Report = lambda message: None,
) -> Calibration:
    """Writes nothing but a file in `directory`, which is removed; raises UsageError for a missing device."""
    device = _device(device)
    torch.manual_seed(0)
    timer = Timer(clock, torch.cuda.synchronize if device == "cuda" else lambda: None)
    report(Message("torch.save"))
    before, load = _waited_and_ran_s(), (load_average() or 0.0) / allowed_processors()
    saved = saving(timer, directory, device)  # first what may fail
    report(Message("matrix products, memory, launches"))
    figures, curves = ceilings(timer, device)
    if device == "cpu":
        report(Message("the parts of a training step"))
        curves |= part_curves(timer)
        figures |= part_figures(timer)
    if clock is time.perf_counter:  # a clock of this process alone does not see other programs
        saved["waiting"] = figure_of([waiting(before, load)], unit="1")
    figures |= saved
    if compiles:
        report(Message("torch.compile"))
        figures |= compiling(timer, device)
    driver = None
    with suppress(UnknownGpu):
        driver = this_card().driver_version if device == "cuda" else None
    memory = torch.cuda.get_device_properties(0).total_memory if device == "cuda" else None
    return Calibration(
        device=device,
        name=torch.cuda.get_device_name() if device == "cuda" else processor_name(),
        processor=processor_name(),
        cores=allowed_processors(),
        threads=torch.get_num_threads(),
        memory_bytes=float(memory) if memory is not None else physical_memory_bytes(),
        torch=str(torch.__version__),
        driver=driver,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        figures=figures,
        curves=curves,
    )


def waiting(before: tuple[float, float] | None, load: float) -> float:
    """How many times longer than alone the measurement took: 2 if a thread waited for a processor as long as it ran.

    As counted by Linux; elsewhere by the load before the measurement.
    """
    now = _waited_and_ran_s()
    if before is None or now is None or now[1] <= before[1]:
        return 1.0 + load
    return 1.0 + max(now[0] - before[0], 0.0) / (now[1] - before[1])


def _waited_and_ran_s() -> tuple[float, float] | None:
    """For all threads of this process: how long they waited for a processor, and how long they had one."""
    try:
        tasks = [path.read_text("ascii").split() for path in Path("/proc/self/task").glob("*/schedstat")]
        return sum(int(task[1]) for task in tasks) / 1e9, sum(int(task[0]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _device(name: str | None) -> str:
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            Message("torch finds no CUDA card in this machine"), Message("leave --device out, or give --device cpu")
        )
    return name


# --- ceilings ---------------------------------------------------------------------------------------------------


def ceilings(timer: Timer, device: str) -> tuple[dict[str, Measurement], dict[str, Curve]]:
    figures: dict[str, Measurement] = {}
    curves: dict[str, Curve] = {}
    for dtype in DTYPES[device]:
        curve = matmul_curve(timer, device, dtype)
        if curve is not None:
            curves[f"matmul_{dtype}"] = curve
            figures[f"matmul_{dtype}"] = max(curve.figures)
    source = torch.empty(COPY_BYTES[device] // 4, device=device).fill_(1.0)
    target = torch.empty_like(source)
    copies = [taken for _ in range(ROUNDS) for taken in timer.samples(lambda: target.copy_(source))]
    figures["bandwidth"] = figure_of(copies, unit="B/s", amount=2.0 * COPY_BYTES[device])
    small = torch.zeros(1, device=device)
    figures["launch"] = timer.figure(lambda: [small.add_(1.0) for _ in range(LAUNCHES)]).over(LAUNCHES)
    return figures, curves


def matmul_curve(timer: Timer, device: str, dtype: str) -> Curve | None:
    """FLOP/s of square products; sizes that take too long are left out. None if the dtype is not available."""
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    allowed, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, dtype == "tf32"
    points: dict[int, Measurement] = {}
    try:
        for size in MATMUL_SIZES[device]:
            left, right = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
            taken = list(timer.samples(lambda left=left, right=right: left @ right))  # type: ignore[misc]
            points[size] = figure_of(taken, unit="FLOP/s", amount=2.0 * size**3)
            if min(taken) > LONG_S / 4:
                break
    except RuntimeError:  # no such product on this device, or not enough memory
        pass
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    return Curve((Axis("size", tuple(points)),), tuple(points.values())) if len(points) > 1 else None


# --- the parts of a step ----------------------------------------------------------------------------------------


def part_curves(timer: Timer) -> dict[str, Curve]:
    """Each part over its sizes: the forward pass as in an evaluation, and both passes as in a step."""
    flash = partial(parts.attention, sequences=SEQUENCES)
    return {
        **_pair_curves(timer, "layer", LAYER, parts.layer),
        **_pair_curves(timer, "attention", ATTENTION, flash),
        **_pair_curves(timer, "scores", SCORES, partial(flash, dropout=0.1)),
        **_pair_curves(timer, "head", HEAD, parts.head),
        **_pair_curves(timer, "embedding", EMBEDDING, parts.embedding),
        "optimizer": optimizer_curve(timer),
    }


def _pair_curves(timer: Timer, name: str, axes: tuple[Axis, ...], make: Callable[..., parts.Pair]) -> dict[str, Curve]:
    grid = list(itertools.product(*(axis.points for axis in axes)))
    forward: list[list[float]] = [[] for _ in grid]
    both: list[list[float]] = [[] for _ in grid]
    for turn in range(ROUNDS):
        for place, point in enumerate(grid):
            pair = make(*map(int, point))
            both[place] += timer.samples(pair.both, warm=turn == 0)
            forward[place] += timer.samples(pair.forward, warm=turn == 0)
    return {
        f"{name}_forward": Curve(axes, tuple(map(figure_of, forward))),
        f"{name}_both": Curve(axes, tuple(map(figure_of, both))),
    }


def optimizer_curve(timer: Timer) -> Curve:
    """Seconds for one tensor, by its size: large ones need fresh pages for intermediate results."""
    figures = []
    for elements in map(int, OPTIMIZER.points):
        count = min(MOST_TENSORS, max(1, ENOUGH_ELEMENTS // elements))
        figures.append(timer.figure(parts.optimizer([elements] * count)).over(count))
    return Curve((OPTIMIZER,), tuple(figures))


def part_figures(timer: Timer) -> dict[str, Measurement]:
    """Costs per element or sequence, which need no curve."""
    dropped, elements = parts.dropout(2**20), 2**20
    plain, biased = (timer.figure(parts.layer(256, 256, bias=bias).both) for bias in (False, True))
    sequence = timer.figure(parts.batch(16, 256)).over(16)
    return {
        "dropout_element": timer.figure(dropped.both).over(elements),
        "bias": biased.over(plain.value, "1"),
        "batch_sequence": sequence,
    }


# --- the disk and the compiler ----------------------------------------------------------------------------------


def saving(timer: Timer, directory: str, device: str = "cpu") -> dict[str, Measurement]:
    """The time of torch.save per byte and per tensor, overwriting the previous file as nanoGPT does."""
    try:
        free = shutil.disk_usage(directory).free
        size = min(SAVE_BYTES, int(free * 0.25))  # a quarter of the disk at most
        if size < LEAST_SAVE_BYTES:
            raise InputError(
                Message(
                    "there is too little space on the disk to measure torch.save: {free:size} free", {"free": free}
                ),
                Message("free some space, or name another directory with --directory"),
            )
        handle, path = tempfile.mkstemp(dir=directory, prefix=".stepwatch-", suffix=".pt")
        os.close(handle)
        try:
            small = parts.checkpoint(SMALL_TENSORS // 4, device)
            tensor = timer.figure(lambda: torch.save(small(), path)).over(SMALL_TENSORS)
            large = {str(place): torch.zeros(size // 4 // 12, device=device) for place in range(12)}
            taken: list[float] = []
            for _ in range(ROUNDS):
                # Single saves take up to twice as long.
                taken += timer.samples(lambda: torch.save(large, path), fewest=6)
        finally:
            os.unlink(path)
    except OSError as error:
        reason = {"reason": error.strerror or type(error).__name__}
        raise InputError(
            Message("torch.save cannot write there: {reason:word}", reason),
            Message("name another directory with --directory"),
        ) from error
    overhead = 12 * tensor.value
    rate = figure_of([max(seconds - overhead, seconds / 2) for seconds in taken], unit="B/s", amount=float(size))
    return {"save_tensor": tensor, "save_rate": rate}


def compiling(timer: Timer, device: str) -> dict[str, Measurement]:
    """First minus later step of a small compiled model without caches; empty if torch.compile does not work here."""
    import torch._inductor.config as inductor

    shape = GPTConfig(n_layer=COMPILED_LAYERS, n_head=2, n_embd=128, block_size=128, vocab_size=512, bias=False)
    model = GPT(shape).to(device)
    text = torch.randint(512, (8, 128), device=device)
    before, inductor.force_disable_caches = inductor.force_disable_caches, True
    try:
        torch._dynamo.reset()
        compiled = torch.compile(model)
        start = time.perf_counter()  # includes the compiler's other processes, whatever the clock
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # caching is off on purpose
            compiled(text, text)[1].backward()
            with torch.no_grad():
                compiled(text, text)
        first = time.perf_counter() - start
    except Exception:  # no C++ compiler, no Triton, a Python that dynamo does not know: each raises its own error
        return {}
    finally:
        inductor.force_disable_caches = before
    quick, plain = (timer.figure(lambda made=made: made(text, text)[1].backward()) for made in (compiled, model))  # type: ignore[misc]
    seconds = max(first - plain.value * 4 / 3, 1e-3)
    return {"compile": Measurement(seconds, seconds, seconds), "compiled_share": quick.over(plain.value, "1")}
