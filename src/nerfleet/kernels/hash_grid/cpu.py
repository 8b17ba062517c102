"""Hash grid on the CPU: numba, parallel over blocks of points (forward) and over levels (backward, so without races).

The number of features is a constant of each compiled kernel, so that LLVM turns the inner loops into vector instructions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numba
import numpy as np

BLOCK = 1024


@numba.njit(inline="always")
def vertex(x, y, z, n_entries, hashed, stride_y, stride_z):
    """Entry of one grid vertex inside its level; all arguments uint32."""
    if hashed:
        return (x ^ (y * np.uint32(2654435761)) ^ (z * np.uint32(805459861))) & (n_entries - np.uint32(1))
    index = x + y * stride_y + z * stride_z
    return index if index < n_entries else index % n_entries


@numba.njit(inline="always")
def split(position, scale, interpolation):
    """Cell (uint32) and weight of the upper vertex on one axis."""
    scaled = position * scale + np.float32(0.5)
    cell = np.uint32(np.int32(scaled))
    fraction = scaled - np.float32(np.int32(scaled))
    if interpolation == 1:
        fraction = fraction * fraction * (np.float32(3) - np.float32(2) * fraction)
    if interpolation == 2:
        fraction = np.float32(0)
    return cell, fraction


@functools.cache
def kernels(n_features: int) -> tuple[Callable, Callable]:
    """(forward, backward) for a number of features per level."""

    @numba.njit(parallel=True, cache=True, fastmath=True, nogil=True, error_model="numpy")
    def forward(positions, table, scales, levels, interpolation, out):
        """positions [n, 3] f32, table [n_params] f32, scales [L] f32, levels [L, 6] u32 -> out [n, L * F] f32."""
        n, n_levels = positions.shape[0], scales.shape[0]
        for block in numba.prange((n + BLOCK - 1) // BLOCK):
            for level in range(n_levels):
                scale, n_entries, first = scales[level], levels[level, 1], levels[level, 2]
                hashed, stride_y, stride_z = levels[level, 3] != 0, levels[level, 4], levels[level, 5]
                for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
                    cx, fx = split(positions[i, 0], scale, interpolation)
                    cy, fy = split(positions[i, 1], scale, interpolation)
                    cz, fz = split(positions[i, 2], scale, interpolation)
                    column = level * n_features
                    for f in range(n_features):
                        out[i, column + f] = np.float32(0)
                    for corner in range(8):
                        bx, by, bz = corner & 1, (corner >> 1) & 1, corner >> 2
                        weight = (fx if bx else np.float32(1) - fx) * (fy if by else np.float32(1) - fy) * (fz if bz else np.float32(1) - fz)
                        inside = vertex(cx + np.uint32(bx), cy + np.uint32(by), cz + np.uint32(bz), n_entries, hashed, stride_y, stride_z)
                        entry = (np.int64(first) + np.int64(inside)) * n_features
                        for f in range(n_features):
                            out[i, column + f] += weight * table[entry + f]

    @numba.njit(parallel=True, cache=True, fastmath=True, nogil=True, error_model="numpy")
    def backward(positions, grad_features, scales, levels, interpolation, grad_table):
        """Adds to grad_table [n_params]; grad_features [n, L * F]. Parallel over levels: deterministic, no races."""
        n, n_levels = positions.shape[0], scales.shape[0]
        for level in numba.prange(n_levels):
            scale, n_entries, first = scales[level], levels[level, 1], levels[level, 2]
            hashed, stride_y, stride_z = levels[level, 3] != 0, levels[level, 4], levels[level, 5]
            for i in range(n):
                cx, fx = split(positions[i, 0], scale, interpolation)
                cy, fy = split(positions[i, 1], scale, interpolation)
                cz, fz = split(positions[i, 2], scale, interpolation)
                column = level * n_features
                for corner in range(8):
                    bx, by, bz = corner & 1, (corner >> 1) & 1, corner >> 2
                    weight = (fx if bx else np.float32(1) - fx) * (fy if by else np.float32(1) - fy) * (fz if bz else np.float32(1) - fz)
                    inside = vertex(cx + np.uint32(bx), cy + np.uint32(by), cz + np.uint32(bz), n_entries, hashed, stride_y, stride_z)
                    entry = (np.int64(first) + np.int64(inside)) * n_features
                    for f in range(n_features):
                        grad_table[entry + f] += weight * grad_features[i, column + f]

    return forward, backward
