"""Intervals and unit constants."""

from __future__ import annotations

from dataclasses import dataclass

MILLI = 1e-3
TERA = 1e12
GIGA = 1e9
MEGA = 1e6
MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0
Z90 = 1.6449  # 90 % of a normal distribution is within this many standard deviations of its mean


@dataclass(frozen=True, slots=True)
class Interval:
    """A claim that can be checked: the truth lies in [low, high] in 90 % of the cases."""

    low: float
    mid: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.mid <= self.high:
            raise ValueError(f"not an interval: {self.low}, {self.mid}, {self.high}")

    @classmethod
    def exactly(cls, value: float) -> Interval:
        return cls(value, value, value)

    @classmethod
    def around(cls, mid: float, half_width: float) -> Interval:
        """mid ± half_width, but nothing below zero: times are not negative."""
        mid = max(mid, 0.0)
        return cls(max(mid - half_width, 0.0), mid, max(mid + half_width, mid))

    def __add__(self, other: Interval) -> Interval:
        """Sum of independent quantities: the half-widths add in quadrature."""
        mid = self.mid + other.mid
        down = ((self.mid - self.low) ** 2 + (other.mid - other.low) ** 2) ** 0.5
        up = ((self.high - self.mid) ** 2 + (other.high - other.mid) ** 2) ** 0.5
        return Interval(max(mid - down, self.low + other.low), mid, mid + up)  # rounding must not make a time negative

    def scaled(self, factor: float) -> Interval:
        if factor < 0:
            return Interval(self.high * factor, self.mid * factor, self.low * factor)
        return Interval(self.low * factor, self.mid * factor, self.high * factor)

    def widened(self, *, down: float = 0.0, up: float = 0.0) -> Interval:
        """The same middle with relative slack added on either side, as for a known bias; a time stays at least 0."""
        low = self.low - down * self.mid
        return Interval(max(low, 0.0) if self.low >= 0 else low, self.mid, self.high + up * self.mid)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def interval_json(interval: Interval | None) -> dict[str, float] | None:
    if interval is None:
        return None
    return {"low": plain_json(interval.low), "mid": plain_json(interval.mid), "high": plain_json(interval.high)}


def plain_json(value: float) -> float:
    """Rounds to nine digits, which is more than any figure here is accurate to.

    Sums of printed times are often exactly between two such numbers. Then the last bit, which differs from processor
    to processor, would decide the ninth digit; moved up by much less than that digit, they are all rounded up.
    """
    return float(f"{value * (1 + 1e-13):.9g}")
