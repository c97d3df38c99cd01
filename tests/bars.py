"""Logs as trainers with tqdm's bars write them, from known step times."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SMOOTHING = 0.3


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def rate(seconds: float) -> str:
    return f"{seconds:5.2f}s/it" if seconds > 1 else f"{1 / seconds:5.2f}it/s"


def drawing(title: str, done: int, total: int, elapsed: float, shown: str, more: str = "") -> str:
    full = 10 * done // total
    left = clock(elapsed / done * (total - done)) if done else "?"
    bar = "█" * full + " " * (10 - full)
    return f"{title}{100 * done // total:3d}%|{bar}| {done}/{total} [{clock(elapsed)}<{left}, {shown}{more}]"


@dataclass
class TrainerLog:
    """A run of the Hugging Face Trainer: what it prints, and the times that it really took."""

    steps: int = 400
    step_s: float = 1.7
    log_every: int = 10
    eval_every: int = 0
    eval_s: float = 12.5
    save_every: int = 0
    save_s: float = 4.0
    first_s: float = 9.0
    start: int = 0
    per_epoch: int = 200
    quoted: bool = False
    title: str = ""
    seed: int = 1
    times: dict[int, float] = field(default_factory=dict)

    def lines(self) -> list[str]:
        rng = random.Random(self.seed)
        lines = [drawing(self.title, 0, self.steps, 0, "?it/s")]
        elapsed = since = 0.0
        counts = spent = 0.0
        position = 0
        for step in range(self.start + 1, self.steps + 1):
            took = self.step_s * rng.uniform(0.9, 1.15) + (self.first_s if step == self.start + 1 else 0.0)
            self.times[step] = took
            elapsed, since = elapsed + took, since + took
            counts = SMOOTHING * (step - position) + (1 - SMOOTHING) * counts
            spent = SMOOTHING * since + (1 - SMOOTHING) * spent
            position, since = step, 0.0
            bar = drawing(self.title, step, self.steps, elapsed, rate(spent / counts))
            lines.append(bar)
            pause = 0.0
            if step % self.log_every == 0:
                lines += [
                    "",
                    self.dictionary(loss=round(8 / step**0.5, 4), grad_norm=0.6132, learning_rate=4.9e-05, step=step),
                    bar,
                ]
            if self.eval_every and step % self.eval_every == 0:
                lines += [drawing("", i, 38, self.eval_s * i / 38, rate(self.eval_s / 38)) for i in (2, 19, 38)]
                lines.append(
                    self.dictionary(eval_loss=2.25, eval_runtime=self.eval_s, eval_steps_per_second=3.04, step=step)
                )
                pause += self.eval_s
            if self.save_every and step % self.save_every == 0:
                lines.append(f"Saving model checkpoint to out/checkpoint-{step}")
                pause += self.save_s
            elapsed, since = elapsed + pause, since + pause
        self.elapsed = elapsed
        lines.append(
            self.dictionary(
                train_runtime=round(elapsed, 4),
                train_steps_per_second=round(self.steps / elapsed, 3),
                train_loss=1.9,
                step=self.steps,
            )
        )
        return lines

    def dictionary(self, *, step: int, **values: float) -> str:
        values["epoch"] = float(f"{step / self.per_epoch:.4g}")
        if self.quoted:
            return "{" + ", ".join(f"'{name}': '{value:.4g}'" for name, value in values.items()) + "}"
        return str(values)

    def text(self) -> str:
        return "\n".join(self.lines()) + "\n"
