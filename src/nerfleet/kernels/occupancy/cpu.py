"""The occupancy grid on the CPU (numba)."""

from __future__ import annotations

import numba
import numpy as np

from nerfleet.kernels.march.cpu import morton
from nerfleet.kernels.march.reference import GRID_SIZE, MIN_STEP, N_CELLS
from nerfleet.kernels.occupancy.reference import DECAY, MAX_THRESHOLD
from nerfleet.kernels.rays.philox import STREAM_OCCUPANCY, philox, uniform

MAX_TRIES = 10
_POSITION_COUNTER = np.uint32(MAX_TRIES)


@numba.njit(inline="always")
def _compact(code):
    """Every third bit -> seven bits."""
    v = np.uint32(code) & np.uint32(0x09249249)
    v = (v | (v >> np.uint32(2))) & np.uint32(0x030C30C3)
    v = (v | (v >> np.uint32(4))) & np.uint32(0x0300F00F)
    v = (v | (v >> np.uint32(8))) & np.uint32(0x030000FF)
    return (v | (v >> np.uint32(16))) & np.uint32(0x0000007F)


@numba.njit(inline="always")
def _choose_cell(i, n_uniform, step, key_0, key_1, grid):
    """Uniform samples: one in each of n_uniform strata of all cells, not an unseen one. Others: a random cell above the
    threshold. After MAX_TRIES the last cell tried is taken."""
    total = np.uint64(grid.shape[0])
    cell = np.int64(0)
    for attempt in range(MAX_TRIES):
        word, _, _, _ = philox(i, step, STREAM_OCCUPANCY, attempt, key_0, key_1)
        offset = (np.uint64(word) * total) >> np.uint64(32)
        if i < n_uniform:
            cell = np.int64((np.uint64(i) * total + offset) // np.uint64(n_uniform))
            if grid[cell] >= 0:
                break
        else:
            cell = np.int64(offset)
            if grid[cell] > np.float32(MAX_THRESHOLD):
                break
    return cell


@numba.njit(parallel=True, cache=True, nogil=True)
def sample(first, n_uniform, step, key_0, key_1, grid, aabb_scale, cells, positions):
    """Writes cells [n] int32 and a random point in each, positions [n, 3] float32 in the unit cube (occupancy/op.py)."""
    scale = np.float32(1) / np.float32(aabb_scale)
    for j in numba.prange(cells.shape[0]):
        i = first + j
        cell = _choose_cell(i, n_uniform, step, key_0, key_1, grid)
        cells[j] = cell
        edge = np.float32(1 << (cell // N_CELLS))
        code = cell % N_CELLS
        a, b, c, _ = philox(i, step, STREAM_OCCUPANCY, _POSITION_COUNTER, key_0, key_1)
        words = (a, b, c)
        for axis in range(3):
            inside = (np.float32(_compact(code >> axis)) + uniform(words[axis])) / np.float32(GRID_SIZE)
            unit = (inside - np.float32(0.5)) * edge * scale + np.float32(0.5)
            positions[j, axis] = min(max(unit, np.float32(0)), np.float32(1))


@numba.njit(cache=True, nogil=True)
def splat(cells, raw, updates):
    """updates[cells] = max(updates[cells], exp(raw) * MIN_STEP); cells [n] int32, raw [n] float32, updates [cells of the grid] float32."""
    for i in range(cells.shape[0]):
        updates[cells[i]] = max(updates[cells[i]], np.float32(np.exp(raw[i])) * np.float32(MIN_STEP))


@numba.njit(parallel=True, cache=True, nogil=True)
def update(updates, grid):
    """Decay and maximum -> mean density of cascade 0."""
    total = 0.0
    for i in numba.prange(grid.shape[0]):
        if grid[i] >= 0:
            grid[i] = max(grid[i] * np.float32(DECAY), updates[i])
            if i < N_CELLS:
                total += grid[i]
        updates[i] = np.float32(0)
    return np.float32(total / N_CELLS)


@numba.njit(parallel=True, cache=True, nogil=True)
def threshold_bits(grid, threshold, bitfield):
    """Bits of cells above the threshold, lowest bit first; grid [n] float32, bitfield [n / 8] uint8."""
    for byte in numba.prange(bitfield.shape[0]):
        value = 0
        for bit in range(8):
            value |= int(grid[8 * byte + bit] > threshold) << bit
        bitfield[byte] = np.uint8(value)


@numba.njit(cache=True, nogil=True)
def coarsen(bitfield, n_cascades):
    """In bitfield [n_cascades * 128^3 / 8], in place: a coarse cell is occupied if one of the eight finer cells that it covers (one byte) is."""
    quarter = np.uint32(GRID_SIZE // 4)
    n_bytes = N_CELLS // 8
    for cascade in range(1, n_cascades):
        for i in range(n_bytes):
            if bitfield[(cascade - 1) * n_bytes + i]:
                code = morton(_compact(i) + quarter, _compact(i >> 1) + quarter, _compact(i >> 2) + quarter)
                bitfield[cascade * n_bytes + (code >> 3)] |= np.uint8(1 << (code & 7))
