"""Hash grid on the CPU: numba; forward for one thread, backward parallel over levels, so without races.

What costs is waiting for memory: a table is larger than the caches, and its entries are visited at random. The entries of the
point AHEAD places further on are asked for while those of this one are used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numba
import numpy as np

from nerfleet.kernels.hash_grid.prefetch import prefetch_read, prefetch_write

ROWS = 8192
"""Points of a block of forward: worked off level by level, so that a level's entries stay in cache."""
AHEAD = 16


@numba.njit(inline="always")
def split(position, scale, interpolation):
    """Cell (uint32) and weight of the upper vertex on one axis."""
    scaled = position * scale + np.float32(0.5)
    cell = np.int32(scaled)
    fraction = scaled - np.float32(cell)
    if interpolation == 1:
        fraction = fraction * fraction * (np.float32(3) - np.float32(2) * fraction)
    if interpolation == 2:
        fraction = np.float32(0)
    return np.uint32(cell), fraction


@numba.njit(inline="always")
def vertices(x, y, z, layout):
    """Entries inside their level of the eight vertices of cell (x, y, z), x changing fastest; all uint32."""
    n_entries, hashed, stride_y, stride_z = layout
    one = np.uint32(1)
    if hashed:
        mask = n_entries - one  # hashed levels have a power of two of entries
        x1, y0, z0 = x + one, y * np.uint32(2654435761), z * np.uint32(805459861)
        y1, z1 = y0 + np.uint32(2654435761), z0 + np.uint32(805459861)
        a, b, c, d = y0 ^ z0, y1 ^ z0, y0 ^ z1, y1 ^ z1
        return (x ^ a) & mask, (x1 ^ a) & mask, (x ^ b) & mask, (x1 ^ b) & mask, (x ^ c) & mask, (x1 ^ c) & mask, (x ^ d) & mask, (x1 ^ d) & mask
    a = x + y * stride_y + z * stride_z
    b, c = a + stride_y, a + stride_z
    d = c + stride_y
    entries = (a, a + one, b, b + one, c, c + one, d, d + one)
    if d < n_entries - one and a <= d:
        return entries
    e0, e1, e2, e3, e4, e5, e6, e7 = entries
    return e0 % n_entries, e1 % n_entries, e2 % n_entries, e3 % n_entries, e4 % n_entries, e5 % n_entries, e6 % n_entries, e7 % n_entries


@numba.njit(inline="always")
def corners(x, y, z, scale, layout, interpolation):
    """(entries, weights) of the eight vertices around a point of the unit cube."""
    x, fx = split(x, scale, interpolation)
    y, fy = split(y, scale, interpolation)
    z, fz = split(z, scale, interpolation)
    gx, gy, gz = np.float32(1) - fx, np.float32(1) - fy, np.float32(1) - fz
    a, b, c, d = gy * gz, fy * gz, gy * fz, fy * fz
    return vertices(x, y, z, layout), (gx * a, fx * a, gx * b, fx * b, gx * c, fx * c, gx * d, fx * d)


@numba.njit(inline="always")
def entries_of(x, y, z, scale, layout, interpolation):
    """Entries of the eight vertices around a point of the unit cube."""
    x, _ = split(x, scale, interpolation)
    y, _ = split(y, scale, interpolation)
    z, _ = split(z, scale, interpolation)
    return vertices(x, y, z, layout)


@numba.njit(inline="always")
def layout_of(level):
    """A row of ``GridSpec.levels`` (uint32) -> (entries, hashed, stride of y, stride of z)."""
    return level[1], level[3] != 0, level[4], level[5]


@functools.cache
def kernels(n_features: int) -> tuple[Callable, Callable]:
    """(forward, backward) for a number of features per level: a constant of the compiled code."""
    width = np.uint64(n_features)

    @numba.njit(cache=True, fastmath=True, nogil=True, error_model="numpy")
    def forward(positions, table, scales, levels, interpolation, out):
        """positions [n, 3] f32, table [n_params] f32, scales [L] f32, levels [L, 6] u32 -> out [n, L * F] f32."""
        last = positions.shape[0] - 1
        for level in range(scales.shape[0]):
            layout, scale = layout_of(levels[level]), scales[level]
            first, column = np.uint64(levels[level, 2]), level * n_features
            for i in range(last + 1):
                k = min(i + AHEAD, last)
                ahead = entries_of(positions[k, 0], positions[k, 1], positions[k, 2], scale, layout, interpolation)
                for corner in range(8):
                    prefetch_read(table, (first + np.uint64(ahead[corner])) * width)
                entries, weights = corners(positions[i, 0], positions[i, 1], positions[i, 2], scale, layout, interpolation)
                for f in range(n_features):
                    value = np.float32(0)
                    for corner in range(8):
                        value += weights[corner] * table[(first + np.uint64(entries[corner])) * width + np.uint64(f)]
                    out[i, column + f] = value

    @numba.njit(parallel=True, cache=True, fastmath=True, nogil=True, error_model="numpy")
    def backward(positions, grad_features, scales, levels, interpolation, grad_table, n_threads):
        """Adds to grad_table [n_params]; grad_features [n, L * F]. Parallel over levels: deterministic, no races."""
        n_levels = scales.shape[0]
        per_thread = (n_levels + n_threads - 1) // n_threads
        for k in numba.prange(per_thread * n_threads):
            # threads take neighbouring k: each gets cheap coarse levels and dear fine ones
            level = (k % per_thread) * n_threads + k // per_thread
            if level < n_levels:
                layout, scale = layout_of(levels[level]), scales[level]
                first, column = np.uint64(levels[level, 2]), level * n_features
                last = positions.shape[0] - 1
                for i in range(last + 1):
                    k = min(i + AHEAD, last)
                    ahead = entries_of(positions[k, 0], positions[k, 1], positions[k, 2], scale, layout, interpolation)
                    for corner in range(8):
                        prefetch_write(grad_table, (first + np.uint64(ahead[corner])) * width)
                    entries, weights = corners(positions[i, 0], positions[i, 1], positions[i, 2], scale, layout, interpolation)
                    for corner in range(8):
                        for f in range(n_features):
                            grad_table[(first + np.uint64(entries[corner])) * width + np.uint64(f)] += weights[corner] * grad_features[i, column + f]

    return forward, backward
