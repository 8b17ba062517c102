"""The occupancy grid in plain torch: combining samples, decay, bits (Mueller et al. 2022, appendix E.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.kernels.march.reference import GRID_SIZE, MIN_STEP, N_CELLS, morton

DECAY = 0.95
MAX_THRESHOLD = 0.01
UNSEEN = -1.0
"""Value of a cell that no camera sees: never occupied."""


def splat(cells: Tensor, raw: Tensor, updates: Tensor) -> None:
    """updates[cells] = max(updates[cells], exp(raw) * MIN_STEP)."""
    updates.scatter_reduce_(0, cells.long(), torch.exp(raw) * MIN_STEP, "amax")


def update(updates: Tensor, grid: Tensor) -> None:
    """grid = max(DECAY * grid, updates) for every cell that some camera sees; updates are cleared."""
    grid.copy_(torch.where(grid < 0, grid, torch.maximum(grid * DECAY, updates)))
    updates.zero_()


def mean_density(grid: Tensor) -> Tensor:
    """Mean of max(value, 0) over the cells of cascade 0."""
    return grid[:N_CELLS].clamp_min(0).mean()


def bits(grid: Tensor) -> Tensor:
    """Occupied bits of all cascades, packed [n / 8] uint8, lowest bit first: value > min(0.01, mean); a coarse cell is
    also occupied if one of the eight finer cells that it covers is."""
    threshold = mean_density(grid).clamp_max(MAX_THRESHOLD)
    occupied = (grid > threshold).view(-1, N_CELLS)
    for cascade in range(1, len(occupied)):
        finer = occupied[cascade - 1].view(-1, 8).any(-1)
        occupied[cascade, inner_cells(grid.device)] |= finer
    weights = 1 << torch.arange(8, device=grid.device)
    return (occupied.view(-1, 8) * weights).sum(-1).to(torch.uint8)


def inner_cells(device: torch.device) -> Tensor:
    """[N_CELLS / 8] Morton codes in a cascade of the cells that cover cells 8 i .. 8 i + 7 of the next finer one."""
    half = GRID_SIZE // 2
    axis = torch.arange(half, device=device)
    cell = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)
    codes = torch.empty(N_CELLS // 8, dtype=torch.int64, device=device)
    codes[morton(cell)] = morton(cell + GRID_SIZE // 4)
    return codes
