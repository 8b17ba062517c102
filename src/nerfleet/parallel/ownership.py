"""Which rank owns which levels of the hash grid: plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from nerfleet.kernels.hash_grid.spec import LEVEL_INTS, GridSpec

MEMORY_WEIGHT = 0.5
"""How much a level's bytes count beside the time that it takes (every level encodes every sample)."""


@dataclass(frozen=True)
class Ownership:
    """Attributes:
    levels: of each rank of a grid group, ascending; every level once.
    """

    grid: GridSpec
    levels: tuple[tuple[int, ...], ...]

    def ranges(self, rank: int) -> list[tuple[int, int]]:
        """Parameters of a rank's levels in the whole table, as (first, end)."""
        offsets = self.grid.level_offsets
        return [(offsets[level], offsets[level + 1]) for level in self.levels[rank]]

    def columns(self, rank: int) -> list[int]:
        """Feature columns of a rank's levels."""
        n = self.grid.n_features
        return [level * n + f for level in self.levels[rank] for f in range(n)]

    def arguments(self, rank: int) -> tuple[list[float], list[int]]:
        """(scales, levels) of a rank's own table, as the ops take them: first entries counted anew."""
        scales, flat, first = [], [], 0
        for level in self.levels[rank]:
            layout = list(self.grid.levels[LEVEL_INTS * level : LEVEL_INTS * (level + 1)])
            layout[2] = first
            first += layout[1]
            scales.append(self.grid.scales[level])
            flat += layout
        return scales, flat


def assign_levels(grid: GridSpec, n_ranks: int) -> Ownership:
    """Levels to ranks: dearest first, each to the rank that has least so far (longest processing time first, Graham 1969).

    A level costs its share of the time (alike for all) and of the bytes. Every rank gets at least one level.
    """
    offsets = grid.level_offsets
    share = [(offsets[level + 1] - offsets[level]) / grid.n_params for level in range(grid.n_levels)]
    cost = [MEMORY_WEIGHT * part + (1 - MEMORY_WEIGHT) / grid.n_levels for part in share]
    owned: list[list[int]] = [[] for _ in range(n_ranks)]
    for level in sorted(range(grid.n_levels), key=lambda one: (-cost[one], one)):
        least = min(range(n_ranks), key=lambda rank: (sum(cost[i] for i in owned[rank]), rank))
        owned[least].append(level)
    return Ownership(grid, tuple(tuple(sorted(levels)) for levels in owned))


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


def everything(n_params: int) -> list[list[tuple[int, int]]]:
    """Ranges of the one owner of a whole table."""
    return [[(0, n_params)]]
