"""A whole nanoGPT config for a card and a shape: what fits, what is fastest, and how often to evaluate and save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from stepwatch.advice.speed import Batch, batches, sequences_of
from stepwatch.errors import InputError
from stepwatch.estimator.memory import vram_bytes
from stepwatch.estimator.plan import Plan, plan
from stepwatch.estimator.workload import NANOGPT_DEFAULTS, Workload
from stepwatch.gpus import Gpu
from stepwatch.messages import Message
from stepwatch.settings import Origin, Settings, Value
from stepwatch.units import Interval

# A desktop card is busy with this many tokens in a micro-step, and larger ones only take memory (docs/advice.md).
ENOUGH_TOKENS = 16_384
NEARLY = 1.01
CHEAP = 0.02  # of the run, for evaluations and checkpoints
# Sequences of an evaluation: nanoGPT's 200 batches of 12, or fewer with 1.4, 2 or 2.8 times the error; its README goes
# down to 20 batches.
SEQUENCES = (2400, 1200, 600, 300)
MOST_OFTEN = 50
LONG_STEP_S = 0.1  # above it every iteration is worth a line
CHINCHILLA_TOKENS_PER_PARAM = 20  # arXiv 2203.15556, table 3
_ORDER = (
    "init_from", "dataset", "n_layer", "n_head", "n_embd", "block_size", "vocab_size", "bias", "dropout", "batch_size",
    "gradient_accumulation_steps", "max_iters", "lr_decay_iters", "eval_interval", "eval_iters", "log_interval",
    "always_save_checkpoint", "dtype", "compile",
)  # fmt: skip
_NOT_IN_A_CONFIG = frozenset({
    "flash", "fused", "activation_checkpointing", "world_size", "tokens_per_iter", "n_params", "mtbf_hours", "device",
})  # fmt: skip


class Recommended(NamedTuple):
    settings: dict[str, Value]
    """nanoGPT's names, in the order of a config."""
    plan: Plan
    usual: Plan
    """The same model with nanoGPT's defaults on the same card; it may not fit."""
    enough_iterations: int
    """For twenty tokens per parameter, beyond which a larger model would learn more from the same time."""
    enough_s: Interval


def recommend(
    settings: Settings, gpu: Gpu, *, gpu_origin: str = "user", n_gpus: int | None = None,
    link: str | float | None = None,
) -> Recommended:  # fmt: skip
    """What is given stays, unless it does not fit; raises InputError where not even one sequence does."""
    usual = plan(settings, gpu, gpu_origin=gpu_origin, n_gpus=n_gpus, link=link)
    given = Settings({name: one for name, one in usual.settings.items() if one.origin is not Origin.FORMAT_DEFAULT})
    best: Plan | None = None
    for chosen in _choices(usual, given):
        found = _planned(given, chosen, usual)
        if best is None or found.total_s.mid < best.total_s.mid:
            best = found
    if best is None:
        raise _not_shared(usual) if not list(_every(usual)) else too_large(usual)
    best = _no_slower(best, given, usual)
    tokens = CHINCHILLA_TOKENS_PER_PARAM * best.workload.n_params
    enough = max(rounded_up(tokens / best.workload.tokens_per_iteration), 1)
    return Recommended(_config(best, given), best, usual, enough, best.estimate.step_s.scaled(enough))


def _no_slower(best: Plan, given: Settings, usual: Plan) -> Plan:
    """With a course of evaluations of its own, unless nanoGPT's own course or its own micro-batch is shorter."""
    chosen = _values(best, *_CHOSEN)
    sequences = usual.workload.eval_iters * usual.workload.batch_size
    same = {} if "eval_iters" in given else {"eval_iters": max(sequences // best.workload.batch_size, 1)}
    found = _planned(given, {**chosen, **_course(best, given, usual)}, usual)
    for other in (chosen | same, _values(usual, *_CHOSEN) if usual.fits is not False else None):
        if found.total_s.mid <= usual.total_s.mid or other is None:
            break
        slower = _planned(given, {**other, **_pace_of_log(best, given, usual)}, usual)
        found = min(found, slower, key=lambda plan: plan.total_s.mid)
    return found


def _every(usual: Plan) -> Iterator[Batch]:
    return batches(sequences_of(usual.workload), usual.workload.world_size)


_CHOSEN = ("batch_size", "gradient_accumulation_steps", "dtype", "compile", "eval_iters")


def rounded_up(value: float) -> int:
    return int(-(-value // 1))


def _planned(given: Settings, chosen: Mapping[str, Value], usual: Plan) -> Plan:
    laid = given.beneath(Settings.of(Origin.INFERRED, chosen))
    return plan(laid, usual.gpu, gpu_origin=usual.gpu_origin, link=usual.link)


def _values(of: Plan, *names: str) -> dict[str, Value]:
    return {name: of.settings[name].value for name in names}


def _choices(usual: Plan, given: Settings) -> Iterator[dict[str, Value]]:
    """Arithmetic and compilation as the card wants them, each with the micro-batch that suits it."""
    for compile_ in [bool(given["compile"].value)] if "compile" in given else [True, False]:
        kind = str(given["dtype"].value) if "dtype" in given else _best_dtype(usual.gpu)
        work = replace(usual.workload, dtype=kind, compile=compile_)
        batch = _batch(usual, work)
        if batch is not None:
            yield {
                "dtype": kind, "compile": compile_, "batch_size": batch.size,
                "gradient_accumulation_steps": batch.accumulation,
                "eval_iters": given.count("eval_iters") or _batches_of(_most_sequences(usual), batch.size),
            }  # fmt: skip


def _best_dtype(gpu: Gpu) -> str:
    preferred = gpu.peak_flops().dtype
    return preferred if preferred in ("bfloat16", "float16") else "float32"


def _batch(usual: Plan, work: Workload) -> Batch | None:
    """The smallest that is as fast as any and keeps the card busy; what was given stays if it fits."""
    every = list(_every(usual))
    room = usual.gpu.vram_bytes or float("inf")
    needs = {batch: vram_bytes(replace(work, batch_size=batch.size), usual.gpu) for batch in every}
    fitting = [batch for batch in every if needs[batch].high <= room] or [b for b in every if needs[b].mid <= room]
    if not fitting:
        return None
    if usual.settings["batch_size"].origin in (Origin.USER, Origin.CONFIG):
        own = [batch for batch in fitting if batch.size == work.batch_size]
        if own:
            return own[0]
    timed = {batch: _step_s(usual, work, batch) for batch in fitting}
    best = min(timed.values())
    fast = [batch for batch in fitting if timed[batch] <= NEARLY * best]
    busy = [batch for batch in fast if batch.size * work.block_size >= ENOUGH_TOKENS]
    return busy[0] if busy else fast[-1]


def _step_s(usual: Plan, work: Workload, batch: Batch) -> float:
    from stepwatch.estimator.estimate import estimate

    found = estimate(replace(work, batch_size=batch.size, grad_accum=batch.accumulation), usual.gpu, link=usual.link)
    return found.step_s.mid if found is not None else float("inf")


def _most_sequences(usual: Plan) -> int:
    """No more than nanoGPT's defaults would evaluate."""
    return min(SEQUENCES[0], usual.workload.eval_iters * usual.workload.batch_size)


def _batches_of(sequences: int, batch_size: int) -> int:
    return max(rounded_up(sequences / batch_size), 1)


# --- evaluations and checkpoints --------------------------------------------------------------------------------


def _course(best: Plan, given: Settings, usual: Plan) -> dict[str, Value]:
    """As often as it costs no more than nanoGPT's own plan, and next to nothing of the run."""
    last = best.settings.count("max_iters") or int(NANOGPT_DEFAULTS["max_iters"])
    interval = given.count("eval_interval")
    found: dict[str, Value] = {}
    if interval is None:
        interval, sequences = _pace(best, given, usual, last)
        if "eval_iters" not in given:
            found["eval_iters"] = _batches_of(sequences, best.workload.batch_size)
        found["eval_interval"] = interval
    return found | _pace_of_log(best, given, usual, interval)


def _pace_of_log(best: Plan, given: Settings, usual: Plan, interval: int | None = None) -> dict[str, Value]:
    """How often to log, so that evaluations fall on a logged line, and the schedule's length; what is given stays."""
    every = interval or usual.settings.count("eval_interval") or 1
    logged = 10 if best.estimate.step_s.mid <= LONG_STEP_S and every % 10 == 0 else 1
    last = best.settings.count("max_iters") or int(NANOGPT_DEFAULTS["max_iters"])
    found: dict[str, Value] = {"log_interval": logged, "lr_decay_iters": last}
    return {name: value for name, value in found.items() if name not in given}


def _pace(best: Plan, given: Settings, usual: Plan, last: int) -> tuple[int, int]:
    default = int(NANOGPT_DEFAULTS["eval_interval"])
    per_sequence = best.estimate.eval_s.mid / (best.workload.eval_iters * best.workload.batch_size)
    save_s, step_s = best.estimate.checkpoint_s.mid, best.estimate.step_s.mid
    usual_s = (last // default + 1) * usual.estimate.eval_s.mid + (last // default) * save_s
    allowed = min(usual_s, CHEAP * last * step_s)
    fixed = given.count("eval_iters")
    most = _most_sequences(usual)
    options = [fixed * best.workload.batch_size] if fixed else [min(most, count) for count in SEQUENCES]
    for interval in _intervals(last):
        for sequences in options:
            spent = (last // interval + 1) * per_sequence * sequences + (last // interval) * save_s
            if spent <= allowed:
                return interval, sequences
    return max(last, 1), options[-1]


def _intervals(last: int) -> Iterator[int]:
    """Round numbers, the most frequent evaluations first."""
    for unit in (10**power for power in range(1, 10)):
        yield from (size for size in (unit, 2 * unit, 5 * unit) if MOST_OFTEN <= size <= last)


# --- the config -------------------------------------------------------------------------------------------------


def _config(best: Plan, given: Settings) -> dict[str, Value]:
    """What is given or chosen, and the defaults that belong to it."""
    values = {name: one.value for name, one in best.settings.items() if name in _ORDER or name in given}
    own = {name for name, one in given.items() if one.origin is not Origin.INFERRED}
    kept = [name for name in values if name not in _NOT_IN_A_CONFIG and (name in _ORDER or name in own)]
    return {name: values[name] for name in sorted(kept, key=lambda name: (name not in _ORDER, _place(name)))}


def _place(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _not_shared(usual: Plan) -> InputError:
    facts = {"sequences": sequences_of(usual.workload), "cards": usual.workload.world_size}
    return InputError(
        Message("{sequences:n} sequences per iteration cannot be shared among {cards:n} cards", facts),
        Message("choose tokens_per_iter so that each card gets as many"),
    )


def too_large(usual: Plan) -> InputError:
    needs = vram_bytes(replace(usual.workload, batch_size=1), usual.gpu).mid
    facts = {"gpu": usual.gpu.name, "needs": needs, "has": usual.gpu.vram_bytes}
    return InputError(
        Message("this model does not fit a {gpu:word} even with batch_size=1: {needs:size} of {has:size}", facts),
        Message("choose a smaller model, a shorter block_size or a card with more memory"),
    )
