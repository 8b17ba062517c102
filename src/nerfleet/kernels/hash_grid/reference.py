"""Multiresolution hash encoding in plain torch, any float dtype: read this first.

Mueller et al., "Instant Neural Graphics Primitives with a Multiresolution Hash Encoding", 2022, equations 2-4.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nerfleet.kernels.hash_grid.spec import LEVEL_INTS

PRIME_Y, PRIME_Z = 2654435761, 805459861


def cell_index(corner: Tensor, level: Sequence[int]) -> Tensor:
    """Entry of each grid vertex. corner [n, 3] int64 >= 0; level: the six integers of ``GridSpec.levels`` -> [n] int64."""
    _, n_entries, first, hashed, stride_y, stride_z = level
    x, y, z = corner.unbind(-1)
    mask = 0xFFFFFFFF  # 32-bit arithmetic
    if hashed:
        index = x ^ (y * PRIME_Y & mask) ^ (z * PRIME_Z & mask)
    else:
        index = (x + y * stride_y + z * stride_z) & mask
    return first + index % n_entries


def hash_grid(positions: Tensor, table: Tensor, n_features: int, scales: Sequence[float], levels: Sequence[int], interpolation: int) -> Tensor:
    """Features of points.

    Args:
        positions: [n, 3] in [0, 1].
        table: [n_params] flat; levels one after the other, the features of an entry adjacent.
        scales, levels: of :class:`GridSpec`.
        interpolation: 0 linear, 1 smoothstep, 2 nearest.

    Returns:
        [n, n_levels * n_features] of the table's dtype.
    """
    entries = table.view(-1, n_features)
    features = []
    for i, scale in enumerate(scales):
        level = levels[LEVEL_INTS * i : LEVEL_INTS * (i + 1)]
        grid_position = positions * scale + 0.5
        cell = grid_position.floor()
        fraction = (grid_position - cell).to(table.dtype)
        cell = cell.long()
        if interpolation == 2:
            features.append(entries[cell_index(cell, level)])
            continue
        if interpolation == 1:
            fraction = fraction * fraction * (3 - 2 * fraction)
        value = torch.zeros(len(positions), n_features, dtype=table.dtype, device=table.device)
        for corner in range(8):
            offset = torch.tensor([corner & 1, corner >> 1 & 1, corner >> 2 & 1], device=positions.device)
            weight = torch.where(offset.bool(), fraction, 1 - fraction).prod(-1, keepdim=True)
            value = value + weight * entries[cell_index(cell + offset, level)]
        features.append(value)
    return torch.cat(features, -1)
