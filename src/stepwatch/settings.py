"""What the user configured, and how we know it. Config files are read by `ast`, never executed."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from stepwatch.bounds import SETTINGS
from stepwatch.errors import InputError, UsageError
from stepwatch.messages import Message

Value = int | float | bool | str


class Origin(StrEnum):
    """How a value is known."""

    LOG = "log"
    CONFIG = "config"
    USER = "user"
    DRIVER = "driver"
    CALIBRATED = "calibrated"
    FORMAT_DEFAULT = "default"
    INFERRED = "inferred"


# nanoGPT's own names, then ours for what nanoGPT has no name for.
KINDS: Mapping[str, type] = {
    "n_layer": int,
    "n_head": int,
    "n_embd": int,
    "vocab_size": int,
    "block_size": int,
    "bias": bool,
    "dropout": float,
    "batch_size": int,
    "gradient_accumulation_steps": int,
    "max_iters": int,
    "eval_interval": int,
    "eval_iters": int,
    "log_interval": int,
    "eval_only": bool,
    "always_save_checkpoint": bool,
    "init_from": str,
    "out_dir": str,
    "dataset": str,
    "learning_rate": float,
    "weight_decay": float,
    "beta1": float,
    "beta2": float,
    "grad_clip": float,
    "decay_lr": bool,
    "warmup_iters": int,
    "lr_decay_iters": int,
    "min_lr": float,
    "backend": str,
    "device": str,
    "dtype": str,
    "compile": bool,
    "wandb_log": bool,
    "wandb_project": str,
    "wandb_run_name": str,
    "flash": bool,
    "fused": bool,
    "activation_checkpointing": bool,
    "chunked_loss": bool,
    "recipe": str,
    "world_size": int,
    "tokens_per_iter": int,
    "n_params": float,
    "mtbf_hours": float,
}

# Settings that may name a person, a machine or a place: never shown in a report.
PRIVATE = frozenset({"out_dir", "wandb_project", "wandb_run_name", "dataset", "init_from", "wandb_log"})


class Setting(NamedTuple):
    value: Value
    origin: Origin


class Settings(dict[str, Setting]):
    """Maps setting names to values with their origins. Unknown settings are absent. Never changed in place."""

    @classmethod
    def of(cls, origin: Origin, values: Mapping[str, Value]) -> Settings:
        return cls({name: Setting(value, origin) for name, value in values.items()})

    def overridden_by(self, others: Settings) -> Settings:
        """Returns these settings, overridden by `others`."""
        return Settings(self | others)

    def number(self, name: str) -> float | None:
        setting = self.get(name)
        if setting is None or isinstance(setting.value, (str, bool)):
            return None
        return float(setting.value)

    def count(self, name: str) -> int | None:
        """A positive whole number, or None: a zero interval in a log is as good as unknown."""
        value = self.number(name)
        return int(value) if value is not None and value >= 1 and value == int(value) else None

    def flag(self, name: str) -> bool | None:
        setting = self.get(name)
        return setting.value if setting is not None and isinstance(setting.value, bool) else None

    def text(self, name: str) -> str | None:
        setting = self.get(name)
        return setting.value if setting is not None and isinstance(setting.value, str) else None


GPT2_VOCABULARY = 50304  # 50257 rounded up to a multiple of 64, which is faster on cards (nanoGPT)
GPT2_TOKENS = 50257

# From nanoGPT's train.py and model.py at 3adf61e (2025-11-12); flash and fused are what it does on CUDA with torch 2.
NANOGPT_DEFAULTS: Mapping[str, Any] = {
    "n_layer": 12,
    "n_head": 12,
    "n_embd": 768,
    "block_size": 1024,
    "vocab_size": GPT2_VOCABULARY,
    "bias": False,
    "dropout": 0.0,
    "batch_size": 12,
    "gradient_accumulation_steps": 40,
    "max_iters": 600_000,
    "eval_interval": 2000,
    "eval_iters": 200,
    "log_interval": 1,
    "always_save_checkpoint": True,
    "dtype": "bfloat16",
    "compile": True,
    "flash": True,
    "fused": True,
    "activation_checkpointing": False,
    "world_size": 1,
}
# OpenAI's four models, as nanoGPT's `init_from` loads them: bias on, vocabulary not padded.
_GPT2 = {"vocab_size": GPT2_TOKENS, "block_size": 1024, "bias": True}
MODELS: Mapping[str, Mapping[str, Value]] = {
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768, **_GPT2},
    "gpt2-medium": {"n_layer": 24, "n_head": 16, "n_embd": 1024, **_GPT2},
    "gpt2-large": {"n_layer": 36, "n_head": 20, "n_embd": 1280, **_GPT2},
    "gpt2-xl": {"n_layer": 48, "n_head": 25, "n_embd": 1600, **_GPT2},
}


def flops_per_token(n_params: float, layers: int = 0, width: int = 0, block: int = 0) -> float:
    """Forward and backward for one token: 6 N + 12 L H Q T (PaLM, appendix B); without a shape, 6 N."""
    return 6.0 * n_params + 12.0 * layers * width * block


# --- values -----------------------------------------------------------------------------------------------------

# Names for skipped statements: their text may contain a secret, and reports are passed on.
_KINDS_OF_STATEMENT: Mapping[type[ast.stmt], str] = {
    ast.Import: "import",
    ast.ImportFrom: "import",
    ast.For: "for",
    ast.While: "while",
    ast.If: "if",
    ast.With: "with",
    ast.FunctionDef: "def",
    ast.ClassDef: "class",
    ast.Expr: "()",
    ast.Assign: "=",
    ast.AugAssign: "+=",
    ast.Try: "try",
}
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class NotPlain(ValueError):
    """An expression that is more than a literal or simple bounded arithmetic."""


@lru_cache(1024)  # logs of one trainer repeat the same values
def evaluate(expression: str) -> Value:
    """The value of a literal or of simple arithmetic (`5 * 8`). Raises NotPlain for anything else."""
    if len(expression) > 400:  # no setting is that long
        raise NotPlain(expression[:40])
    try:
        tree = _parse(expression.strip(), "eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise NotPlain(expression[:40]) from error
    assert isinstance(tree, ast.Expression)
    return _value_of(tree.body, {}, 0)


def _parse(text: str, mode: str) -> ast.AST:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about backslashes in other people's paths
        return ast.parse(text, mode=mode)


def _value_of(node: ast.expr, names: Mapping[str, Value], depth: int) -> Value:
    if depth > 30:
        raise NotPlain("nested too deeply")
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _number(_value_of(operand, names, depth + 1))
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            first, second = (_number(_value_of(side, names, depth + 1)) for side in (left, right))
            # `9**9**9` must fail at once: the size of a power is checked before it is computed.
            if isinstance(op, ast.Pow) and (abs(second) > 64 or abs(first) > 1e6):
                raise NotPlain("power too large")
            try:
                result: int | float = _OPERATORS[type(op)](first, second)
                plain = not isinstance(result, complex) and abs(result) <= 1e18
            except (ArithmeticError, TypeError) as error:
                raise NotPlain(str(error)[:40]) from error
            if not plain:
                raise NotPlain("number too large, or none that a setting could be")
            return result
    raise NotPlain(type(node).__name__)


def _number(value: Value) -> int | float:
    if isinstance(value, (bool, str)):
        raise NotPlain(str(value)[:40])
    return value


def as_kind(name: str, value: Value) -> Value | None:
    """The value converted to the type of this setting; None if it does not fit or no training can have it."""
    kind = KINDS[name]
    if kind is str:
        # Only what can be printed unchanged: no control characters, no lone surrogates.
        return value if isinstance(value, str) and value.isprintable() and len(value) <= 200 else None
    if kind is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            return {"true": True, "false": False, "1": True, "0": False}.get(value.strip().lower())
        return bool(value) if value in (0, 1) else None
    if isinstance(value, (bool, str)) or not SETTINGS[name].holds(value):
        return None
    if kind is int:
        return int(value) if value == int(value) else None
    return float(value)


def parse_assignment(text: str) -> tuple[str, Value]:
    """Parses `key=value` as given to --set. Raises UsageError, with similar names if the name is unknown."""
    name, equals, raw = text.partition("=")
    name = name.strip().lstrip("-")
    if not equals:
        raise UsageError(
            Message("--set needs key=value, not “{text:word}”", {"text": text}),
            Message("for example: --set max_iters=6000"),
            about="settings",
        )
    if name not in KINDS:
        raise unknown_setting(name)
    value = read_value(name, raw.strip())
    if value is None:
        raise UsageError(
            Message("“{value:word}” is not a value for {name:word}", {"value": raw, "name": name}),
            _what_fits(name),
            about="settings",
        )
    return name, value


def _what_fits(name: str) -> Message:
    kind = KINDS[name]
    if kind is bool:
        return Message("{name:word} is True or False", {"name": name})
    if kind is str:
        return Message("{name:word} is a word", {"name": name})
    if SETTINGS[name].low > 0:
        facts = {"name": name, "most": SETTINGS[name].high}
        return Message("{name:word} is a number above zero, at most {most:n}", facts)
    return Message("{name:word} is a number", {"name": name})


def unknown_setting(name: str) -> UsageError:
    import difflib  # only a mistake needs it

    near = difflib.get_close_matches(name, KINDS, n=3) or ["max_iters", "eval_interval", "log_interval"]
    return UsageError(
        Message("there is no setting “{name:word}”", {"name": name}),
        Message("did you mean {names:word}?", {"names": ", ".join(near)}),
        about="settings",
    )


def read_value(name: str, raw: str) -> Value | None:
    """The value of a known setting from its text; None if it cannot be read safely."""
    if KINDS[name] is str and not raw.startswith(("'", '"')):
        plain = raw.replace("-", "").replace("_", "").replace("/", "").replace(".", "").isalnum()
        return as_kind(name, raw) if plain else None
    try:
        value = evaluate(raw.replace(",", "") if name in ("tokens_per_iter", "n_params") else raw)
    except NotPlain:
        # `true`, as people type it.
        return as_kind(name, raw) if KINDS[name] is bool else None
    return as_kind(name, value)


# --- config files -----------------------------------------------------------------------------------------------


def read_config(text: str) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Known settings of a nanoGPT config file, and what was skipped because it is not a plain value.

    Raises InputError if the text is not Python.
    """
    values, skipped, _ = read_assignments(text)
    known = {name: value for name, value in values.items() if name in KINDS}
    return known, tuple(sorted(dict.fromkeys(skipped), key=lambda name: name not in KINDS))


def _line_too_deep(text: str) -> int | None:
    """The first line that may be nested more than 200 deep, which is Python's own limit for brackets; else None.

    Python's parser recurses for each operator and bracket. Normally it stops in time, but in a browser the stack is
    smaller, and its overflow would end all of Python.
    """
    import io  # only a config needs them
    import keyword
    import tokenize

    open_signs, lambdas, branches = [0], 0, 0  # per open bracket, per statement, per file
    lines, begin, tried = text.split("\n"), 0, 20
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if not begin and token.string.strip():
                begin = token.start[0]
                if keyword.iskeyword(token.string) or token.string == "@":
                    tried = 0  # it may be one statement together with what follows
            if token.type == tokenize.NEWLINE:
                if tried:  # most texts that are not Python fail early
                    _parse("\n".join(lines[begin - 1 : token.end[0]]), "exec")
                    tried -= 1
                open_signs, lambdas, begin = [0], 0, 0
            elif token.string == ",":
                open_signs[-1] = 0
            elif token.string in ("(", "[", "{"):
                open_signs[-1] += 1
                open_signs.append(0)
            elif token.string in (")", "]", "}"):
                if len(open_signs) > 1:
                    open_signs.pop()
            elif token.type == tokenize.OP or keyword.iskeyword(token.string):
                open_signs[-1] += 1
                lambdas += token.string == "lambda"
                branches += token.string == "elif"
            if max(sum(open_signs), lambdas, branches) > 200:
                return token.start[0]
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass  # the parser reports the error, and reads no further than this did
    return None


def read_assignments(text: str) -> tuple[dict[str, Value], list[str], frozenset[str]]:
    """All values that a config assigns, known or not; names that were skipped; names that its expressions use."""
    if len(text) > 1_000_000:  # configs have a few kB
        raise InputError(Message("the config is too long"), Message("give nanoGPT's config, a few kB"), about="config")
    deep = _line_too_deep(text)
    if deep is not None:
        what = Message("the config is nested too deeply: see line {line:n}", {"line": deep})
        raise InputError(what, Message("fix it, or leave it out"), about="config")
    try:
        tree = _parse(text, "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InputError(
            Message("the config is not Python: see line {line:n}", {"line": line}),
            Message("fix it, or leave it out"),
            about="config",
        ) from error
    assert isinstance(tree, ast.Module)
    values: dict[str, Value] = {}
    skipped: list[str] = []
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    for statement in tree.body:
        assignments = list(_simple_assignments(statement))
        for name, expression in assignments:
            _assign(name, expression, values, skipped)
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if is_docstring or assignments:
            continue
        # Settings that a loop or condition may change are unknown from here on; a statement is named only by its kind.
        inner = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        stored = {node.id for node in inner if isinstance(node.ctx, ast.Store)}
        for name in sorted(stored & set(KINDS)):
            values.pop(name, None)
            skipped.append(name)
        skipped.append(_KINDS_OF_STATEMENT.get(type(statement), "…"))
    return values, skipped, frozenset(node.id for node in names if isinstance(node.ctx, ast.Load))


def config_settings(text: str) -> tuple[Settings, tuple[Message, ...]]:
    """The settings of a config, and a remark if some were left out."""
    values, skipped = read_config(text)
    if not skipped:
        return Settings.of(Origin.CONFIG, values), ()
    remark = Message(
        "These settings of the config are not plain values, or none that a run can have, and were left out: "
        "{names:word}.",
        {"names": ", ".join([*skipped[:8], *(["…"] if len(skipped) > 8 else [])])},
    )
    return Settings.of(Origin.CONFIG, values), (remark,)


def _simple_assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """`a = 1`, `a: int = 1`, `a, b = 1, 2` and `a += 1` as pairs of a name and its new value."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
            yield name, ast.BinOp(left=ast.Name(id=target.id, ctx=ast.Load()), op=op, right=value)
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            yield from (
                (name.id, value) for name, value in zip(names, values, strict=True) if isinstance(name, ast.Name)
            )


def _assign(name: str, expression: ast.expr, values: dict[str, Value], skipped: list[str]) -> None:
    try:
        value = _value_of(expression, values, 0)
    except NotPlain:
        skipped.append(name)
        values.pop(name, None)
        return
    if name not in KINDS:
        values[name] = value  # later lines may compute with it
        # `batchsize` is not a setting, and nanoGPT would reject it too.
        alike = {known.replace("_", "").rstrip("s"): known for known in KINDS}
        meant = alike.get(name.lower().replace("_", "").rstrip("s"))
        if meant is not None:
            skipped.append(f"{name} ({meant}?)")
        return
    fitting = as_kind(name, value)
    if fitting is None:
        skipped.append(name)
    else:
        values[name] = fitting
