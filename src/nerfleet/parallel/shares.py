"""Which share of the work each rank gets: plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from nerfleet.errors import NerfleetError

MAX_OVERLOAD = 2.0
"""Largest share of a rank whose share may change, as a multiple of an equal share: it sizes the buffers."""
MIN_LOAD = 0.125
DRIFT = 0.10
"""Shares are left alone while no rank would gain or lose more than this part of its share."""


def parse_speeds(text: str, world_size: int) -> tuple[float, ...]:
    """``3,3,1`` -> relative speed of each rank; empty: equal.

    Raises:
        NerfleetError: not one positive number a rank.
    """
    if not text:
        return (1.0,) * world_size
    try:
        speeds = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise NerfleetError(f"--rank-speed {text}", "is not a list of numbers", "write for example 3,3,1") from None
    if len(speeds) != world_size or not all(0 < speed < float("inf") for speed in speeds):
        raise NerfleetError(f"--rank-speed {text}", f"needs {world_size} positive numbers, one a rank", "write for example 3,3,1")
    return speeds


def shares(speeds: Sequence[float]) -> list[float]:
    """Share of each rank, in proportion to its speed; they sum to 1."""
    total = sum(speeds)
    return [speed / total for speed in speeds]


def edges(parts: Sequence[float]) -> list[float]:
    """[n + 1] cumulative shares, from exactly 0 to exactly 1."""
    inner = list(accumulate(parts))[:-1]
    return [0.0, *(min(edge, 1.0) for edge in inner), 1.0]


def limited(parts: Sequence[float], n_rounds: int = 8) -> list[float]:
    """Shares moved into MIN_LOAD .. MAX_OVERLOAD times an equal share; what is cut off goes to the others in proportion."""
    low, high = MIN_LOAD / len(parts), min(MAX_OVERLOAD / len(parts), 1.0)
    current = list(parts)
    for _ in range(n_rounds):
        clamped = [min(max(part, low), high) for part in current]
        missing = 1.0 - sum(clamped)
        if abs(missing) < 1e-12:
            return clamped
        free = [i for i, part in enumerate(clamped) if (part < high if missing > 0 else part > low)]
        weight = sum(clamped[i] for i in free)
        current = [part + missing * part / weight if i in free else part for i, part in enumerate(clamped)]
    return shares([min(max(part, low), high) for part in current])


def rebalanced(before: Sequence[float], rays_per_s: Sequence[float]) -> list[float]:
    """New shares from measured speeds; ``before`` itself while the drift is small."""
    wanted = limited(shares(rays_per_s))
    if all(abs(new - old) <= DRIFT * old for new, old in zip(wanted, before)):
        return list(before)
    return wanted
