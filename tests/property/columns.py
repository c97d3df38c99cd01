"""Columns of figures for laws, made from a seed: drawing them one by one costs more than explaining them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from hypothesis import strategies as st

from stepwatch import bounds

seeds = st.integers(0, 2**32 - 1)


@cache
def inside(limits: bounds.Range) -> st.SearchStrategy[float]:
    """The ends and what lies between them, small numbers as often as large ones."""
    low, high = float(limits.low), float(limits.high)
    logs = st.floats(math.log(max(low, 1e-9)), math.log(high)).map(lambda x: min(max(math.exp(x), low), high))
    return st.sampled_from((low, high)) | logs


@cache
def whole(limits: bounds.Range) -> st.SearchStrategy[int]:
    return inside(limits).map(lambda value: min(max(round(value), int(limits.low)), int(limits.high)))


def all_inside(rng: np.random.Generator, limits: bounds.Range, count: int) -> np.ndarray:
    """As `inside`, a whole column: half of them are ends."""
    low, high = float(limits.low), float(limits.high)
    found = np.exp(rng.uniform(math.log(max(low, 1e-9)), math.log(high), count)).clip(low, high)
    return np.where(rng.random(count) < 0.5, found, rng.choice((low, high), count))


def one_inside(rng: np.random.Generator, limits: bounds.Range) -> float:
    return float(all_inside(rng, limits, 1)[0])


def one_whole(rng: np.random.Generator, limits: bounds.Range) -> int:
    return min(max(round(one_inside(rng, limits)), int(limits.low)), int(limits.high))


def times_of(rng: np.random.Generator, usual: float, wild: float, count: int) -> np.ndarray:
    """Times of steps near the usual one; some of them, by this share, anything that a step can take."""
    near = (usual * rng.uniform(0.9, 1.1, count)).clip(bounds.STEP_S.low, bounds.STEP_S.high)
    return np.where(rng.random(count) < wild, all_inside(rng, bounds.STEP_S, count), near)


@st.composite
def step_times(draw: st.DrawFn, most: int) -> np.ndarray:
    """From one to so many times of steps: all alike, nearly alike, or anything."""
    rng, count = np.random.default_rng(draw(seeds)), draw(st.integers(1, most))
    usual = draw(inside(bounds.STEP_S))
    found = times_of(rng, usual, draw(st.sampled_from((0.0, 0.1, 0.5, 1.0))), count)
    return np.round(found, 3).clip(bounds.STEP_S.low) if draw(st.booleans()) else found  # with many that are equal
