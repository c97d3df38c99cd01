"""Numbers, durations and units as each language writes them."""

from __future__ import annotations

import math

from stepwatch.i18n.languages import TABLE
from stepwatch.units import DAY_S, HOUR_S, MINUTE_S, TERA, Interval


def decimal(value: float, language: str, decimals: int = 0, unit: str = "") -> str:
    """With its unit, where it has one."""
    locale = TABLE[language]
    number = "–"
    if math.isfinite(value):
        whole, _, fraction = f"{value:,.{decimals}f}".partition(".")
        if len(whole.lstrip("-").replace(",", "")) < 3 + locale.least_digits:
            whole = whole.replace(",", "")
        number = whole.replace(",", locale.group) + (locale.decimal + fraction if fraction else "")
    return number + ("" if not unit or unit in locale.close else locale.space) + unit


def significant(value: float, digits: int, language: str, unit: str = "") -> str:
    """At most `digits` significant digits, none after the point beyond what they need."""
    if value == 0 or not math.isfinite(value):
        return decimal(value, language, 0, unit)
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of what is shown: 9.996 is 10.0, not 10.00
    return decimal(value, language, min(max(0, digits - 1 - exponent), 6), unit)


def factor(value: float, language: str) -> str:
    return significant(value, 3 if value >= 100 else 2, language)


def figure(value: float, language: str) -> str:
    """Up to four digits, none of them a mere zero at the end: 12, 58.3."""
    short = float(f"{value:.4g}")
    return decimal(short, language, len(f"{short:g}".partition(".")[2]))


def ratio(value: float, language: str) -> str:
    """With three decimals around 1, so that a difference of a tenth of a per cent is seen; three digits elsewhere."""
    return decimal(value, language, 3) if 0.1 <= abs(value) < 10 else significant(value, 3, language)


def percent(value: float, language: str) -> str:
    share = 100 * value
    return decimal(share, language, 0 if abs(share) >= 99.95 else 1, "%")


def duration(seconds: float, language: str) -> str:
    """Three significant digits below a minute, four from 100 ms to 1 s; two units above."""
    if not math.isfinite(seconds):
        return "–"
    if 0.09995 <= abs(seconds) < 0.9995:
        return decimal(seconds * 1e3, language, 1, "ms")
    if abs(seconds) < 0.9995:
        return significant(seconds * 1e3, 3, language, "ms")
    locale = TABLE[language]
    for big, small, names in (
        (DAY_S, HOUR_S, locale.clock[0:2]),
        (HOUR_S, MINUTE_S, locale.clock[1:3]),
        (MINUTE_S, 1.0, locale.clock[2:4]),
    ):
        if seconds >= max(big - small / 2, 59.95):
            whole, rest = divmod(round(seconds / small), round(big / small))
            if whole >= 100:
                return decimal(seconds / big, language, 0, names[0])
            text = decimal(whole, language, 0, names[0])
            return text + (locale.joint + decimal(rest, language, 0, names[1]) if rest else "")
    return significant(seconds, 3, language, "s")


def duration_range(interval: Interval, language: str) -> str:
    """`5.1–5.2 s`; one figure where both ends read alike, and the upper end alone where the lower one is nothing."""
    low, high = duration(interval.low, language), duration(interval.high, language)
    if low == high:
        return low
    if interval.low <= 0:
        return "≤ " + high
    locale = TABLE[language]
    unit_low, unit_high = low.rpartition(locale.space)[2], high.rpartition(locale.space)[2]
    if unit_low == unit_high and interval.high < 59.95:
        return low.rpartition(locale.space)[0] + locale.dash + high
    return low + locale.wide_dash + high


def tflops(flops: float, language: str) -> str:
    return significant(flops / TERA, 3, language, "TFLOPS")


def token_rate(tokens_per_s: float, language: str) -> str:
    return decimal(float(f"{tokens_per_s:.3g}"), language, 0, "tokens/s")


def size(count: float, language: str) -> str:
    byte = TABLE[language].byte
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return significant(count / scale, 3, language, prefix + byte)
    return decimal(count, language, 0, byte)


def big(value: float, language: str) -> str:
    """Parameter counts: 123.6 M."""
    for scale, unit in TABLE[language].scales:
        if value >= scale:
            return significant(value / scale, 4, language, unit)
    return decimal(value, language)
