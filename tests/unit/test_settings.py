"""Settings are read, never executed, and no expression takes time or memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product

import pytest

from stepwatch.errors import InputError, UsageError
from stepwatch.settings import (
    KINDS,
    NotPlain,
    Origin,
    Settings,
    evaluate,
    parse_assignment,
    read_config,
    read_value,
)

HOSTILE = [
    "9**9**9", "9**9**9**9", "(9**9)**(9**9)", "2**64**64", "10**18*10**18", "1e308*10", "1/0", "1%0", "0**-1",
    "(-8)**0.5", "9" * 399, "-" * 399 + "1", "~" * 399 + "1", "not " * 90 + "1", "(" * 199 + "1" + ")" * 199,
    "[" * 199 + "]" * 199, "a" + ".a" * 199, "f" + "()" * 199, "lambda:" * 50 + "1", "1" + "+1" * 199, "'a'*10**9",
    "__import__('os').system('true')", "open('/etc/passwd')", "(lambda: 1)()", "[x for x in range(10**9)]", "1 if x",
    "\x00", "5;5", "5\n5", "", " ", "=", "'\\d'", "'\\ud800'", "f'{9**9**9}'", "0x" + "f" * 300, "1_000_000", "1j",
    "...",
    "True + True", "'x' % ()", "-'x'", "9" * 5000, "\ud800", "'\ud800'", "1e-400", "١٢", "5 is 5", "0777", "inf", "nan",
]  # fmt: skip


def quickly(call: Callable[[], object]) -> object:
    times = []
    for _ in range(3):  # a collection of garbage may fall into one
        began = time.process_time()
        result = call()
        times.append(time.process_time() - began)
    assert min(times) < 0.2
    return result


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("5 * 8", 40), ("5*8", 40), ("-3", -3), ("1e-3", 0.001), ("2**10", 1024), ("7 // 2", 3), ("7 % 4", 3),
        ("(1 + 2) * 3", 9), ("True", True), ("'bfloat16'", "bfloat16"), ("600_000", 600000), ("+5", 5),
    ],
)  # fmt: skip
def test_literals_and_simple_arithmetic_are_evaluated(expression: str, value: object) -> None:
    assert evaluate(expression) == value


def test_names_that_are_known_may_be_used() -> None:
    assert read_config("n = 4\nbatch_size = n * 2")[0] == {"batch_size": 8}


@pytest.mark.parametrize("expression", HOSTILE)
def test_hostile_expressions_are_answered_at_once(expression: str) -> None:
    def attempt() -> None:
        try:
            value = evaluate(expression)
        except NotPlain:
            return
        assert isinstance(value, (int, float, str))

    quickly(attempt)


def test_a_setting_is_of_its_kind_and_bounded_or_unknown() -> None:
    for name, expression in product(["max_iters", "dropout", "dtype", "compile", "n_params"], HOSTILE):
        value = quickly(partial(read_value, name, expression))
        assert value is None or type(value) is KINDS[name], (name, expression)
        if isinstance(value, (int, float)):
            assert abs(value) <= 1e18, (name, expression)
        if isinstance(value, str):
            assert value.isprintable(), (name, expression)
            value.encode()


@pytest.mark.parametrize("text", ["'a\\x1b[2Jb'", "'\\ud800'", "'\\u202e'", "'" + "a" * 300 + "'", "'a\\nb'"])
def test_text_that_could_command_a_terminal_is_not_a_setting(text: str) -> None:
    assert read_value("dtype", text) is None


def test_windows_paths_make_no_noise() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        read_value("out_dir", "'C:\\data\\gpt'")
        read_config("out_dir = 'C:\\data\\gpt'\nmax_iters = 5")
    assert not heard


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_iters=6000", ("max_iters", 6000)), ("--batch_size=8", ("batch_size", 8)),
        ("compile=true", ("compile", True)), ("compile=False", ("compile", False)),
        ("dtype=bfloat16", ("dtype", "bfloat16")), ("dropout=0", ("dropout", 0.0)),
        ("tokens_per_iter=524,288", ("tokens_per_iter", 524288)), ("n_params=124.4e6", ("n_params", 124.4e6)),
        (" gradient_accumulation_steps = 5 * 8", ("gradient_accumulation_steps", 40)),
    ],
)  # fmt: skip
def test_assignments_as_people_type_them(text: str, expected: tuple[str, object]) -> None:
    assert parse_assignment(text) == expected


@pytest.mark.parametrize(
    "text",
    ["max_iters", "max_iters=", "max_iters=ten", "max_iters=0", "max_iters=-5", "max_iters=1.5", "compile=maybe",
     "max_iters=9**9**9", "dropout=nan", "n_layer=1e999", "=5", "", "nonsense=5", "max_iter=5", "dtype=a b"],
)  # fmt: skip
def test_wrong_assignments_are_told_with_what_fits(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_assignment(text)
    assert caught.value.exit_code == 2
    assert caught.value.remedy is not None


def test_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        parse_assignment("eval_intervall=5")
    assert caught.value.remedy is not None
    assert "eval_interval" in caught.value.remedy.in_english()


# --- config files ----------------------------------------------------------------------------------------------------


def test_config_is_read_without_being_executed() -> None:
    values, skipped = read_config(
        '"""A config."""\n'
        "import time\n"
        "batch_size = 12\n"
        "block_size: int = 1024\n"
        "own = 5\n"
        "gradient_accumulation_steps = own * 8 # over all cards\n"
        "out_dir = 'out' + str(time.time())\n"
        "max_iters = 'many'\n"
        "if True:\n    eval_iters = 5\n"
    )
    assert values == {"batch_size": 12, "block_size": 1024, "gradient_accumulation_steps": 40}
    assert skipped == (
        "out_dir",
        "max_iters",
        "eval_iters",
        "import",
        "if",
    )  # kinds and names: the text may hold a secret


def test_later_value_that_cannot_be_read_forgets_the_earlier() -> None:
    values, skipped = read_config("max_iters = 5\nmax_iters = f()")
    assert values == {}
    assert skipped == ("max_iters",)


@pytest.mark.parametrize(
    "text",
    ["max_iters = 9**9**9", "x = " + "-" * 100_000 + "1", "x = " + "1+" * 100_000 + "1", "x.y = " + "1+" * 900 + "1",
     "(" * 5000, "x = " + "9" * 100_000, "\x00", "def f(:", "\ud800", "x = (-8)**0.5\ndropout = x", "if x:\n" * 200,
     "x.y = " + "~" * 900 + "1", "lambda" + ": lambda" * 900 + ": 1", "a" + ".a" * 900, "x = '\ud800'", "\x0c\nfor",
     "x\ry\rimport z\r\nf()", "\x0cf()\x0b", "f()\u2028g()"],
    ids=range(19),
)  # fmt: skip
def test_hostile_config_is_answered_at_once(text: str) -> None:
    began = time.process_time()
    values: dict[str, object] = {}
    with suppress(InputError):  # much of it is no Python
        values.update(read_config(text)[0])
    assert time.process_time() - began < 2
    assert not set(values) - {"dropout"}


# --- the mapping -----------------------------------------------------------------------------------------------------


def test_stronger_settings_win_and_keep_their_origin() -> None:
    log = Settings.of(Origin.LOG, {"max_iters": 5, "batch_size": 8})
    merged = log.overridden_by(Settings.of(Origin.USER, {"max_iters": 9}))
    assert (merged["max_iters"].value, merged["max_iters"].origin) == (9, Origin.USER)
    assert merged["batch_size"].origin is Origin.LOG
    assert len(merged) == 2
    assert set(merged) == {"max_iters", "batch_size"}


def test_unknown_is_none_never_zero() -> None:
    settings = Settings.of(Origin.LOG, {"eval_interval": 0, "max_iters": 2.5, "dtype": "x", "compile": True})
    assert settings.count("eval_interval") is None
    assert settings.count("max_iters") is None
    assert settings.number("dtype") is None
    assert settings.number("compile") is None
    assert settings.number("batch_size") is None
    assert settings.flag("dtype") is None
    assert settings.text("compile") is None


@pytest.mark.parametrize(
    "text",
    ["x = " + "-" * 9_000 + "1", "x = " + "+".join(["1"] * 9_000), "x = a" + ".b" * 9_000, "x = f" + "()" * 9_000,
     "x = " + "lambda a, b: " * 9_000 + "1", "x = " + "a[1, 2] + " * 9_000 + "1",
     "if 1:\n pass\n" + "elif 1:\n pass\n" * 9_000,
     "x = " + "2**" * 9_000 + "1\n)"],
    ids=["signs", "sum", "attributes", "calls", "functions", "commas", "branches", "before an error"],
)  # fmt: skip
def test_a_config_that_would_end_a_browsers_python_is_refused_in_words(text: str) -> None:
    with pytest.raises(InputError, match="nested too deeply: see line"):
        read_config(text)


@pytest.mark.parametrize(
    "before",
    ["a = 1\n" * 30, "if 1: a = 1\nelse: a = 2\n", "@a\n@b\ndef f(): pass\n", "'''a\nb c'''\n", "a = [1,\n2]\n"],
)
def test_what_is_nested_is_found_behind_any_statement(before: str) -> None:
    with pytest.raises(InputError, match="nested too deeply: see line"):
        read_config(f"{before}a = {'-' * 300}1\n")


def test_what_is_no_python_is_not_read_to_its_end() -> None:
    words = "Some words, (and more) of a report: one = 2 and [so on].\n" * 9000

    def refused() -> None:
        with pytest.raises(InputError, match="not Python: see line"):
            read_config(words)

    quickly(refused)


def test_long_lists_and_many_lines_are_not_deep() -> None:
    text = "betas = [" + ", ".join(f"({n} + 1) * 2" for n in range(2_000)) + "]\n" + "batch_size = 4 * 2 + 1\n" * 300
    assert read_config(text)[0] == {"batch_size": 9}
