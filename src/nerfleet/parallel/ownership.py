"""Which rank owns which levels of the hash grid, or which feature columns of a level: plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nerfleet.kernels.hash_grid.spec import LEVEL_INTS, GridSpec
from nerfleet.parallel.sharding import Block

MEMORY_WEIGHT = 0.5
"""How much a level's bytes count beside the time that it takes (every level encodes every sample)."""


@dataclass(frozen=True)
class Ownership:
    """A unit is a level, or ``width`` of its feature columns where there are more ranks than levels.

    Attributes:
        width: features of a unit; divides ``grid.n_features``.
        units: of each rank of a grid group, ascending; unit = level * units a level + number inside the level. Every unit once.
    """

    grid: GridSpec
    width: int
    units: tuple[tuple[int, ...], ...]

    def _places(self, rank: int) -> list[tuple[int, int]]:
        """(level, first column inside it) of a rank's units."""
        split = self.grid.n_features // self.width
        return [(unit // split, unit % split * self.width) for unit in self.units[rank]]

    def levels(self, rank: int) -> list[int]:
        """Level of each of a rank's units."""
        return [level for level, _ in self._places(rank)]

    def blocks(self, rank: int) -> list[Block]:
        """A rank's parameters in the whole table."""
        offsets, row = self.grid.level_offsets, self.grid.n_features
        return [Block(offsets[level], offsets[level + 1], row, column, self.width) for level, column in self._places(rank)]

    def columns(self, rank: int) -> list[int]:
        """Columns of a sample's features that come from this rank."""
        return [level * self.grid.n_features + column + f for level, column in self._places(rank) for f in range(self.width)]

    def arguments(self, rank: int) -> tuple[list[float], list[int]]:
        """(scales, levels) of a rank's own table with ``width`` features, as the ops take them: first entries counted anew."""
        scales, flat, first = [], [], 0
        for level in self.levels(rank):
            layout = list(self.grid.levels[LEVEL_INTS * level : LEVEL_INTS * (level + 1)])
            layout[2] = first
            first += layout[1]
            scales.append(self.grid.scales[level])
            flat += layout
        return scales, flat


def assign_levels(grid: GridSpec, n_ranks: int, speeds: Sequence[float] | None = None) -> Ownership:
    """Units to ranks: dearest first, each to the rank that is done first with it (longest processing time first, Graham 1969).

    A unit costs its share of the time (alike for all) and of the bytes. Levels are split into as few columns as it takes that
    every rank gets a unit.

    Args:
        speeds: of the ranks, relative; None: alike.
    """
    width = next(w for w in range(grid.n_features, 0, -1) if grid.n_features % w == 0 and grid.n_output // w >= n_ranks)
    split, offsets = grid.n_features // width, grid.level_offsets
    share = [(offsets[level + 1] - offsets[level]) / grid.n_params for level in range(grid.n_levels)]
    cost = [MEMORY_WEIGHT * share[unit // split] + (1 - MEMORY_WEIGHT) / grid.n_levels for unit in range(grid.n_levels * split)]
    pace = list(speeds or [1.0] * n_ranks)
    owned: list[list[int]] = [[] for _ in range(n_ranks)]
    for number, unit in enumerate(sorted(range(len(cost)), key=lambda one: (-cost[one], one))):
        empty = [rank for rank in range(n_ranks) if not owned[rank]]
        candidates = empty if len(cost) - number <= len(empty) else range(n_ranks)
        first_done = min(candidates, key=lambda rank: ((sum(cost[i] for i in owned[rank]) + cost[unit]) / pace[rank], rank))
        owned[first_done].append(unit)
    return Ownership(grid, width, tuple(tuple(sorted(units)) for units in owned))


def to_plain(ownership: Ownership) -> dict[str, Any]:
    """For a checkpoint."""
    return {"width": ownership.width, "units": [list(units) for units in ownership.units]}


def from_plain(grid: GridSpec, n_ranks: int, values: dict[str, Any]) -> Ownership | None:
    """What :func:`to_plain` gave, if it is of so many ranks; None if it is not.

    Raises:
        KeyError, TypeError, ValueError: it is none of this grid.
    """
    width, units = int(values["width"]), tuple(tuple(int(unit) for unit in rank) for rank in values["units"])
    if width < 1 or grid.n_features % width or sorted(unit for rank in units for unit in rank) != list(range(grid.n_output // width)) or not all(units):
        raise ValueError("units of another grid")
    return Ownership(grid, width, units) if len(units) == n_ranks else None


def level_groups(grid: GridSpec) -> list[range]:
    """Levels whose gradients travel together, in the order in which they are computed: the finest first.

    Large (capped) levels in two halves, then the small coarse ones, so that little is left to send when the last is computed; every
    group begins at a multiple of the levels that the scatter computes together, at 16 bytes of a sample's features.
    """
    offsets, together = grid.level_offsets, 2 if grid.n_features > 4 else max(4, 8 // grid.n_features)
    sizes = [offsets[level + 1] - offsets[level] for level in range(grid.n_levels)]
    first_large = next(level for level in range(grid.n_levels) if 2 * sizes[level] > max(sizes))
    middle = (first_large + grid.n_levels) // 2
    edges = sorted({0, first_large // together * together, middle // together * together, grid.n_levels})
    return [range(a, b) for a, b in pairwise(edges)][::-1]


def everything(n_params: int) -> list[list[Block]]:
    """Blocks of the one owner of a whole table."""
    return [[Block(0, n_params)]]
