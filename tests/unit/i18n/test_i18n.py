"""Numbers, durations and units as each locale writes them."""

from __future__ import annotations

import pytest
from babel.numbers import format_decimal
from hypothesis import given
from hypothesis import strategies as st

from stepwatch import i18n
from stepwatch.i18n import LANGUAGES, joined, language_from_environment, say
from stepwatch.i18n.languages import TABLE
from stepwatch.messages import Message
from stepwatch.units import Interval

values = st.floats(min_value=-1e9, max_value=1e12, allow_nan=False)


@pytest.mark.parametrize("language", LANGUAGES)
@given(values, st.integers(0, 3))
def test_separators_are_those_of_the_locale(language: str, value: float, decimals: int) -> None:
    value = round(value, decimals) + 0.0  # minus zero is written as zero
    pattern = "#,##0" + ("." + "0" * decimals if decimals else "")
    said = format_decimal(value, pattern, locale=language)
    if TABLE[language].least_digits == 2 and abs(value) < 9999.5:
        said = said.replace(TABLE[language].group, "")  # CLDR groups from five digits on, which Babel does not know
    assert i18n.decimal(value, language, decimals) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.16869, "168.7 ms"), (0.0999, "99.9 ms"), (0.09999, "100.0 ms"), (0.1, "100.0 ms"),
        (0.00005, "0.0500 ms"), (5.7269, "5.73 s"), (0.9995, "1.00 s"), (9.996, "10.0 s"), (59.96, "1 min"),
        (61, "1 min 1 s"), (3599.6, "1 h"), (8040, "2 h 14 min"), (100_000, "1 d 4 h"), (0, "0 ms"), (9e9, "104,167 d"),
    ],
)  # fmt: skip
def test_durations_have_three_digits_or_two_units(seconds: float, said: str) -> None:
    assert i18n.duration(seconds, "en") == said


def test_durations_follow_the_language() -> None:
    assert i18n.duration(0.16869, "fr") == "168,7\u202fms"
    assert i18n.duration(100_000, "fr") == "1\u202fj 4\u202fh"
    assert i18n.duration(1234.5678e-3 * 1, "de") == "1,23\u00a0s"
    assert i18n.size(12e9, "fr") == "12,0\u202fGo"
    assert i18n.percent(0.25, "es") == "25,0\u00a0%"
    assert i18n.percent(0.25, "zh") == i18n.percent(0.25, "ja") == "25.0%"
    assert i18n.duration(100_000, "zh") == "1\u00a0天\u00a04\u00a0小时"
    assert i18n.duration(100_000, "ja") == "1日4時間"
    assert i18n.duration(185, "ja") == "3分5秒"
    assert i18n.duration(0.16869, "ja") == i18n.duration(0.16869, "zh") == "168.7\u00a0ms"


def test_counts_are_in_the_thousands_or_myriads_of_the_language() -> None:
    said = [i18n.big(123.6e6, language) for language in ("en", "zh", "ja")]
    assert said == ["123.6 M", "1.236\u00a0亿", "1.236億"]
    assert [i18n.big(1.06e7, language) for language in ("zh", "ja")] == ["1,060\u00a0万", "1,060万"]
    assert [i18n.big(7e9, language) for language in ("de", "zh")] == ["7,000\u00a0G", "70.00\u00a0亿"]


def test_lists_and_ranges_have_the_marks_of_the_language() -> None:
    said = {language: say(Message("{at:ints}", {"at": (0, 250, 1500)}), language) for language in ("en", "zh", "ja")}
    assert said == {"en": "0, 250, 1,500", "zh": "0、250、1,500", "ja": "0、250、1,500"}
    assert i18n.duration_range(Interval(5.1, 5.15, 5.2), "zh") == "5.10–5.20\u00a0s"
    assert i18n.duration_range(Interval(5.1, 5.15, 5.2), "ja") == "5.10〜5.20\u00a0s"
    assert i18n.duration_range(Interval(3000, 4000, 5000), "zh") == "50\u00a0分 – 1\u00a0小时\u00a023\u00a0分"
    assert i18n.duration_range(Interval(3000, 4000, 5000), "ja") == "50分〜1時間23分"


def test_a_unit_in_the_script_of_the_sentence_has_no_space_after_it() -> None:
    message = Message("A crash costs up to {spacing:time} of training.", {"spacing": 5.0})
    assert say(message, "zh") == "崩溃时最多损失 5.00\u00a0s 的训练。"
    assert say(message._replace(params={"spacing": 972.0}), "zh") == "崩溃时最多损失 16\u00a0分\u00a012\u00a0秒的训练。"


def test_texts_on_one_line_have_no_space_beside_full_width_punctuation() -> None:
    assert joined(["It fits.", "The rest."]) == "It fits. The rest."
    assert joined(["放得下。", "12.3%", "的时间", "（通常）"]) == "放得下。12.3% 的时间（通常）"
    assert joined(["29.0 TFLOPS。", "ステップ", "+", "評価"]) == "29.0 TFLOPS。ステップ + 評価"


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        (Interval(5.1, 5.15, 5.2), "5.10–5.20 s"), (Interval(0.0, 1.0, 2.0), "≤ 2.00 s"),
        (Interval(5.0, 5.0, 5.0), "5.00 s"),
        (Interval(0.8, 2.0, 5.4), "800.0 ms – 5.40 s"), (Interval(3000, 4000, 5000), "50 min – 1 h 23 min"),
    ],
)  # fmt: skip
def test_ranges_say_their_unit_once(interval: Interval, said: str) -> None:
    assert i18n.duration_range(interval, "en") == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.0, "1.000"), (1.0304, "1.030"), (1.049, "1.049"), (0.7496, "0.750"), (0.1, "0.100"), (9.9994, "9.999"),
        (11.04, "11.0"), (11.46, "11.5"), (1234.0, "1,234"), (0.0781, "0.0781"), (0.00247, "0.00247"),
    ],
)  # fmt: skip
def test_ratios_show_a_tenth_of_a_per_cent_around_1(value: float, said: str) -> None:
    assert i18n.ratio(value, "en") == said
    assert i18n.ratio(1.03, "de") == "1,030"


@given(st.floats(1e-3, 1e4))
def test_the_ends_of_an_interval_of_a_per_cent_read_differently(mid: float) -> None:
    assert i18n.ratio(mid * 0.995, "fr") != i18n.ratio(mid * 1.006, "fr")


def test_plurals_follow_the_language() -> None:
    one = Message(
        "They include {count:n} evaluation to come.", {"count": 1}, "They include {count:n} evaluations to come.", 1
    )
    many = one._replace(params={"count": 7}, n=7)
    assert say(one, "en") == "They include 1 evaluation to come."
    assert say(many, "en") == "They include 7 evaluations to come."
    assert len({say(message, language) for message in (one, many) for language in LANGUAGES}) == 2 * len(LANGUAGES)


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"), ({"LANG": "de_DE.UTF-8"}, "de"), ({"LC_ALL": "es_MX", "LANG": "fr_FR"}, "es"),
        ({"LANG": "C"}, "en"), ({"LANG": "zh_CN.UTF-8"}, "zh"), ({"LC_ALL": "ja_JP"}, "ja"),
        ({"LANGUAGE": "pt:fr", "LANG": "de"}, "fr"), ({"LANG": "esperanto"}, "en"), ({"LANG": "fr"}, "fr"),
    ],
)  # fmt: skip
def test_the_language_comes_from_the_usual_variables(environment: dict[str, str], language: str) -> None:
    assert language_from_environment(environment) == language


@given(st.text())
def test_what_is_repeated_from_outside_is_on_one_line_and_printable(text: str) -> None:
    said = say(Message("{text:word}", {"text": text}), "en")
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) <= 120


@pytest.mark.parametrize("value", [-0.0, -0.4])
def test_what_rounds_to_zero_has_no_sign(value: float) -> None:
    assert say(Message("{count:n}", {"count": value}), "en") == "0"
