"""A gain of which two things are known: the range of what was published, and what the log of this run bears out."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate

from stepwatch.units import Interval

Z90 = 1.6449
SHOULDER = 0.05  # how far, as a standard deviation, a gain may lie beyond all published ones
CONTRADICTION = 2.0  # standard deviations of the witness
_PLACES = 300


def borne_out(published: Interval, witness: Interval) -> Interval:
    """Any gain in the published range is as likely as another, until the witness is heard.

    A witness is right in the middle of its interval as often above as below, log-normal on either side. One that lies
    far outside the range speaks of something else, and neither is believed: the answer is then as wide as both.
    """
    if _beyond(witness.mid, published) > CONTRADICTION * _deviation(witness, above=witness.mid < published.low):
        return Interval(
            min(published.low, witness.low), math.sqrt(published.mid * witness.mid), max(published.high, witness.high)
        )
    begin, end = published.low * math.exp(-3 * SHOULDER), published.high * math.exp(3 * SHOULDER)
    places = [begin * (end / begin) ** (place / (_PLACES - 1)) for place in range(_PLACES)]
    believed = [_log_density(place, witness) - 0.5 * (_beyond(place, published) / SHOULDER) ** 2 for place in places]
    most = max(believed)  # a witness without doubts would leave nothing else
    reached = list(accumulate(math.exp(one - most) for one in believed))
    return Interval(*(places[bisect_left(reached, share * reached[-1])] for share in (0.05, 0.5, 0.95)))


def _beyond(gain: float, published: Interval) -> float:
    """How far outside the range, in the logarithm."""
    return max(math.log(published.low / gain), math.log(gain / published.high), 0.0)


def _deviation(witness: Interval, *, above: bool) -> float:
    end = witness.high if above else witness.low
    return max(abs(math.log(end / witness.mid)) / Z90, 1e-3)


def _log_density(gain: float, witness: Interval) -> float:
    deviation = _deviation(witness, above=gain > witness.mid)
    return -0.5 * (math.log(gain / witness.mid) / deviation) ** 2 - math.log(deviation)
