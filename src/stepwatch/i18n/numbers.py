"""Numbers, durations and units as each language writes them."""

from __future__ import annotations

import math

from stepwatch.i18n.languages import TABLE
from stepwatch.units import DAY_S, HOUR_S, MINUTE_S, TERA, Interval


def decimal(value: float, decimals: int, language: str) -> str:
    if not math.isfinite(value):
        return "–"
    whole, _, fraction = f"{value:,.{decimals}f}".partition(".")
    locale = TABLE[language]
    if len(whole.lstrip("-").replace(",", "")) < 3 + locale.least_digits:
        whole = whole.replace(",", "")
    whole = whole.replace(",", locale.group)
    return whole + locale.decimal + fraction if fraction else whole


def significant(value: float, digits: int, language: str) -> str:
    """At most `digits` significant digits, none after the point beyond what they need."""
    if value == 0 or not math.isfinite(value):
        return decimal(value, 0, language)
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of what is shown: 9.996 is 10.0, not 10.00
    return decimal(value, min(max(0, digits - 1 - exponent), 6), language)


def integer(value: float, language: str) -> str:
    return decimal(round(value), 0, language)


def with_unit(number: str, unit: str, language: str) -> str:
    locale = TABLE[language]
    return number + ("" if unit in locale.close else locale.space) + unit


def factor(value: float, language: str) -> str:
    return significant(value, 3 if value >= 100 else 2, language)


def figure(value: float, language: str) -> str:
    """Up to four digits, none of them a mere zero at the end: 12, 58.3."""
    short = float(f"{value:.4g}")
    return decimal(short, len(f"{short:g}".partition(".")[2]), language)


def ratio(value: float, language: str) -> str:
    """With three decimals around 1, so that a difference of a tenth of a per cent is seen; three digits elsewhere."""
    return decimal(value, 3, language) if 0.1 <= abs(value) < 10 else significant(value, 3, language)


def percent(value: float, language: str) -> str:
    share = 100 * value
    digits = 0 if abs(share) >= 99.95 else 1
    return with_unit(decimal(share, digits, language), "%", language)


def duration(seconds: float, language: str) -> str:
    """Three significant digits below a minute, four from 100 ms to 1 s; two units above."""
    if not math.isfinite(seconds):
        return "–"
    if abs(seconds) < 0.9995:
        ms = seconds * 1e3
        return with_unit(significant(ms, 3, language) if abs(ms) < 99.95 else decimal(ms, 1, language), "ms", language)
    if abs(seconds) < 59.95:
        return with_unit(significant(seconds, 3, language), "s", language)
    locale = TABLE[language]
    for big, small, names in (
        (DAY_S, HOUR_S, locale.clock[0:2]),
        (HOUR_S, MINUTE_S, locale.clock[1:3]),
        (MINUTE_S, 1.0, locale.clock[2:4]),
    ):
        if seconds >= big - small / 2:
            whole, rest = divmod(round(seconds / small), round(big / small))
            if whole >= 100:
                return with_unit(integer(seconds / big, language), names[0], language)
            text = with_unit(integer(whole, language), names[0], language)
            return text + (locale.joint + with_unit(integer(rest, language), names[1], language) if rest else "")
    return with_unit(significant(seconds, 3, language), "s", language)


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
    return with_unit(significant(flops / TERA, 3, language), "TFLOPS", language)


def token_rate(tokens_per_s: float, language: str) -> str:
    return with_unit(integer(float(f"{tokens_per_s:.3g}"), language), "tokens/s", language)


def size(count: float, language: str) -> str:
    byte = TABLE[language].byte
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return with_unit(significant(count / scale, 3, language), prefix + byte, language)
    return with_unit(integer(count, language), byte, language)


def big(value: float, language: str) -> str:
    """Parameter counts: 123.6 M."""
    for scale, unit in TABLE[language].scales:
        if value >= scale:
            return with_unit(significant(value / scale, 4, language), unit, language)
    return integer(value, language)
