"""How many times as fast a step becomes: by what was published, by the estimator, and by what a log shows."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate

from stepwatch.estimator.simulate import UNCHANGED
from stepwatch.units import Z90, Interval

# docs/advice.md names the sources. That a lever helps is certain, how much it gains on another card is not.
PUBLISHED_GAINS = {
    "compile": Interval(1.15, 1.6, 2.3),
    "flash": Interval(1.2, 1.4, 1.66),
    "vocab_size": Interval(1.03, 1.07, 1.3),
    "fused": Interval(1.01, 1.02, 1.04),
    "dtype": Interval(1.11, 1.4, 1.71),
}
# recipe=modern: time to reach the loss of nanoGPT's recipe, relative to nanoGPT: the smallest and the largest value in
# the table of docs/train.md, and the largest model there.
MODERN_TIME, MODERN_PARAMS = (0.24, 0.56), 1.6e6
TINY_PARAMS, TINY_COMPILE_GAINS = 15e6, Interval(0.9, 1.2, 1.85)
# The lower and the upper end of a gain that only the estimator computes, as powers of it.
SHARE_OF_GAIN = (0.4, 1.6)
SHOULDER = 0.05  # standard deviation of how far a gain may be beyond all published ones


def inverse(gain: Interval) -> Interval:
    """A gain in speed as a factor of the time."""
    return Interval(1 / gain.high, 1 / gain.mid, 1 / gain.low)


def modelled_factor(ratio: float) -> Interval:
    """A modelled ratio of two times as an interval that never crosses 1: its direction is certain, its size is not."""
    if ratio <= 0:
        return UNCHANGED
    ends = sorted(math.exp(power * math.log(ratio)) for power in SHARE_OF_GAIN)
    return Interval(min(ends[0], ratio), ratio, max(ends[1], ratio))


def combined_gain(published: Interval, measured: Interval) -> Interval:
    """Combines the published range with a measurement.

    All gains in the published range are equally likely before the measurement, which is taken as log-normal on either
    side of its middle. If it is far outside the range, it measured something else: then neither is trusted, and the
    result is as wide as both.
    """

    def beyond(gain: float) -> float:
        """How far the gain is outside the published range, in its logarithm."""
        return max(math.log(published.low / gain), math.log(gain / published.high), 0.0)

    def deviation(end: float) -> float:
        return max(abs(math.log(end / measured.mid)) / Z90, 1e-9)

    below, above = deviation(measured.low), deviation(measured.high)
    # Two standard deviations of the measured gain contradict the published ones.
    if beyond(measured.mid) > 2.0 * (above if measured.mid < published.low else below):
        low, high = min(published.low, measured.low), max(published.high, measured.high)
        return Interval(low, math.sqrt(published.mid * measured.mid), high)

    def log_likelihood(gain: float) -> float:
        sigma = above if gain > measured.mid else below
        in_measurement = -0.5 * (math.log(gain / measured.mid) / sigma) ** 2 - math.log(sigma)
        return in_measurement - 0.5 * (beyond(gain) / SHOULDER) ** 2

    begin, end = published.low * math.exp(-3 * SHOULDER), published.high * math.exp(3 * SHOULDER)
    count = 300
    gains = [begin * (end / begin) ** (place / (count - 1)) for place in range(count)]
    logs = [log_likelihood(gain) for gain in gains]
    most = max(logs)  # keeps exp() from vanishing if the measurement is very narrow
    cumulated = list(accumulate(math.exp(one - most) for one in logs))
    return Interval(*(gains[bisect_left(cumulated, share * cumulated[-1])] for share in (0.05, 0.5, 0.95)))
