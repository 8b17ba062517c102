"""Which parts of the scene box hold something: cascades of 128^3 cells around the centre, and their bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import nerfleet.kernels.occupancy.op  # noqa: F401  (registers the ops)
from nerfleet.geometry.cameras import Cameras, Lens, project
from nerfleet.kernels.march.reference import GRID_SIZE, N_CELLS, morton
from nerfleet.kernels.occupancy import reference

SEES_ALL = (Lens.FTHETA, Lens.LATLONG, Lens.EQUIRECTANGULAR)
POINTS_AT_ONCE = 1 << 20


def n_cascades(aabb_scale: int) -> int:
    """Cascades 0 .. m with 2^m >= aabb_scale."""
    return aabb_scale.bit_length() if aabb_scale & (aabb_scale - 1) == 0 else aabb_scale.bit_length() + 1


@dataclass
class OccupancyGrid:
    """Densities of cells and their bits.

    Attributes:
        values: [n_cascades * 128^3] float32, density * finest step; -1: no camera sees the cell. Morton order.
        bitfield: [n_cascades * 128^3 / 8] uint8.
    """

    values: Tensor
    bitfield: Tensor

    @property
    def n_cascades(self) -> int:
        return len(self.values) // N_CELLS

    @staticmethod
    def empty(aabb_scale: int, device: torch.device) -> OccupancyGrid:
        n = n_cascades(aabb_scale) * N_CELLS
        return OccupancyGrid(torch.zeros(n, device=device), torch.zeros(n // 8, dtype=torch.uint8, device=device))

    @staticmethod
    def from_values(values: Tensor) -> OccupancyGrid:
        return OccupancyGrid(values, reference.bits(values))

    def to(self, device: torch.device | str) -> OccupancyGrid:
        return OccupancyGrid(self.values.to(device), self.bitfield.to(device))


def initial_grid(cameras: Cameras, aabb_scale: int) -> OccupancyGrid:
    """All cells that a camera sees are occupied at first; the others are marked unseen for ever.

    A cell is seen if one of its 8 corners lies in front of a camera and inside its image, lens included.
    """
    device = cameras.camera_to_world.device
    axis = torch.arange(GRID_SIZE + 1, device=device)
    corners = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)
    cells = torch.stack(torch.meshgrid(*[axis[:-1]] * 3, indexing="ij"), -1).view(-1, 3)
    order = morton(cells)
    values = torch.zeros(n_cascades(aabb_scale), N_CELLS, device=device)
    for cascade in range(len(values)):
        points = (corners / GRID_SIZE - 0.5) * 2**cascade + 0.5
        seen = _seen_by_any(cameras, points).view(GRID_SIZE + 1, GRID_SIZE + 1, GRID_SIZE + 1)
        cell_seen = torch.nn.functional.max_pool3d(seen[None].float(), 2, 1)[0].bool().view(-1)
        values[cascade, order] = torch.where(cell_seen, 0.0, reference.UNSEEN)
    values = values.view(-1)
    seen_bits = (values >= 0).view(-1, 8) * (1 << torch.arange(8, device=device))
    return OccupancyGrid(values, seen_bits.sum(-1).to(torch.uint8))


def _seen_by_any(cameras: Cameras, points: Tensor) -> Tensor:
    """[n] bool; points [n, 3] in internal space."""
    if any(int(lens) in SEES_ALL for lens in cameras.lens.unique()):
        return torch.ones(len(points), dtype=torch.bool, device=points.device)
    seen = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    rest = torch.arange(len(points), device=points.device)
    for view in range(len(cameras)):
        size = cameras.resolution[view]
        visible = []
        for chunk in rest.split(POINTS_AT_ONCE):
            indices = torch.full_like(chunk, 0)
            pixels, in_front = project(cameras[view : view + 1], indices, points[chunk])
            visible.append(in_front & (pixels >= 0).all(-1) & (pixels < size).all(-1))
        found = torch.cat(visible) if visible else torch.zeros(0, dtype=torch.bool, device=points.device)
        seen[rest[found]] = True
        rest = rest[~found]
    return seen
