"""Log densities of a model at points, and where the occupancy grid says that there is anything to ask for."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.geometry.box import to_unit_cube
from nerfleet.kernels.field.op import field_density
from nerfleet.kernels.march.reference import GRID_SIZE, N_CELLS, morton
from nerfleet.nn.model import Model

POINTS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 23}
EMPTY = -10.0
"""Raw density of what was not asked for: e^-10 is nothing."""


def raw_density(model: Model, points: Tensor) -> Tensor:
    """[n] float32 log density of points [n, 3] (internal space, the model's device)."""
    out = torch.empty(len(points), device=points.device)
    at_once = POINTS_AT_ONCE[points.device.type]
    for first in range(0, len(points), at_once):
        unit = to_unit_cube(points[first : first + at_once], model.aabb_scale).clamp(0, 1)
        out[first : first + at_once] = field_density(unit, model.table, model.mlp, model.spec)
    return out


def occupied_cells(model: Model) -> Tensor:
    """[n_cascades, 128, 128, 128] bool by cell index along x, y, z: the bits of the occupancy grid."""
    device = model.device
    axis = torch.arange(GRID_SIZE, device=device)
    cells = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
    bits = (model.occupancy.bitfield.view(-1, 1) >> torch.arange(8, device=device)) & 1
    return bits.view(-1, N_CELLS).bool()[:, morton(cells.view(-1, 3))].view(-1, GRID_SIZE, GRID_SIZE, GRID_SIZE)


def occupied_box(cells: Tensor) -> Tensor | None:
    """[2, 3] smallest box (internal space, on the CPU) around all occupied cells; None where there is none."""
    low, high = torch.full((3,), torch.inf), torch.full((3,), -torch.inf)
    for cascade, grid in enumerate(cells):
        for axis in range(3):
            others = [d for d in range(3) if d != axis]
            used = grid.any(others[1]).any(others[0]).nonzero()
            if len(used):
                edge = 2.0**cascade
                low[axis] = min(float(low[axis]), (float(used[0]) / GRID_SIZE - 0.5) * edge + 0.5)
                high[axis] = max(float(high[axis]), ((float(used[-1]) + 1) / GRID_SIZE - 0.5) * edge + 0.5)
    return torch.stack([low, high]) if bool((high > low).all()) else None


def occupied_at(cells: Tensor, axes: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """[a, b, c] bool: whether the points of a rectilinear grid lie in occupied cells (of the smallest cascade that holds them).

    Args:
        cells: as :func:`occupied_cells` returns them.
        axes: coordinates along x [a], y [b], z [c], internal space.
    """
    found = torch.zeros([len(axis) for axis in axes], dtype=torch.bool, device=cells.device)
    distances = [(axis - 0.5).abs() for axis in axes]
    for cascade in reversed(range(len(cells))):
        half = 0.5 * 2.0**cascade
        ranges = [torch.nonzero(distance <= half)[:, 0] for distance in distances]
        if any(len(r) == 0 for r in ranges):
            continue
        index = [((axis[r] - 0.5) / (2 * half) + 0.5).mul(GRID_SIZE).long().clamp(0, GRID_SIZE - 1) for axis, r in zip(axes, ranges)]
        inner = cells[cascade][index[0]][:, index[1]][:, :, index[2]]
        slices = tuple(slice(int(r[0]), int(r[-1]) + 1) for r in ranges)
        found[slices] = inner
    return found
