"""The training loop, from top to bottom.

Each turn sets the learning rate, evaluates and saves if that is due, and takes a step: forward and backward over its
micro-batches, clip, update. Only the step is timed as a step. Random numbers are drawn in nanoGPT's order.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from stepwatch.errors import InputError
from stepwatch.messages import Message
from stepwatch.platforms import keep_freed_memory, quoted_path
from stepwatch.recorder import Recorder
from stepwatch.trainer import CheckpointError
from stepwatch.trainer import optimizer as optimizers
from stepwatch.trainer.config import TrainConfig
from stepwatch.trainer.data import Batches
from stepwatch.trainer.distributed import Ranks, check_sharding, joined
from stepwatch.trainer.eta import Expected, Pace
from stepwatch.trainer.evaluation import Evaluator, Interrupted
from stepwatch.trainer.hardware import choose_device
from stepwatch.trainer.keeper import CheckpointWriter, Saved, no_room, probe, unwritable
from stepwatch.trainer.log import Log
from stepwatch.trainer.resuming import RESUME, ResumePoint
from stepwatch.trainer.setup import Training, compile_and_share, prepare
from stepwatch.trainer.signals import Stop
from stepwatch.trainer.trackers import Profile, trackers


class NotFinite(InputError):
    """The loss is nan or infinite: the weights are useless."""


Estimate = Callable[[TrainConfig, int], Expected | str]
"""What to expect of these settings with a vocabulary of this size, or why that is unknown."""


def train(
    config: TrainConfig,
    ranks: Ranks,
    log: Log,
    *,
    samples: bool = False,
    estimate: Estimate | None = None,
    started: float | None = None,
) -> None:
    """A whole run: until max_iters, a request to stop, or a loss that is not finite.

    `started` is time.time() when the program began, so that the record includes its start-up.
    """

    def acknowledge(signal: str) -> None:
        log.hint(f"{signal}: stopping, and saving what was trained; once more ends at once, without saving")

    with Stop(under_torchrun=not ranks.is_alone, on_asked=acknowledge) as stop:
        directory = Path(config.out_dir)
        directory.mkdir(parents=True, exist_ok=True)
        if ranks.is_first and not config.eval_only:
            probe(directory)  # if that fails, better now than after an hour
        device = choose_device(config, ranks.local_rank)
        config = replace(config, device=device.device.type, dtype=device.dtype, compile=device.compile)
        if device.device.type == "cpu":
            keep_freed_memory()
        log.begin(device, config)
        if config.sharding == "fsdp":
            check_sharding(device)
        remark = ranks.join(config.backend, config.sharding, device.is_cuda)
        if remark is not None:
            log.say(f"note: {remark}")
        training = prepare(config, device, ranks, log)
        expected = None
        if estimate is not None and ranks.is_first and not config.eval_only:
            expected = estimate(config, training.raw.config.vocab_size)
            log.say(expected.line() if isinstance(expected, Expected) else f"estimate of the run: unknown; {expected}")
        began = time.perf_counter()
        with _recorder(training, directory, samples, started) as recorder:
            if device.compile:
                with recorder.compile():
                    compiled = compile_and_share(training, log)
                if not compiled:
                    recorder.describe(compile=False)
                log.say(f"compilation: {(time.perf_counter() - began) * 1e3:.2f}ms")
            else:
                compile_and_share(training, log)
            # All objects created so far stay: searching them for garbage would only delay a step.
            gc.freeze()
            gc.enable()
            loop = TrainingLoop(training, recorder, log, stop, directory)
            try:
                loop.run()
                if isinstance(expected, Expected) and loop.step_times:
                    is_whole = loop.first == 0 and training.iteration > config.max_iters
                    total_s = time.perf_counter() - began if is_whole else None
                    log.say(expected.verdict(statistics.median(loop.step_times), total_s))
            finally:
                loop.close()
                recorder.describe(peak_memory_bytes=device.peak_memory_bytes())
        ranks.leave()
        loop.check_last_save()
    log.hint(f"next: stepwatch explain {quoted_path(str(directory / 'run.jsonl'))}")


def _recorder(training: Training, directory: Path, samples: bool, started: float | None) -> Recorder:
    shape = {"n_params": training.raw.n_params(), "vocab_size": training.raw.config.vocab_size}
    return Recorder(
        directory / "run.jsonl",
        settings={**training.config.plain(), **shape},
        tokens_per_step=training.config.tokens_per_iter,
        flops_per_step=training.flops_per_iter,
        first_step=training.iteration,
        rank=training.ranks.rank,
        world_size=training.ranks.world_size,
        samples=samples,
        started=started,
    )


class TrainingLoop:
    """The loop and its state."""

    def __init__(self, training: Training, recorder: Recorder, log: Log, stop: Stop, directory: Path) -> None:
        self.training, self.recorder, self.log, self.stop = training, recorder, log, stop
        self.config, self.ranks, self.device = training.config, training.ranks, training.device
        place = self.device.device
        self.batches = MicroBatches(training.data.batches("train", place), self.config.batch_size, self.ranks)
        splits = {split: training.data.batches(split, place) for split in self.config.splits}
        self.evaluator = Evaluator(
            config=self.config, batches=splits, device=self.device, ranks=self.ranks,
            model=training.for_evaluation, plain=training.raw, asked_to_stop=lambda: stop.asked is not None,
            on_batch=lambda done, total: log.evaluating(training.iteration, done, total),
        )  # fmt: skip
        self.trackers = trackers(self.config, directory) if self.ranks.is_first else []
        self.saved: deque[Saved] = deque()  # written in the background, not reported yet
        self.waited: dict[int, float] = {}
        self.unsettled: int | None = None  # the save whose copy is in progress
        self.last_save_at: int | None = None
        writes = (self.ranks.is_first or self.ranks.shards) and not self.config.eval_only
        self.keeper = self._keeper(directory) if writes else None
        self.kept = training.resumed_from
        """The newest checkpoint that is complete."""
        self.last_save: Saved | None = None
        self.health = Health(training)
        self.pace = Pace()
        self.parameters = list(training.raw.parameters())
        self.first = training.iteration
        self.step_times = array("d")
        self.times_logged = 0  # how many of them the log has covered so far
        profiled = self.config.profile and self.ranks.is_first and not self.config.eval_only
        path = directory / "profile.json"
        self.profile = Profile(path, self.first, self.config.max_iters, log.say) if profiled else None
        self.mfu = -1.0  # unknown: nanoGPT prints -100 %
        self.stopping = self.is_ready = False

    def _keeper(self, directory: Path) -> CheckpointWriter:
        # Weights and two moments of each.
        size = 3 * sum(weight.numel() * weight.element_size() for weight in self.training.raw.parameters())
        lacking = no_room(directory, size)
        if lacking is not None:
            raise unwritable(directory, lacking)
        kind: type[CheckpointWriter] = CheckpointWriter
        if self.ranks.shards:
            from stepwatch.trainer.sharded import ShardedCheckpointWriter  # importing DCP takes a while

            kind = ShardedCheckpointWriter
        keeper = kind(
            directory,
            on_written=self.saved.append,
            resumed_from=self.training.resumed_from,
            keeps_best=self.keeps_best,
            copies=self.config.keep,
        )
        if not keeper.is_ours:
            self.log.say(f"note: {keeper.path} is of another run; the next checkpoint replaces it")
        return keeper

    # --- one turn after the other -------------------------------------------------------------------------------

    def run(self) -> None:
        training, config, first = self.training, self.config, self.first
        self.log.open_bar(first, config.max_iters + 1)
        if training.resumed_from is not None:
            self.restore(training.resume_point)
        self.batches.draw(1)
        if self.device.device.type == "cpu":
            training.optimizer.make_room()
        self.is_ready = bool(training.optimizer.state)
        if self.is_ready:
            self.make_ready()
        self.mark = time.perf_counter()
        while True:
            number = training.iteration
            if number > config.max_iters and not config.eval_only:
                self.log.say(f"note: max_iters is {config.max_iters}, and iteration {number} is next: nothing to train")
                break
            optimizers.set_learning_rate(training.optimizer, optimizers.learning_rate(number, config))
            if self.evaluates_at(number) or self.saves_at(number):
                training.resume_point = self.resume_point()
            try:
                improved = self.evaluate() if self.evaluates_at(number) else False
            except Interrupted:
                self.mark = time.perf_counter()
                if number > first:
                    self.save(stopped=True)
                self.log.say(f"stopped by {self.stop.asked or 'another rank'} in the evaluation at {number}")
                break
            if config.eval_only:
                break
            if number > first and self.saves_at(number, improved):
                self.save()
            if self.profile is not None:
                self.profile.before(number)
                self.mark = time.perf_counter()
            loss = self.step(number)
            self.report(number, number - first, loss)
            training.iteration += 1
            ends = training.iteration > config.max_iters
            if ends or self.stopping:
                if self.profile is not None:
                    self.profile.before(training.iteration)
                self.save_at_end()
                if not ends:
                    self.log.say(f"stopped by {self.stop.asked or 'another rank'} after iteration {number}")
                break
        self.wait_until_written()

    def make_ready(self) -> None:
        """Prepares for the first save."""
        if self.keeper is not None:
            self.keeper.expect(self.training.checkpoint())

    def evaluates_at(self, number: int) -> bool:
        return number % self.config.eval_interval == 0 or self.config.eval_only

    def saves_at(self, number: int, improved: bool = True) -> bool:
        """Decided by checkpoint_interval alone if it is set; else as in nanoGPT, at evaluations."""
        if self.config.checkpoint_interval:
            return number % self.config.checkpoint_interval == 0
        return self.evaluates_at(number) and (improved or self.config.always_save_checkpoint)

    @property
    def keeps_best(self) -> bool:
        """Whether ckpt.pt is the best model so far; other saves are written next to it."""
        return not (self.config.always_save_checkpoint or self.config.checkpoint_interval)

    # --- resuming exactly ---------------------------------------------------------------------------------------

    def resume_point(self) -> ResumePoint:
        card = self.device.generator_state()
        return ResumePoint(
            seed=self.config.seed,
            generator=torch.get_rng_state(),
            own=(card if card is not None else self.ranks.dropout_rng_state,),
            batches=self.batches.untrained_batches,
            scaler=self.training.scaler.state_dict(),
        )

    def restore(self, point: ResumePoint | None) -> None:
        """Restores random numbers and batches; leaves out what no longer fits the settings, with a note in the log."""
        if point is None:
            self.log.say(
                "note: this checkpoint does not say where the data stood (nanoGPT's do not): they begin as at the seed"
            )
            return
        if point.seed != self.config.seed:
            self.log.say(f"note: another seed than the checkpoint's {point.seed}: the data begin anew")
            return
        torch.set_rng_state(point.generator)
        if not self.batches.queue_first(point.batches):
            self.log.say("note: batch_size, block_size or the data have changed: the batches drawn last are left out")
        if not self._dropout_goes_on(point.own) and self.config.dropout:
            self.log.say("note: another device or number of ranks than in the checkpoint: dropout begins anew")
        if point.scaler and self.training.scaler.is_enabled():
            self.training.scaler.load_state_dict(point.scaler)

    def _dropout_goes_on(self, states: Sequence[Tensor | None]) -> bool:
        if len(states) != self.ranks.world_size:
            return False
        own, has_card = states[self.ranks.rank], self.device.generator_state() is not None
        if own is None:
            return not has_card
        try:
            if has_card:
                self.device.set_generator_state(own)
            else:
                torch.Generator().set_state(own)
                self.ranks.dropout_rng_state = own
        except (RuntimeError, TypeError):  # the state is from another kind of device
            return False
        return True

    # --- the step -----------------------------------------------------------------------------------------------

    def step(self, number: int) -> float | None:
        """Forward, backward, update; returns the loss if it is to be logged, as reading it waits for the device."""
        training, recorder, ranks, config = self.training, self.recorder, self.ranks, self.config
        began = time.perf_counter()
        with recorder.step(number=number) as phase:
            phase.begun = self.mark  # in the record, printing the line of the previous step belongs to this one
            for turn in range(training.micro_batches):
                is_last = turn == training.micro_batches - 1
                with recorder.data():
                    tokens, targets = self.batches.take()
                ranks.share_gradients(training.raw, training.model, now=is_last)
                with ranks.own_dropout(config.dropout), self.device.autocast():
                    _, loss = training.model(tokens, targets)
                assert loss is not None
                self.batches.draw_ahead(only_one=is_last and self.evaluates_at(number + 1))
                if is_last and ranks.is_alone:
                    self.stopping = self.stop.asked is not None
                elif is_last:
                    with recorder.wait():  # on CPUs the ranks meet here, so a slower one is waited for here
                        self.stopping = ranks.on_any_rank(self.stop.asked is not None)
                training.scaler.scale(loss / training.micro_batches).backward()
            waited = self.settle()
            norm = None
            if config.grad_clip:
                training.scaler.unscale_(training.optimizer)
                norm = joined(torch.nn.utils.clip_grad_norm_(self.parameters, config.grad_clip))
            training.scaler.step(training.optimizer)
            training.scaler.update()
            training.optimizer.zero_grad(set_to_none=True)
            self.health.see(loss, norm)
            if number == self.first and not self.is_ready:
                self.make_ready()  # now the optimizer has all of its state
            logged = None
            if number % config.log_interval == 0:
                logged = self.health.loss(loss)
                phase.note(loss=logged)
            elif self.evaluates_at(number + 1) or self.saves_at(number + 1):
                self.device.synchronize()  # otherwise the evaluation would be charged for queued work
            self.step_times.append(time.perf_counter() - began - waited)
            phase.others_s += waited  # the time of the checkpoint
            self.mark = time.perf_counter()
        return logged

    # --- evaluation and checkpoints -----------------------------------------------------------------------------

    def evaluate(self) -> bool:
        """Evaluates; returns whether the validation loss is the best so far."""
        number = self.training.iteration
        began = time.perf_counter()
        with self.recorder.evaluation() as phase:
            phase.begun = self.mark
            losses = self.evaluator.evaluate()
            phase.note(**{f"{split}_loss": loss for split, loss in losses.items()})
            seconds = time.perf_counter() - began
            self.pace.evaluations.append(seconds)
            said = ", ".join(f"{split} loss {loss:.4f}" for split, loss in losses.items())
            self.log.say(f"step {number}: {said}")
            self.log.say(f"evaluation at {number}: {seconds * 1e3:.2f}ms")
            rate = self.training.optimizer.param_groups[0]["lr"]
            found = {**{f"{split}/loss": loss for split, loss in losses.items()}, "lr": rate, "mfu": 100 * self.mfu}
            for tracker in self.trackers:
                tracker.figures(number, found)  # nanoGPT's names, and its percentage
            self.mark = time.perf_counter()
        if not all(math.isfinite(loss) for loss in losses.values()):
            self.not_finite(number)
        improved = losses["val"] < self.training.best_val_loss
        if improved:
            self.training.best_val_loss = losses["val"]
        return improved

    def save(self, *, stopped: bool = False) -> None:
        """Saves a checkpoint, which is copied and written while the training computes the next gradients."""
        number = self.last_save_at = self.training.iteration
        if self.health.is_not_finite():
            self.not_finite(number)
            self.log.say(f"checkpoint at {number}: left out, since the loss was not finite; {self.what_is_kept}")
            return
        point = self.training.resume_point
        assert point is not None
        point = point._replace(own=self.ranks.gathered(*point.own))
        if self.keeper is None:
            return
        checkpoint = {**self.training.checkpoint(), RESUME: point.as_plain()}
        self.keeper.begin(checkpoint, number, stopped=stopped)
        self.unsettled = number
        self.log.say(f"saving checkpoint to {self.config.out_dir}")
        began, self.mark = self.mark, time.perf_counter()
        self.waited[number] = self.mark - began

    def save_at_end(self) -> None:
        """Saves the last steps, unless the previous save covers all but one of them."""
        if self.stopping or self.last_save_at is None or self.last_save_at < self.training.iteration - 1:
            self.training.resume_point = self.resume_point()
            self.save(stopped=self.stopping or self.keeps_best)

    def settle(self) -> float:
        """Waits for the copy of a checkpoint, if one is being made; returns the seconds waited."""
        number, self.unsettled = self.unsettled, None
        if self.keeper is None or number is None:
            return 0.0
        waited = self.keeper.settle()
        self.waited[number] += waited
        self.pace.checkpoints.append(self.waited[number])
        self.log.say(f"checkpoint at {number}: waited {self.waited[number] * 1e3:.2f}ms")
        return waited

    def wait_until_written(self) -> None:
        """Waits for the file at the end of the run; this wait is part of the checkpoint's time."""
        number = self.last_save_at
        if self.keeper is None or number not in self.waited:
            return
        began = time.perf_counter()
        self.keeper.wait()
        self.waited[number] += time.perf_counter() - began
        if self.unsettled == number:  # else its line was already written
            self.log.say(f"checkpoint at {number}: waited {self.waited[number] * 1e3:.2f}ms")

    def report_written(self) -> None:
        """Writes the lines of saves that have finished since the last call."""
        while self.saved:
            self.last_save = saved = self.saved.popleft()
            if saved.failed is not None:
                self.log.say(f"checkpoint at {saved.at}: not written ({saved.failed}); {self.what_is_kept}")
                continue
            self.kept = saved.path
            self.log.say(f"checkpoint at {saved.at}: written in {saved.seconds * 1e3:.2f}ms")
            self.recorder.wrote_checkpoint(
                saved.at,
                waited_s=self.waited.pop(saved.at, 0.0),
                background_s=None if saved.was_waited_for else saved.seconds,
                path=str(saved.path),
            )

    @property
    def what_is_kept(self) -> str:
        return "this run has none before it" if self.kept is None else f"the one before is kept: {self.kept.name}"

    def check_last_save(self) -> None:
        """A run whose last checkpoint could not be written ends with an error."""
        if self.last_save is None or self.last_save.failed is None:
            return
        facts = {"number": self.last_save.at, "reason": self.last_save.failed}
        what = Message("the last checkpoint, of iteration {number:n}, was not written: {reason:word}", facts)
        if self.kept is None:
            raise CheckpointError(what, Message("this run has left no checkpoint: choose another --out_dir"))
        kept = {"name": str(self.kept)}
        remedy = Message("free some disk space, and continue from {name:word} with --init_from=resume", kept)
        raise CheckpointError(what, remedy)

    def not_finite(self, number: int) -> None:
        if self.config.on_nan == "continue":
            return
        raise NotFinite(
            Message("the loss is no longer finite at iteration {number:n}", {"number": number}),
            Message(
                "the last checkpoint is untouched: resume from it with a lower learning_rate, or use --on_nan=continue"
            ),
        )

    # --- reporting ----------------------------------------------------------------------------------------------

    def report(self, number: int, done: int, loss: float | None) -> None:
        """The line of a logged iteration: its time is the mean of the steps since the previous line."""
        self.report_written()
        self.log.advance(number + 1, loss)
        if loss is None:
            return
        since_line = self.step_times[self.times_logged :]
        self.times_logged = len(self.step_times)
        seconds = sum(since_line) / len(since_line)
        for _ in since_line:
            self.pace.step(seconds)
        peak = self.device.peak_flops
        if done >= 5 and peak is not None:  # nanoGPT's running mean, which starts at the fifth iteration
            now = self.training.flops_per_iter / self.ranks.world_size / seconds / peak
            self.mfu = now if self.mfu < 0 else 0.9 * self.mfu + 0.1 * now
        self.log.say(f"iter {number}: loss {loss:.4f}, time {seconds * 1e3:.2f}ms, mfu {self.mfu * 100:.2f}%")
        if self.evaluates_at(number) or self.log.eta_is_due():
            last, every, saves = self.config.max_iters, self.config.eval_interval, self.config.checkpoint_interval
            evaluations = last // every - number // every
            checkpoints = last // saves - number // saves if saves else evaluations
            interval = self.pace.eta(last - number, evaluations, checkpoints)
            if interval is not None:
                self.log.eta(number, interval)
        if not math.isfinite(loss) or self.health.is_not_finite():
            self.not_finite(number)

    def close(self) -> None:
        """Always called: finishes and reports the save in progress."""
        if self.keeper is not None:
            self.keeper.close()
        self.report_written()
        for tracker in self.trackers:
            tracker.close()
        self.log.close()
        self.training.data.close()


class MicroBatches:
    """The training batches in nanoGPT's order. Every rank draws them all and gathers its own ahead of time."""

    def __init__(self, batches: Batches, batch_size: int, ranks: Ranks) -> None:
        self._batches, self._batch_size, self._ranks = batches, batch_size, ranks
        self._drawn = self._rounds = 0
        self._saved: deque[Tensor] = deque()  # drawn by the run that this one resumes
        self._waiting: deque[Tensor] = deque()  # of all ranks, in order

    @property
    def untrained_batches(self) -> tuple[Tensor, ...]:
        """Batches that were drawn, but not trained on yet."""
        return (*self._waiting, *self._saved)

    def queue_first(self, batches: Sequence[Tensor]) -> bool:
        """Draws these first, unless they are for another batch_size or longer data; returns whether they fit."""
        fit = all(
            len(starts) == self._batch_size and int(starts.min()) >= 0 and int(starts.max()) < self._batches.beyond
            for starts in batches
        )
        self._saved.extend(batches if fit else ())
        return fit

    def draw(self, count: int) -> None:
        for _ in range(count):
            starts = self._saved.popleft() if self._saved else self._batches.draw(self._batch_size)
            self._waiting.append(starts)
            if self._drawn % self._ranks.world_size == self._ranks.rank:
                self._batches.prefetch(starts)
            self._drawn += 1

    def take(self) -> tuple[Tensor, Tensor]:
        """This rank's batch of the next round; in each round every rank has one."""
        self._rounds += 1
        self.draw(self._rounds * self._ranks.world_size - self._drawn)
        for _ in range(self._ranks.world_size):
            self._waiting.popleft()
        return self._batches.take()

    def draw_ahead(self, *, only_one: bool) -> None:
        """Draws the next round; before an evaluation only one batch, as a single rank would have done by then."""
        self.draw(1 if only_one else self._ranks.world_size)


class Health:
    """Whether every loss and gradient was finite, watched on the device so that no step waits for it."""

    def __init__(self, training: Training) -> None:
        self._ranks = training.ranks
        self._bad = torch.zeros((), device=training.device.device)
        # In float16 gradients overflow now and then; the scaler then skips the step.
        self._trusts_norm = training.device.dtype != "float16"
        self._spoilt: float | None = 0.0

    def see(self, loss: Tensor, norm: Tensor | None) -> None:
        finite = torch.isfinite(loss.detach())
        if norm is not None and self._trusts_norm:
            finite &= torch.isfinite(norm)
        self._bad += ~finite
        self._spoilt = None

    def loss(self, loss: Tensor) -> float:
        """The loss of the step's last micro-batch, which is the last rank's, as in nanoGPT's log."""
        own = loss.detach().float() if self._ranks.rank == self._ranks.world_size - 1 else torch.zeros_like(self._bad)
        both = torch.stack((own, self._bad))
        self._ranks.add_up(both)
        last_loss, self._spoilt = both.tolist()
        return float(last_loss)

    def is_not_finite(self) -> bool:
        """Whether any was not finite; asks the device and the other ranks only after a step."""
        if self._spoilt is None:
            bad = self._bad.clone()
            self._ranks.add_up(bad)
            self._spoilt = bad.item()
        return self._spoilt > 0
