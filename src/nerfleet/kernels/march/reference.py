"""The stepping lattice and the occupancy lookup in plain torch, dense form: every lattice point of every ray.

A ray has samples at the lattice coordinates n = start + k, k = 0, 1, 2, ...: exactly those that lie inside the scene
box and in an occupied cell. Skipping empty space is only a way to find them faster.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

GRID_SIZE = 128
N_CELLS = GRID_SIZE**3
"""Cells of one cascade of the occupancy grid."""
MIN_STEP = math.sqrt(3.0) / 1024.0
MAX_STEP = MIN_STEP * 1024.0
MAX_SAMPLES = 1024
"""Samples of a training ray at most."""


def lattice_pieces(cone_angle: float) -> tuple[float, float, float, float, float]:
    """Constants of the lattice for a cone angle > 0.

    Steps have length MIN_STEP up to t_begin, grow by the factor 1 + cone_angle up to t_end, and have length MAX_STEP
    beyond; the three pieces join continuously and n(0) = 0.

    Returns:
        (log(1 + cone_angle), t_begin, t_end, shift, n_end): n = t / MIN_STEP, then log(t) / log + shift, then
        (t - t_end) / MAX_STEP + n_end.
    """
    log = math.log1p(cone_angle)
    t_begin, t_end = MIN_STEP / log, MAX_STEP / log
    shift = t_begin / MIN_STEP - math.log(t_begin) / log
    return log, t_begin, t_end, shift, math.log(t_end) / log + shift


def to_lattice(t: Tensor, cone_angle: float) -> Tensor:
    """Distance along the ray -> lattice coordinate n >= 0, in which steps have length 1."""
    if cone_angle == 0:
        return t / MIN_STEP
    log, t_begin, t_end, shift, n_end = lattice_pieces(cone_angle)
    middle = torch.log(t.clamp_min(t_begin)) / log + shift
    return torch.where(t <= t_begin, t / MIN_STEP, torch.where(t <= t_end, middle, (t - t_end) / MAX_STEP + n_end))


def from_lattice(n: Tensor, cone_angle: float) -> Tensor:
    """Inverse of :func:`to_lattice`."""
    if cone_angle == 0:
        return n * MIN_STEP
    log, t_begin, t_end, shift, n_end = lattice_pieces(cone_angle)
    middle = torch.exp((n.clamp(t_begin / MIN_STEP, n_end) - shift) * log)
    return torch.where(n <= t_begin / MIN_STEP, n * MIN_STEP, torch.where(n <= n_end, middle, (n - n_end) * MAX_STEP + t_end))


def cascade_of(positions: Tensor, dt: Tensor | None, n_cascades: int) -> Tensor:
    """Cascade whose cells are looked up: the smallest that holds the position; with ``dt`` given not one
    whose cells are finer than the step asks for: the smallest m with 256 * dt < 2^m at least."""
    extent = 2 * (positions - 0.5).abs().amax(-1)
    cascade = torch.ceil(torch.log2(extent.clamp_min(1e-9))).clamp_min(0)
    if dt is not None:
        cascade = torch.maximum(cascade, torch.floor(torch.log2(256 * dt)).add(1).clamp_min(0))
    return cascade.clamp_max(n_cascades - 1).long()


def morton(cell: Tensor) -> Tensor:
    """[..., 3] int64 cell in 0..127 -> Morton code, x in the lowest bit."""
    code = torch.zeros(cell.shape[:-1], dtype=torch.int64, device=cell.device)
    for bit in range(7):
        for axis in range(3):
            code |= (cell[..., axis] >> bit & 1) << (3 * bit + axis)
    return code


def cell_index(positions: Tensor, cascade: Tensor) -> Tensor:
    """Index of the cell of ``cascade`` that holds each position (internal space) in the flat grid [cascades * 128^3]."""
    scaled = (positions - 0.5) * torch.exp2(-cascade.to(positions.dtype)).unsqueeze(-1) + 0.5
    cell = (scaled * GRID_SIZE).floor().long().clamp(0, GRID_SIZE - 1)
    return cascade * N_CELLS + morton(cell)


def occupied(bitfield: Tensor, index: Tensor) -> Tensor:
    """Bits of cells; bitfield [cascades * 128^3 / 8] uint8, lowest bit first."""
    return (bitfield[index >> 3].long() >> (index & 7) & 1).bool()


def march(
    origins: Tensor,
    directions: Tensor,
    starts: Tensor,
    bitfield: Tensor,
    n_cascades: int,
    cone_angle: float,
    aabb_scale: int,
    n_steps: int,
    step_cascades: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Dense marching.

    Args:
        origins, directions: [n, 3], unit directions, internal space.
        starts: [n] lattice coordinate of the first sample; negative: no ray.
        n_steps: lattice points looked at.

    Returns:
        t [n, n_steps], dt [n, n_steps], valid [n, n_steps] bool.
    """
    n = starts[:, None] + torch.arange(n_steps, dtype=starts.dtype, device=starts.device)
    t = from_lattice(n, cone_angle)
    dt = from_lattice(n + 1, cone_angle) - t
    positions = origins[:, None] + directions[:, None] * t[..., None]
    inside = ((positions - 0.5).abs() <= 0.5 * aabb_scale).all(-1)
    cascade = cascade_of(positions, dt if step_cascades else None, n_cascades)
    valid = inside & occupied(bitfield, cell_index(positions, cascade)) & (starts[:, None] >= 0)
    return t, dt, valid
