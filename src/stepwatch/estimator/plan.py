"""Before a run: what a config will take on a card, and whether a claimed figure is possible."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from stepwatch.errors import InputError, UsageError
from stepwatch.estimator import own_runs
from stepwatch.estimator.constants import LAYER_WEIGHTS
from stepwatch.estimator.estimation import Estimate, estimate
from stepwatch.estimator.memory import fits, largest_batch_size
from stepwatch.estimator.simulate import whole_run
from stepwatch.estimator.workload import (
    NANOGPT,
    Workload,
    flops_per_iteration,
    least_flops_per_iteration,
    nanochat,
)
from stepwatch.gpus import Gpu
from stepwatch.gpus.catalogue import DTYPES
from stepwatch.gpus.links import link_bytes_per_s
from stepwatch.messages import Message
from stepwatch.settings import MODELS, NANOGPT_DEFAULTS, PRIVATE, Origin, Settings, Value, flops_per_token
from stepwatch.units import DAY_S, HOUR_S, MINUTE_S, TERA, Interval

SCHEMA = "stepwatch.plan/1"
WIDTH_PER_LAYER = 64  # GPT-2 small is 12 x 64 wide, and so is nanochat at every depth
_SHAPE = ("n_layer", "n_head", "n_embd")
# Larger than anything that was ever trained: a typing error.
_SIZES = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "batch_size", "gradient_accumulation_steps")
_COUNTS = ("max_iters", "eval_iters", "eval_interval", "tokens_per_iter", "n_params")
_LARGEST = dict.fromkeys((*_SIZES, "world_size"), 10**7) | dict.fromkeys(_COUNTS, 10**14)

Plausibility = Literal["impossible", "implausible", "plausible"]


class ClaimCheck(NamedTuple):
    """A claimed figure, and what it would take."""

    text: str
    step_s: float
    needs_flops: float
    """FLOP/s of each card."""
    of_peak: float
    verdict: Plausibility


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is expected to take; nine of ten intervals should contain the truth."""

    settings: Settings
    workload: Workload
    gpu: Gpu
    gpu_origin: str
    n_gpus: int
    estimate: Estimate
    total_s: Interval
    step_part_s: Interval
    evaluations: int
    saves: Interval
    flops_per_iter: float
    least_flops_per_iter: float
    """What no implementation can avoid; claims are judged by it."""
    peak_flops: float
    fits: bool | None
    largest_batch_size: int | None
    link: str | float | None = None
    claim: ClaimCheck | None = None
    shape_guessed: bool = False
    emulated: bool = False
    """bfloat16 was asked for on a card that has none: it computes in software, slower than in float16."""
    notes: tuple[Message, ...] = ()
    """Assumptions that the user should know about."""

    @property
    def tokens_per_s(self) -> Interval:
        return _over(self.workload.tokens_per_iteration, self.estimate.step_s)

    @property
    def mfu(self) -> Interval:
        return _over(self.flops_per_iter / self.n_gpus / self.peak_flops, self.estimate.step_s)


def _over(amount: float, time_s: Interval) -> Interval:
    return Interval(amount / time_s.high, amount / time_s.mid, amount / time_s.low)


def plan(
    settings: Settings,
    gpu: Gpu,
    *,
    gpu_origin: str = "user",
    n_gpus: int | None = None,
    link: str | float | None = None,
    claim: str | None = None,
) -> Plan:
    """Raises UsageError for settings that make no sense, InputError if nothing is known about the card's speed."""
    notes: list[Message] = []
    if gpu.segment == "cpu" and settings.text("dtype") != "float32":
        # On a processor train.py computes in float32, whatever dtype says.
        settings = settings.overridden_by(Settings.of(Origin.FORMAT_DEFAULT, {"dtype": "float32"}))
    dataset = settings.text("dataset") or ""
    if "vocab_size" not in settings and dataset.endswith("_char"):
        # A character-level dataset brings its own small vocabulary in meta.pkl, whatever the config says.
        size = 65 if dataset == "shakespeare_char" else 128  # ASCII
        settings = settings.overridden_by(Settings.of(Origin.INFERRED, {"vocab_size": size}))
        if dataset != "shakespeare_char":
            notes.append(
                Message(
                    "A vocabulary of {size:n} characters was assumed; give its size with --vocab_size=…", {"size": size}
                )
            )
    if n_gpus is not None:
        settings = settings.overridden_by(Settings.of(Origin.USER, {"world_size": n_gpus}))
    settings, guessed = _with_shape_and_batch(settings)
    workload, complete = _workload(settings, gpu)
    found = estimate(workload, gpu, link=link)
    peak = gpu.peak_flops(workload.dtype).flops
    if found is None or not peak:
        remedy = Message("name a graphics card with --gpu; `stepwatch gpus` lists them")
        if gpu.segment == "cpu":
            remedy = Message("name a graphics card with --gpu, or measure this machine: stepwatch calibrate")
        unknown = Message("the speed of “{name:word}” is unknown", {"name": gpu.name})
        raise InputError(gpu.remark or unknown, remedy, about="gpu")
    flops, least = flops_per_iteration(workload), least_flops_per_iteration(workload)
    if guessed:  # without a shape only what the parameters need, attention left out
        flops = flops_per_token(workload.n_params) * workload.tokens_per_iteration
        floor_s = flops / least * found.floor_step_s
        least, found = flops, replace(found, floor_step_s=min(floor_s, found.step_s.low))
    if (learned := own_runs.note(found)) is not None:
        notes.append(learned)
    if gpu.remark is not None:
        notes.append(gpu.remark)
    if gpu.is_laptop:
        notes.append(
            Message("The speed of a laptop's card depends on its power limit; this is for the upper end of its range.")
        )
    if workload.world_size > 1:
        rate = link_bytes_per_s(gpu, workload.world_size, link)
        notes.append(
            Message(
                "The link between the cards is assumed to carry {rate:size} per second; override it with --link.",
                {"rate": rate},
            )
        )
    loop, run = whole_run(found, complete)
    result = Plan(
        settings=complete,
        workload=workload,
        gpu=gpu,
        gpu_origin=gpu_origin,
        n_gpus=workload.world_size,
        estimate=found,
        total_s=run.total_s,
        step_part_s=run.step_s,
        evaluations=loop.evaluations,
        saves=loop.saves,
        flops_per_iter=flops,
        least_flops_per_iter=least,
        peak_flops=peak,
        fits=fits(workload, gpu),
        largest_batch_size=largest_batch_size(workload, gpu),
        shape_guessed=guessed,
        emulated=workload.dtype == "bfloat16" and not gpu.has_bf16,
        link=link,
        notes=tuple(notes),
    )
    return result if claim is None else replace(result, claim=judge(claim, result))


# --- settings ---------------------------------------------------------------------------------------------------


def named_shape(model: str | None, depth: int | None) -> dict[str, Value]:
    """The shape that a model's name, or nanochat's --depth, stands for."""
    if depth is not None:
        return nanochat(depth)
    return dict(MODELS[model]) if model is not None else {}


def _with_shape_and_batch(settings: Settings) -> tuple[Settings, bool]:
    """Fills in shape and batch if only parameters or tokens per iteration are known; True if the shape is a guess."""
    tokens = settings.count("tokens_per_iter")
    if tokens is not None and "batch_size" not in settings and "gradient_accumulation_steps" not in settings:
        # A micro-batch that divides the tokens, and as many of them as it takes.
        sequences = max(tokens // (settings.count("block_size") or NANOGPT.block_size), 1)
        cards = settings.count("world_size") or 1
        sizes = range(NANOGPT.batch_size, 0, -1)
        batch = next((size for size in sizes if sequences % size == 0 and sequences // size % cards == 0), 1)
        found: dict[str, Value] = {"batch_size": batch, "gradient_accumulation_steps": sequences // batch}
        settings = settings.overridden_by(Settings.of(Origin.INFERRED, found))

    n_params = settings.number("n_params")
    if n_params is None or any(name in settings for name in _SHAPE) or settings.text("init_from") in MODELS:
        return settings, False
    # A GPT of that size, as deep as GPTs of its size usually are.
    vocabulary = settings.count("vocab_size") or NANOGPT.vocab_size

    def size(depth: int) -> float:
        width = WIDTH_PER_LAYER * depth
        return float(LAYER_WEIGHTS * depth * width * width + vocabulary * width)

    deepest = int((n_params / LAYER_WEIGHTS / WIDTH_PER_LAYER**2) ** (1 / 3))  # without an embedding
    depth = min(range(2, 2 + max(deepest, 1)), key=lambda layers: abs(size(layers) - n_params))
    guess: dict[str, Value] = {"n_layer": depth, "n_head": depth, "n_embd": WIDTH_PER_LAYER * depth}
    return settings.overridden_by(Settings.of(Origin.INFERRED, guess)), True


def _workload(settings: Settings, gpu: Gpu) -> tuple[Workload, Settings]:
    _check(settings)
    try:
        # nanoGPT asks torch whether there is bfloat16; since 2.4 the answer is yes on every NVIDIA card, in software
        # if necessary.
        workload, assumed = Workload.from_settings(settings, has_bf16=gpu.has_bf16 or gpu.vendor == "NVIDIA")
    except ValueError as error:
        width, heads = settings.count("n_embd") or NANOGPT.n_embd, settings.count("n_head") or NANOGPT.n_head
        if width % heads:
            facts = {"width": width, "heads": heads}
            raise UsageError(
                Message("n_embd = {width:n} cannot be divided among n_head = {heads:n} heads", facts),
                Message("choose n_embd as a multiple of n_head, for example 64 times it"),
                about="settings",
            ) from error
        raise UsageError(
            Message("these settings are not valid: {reason:word}", {"reason": error}),
            Message("check the config"),
            about="settings",
        ) from error

    # Redundant figures that contradict each other. They are refused only if they were given by hand.
    stated = settings.number("n_params")
    counted = workload.shape_params
    if stated and settings["n_params"].origin is not Origin.LOG and not 0.8 < counted / stated < 1.25:
        raise UsageError(
            Message(
                "n_params = {stated:big} does not fit the shape, which has {counted:big}",
                {"stated": stated, "counted": counted},
            ),
            Message("give n_params, or n_layer, n_head and n_embd, not both"),
            about="settings",
        )
    tokens = settings.number("tokens_per_iter")
    if tokens and settings["tokens_per_iter"].origin is not Origin.LOG and tokens != workload.tokens_per_iteration:
        raise UsageError(
            Message(
                "tokens_per_iter = {tokens:n} is not what batch, accumulation and block give: {counted:n}",
                {"tokens": tokens, "counted": workload.tokens_per_iteration},
            ),
            Message("give tokens_per_iter alone, as a multiple of block_size"),
            about="settings",
        )
    return workload, Settings.of(Origin.FORMAT_DEFAULT, assumed).overridden_by(settings)


def _check(settings: Settings) -> None:
    for name, largest in _LARGEST.items():
        value = settings.number(name)
        if value is not None and not 1 <= value <= largest:
            raise UsageError(
                Message("{name:word} = {value:word} is not valid", {"name": name, "value": settings[name].value}),
                Message("{name:word} is between 1 and {largest:n}", {"name": name, "largest": largest}),
                about="settings",
            )
    dropout = settings.number("dropout")
    if dropout is not None and not 0 <= dropout < 1:
        raise UsageError(
            Message("{name:word} = {value:word} is not valid", {"name": "dropout", "value": dropout}),
            Message("{name:word} is between 0 and 1", {"name": "dropout"}),
            about="settings",
        )
    dtype = settings.text("dtype")
    if dtype is not None and dtype.removeprefix("torch.") not in DTYPES:
        raise UsageError(
            Message("“{value:word}” is not a value for {name:word}", {"value": dtype, "name": "dtype"}),
            Message("dtype is one of {names:word}", {"names": "bfloat16, float16, float32"}),
            about="settings",
        )


# --- claims -----------------------------------------------------------------------------------------------------

_SECONDS = (
    "s",
    "sec",
    "secs",
    "second",
    "seconds",
    "sekunde",
    "sekunden",
    "seconde",
    "secondes",
    "segundo",
    "segundos",
    "秒",
    "秒钟",
)
_MINUTES = ("min", "mins", "m", "mn", "minute", "minutes", "minuten", "minuto", "minutos", "分", "分钟", "分間")
_HOURS = (
    "h", "hr", "hrs", "hour", "hours", "stunde", "stunden", "heure", "heures", "hora", "horas", "小时", "時間",
)  # fmt: skip
_DAYS = ("d", "j", "day", "days", "tag", "tage", "tagen", "jour", "jours", "día", "días", "dia", "dias", "天", "日")
_WEEKS = ("w", "week", "weeks", "woche", "wochen", "semaine", "semaines", "semana", "semanas", "周", "週間")
_UNITS = {
    "ms": 1e-3,
    **dict.fromkeys(_SECONDS, 1.0),
    **dict.fromkeys(_MINUTES, MINUTE_S),
    **dict.fromkeys(_HOURS, HOUR_S),
    **dict.fromkeys(_DAYS, DAY_S),
    **dict.fromkeys(_WEEKS, 7 * DAY_S),
}
_PER_ITERATION = frozenset({"ms", *_SECONDS})
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "mio": 1e6, "g": 1e9}
_RATE = re.compile(r"(?P<scale>k|m|mio|g)?-?(?:tokens?|tok|t)/(?:s|sec|second)")
_PIECE = re.compile(r"(?P<value>\d[\d.,]*)(?P<unit>[^\d.,]*)")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3}){2,}")


def judge(text: str, of: Plan) -> ClaimCheck:
    """`100ms` or `2s` is an iteration, `20min`, `3h` or `2d` the whole run, `2M-tokens/s` a rate."""
    pieces = _pieces(text)
    value, unit = pieces[0]
    whole_run = any(unit in _UNITS and unit not in _PER_ITERATION for _, unit in pieces)  # minutes and more
    rate = _RATE.fullmatch(unit) if len(pieces) == 1 else None
    if len(pieces) == 1 and unit in ("it/s", "iter/s", "iterations/s"):
        step_s = 1 / value
    elif rate:
        step_s = of.workload.tokens_per_iteration / (value * _SCALES[rate["scale"] or ""])
    else:
        if any(name not in _UNITS for _, name in pieces):
            raise _unreadable(text)
        seconds = sum(amount * _UNITS[name] for amount, name in pieces)
        step_s = seconds / _iterations(of) if whole_run else seconds
    needs = of.least_flops_per_iter / of.n_gpus / step_s
    verdict: Plausibility = "plausible"
    if step_s < of.estimate.floor_step_s:
        verdict = "impossible"
    elif step_s < of.estimate.step_s.low or (whole_run and step_s * _iterations(of) < of.total_s.low):
        verdict = "implausible"
    return ClaimCheck(text, step_s, needs, needs / of.peak_flops, verdict)


def _pieces(text: str) -> list[tuple[float, str]]:
    """`1 h 30 min` as its two figures with their units; a last figure without one has the next smaller unit."""
    plain = text.strip().lower().replace("\u202f", "").replace("\u00a0", "").replace(" ", "").replace("_", "")
    plain = plain.removesuffix("/iter").removesuffix("/it").removesuffix("periteration")
    found = list(_PIECE.finditer(plain))
    if not found or found[0].start() != 0 or found[-1].end() != len(plain):
        raise _unreadable(text)
    pieces = [(_figure(piece["value"], text), piece["unit"].strip("-")) for piece in found]
    if len(pieces) == 2 and pieces[0][1] in _HOURS and not pieces[1][1]:
        pieces[1] = (pieces[1][0], "min")
    return pieces


def _figure(digits: str, text: str) -> float:
    digits = digits.rstrip(".,")
    whole = digits.replace(",", "").replace(".", "") if _THOUSANDS.fullmatch(digits) else digits.replace(",", ".")
    try:
        value = float(whole)
    except ValueError:
        raise _unreadable(text) from None
    if not 0 < value < 1e15:
        raise _unreadable(text)
    return value


def _iterations(of: Plan) -> int:
    return (of.settings.count("max_iters") or int(NANOGPT_DEFAULTS["max_iters"])) + 1


def _unreadable(text: str) -> UsageError:
    return UsageError(
        Message("the claim “{text:word}” cannot be read", {"text": text}),
        Message("for example: --claim 100ms (an iteration), 2M-tokens/s, 20min (the whole run)"),
        about="claim",
    )


# --- JSON -------------------------------------------------------------------------------------------------------


def plan_json(of: Plan) -> dict[str, Any]:
    found, claim = of.estimate, of.claim
    claimed = claim and {
        "text": claim.text,
        "step_s": claim.step_s,
        "needs_tflops": claim.needs_flops / TERA,
        "of_peak": claim.of_peak,
        "verdict": claim.verdict,
    }
    return {
        "schema": SCHEMA,
        "gpu": of.gpu.name,
        "gpu_origin": of.gpu_origin,
        "n_gpus": of.n_gpus,
        "settings": {name: setting.value for name, setting in of.settings.items() if name not in PRIVATE},
        "origins": {name: setting.origin.value for name, setting in of.settings.items() if name not in PRIVATE},
        "n_params": of.workload.n_params,
        "tokens_per_iter": of.workload.tokens_per_iteration,
        "flops_per_iter": of.flops_per_iter,
        "step_s": _json(found.step_s),
        "eval_s": _json(found.eval_s),
        "checkpoint_s": _json(found.checkpoint_s),
        "compile_s": _json(found.compile_s),
        "total_s": _json(of.total_s),
        "step_part_s": _json(of.step_part_s),
        "evaluations": of.evaluations,
        "saves": _json(of.saves),
        "floor_step_s": found.floor_step_s,
        "tokens_per_s": _json(of.tokens_per_s),
        "mfu": _json(of.mfu),
        "peak_tflops": of.peak_flops / TERA,
        "bound": found.bound,
        "vram_bytes": _json(found.vram_bytes),
        "fits": of.fits,
        "largest_batch_size": of.largest_batch_size,
        "claim": claimed,
        "own_runs": found.own_runs,
        "terms_s": {term.name: term.seconds for term in found.terms},
        "advice": [],
    }


def _json(interval: Interval) -> dict[str, float]:
    return {"low": interval.low, "mid": interval.mid, "high": interval.high}
