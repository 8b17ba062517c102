"""Which entries of the hash grid a step touches: what the planner needs to know of a scene beyond counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nerfleet.kernels.control.op import COUNT_KEPT
from nerfleet.train.step import TrainStep

SECTOR_PARAMS = 8
"""Parameters that the optimiser reads and writes together (kernels/adam)."""


@dataclass(frozen=True)
class LevelTouch:
    """Distinct sectors of one level that the kept samples of one step meet, as if the level had an entry for every vertex.

    Attributes:
        cells: along an edge of the scene box. read: sectors around all samples; read_half: around the first half
            of them. updated, updated_half: only of samples whose gradient is not zero in half precision.
    """

    cells: float
    read: int
    read_half: int
    updated: int
    updated_half: int


def touched(step: TrainStep) -> list[LevelTouch]:
    """One forward and backward pass; nothing is updated. One entry a level of the grid."""
    step.forward_backward()
    grid, samples = step.spec.grid, step.samples
    n = min(int(step.control.counters[COUNT_KEPT]), len(samples.positions))
    positions = samples.positions[samples.order[:n].long()]  # d_features is in this order
    levels = []
    for level, scale in enumerate(grid.scales):
        columns = samples.d_features[:n, level * grid.n_features : (level + 1) * grid.n_features]
        moving = positions[(columns.half() != 0).any(1)]
        counts = [_distinct(part, scale, grid.n_features) for points in (positions, moving) for part in (points, points[: len(points) // 2])]
        levels.append(LevelTouch(scale, *counts))
    step.control.counters.zero_()
    step.control.loss_sum.zero_()
    step.table.gradient.zero_()
    step.mlp.gradient.zero_()
    return levels


def _distinct(positions: Tensor, scale: float, n_features: int) -> int:
    """Sectors around points [n, 3] of the unit cube: those of the 8 vertices of each point's cell."""
    cells = (positions * scale + 0.5).floor().long()
    entries = max(SECTOR_PARAMS // n_features, 1)  # neighbours along x
    keys = []
    for corner in range(8):
        x, y, z = (cells[:, axis] + (corner >> axis & 1) for axis in range(3))
        keys.append((x // entries) << 42 | y << 21 | z)
    return len(torch.cat(keys).unique())
