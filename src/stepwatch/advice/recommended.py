"""A whole nanoGPT config for a card and a shape: what fits, what is fastest, and how often to evaluate and save."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from stepwatch.advice.schedule import CHEAP
from stepwatch.advice.speed import Batch, batches, sequences_of
from stepwatch.errors import InputError
from stepwatch.estimator.estimation import estimate
from stepwatch.estimator.memory import vram_bytes
from stepwatch.estimator.plan import Plan, plan
from stepwatch.estimator.workload import Workload
from stepwatch.gpus import Gpu
from stepwatch.messages import Message
from stepwatch.settings import NANOGPT_DEFAULTS, Origin, Settings, Value
from stepwatch.units import Interval

# Sequences of an evaluation: nanoGPT's 200 batches of 12, or fewer with 1.4, 2 or 2.8 times the error; its README goes
# down to 20 batches.
SEQUENCES = (2400, 1200, 600, 300)
_CHOSEN = ("batch_size", "gradient_accumulation_steps", "dtype", "compile", "eval_iters")
_MODEL = ("init_from", "dataset", "n_layer", "n_head", "n_embd", "block_size", "vocab_size", "bias", "dropout")
_LENGTH = ("max_iters", "lr_decay_iters", "eval_interval", "eval_iters", "log_interval", "always_save_checkpoint")
_ORDER = (*_MODEL, "batch_size", "gradient_accumulation_steps", *_LENGTH, "dtype", "compile")
_OURS = (
    *("flash", "fused", "activation_checkpointing", "chunked_loss", "world_size"),
    *("tokens_per_iter", "n_params", "mtbf_hours"),
)
_NOT_IN_A_CONFIG = (*_OURS, "device")


@dataclass(frozen=True, kw_only=True)
class Recommended:
    settings: dict[str, Value]
    """nanoGPT's names, in the order of a config."""
    plan: Plan
    usual: Plan
    """The same model with nanoGPT's defaults on the same card; it may not fit."""
    enough_iterations: int
    """For twenty tokens per parameter, beyond which a larger model would learn more from the same time."""
    enough_s: Interval


def recommend(
    settings: Settings,
    gpu: Gpu,
    *,
    gpu_origin: str = "user",
    n_gpus: int | None = None,
    link: str | float | None = None,
) -> Recommended:
    """Recommends settings; given ones stay, unless they do not fit. Raises InputError if not even one sequence fits."""
    usual = plan(settings, gpu, gpu_origin=gpu_origin, n_gpus=n_gpus, link=link)
    sequences = sequences_of(usual.workload)
    if sequences % usual.workload.world_size:
        raise InputError(
            Message(
                "{sequences:n} sequences per iteration cannot be divided among {cards:n} cards",
                {"sequences": sequences, "cards": usual.workload.world_size},
            ),
            Message("choose tokens_per_iter so that every card gets the same number"),
        )
    given = Settings({name: one for name, one in usual.settings.items() if one.origin is not Origin.FORMAT_DEFAULT})
    options = [_planned(given, chosen, usual) for chosen in _choices(usual, given)]
    if not options:
        raise too_large(usual)
    best = _with_pace(min(options, key=lambda option: option.total_s.mid), given, usual)
    tokens = 20 * best.workload.n_params  # Chinchilla (arXiv 2203.15556, table 3)
    enough = math.ceil(tokens / best.workload.tokens_per_iteration)
    # What is given or chosen, and the defaults that belong to it, in nanoGPT's order.
    own = [name for name, one in given.items() if one.origin is not Origin.INFERRED and name not in _ORDER]
    names = [name for name in (*_ORDER, *own) if name in best.settings and name not in _NOT_IN_A_CONFIG]
    return Recommended(
        settings={name: best.settings[name].value for name in names},
        plan=best,
        usual=usual,
        enough_iterations=enough,
        enough_s=best.estimate.step_s.scaled(enough),
    )


def too_large(usual: Plan) -> InputError:
    needs = vram_bytes(replace(usual.workload, batch_size=1), usual.gpu).mid
    facts = {"gpu": usual.gpu.name, "needs": needs, "has": usual.gpu.vram_bytes}
    return InputError(
        Message("this model does not fit the {gpu:word} even with batch_size=1: {needs:size} of {has:size}", facts),
        Message("choose a smaller model, a shorter block_size or a card with more memory"),
    )


def _planned(given: Settings, chosen: Mapping[str, Value], usual: Plan) -> Plan:
    settings = given.overridden_by(Settings.of(Origin.INFERRED, chosen))
    return plan(settings, usual.gpu, gpu_origin=usual.gpu_origin, link=usual.link)


# --- the step ---------------------------------------------------------------------------------------------------


def _choices(usual: Plan, given: Settings) -> Iterator[dict[str, Value]]:
    """Arithmetic and compilation that suit the card, each with the micro-batch that suits it."""
    dtype = usual.gpu.peak_flops().dtype
    if "dtype" in given:
        dtype = str(given["dtype"].value)
    elif dtype not in ("bfloat16", "float16"):
        dtype = "float32"
    for compiled in [bool(given["compile"].value)] if "compile" in given else [True, False]:
        batch = _batch(usual, replace(usual.workload, dtype=dtype, compile=compiled))
        if batch is not None:
            yield {
                "dtype": dtype,
                "compile": compiled,
                "batch_size": batch.size,
                "gradient_accumulation_steps": batch.accumulation,
                "eval_iters": given.count("eval_iters") or math.ceil(_most_sequences(usual) / batch.size),
            }


def _batch(usual: Plan, work: Workload) -> Batch | None:
    """The smallest micro-batch that is as fast as any and keeps the card busy; a given one stays if it fits."""
    gpu = usual.gpu
    room = gpu.vram_bytes or math.inf
    needed = [(b, vram_bytes(replace(work, batch_size=b.size), gpu)) for b in batches(work, gpu, work.world_size)]
    fitting = [batch for batch, needs in needed if needs.high <= room]
    fitting = fitting or [batch for batch, needs in needed if needs.mid <= room]
    if not fitting:
        return None
    if usual.settings["batch_size"].origin in (Origin.USER, Origin.CONFIG):
        own = [batch for batch in fitting if batch.size == work.batch_size]
        if own:
            return own[0]
    step_s = {}
    for batch in fitting:
        found = estimate(replace(work, batch_size=batch.size, grad_accum=batch.accumulation), gpu, link=usual.link)
        step_s[batch] = found.step_s.mid if found is not None else math.inf
    fast = [batch for batch in fitting if step_s[batch] <= 1.01 * min(step_s.values())]  # a hundredth does not matter
    # A desktop card is busy with this many tokens in a micro-step, and larger ones only take memory (docs/advice.md).
    busy = [batch for batch in fast if batch.size * work.block_size >= 16_384]
    return busy[0] if busy else fast[-1]


# --- evaluations and checkpoints --------------------------------------------------------------------------------


def _most_sequences(usual: Plan) -> int:
    """The most sequences of an evaluation: no more than nanoGPT's defaults would take."""
    return min(SEQUENCES[0], usual.workload.eval_iters * usual.workload.batch_size)


def _with_pace(best: Plan, given: Settings, usual: Plan) -> Plan:
    """Adds a pace of evaluations, unless the run is shorter with nanoGPT's own pace or its own micro-batch."""
    chosen = {name: best.settings[name].value for name in _CHOSEN}
    batch_size, interval = best.workload.batch_size, given.count("eval_interval")
    pace: dict[str, Value] = {}
    if interval is None:
        interval, sequences = _pace(best, given, usual)
        pace["eval_interval"] = interval
        if "eval_iters" not in given:
            pace["eval_iters"] = math.ceil(sequences / batch_size)
    found = _planned(given, {**chosen, **pace, **_logging(best, given, interval)}, usual)

    logging = _logging(best, given, usual.settings.count("eval_interval") or 1)
    if found.total_s.mid > usual.total_s.mid:
        if "eval_iters" not in given:
            chosen["eval_iters"] = max(usual.workload.eval_iters * usual.workload.batch_size // batch_size, 1)
        found = min(found, _planned(given, {**chosen, **logging}, usual), key=lambda option: option.total_s.mid)
    if found.total_s.mid > usual.total_s.mid and usual.fits is not False:
        chosen = {name: usual.settings[name].value for name in _CHOSEN}
        found = min(found, _planned(given, {**chosen, **logging}, usual), key=lambda option: option.total_s.mid)
    return found


def _logging(best: Plan, given: Settings, eval_interval: int) -> dict[str, Value]:
    """How often to log, so that evaluations fall on a logged line, and the schedule's length; what is given stays."""
    # Above a tenth of a second every iteration is worth a line.
    every = 10 if best.estimate.step_s.mid <= 0.1 and eval_interval % 10 == 0 else 1
    found: dict[str, Value] = {"log_interval": every, "lr_decay_iters": _last(best)}
    return {name: value for name, value in found.items() if name not in given}


def _last(best: Plan) -> int:
    return best.settings.count("max_iters") or int(NANOGPT_DEFAULTS["max_iters"])


def _pace(best: Plan, given: Settings, usual: Plan) -> tuple[int, int]:
    """How often to evaluate, and on how many sequences: no more cost than by default, a small part of the run."""
    last, default = _last(best), int(NANOGPT_DEFAULTS["eval_interval"])
    per_sequence = best.estimate.eval_s.mid / (best.workload.eval_iters * best.workload.batch_size)
    save_s, step_s = best.estimate.checkpoint_s.mid, best.estimate.step_s.mid
    usual_s = (last // default + 1) * usual.estimate.eval_s.mid + (last // default) * save_s
    allowed_s = min(usual_s, CHEAP * last * step_s)
    fixed = given.count("eval_iters")
    options = [min(_most_sequences(usual), count) for count in SEQUENCES]
    if fixed:
        options = [fixed * best.workload.batch_size]
    for interval in (digit * 10**power for power in range(1, len(str(last))) for digit in (5, 10, 20)):
        if interval <= last:
            for sequences in options:
                spent_s = (last // interval + 1) * per_sequence * sequences + (last // interval) * save_s
                if spent_s <= allowed_s:
                    return interval, sequences
    return last, options[-1]
