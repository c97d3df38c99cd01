"""Logs of many trainers from planted step times, and the last words of runs that ended badly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from tests.bars import SMOOTHING, drawing, rate

STARTED = datetime(2025, 6, 1, 12, 0, 0)


class Step(NamedTuple):
    """A step that is logged."""

    number: int
    end: int
    seconds: float
    """Mean since the line before."""
    loss: str
    at_s: float
    """When it ended, since the first step began."""
    smooth_s: float
    """As tqdm's bars show it."""

    @property
    def ms(self) -> float:
        return 1000 * self.seconds

    def stamp(self, digits: int) -> str:
        whole = (STARTED + timedelta(seconds=10 + self.at_s)).isoformat(sep=" ", timespec="microseconds")
        return whole[: digits - 6 or None]


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """How a trainer writes."""

    line: Callable[[Step], str]
    every: int = 1
    header: str = ""
    """May name the last iteration as {end}."""
    tells_end: bool = True
    saved: str = ""
    """What it prints when it has written a checkpoint at iteration {at}."""

    def lines(
        self,
        times: Sequence[float],
        *,
        end: int | None = None,
        lost_from: int | None = None,
        header: bool = True,
        saves: Sequence[int] = (),
    ) -> list[str]:
        """A line for each of the times; from the row `lost_from` on the loss is nan."""
        end = self.every * len(times) if end is None else end
        lines = [*self.header.replace("{end}", str(end)).splitlines()] if header else []
        at_s = counts = spent = 0.0
        for row, seconds in enumerate(times):
            at_s += seconds * self.every
            loss = "nan" if lost_from is not None and row >= lost_from else f"{3 + 1 / (row + 1):.4f}"
            number = self.every * (row + 1)
            counts, spent = (SMOOTHING * new + (1 - SMOOTHING) * old for new, old in ((1, counts), (seconds, spent)))
            if row in saves:
                lines.append(self.saved.replace("{at}", str(number)))
            lines.append(self.line(Step(number, end, seconds, loss, at_s, spent / counts)))
        return lines


def _nanogpt(step: Step) -> str:
    return f"iter {step.number}: loss {step.loss}, time {step.ms:.2f}ms, mfu 12.00%"


def _nanochat(step: Step) -> str:
    share = 100 * step.number / step.end
    return (
        f"step {step.number:05d}/{step.end:05d} ({share:.2f}%) | loss: {step.loss} | lrm: 1.00 | dt: {step.ms:.2f}ms | "
        f"tok/sec: 55,690 | bf16_mfu: 44.70 | epoch: 1 | total time: {step.at_s / 60:.2f}m"
    )


def _llm_c(step: Step) -> str:
    return (
        f"step {step.number:4d}/{step.end} | loss {step.loss} (-0.41z)| norm 0.4410 (+0.12z)| lr 2.15e-04 | "
        f"{step.ms:.2f} ms | 51.2% bf16 MFU | 435201 tok/s"
    )


def _torchtitan(step: Step) -> str:
    return (
        f"[rank0]:[titan] {step.stamp(3).replace('.', ',')} - root - INFO - step: {step.number:2}  loss:  {step.loss}"
        f"  grad_norm:  0.4410  memory: 41.20GiB(51.50%)  tps: {round(16384 / step.seconds):,}"
        "  tflops: 198.40  mfu: 43.59%"
    )


def _megatron(step: Step) -> str:
    return (
        f" [{step.stamp(6)}] iteration {step.number:8d}/{step.end:8d} | consumed samples: {256 * step.number:12d} | "
        f"elapsed time per iteration (ms): {step.ms:.1f} | throughput per GPU (TFLOP/s/GPU): 402.7 | learning rate: "
        f"2.950000E-04 | global batch size:   256 | lm loss: {step.loss} | loss scale: 1.0 | grad norm: 0.214 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def _litgpt(step: Step) -> str:
    return (
        f"Epoch 1 | iter {step.number} step {step.number} | loss train: {step.loss}, val: n/a | "
        f"iter time: {step.ms:.2f} ms (step) remaining time: 0:12:09"
    )


def _build_nanogpt(step: Step) -> str:
    return (
        f"step {step.number:5d} | loss: {step.loss} | lr 2.1063e-04 | norm: 0.9477 | dt: {step.ms:.2f}ms | "
        f"tok/sec: {524288 / step.seconds:.2f}"
    )


def _hf_trainer(step: Step) -> str:
    bar = drawing("", step.number, step.end, step.at_s, rate(step.smooth_s))
    return f"{{'loss': {step.loss}, 'grad_norm': 1.07, 'learning_rate': 1.6e-05, 'epoch': 0.4}}\n{bar}"


def _lightning(step: Step) -> str:
    more = f", v_num=0, train_loss={step.loss}"
    return drawing("Epoch 0: ", step.number, step.end, step.at_s, rate(step.smooth_s), more)


TRAINERS: Mapping[str, Trainer] = {
    "nanogpt": Trainer(
        line=_nanogpt,
        every=10,
        header="Overriding config with config/train_planted.py:\nlog_interval = 10\nmax_iters = {end}\n\n"
        "tokens per iteration will be: 16,384\nnumber of parameters: 10.65M\n",
        saved="saving checkpoint to out",
    ),
    "nanochat": Trainer(
        line=_nanochat,
        header="GPU: NVIDIA H100 80GB HBM3 | Peak FLOPS (BF16): 9.89e+14\nEstimated FLOPs per token: 3.199226e+09\n"
        "Total batch size 524,288 => gradient accumulation steps: 4\n"
        "Calculated number of iterations from target data:param ratio: {end}\n",
    ),
    "llm.c": Trainer(
        line=_llm_c,
        header="| batch size B          | 64                                                 |\n"
        "| train_num_batches     | {end}                                              |\n",
        saved="Writing checkpoint at step {at}",
    ),
    "torchtitan": Trainer(
        line=_torchtitan,
        every=10,
        header="[rank0]:[titan] 2025-06-01 12:00:01,118 - root - INFO - Trainer is initialized with local batch "
        "size 4, global batch size 16, gradient accumulation steps 1, sequence length 4096,"
        " total steps {end} (warmup 200)\n"
        "[rank0]:[titan] 2025-06-01 12:00:10,000 - root - INFO - Training starts at step 1\n",
    ),
    "megatron": Trainer(
        line=_megatron,
        every=10,
        header="using world size: 8, data-parallel size: 8\n  train_iters .............................. {end}\n",
    ),
    "litgpt": Trainer(line=_litgpt, tells_end=False),
    "build-nanogpt": Trainer(line=_build_nanogpt, tells_end=False, header="total desired batch size: 524288\n"),
    "hf-trainer": Trainer(
        line=_hf_trainer,
        header="***** Running training *****\n  Total optimization steps = {end}\n"
        "  0%|          | 0/{end} [00:00<?, ?it/s]\n",
    ),
    "lightning": Trainer(line=_lightning, tells_end=False),
}


def _titan(text: str) -> str:
    return f"[rank0]:[titan] 2025-06-01 12:00:01,118 - root - INFO - {text}\n"


def _row(name: str, value: object) -> str:
    return f"| {name:<21} | {value:<50} |\n"


def on_an_h100(trainer: str, times: Sequence[float]) -> list[str]:
    """Steps of about 16 thousand tokens of a model with about a billion parameters, on one card that the log names."""
    text = "\n".join(TRAINERS[trainer].lines(times))
    heads = {
        "torchtitan": _titan("CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory")
        + _titan("Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=1, cp=1, tp=1, ep=1, etp=1")
        + _titan("Model llama3 1B size: 1,235,814,400 total parameters"),
        "nanochat": "",
        "llm.c": _row("device", "NVIDIA H100 80GB HBM3")
        + _row("num_parameters", "774030080")
        + _row("total batch size", "32768"),
    }
    text = text.replace("524,288", "32,768").replace("global batch size 16,", "global batch size 4,")
    tflops = 16384 / float(np.median(times)) * 6 * 1.2358144e9 / 1e12
    return (heads[trainer] + text.replace("tflops: 198.40", f"tflops: {tflops:.2f}")).splitlines()


class Ending(NamedTuple):
    """The last lines of a run that crashed."""

    text: str
    quoted: str
    """How the line begins that says why."""


def traceback(error: str, code: str = "loss.backward()", prefix: str = "") -> str:
    lines = (
        "Traceback (most recent call last):",
        '  File "/home/u/train_gpt.py", line 231, in <module>',
        "    main()",
        '  File "/home/u/train_gpt.py", line 187, in main',
        f"    {code}",
        "    ^^^^^^^^^^^^^^^",
        error,
    )
    return "".join(f"{prefix}{line}\n" for line in lines)


OOM_2 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.07 GiB. GPU 0 has a total capacity of 11.99 GiB "
    "of which 1.02 GiB is free. Including non-PyTorch memory, this process has 10.85 GiB memory in use. Of the "
    "allocated memory 9.60 GiB is allocated by PyTorch, and 1.01 GiB is reserved by PyTorch but unallocated. If "
    "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation."
)
OOM_1 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 20.10 GiB already "
    "allocated; 1.12 GiB free; 20.90 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
    "setting max_split_size_mb to avoid fragmentation."
)
WATCHDOG = (
    "[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1243, "
    "OpType=ALLREDUCE, NumelIn=7077888, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)
LAUNCHER = (
    "W0601 12:44:10.131632 1454012 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 1454033 "
    "closing signal SIGTERM\n"
    "E0601 12:44:10.198523 1454012 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) "
    "local_rank: 3 (pid: 1454032) of binary: /usr/bin/python3\n"
)
CHILD_FAILED = traceback(
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "raise ChildFailedError("
)
SIGTERM = "  traceback : Signal 15 (SIGTERM) received by PID 1454032"
TIME_LIMIT = "slurmstepd: error: *** JOB 11672255 ON g084 CANCELLED AT 2025-06-01T14:20:29 DUE TO TIME LIMIT ***"

CRASHES: Mapping[str, Ending] = {
    name: Ending(text if text.endswith("\n") else text + "\n", quoted)
    for name, (text, quoted) in {
        "memory, PyTorch 2": (traceback(OOM_2), OOM_2),
        "memory, PyTorch 1": (traceback(OOM_1), OOM_1),
        "memory, HIP": (
            traceback("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB."),
            "torch.OutOfM",
        ),
        "memory, MPS": (
            traceback("RuntimeError: MPS backend out of memory (MPS allocated: 17.50 GB, max allowed: 18.13 GB)."),
            "RuntimeError: MPS backend",
        ),
        "memory, XLA": (
            traceback(
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
                "13421772800 bytes."
            ),
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED",
        ),
        "memory, TensorFlow": (
            traceback(
                "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with "
                "shape[64,1024,50304] and type float on /job:localhost/replica:0/task:0/device:GPU:0"
            ),
            "tensorflow.python.framework.errors_impl.ResourceExhausted",
        ),
        "memory, C": ("[CUDA ERROR] at file train_gpt2.cu:1180:\nout of memory", "out of memory"),
        "memory of one rank, the others follow": (
            traceback(OOM_2, prefix="[rank3]: ")
            + f"[rank1]:{WATCHDOG}\n"
            + traceback("torch.distributed.DistBackendError: NCCL error in: Utils.hpp:317", prefix="[rank1]: ")
            + LAUNCHER
            + CHILD_FAILED
            + SIGTERM,
            OOM_2,
        ),
        "memory, then interrupted as the others hang": (
            traceback(OOM_2, prefix="[rank0]: ") + "^C" + traceback("KeyboardInterrupt"),
            OOM_2,
        ),
        "memory, with timestamps": (traceback(OOM_2, prefix="2025-06-01T12:44:10.120Z "), OOM_2),
        "memory, as it is raised again": (
            traceback(OOM_2, 'raise RuntimeError("CUDA out of memory, see above") from error'),
            OOM_2,
        ),
        "illegal access": (
            traceback("RuntimeError: CUDA error: an illegal memory access was encountered")
            + "CUDA kernel errors might be asynchronously reported at some other API call.\n",
            "RuntimeError: CUDA error: an illegal",
        ),
        "assert on the device": (
            "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [412,0,0], thread: "
            "[95,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
            + traceback("torch.AcceleratorError: CUDA error: device-side assert triggered"),
            "torch.AcceleratorError: CUDA error: device-side",
        ),
        "NCCL watchdog": (f"[rank3]:{WATCHDOG}\n" + LAUNCHER + CHILD_FAILED + SIGTERM, "Watchdog caught collective"),
        "NCCL error": (
            traceback("torch.distributed.DistBackendError: NCCL error in: Group.cpp:1970, unhandled system error"),
            "torch.distributed.DistBackendError: NCCL error",
        ),
        "an error": (traceback("ValueError: cannot reshape array of size 1023"), "ValueError: cannot"),
        "an error without words": (traceback("AssertionError"), "AssertionError"),
        "a file": (traceback("FileNotFoundError: [Errno 2] No such file or directory: 'x.bin'"), "FileNotFoundError"),
        "an error under torchrun": (
            traceback("[rank0]: KeyError: 'input_ids'", prefix="[rank0]:") + LAUNCHER + CHILD_FAILED,
            "KeyError: 'input_ids'",
        ),
        "memory of the host": (
            traceback("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array"),
            "numpy._core._exceptions._ArrayMemoryError",
        ),
        "the end of the data": (traceback("StopIteration"), "StopIteration"),
        "segmentation": ("Fatal Python error: Segmentation fault\n", "Fatal Python error: Seg"),
        "killed": ("Killed", "Killed"),
        "killed, by the shell": ("./run.sh: line 12: 23456 Killed          python train.py", "./run.sh: line 12"),
        "time limit": (TIME_LIMIT, TIME_LIMIT),
        "host memory, by Slurm": (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=8711.0. Some of the step tasks were OOM Killed.",
            "slurmstepd: error: Detected 1 oom_kill",
        ),
        "SIGTERM, by torchrun": (LAUNCHER.replace(": 1)", ": -15)") + CHILD_FAILED + SIGTERM, SIGTERM.strip()),
        "preempted": (
            traceback("torch.distributed.elastic.multiprocessing.api.SignalException: Process 1454012 got signal: 15"),
            "torch.distributed.elastic.multiprocessing.api.SignalException",
        ),
        "disk": (traceback("OSError: [Errno 28] No space left on device: 'out/ckpt.pt'"), "OSError: [Errno 28]"),
        "disk, by PyTorch": (
            traceback("RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 576 vs 470")
            + "OSError: [Errno 28] No space left on device\n",
            "OSError: [Errno 28]",
        ),
    }.items()
}

INTERRUPTIONS = {
    "by hand": traceback("KeyboardInterrupt"),
    "by hand, on the terminal": "^C" + traceback("KeyboardInterrupt"),
    "by hand, with a worker": traceback("KeyboardInterrupt")
    + traceback("RuntimeError: DataLoader worker (pid(s) 4021) exited unexpectedly"),
    "by hand, under torchrun": traceback(
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1454012 got signal: 2"
    ),
    "by hand, in Lightning": "Detected KeyboardInterrupt, attempting graceful shutdown ...\n",
}

HARMLESS = {
    "a warning": "WARNING: CUDA out of memory in the evaluation, it was skipped\n",
    "a warning of Python": "train.py:88: UserWarning: NCCL error handling is not set\n",
    "a warning of dynamo": "W0517 14:37:26.164198 11960 torch/_dynamo/convert_frame.py:824] RuntimeError: no triton\n",
    "an option": "NCCL_DEBUG=INFO TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n",
    "a name of a file": "reading data/RuntimeError.txt and KeyError_list.json\n",
    "source code": (
        "    try:\n        step()\n    except torch.cuda.OutOfMemoryError:\n        torch.cuda.empty_cache()\n"
        '    raise RuntimeError("CUDA error: give up")\n    # CUDA out of memory comes here\n'
        "    if signal == signal.SIGTERM:\n        return\n"
    ),
    "a comment of a config": "batch_size = 12 # 16 gives CUDA out of memory\n",
    "a loss by name": "Error rate: 0.12, max error 0.31\n",
    "a count of errors": "NCCL version 2.21.5+cuda12.4, 0 errors\n",
}
