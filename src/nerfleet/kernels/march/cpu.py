"""Marching on the CPU: device functions for one ray, and the parallel loop over the live rays."""

from __future__ import annotations

import math

import numba
import numpy as np

from nerfleet.kernels.march.reference import GRID_SIZE, MAX_STEP, MIN_STEP, N_CELLS

_MIN = np.float32(MIN_STEP)
_HALF = np.float32(0.5)
SLACK = np.float32(0.01)
"""In steps: rounding must not skip a sample just past the border of an empty cell; at worst the cell is looked at twice."""


@numba.njit(inline="always")
def lattice(cone_angle):
    """Constants of ``march.reference.lattice_pieces``, once a kernel: (cone angle, log, t_begin, n_begin, t_end, n_end, shift)."""
    cone = float(cone_angle)
    if cone == 0:
        return cone, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
    log = math.log1p(cone)
    t_begin, t_end = MIN_STEP / log, MAX_STEP / log
    shift = t_begin / MIN_STEP - math.log(t_begin) / log
    return cone, log, t_begin, t_begin / MIN_STEP, t_end, math.log(t_end) / log + shift, shift


@numba.njit(inline="always")
def to_lattice(t, pieces):
    cone, log, t_begin, _, t_end, n_end, shift = pieces
    if cone == 0 or t <= t_begin:
        return np.float32(t / _MIN)
    if t <= t_end:
        return np.float32(math.log(t) / log + shift)
    return np.float32((t - t_end) / MAX_STEP + n_end)


@numba.njit(inline="always")
def from_lattice(n, pieces):
    cone, log, _, n_begin, t_end, n_end, shift = pieces
    if cone == 0 or n <= n_begin:
        return n * _MIN
    if n <= n_end:
        return np.float32(math.exp((n - shift) * log))
    return np.float32((n - n_end) * MAX_STEP + t_end)


@numba.njit(inline="always")
def step_length(n, t, pieces):
    """from_lattice(n + 1) - t, t = from_lattice(n); inside one piece without another exponential."""
    cone, _, _, n_begin, _, n_end, _ = pieces
    if cone == 0 or n + 1 <= n_begin:
        return _MIN
    if n_begin <= n and n + 1 <= n_end:
        return np.float32(t * cone)
    return from_lattice(n + np.float32(1), pieces) - t


@numba.njit(inline="always")
def _spread(v):
    """Seven bits -> every third bit."""
    v = (v | (v << 16)) & np.uint32(0x030000FF)
    v = (v | (v << 8)) & np.uint32(0x0300F00F)
    v = (v | (v << 4)) & np.uint32(0x030C30C3)
    return (v | (v << 2)) & np.uint32(0x09249249)


@numba.njit(inline="always")
def morton(x, y, z):
    return _spread(np.uint32(x)) | (_spread(np.uint32(y)) << np.uint32(1)) | (_spread(np.uint32(z)) << np.uint32(2))


@numba.njit(inline="always")
def position_cascade(x, y, z, n_cascades):
    """Smallest cascade that holds the position."""
    extent = np.float32(2) * max(abs(x - _HALF), abs(y - _HALF), abs(z - _HALF))
    cascade = 0
    edge = np.float32(1)
    while extent > edge and cascade < n_cascades - 1:
        edge *= np.float32(2)
        cascade += 1
    return cascade


@numba.njit(inline="always")
def step_cascade(dt, n_cascades):
    """Smallest m with 256 * dt < 2^m."""
    cascade = 0
    edge = np.float32(1)
    while np.float32(256) * dt >= edge and cascade < n_cascades - 1:
        edge *= np.float32(2)
        cascade += 1
    return cascade


@numba.njit(inline="always")
def _cell(x, inverse_edge):
    cell = int(((x - _HALF) * inverse_edge + _HALF) * np.float32(GRID_SIZE))
    return min(max(cell, 0), GRID_SIZE - 1)


@numba.njit(inline="always")
def occupied(x, y, z, cascade, bitfield):
    inverse_edge = np.float32(1) / np.float32(1 << cascade)
    index = np.int64(cascade) * N_CELLS + np.int64(morton(_cell(x, inverse_edge), _cell(y, inverse_edge), _cell(z, inverse_edge)))
    return (bitfield[index >> 3] >> np.uint8(index & 7)) & np.uint8(1) != 0


@numba.njit(inline="always")
def _border(x, d, inverse_edge):
    """Distance along the ray to the border of the cell on one axis."""
    if d == 0:
        return np.float32(1e9)
    scaled = ((x - _HALF) * inverse_edge + _HALF) * np.float32(GRID_SIZE)
    cell = np.float32(math.floor(scaled))
    target = cell + np.float32(1) if d > 0 else cell
    return max((target - scaled) / (d * inverse_edge * np.float32(GRID_SIZE)), np.float32(0))


@numba.njit(inline="always")
def _slab(o, d, lower, upper):
    """Where a ray enters and leaves the slab lower <= x <= upper on one axis."""
    if d == 0:
        inside = lower <= o <= upper
        return np.float32(-1e9 if inside else 1e9), np.float32(1e9 if inside else -1e9)
    first, second = (lower - o) / d, (upper - o) / d
    return min(first, second), max(first, second)


@numba.njit(inline="always")
def steps_to(t, n, pieces):
    """Lattice steps from n to the first point past distance t, at least one."""
    return max(1, int(math.ceil(to_lattice(t, pieces) - n - SLACK)))


@numba.njit(inline="always")
def cell_exit(x, y, z, dx, dy, dz, t, cascade):
    """Distance at which the ray leaves the cell that it is in."""
    inverse_edge = np.float32(1) / np.float32(1 << cascade)
    return t + min(_border(x, dx, inverse_edge), _border(y, dy, inverse_edge), _border(z, dz, inverse_edge))


@numba.njit(inline="always")
def coarser_from(cascade, cone):
    """Distance from which steps ask for a coarser cascade, a little less; that one may be occupied where this one is empty."""
    return np.float32(0.999 * (1 << cascade) / (256 * cone))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def march(live, origins, directions, starts, offsets, bitfield, n_cascades, cone_angle, box, step_cascades, limit, t_out, dt_out, counts):
    """The next samples of each live ray.

    Args:
        live: [m] int64 indices of rays that go on.
        offsets: [n] int32 next lattice offset k of each ray; set to -1 when the ray has left the box.
        box: [2, 3] float32, samples lie inside.
        step_cascades: look cells up no finer than the step (kernels/trace/op.py).
        limit: [m] int32 samples wanted of each live ray, at most the width of the outputs.
        t_out, dt_out: [m, width] float32, first ``counts[i]`` columns written.
        counts: [m] int32.
    """
    lower_x, lower_y, lower_z = box[0]
    upper_x, upper_y, upper_z = box[1]
    pieces = lattice(cone_angle)
    for i in range(live.shape[0]):
        ray = live[i]
        ox, oy, oz = origins[ray, 0], origins[ray, 1], origins[ray, 2]
        dx, dy, dz = directions[ray, 0], directions[ray, 1], directions[ray, 2]
        k = offsets[ray]
        count = 0
        while count < limit[i]:
            n = starts[ray] + np.float32(k)
            t = from_lattice(n, pieces)
            x, y, z = ox + dx * t, oy + dy * t, oz + dz * t
            if not (lower_x <= x <= upper_x and lower_y <= y <= upper_y and lower_z <= z <= upper_z):
                near_x, far_x = _slab(ox, dx, lower_x, upper_x)
                near_y, far_y = _slab(oy, dy, lower_y, upper_y)
                near_z, far_z = _slab(oz, dz, lower_z, upper_z)
                near = max(near_x, near_y, near_z)
                if min(far_x, far_y, far_z) > max(t, near):  # still in front of the box
                    k += steps_to(near, n, pieces)
                    continue
                k = -1
                break
            cascade = position_cascade(x, y, z, n_cascades)
            dt = step_length(n, t, pieces)
            if step_cascades:
                cascade = max(cascade, step_cascade(dt, n_cascades))
            if occupied(x, y, z, cascade, bitfield):
                t_out[i, count] = t
                dt_out[i, count] = dt
                count += 1
                k += 1
                continue
            if not step_cascades:
                while cascade < n_cascades - 1 and not occupied(x, y, z, cascade + 1, bitfield):
                    cascade += 1
            leaves = cell_exit(x, y, z, dx, dy, dz, t, cascade)
            if step_cascades and cone_angle > 0 and cascade < n_cascades - 1:
                leaves = min(leaves, coarser_from(cascade, cone_angle))
            k += steps_to(leaves, n, pieces)
        offsets[ray] = k
        counts[i] = count
