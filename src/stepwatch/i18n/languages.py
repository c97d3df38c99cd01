"""The languages. Each is a row here and a folder in `locales`; English has no folder, since it is the key."""

from __future__ import annotations

from typing import NamedTuple


class Language(NamedTuple):
    """The name of a language in that language, and how it writes numbers and units.

    The separators are CLDR's, as in Babel; they are repeated here because loading a locale's data takes longer than
    explaining a log. A test compares every one with Babel.
    """

    name: str
    decimal: str
    group: str
    space: str  # between a figure and its unit
    epochs: tuple[tuple[str, str], ...]  # what replaces “iteration” if an epoch is meant: both have the same gender
    least_digits: int = 1  # before the first separator: Spanish writes 1234 but 12.345
    byte: str = "B"
    clock: tuple[str, str, str, str] = ("d", "h", "min", "s")  # of a duration in two units: 1 h 2 min
    joint: str = " "  # between two of these
    close: tuple[str, ...] = ()  # units without the space before them
    scales: tuple[tuple[float, str], ...] = ((1e9, "G"), (1e6, "M"), (1e3, "k"))  # of counts such as parameters
    dash: str = "–"  # between the ends of a range in one unit, and in two
    wide_dash: str = " – "
    colon: str = ":"
    comma: str = ", "
    semicolon: str = "; "
    fonts: str = ""  # for its script on macOS, Windows and Linux; placed before the fonts of all pages


TABLE = {
    "en": Language(
        "English", decimal=".", group=",", space=" ", epochs=(("iteration", "epoch"), ("Iteration", "Epoch"))
    ),
    "fr": Language(
        "Français", decimal=",", group="\u202f", space="\u202f", byte="o", clock=("j", "h", "min", "s"),
        colon="\u00a0:",
        epochs=(("itération", "époque"), ("Itération", "Époque")),
    ),
    "de": Language(
        "Deutsch", decimal=",", group=".", space="\u00a0",
        epochs=(("Iterationen", "Epochen"), ("Iteration", "Epoche")),
    ),
    "es": Language(
        "Español", decimal=",", group=".", space="\u00a0", least_digits=2,
        epochs=(
            ("iteraciones", "épocas"), ("iteración", "época"), ("Iteraciones", "Épocas"), ("Iteración", "Época"),
        ),
    ),
    # Engineers write 1.24 亿参数 and 1.24億パラメータ in a sentence; M and B are for the names of models. Tokens and
    # tokens per second stay plain figures: they are compared with those of a log.
    "zh": Language(
        "简体中文", decimal=".", group=",", space="\u00a0", clock=("天", "小时", "分", "秒"),
        joint="\u00a0", close=("%",), scales=((1e8, "亿"), (1e4, "万")), colon="：", comma="、", semicolon="；",
        fonts="'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', 'Noto Sans SC'",
        epochs=(("次迭代", "轮"), ("迭代", "轮次")),
    ),
    "ja": Language(
        "日本語", decimal=".", group=",", space="\u00a0", clock=("日", "時間", "分", "秒"), joint="",
        close=("%", "日", "時間", "分", "秒", "億", "万"), scales=((1e8, "億"), (1e4, "万")),
        dash="〜", wide_dash="〜", colon="：", comma="、", semicolon="、",
        fonts="'Hiragino Sans', 'Yu Gothic UI', 'Noto Sans CJK JP', 'Noto Sans JP'",
        epochs=(("回のイテレーション", "エポック"), ("イテレーション", "エポック")),
    ),
}  # fmt: skip
