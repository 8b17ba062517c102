"""The surface of equal density as triangles: marching cubes slab by slab, stitched exactly, vertices moved onto the surface.

The field is asked plane after plane and only where the occupancy grid has something, so memory depends on a slab and on the
surface, not on the volume. A vertex belongs to an edge of the lattice: cells on both sides of a slab's border name the same one.
Outside of the box everything is empty: the surface is closed there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.mesh.cube_cases import CORNERS, EDGE_AXES, EDGES, triangle_table
from nerfleet.mesh.density import EMPTY, occupied_at, occupied_box, occupied_cells, raw_density
from nerfleet.nn.model import Model
from nerfleet.render.renderer import render_box

BYTES_PER_SAMPLE = 64
"""Memory of a slab, all temporaries included."""
REFINEMENTS = 4
MAX_RESOLUTION = 4096


@dataclass(frozen=True)
class Mesh:
    """Attributes:
    vertices: [n, 3] float32. faces: [m, 3] int32, counter-clockwise seen from outside.
    """

    vertices: Tensor
    faces: Tensor

    def to(self, device: torch.device | str) -> Mesh:
        return Mesh(self.vertices.to(device), self.faces.to(device))


@dataclass(frozen=True)
class Lattice:
    """Where the density is sampled.

    Attributes:
        origin: [3] internal space, of sample (0, 0, 0). edge: distance of samples. size: samples along x, y, z.
    """

    origin: tuple[float, float, float]
    edge: float
    size: tuple[int, int, int]

    def axis(self, dim: int, first: int, last: int, device: torch.device) -> Tensor:
        """Coordinates of samples first .. last - 1 along an axis."""
        return torch.arange(first, last, device=device) * self.edge + self.origin[dim]


def surface_lattice(model: Model, resolution: int, cells: Tensor) -> Lattice | None:
    """Samples ``resolution`` to the longer side of the cropped scene box, limited to where something is; None: nowhere.

    The lattice of a box does not depend on what is in it: the limits are whole samples, with an empty one on each side.
    """
    box, occupied = render_box(model).double(), occupied_box(cells)
    if occupied is None:
        return None
    edge = float((box[1] - box[0]).max()) / resolution
    origin, size = [], []
    for axis in range(3):
        low, high = max(float(box[0, axis]), float(occupied[0, axis])), min(float(box[1, axis]), float(occupied[1, axis]))
        first = math.floor((low - float(box[0, axis])) / edge) - 1
        last = math.ceil((high - float(box[0, axis])) / edge) + 1
        if last - first < 2 or high <= low:
            return None
        origin.append(float(box[0, axis]) + first * edge)
        size.append(last - first + 1)
    return Lattice((origin[0], origin[1], origin[2]), edge, (size[0], size[1], size[2]))


def check_resolution(resolution: int) -> None:
    """Raises NerfleetError for a resolution that nobody can mean."""
    if not 2 <= resolution <= MAX_RESOLUTION:
        raise NerfleetError(f"resolution {resolution}", "is out of range", f"use 2 to {MAX_RESOLUTION}")


def extract(
    model: Model, resolution: int, threshold: float, *, budget_bytes: int = 256 << 20, refine: bool = True, progress: Callable[[float], None] | None = None
) -> Mesh:
    """The surface on which the density is ``threshold``, in internal space, on the model's device.

    Args:
        resolution: cells along the longest side of the scene box, cropped to ``render_aabb``.
        threshold: density per internal unit (instant-ngp's: exp(2.5)).
        budget_bytes: memory of a slab; the result comes on top.
        refine: move vertices along their edges to where the density really is the threshold.
        progress: called with the finished share, 0 to 1.

    Raises:
        NerfleetError: a resolution or threshold out of range, or a budget too small for two planes.
    """
    check_resolution(resolution)
    if not threshold > 0 or not math.isfinite(threshold):
        raise NerfleetError(f"threshold {threshold:g}", "is not a density", "use a positive number, or leave it out")
    cells = occupied_cells(model)
    lattice = surface_lattice(model, resolution, cells)
    if lattice is None:
        return Mesh(torch.zeros(0, 3, device=model.device), torch.zeros(0, 3, dtype=torch.int32, device=model.device))
    plane = lattice.size[1] * lattice.size[2]
    n_planes = budget_bytes // (plane * BYTES_PER_SAMPLE)
    if n_planes < 2:
        wrong = f"is too little for resolution {resolution}"
        raise NerfleetError(f"memory of {budget_bytes >> 20} MB", wrong, f"allow {(2 * plane * BYTES_PER_SAMPLE >> 20) + 1} MB")
    march = _March(model, lattice, cells, math.log(threshold), refine)
    for first in range(0, lattice.size[0] - 1, n_planes - 1):
        last = min(first + n_planes, lattice.size[0])
        march.slab(first, last)
        if progress is not None:
            progress(last / lattice.size[0])
    return march.mesh()


class _March:
    """State between slabs: values and vertex numbers of the plane that two of them share."""

    def __init__(self, model: Model, lattice: Lattice, cells: Tensor, level: float, refine: bool) -> None:
        self.model, self.lattice, self.cells, self.level, self.refine = model, lattice, cells, level, refine
        self.device = model.device
        self.table = triangle_table().to(self.device)
        self.edge_axis = torch.tensor(EDGE_AXES, device=self.device)
        self.edge_corner = torch.tensor([CORNERS[a] for a, _ in EDGES], device=self.device)
        self.border: tuple[Tensor, Tensor] | None = None  # values [1, y, z], numbers [3, 1, y, z]
        self.n_vertices = 0
        self.vertices: list[Tensor] = []
        self.faces: list[Tensor] = []

    def slab(self, first: int, last: int) -> None:
        """Planes first .. last - 1; ``first`` is the last plane of the slab before."""
        begin = first if self.border is None else first + 1
        values = self._values(begin, last)
        if self.border is not None:
            values = torch.cat([self.border[0], values])
        inside = values > 0
        if bool(inside.any()):
            numbers = self._number_edges(values, inside, first)
            self._triangulate(inside, numbers)
        else:
            numbers = torch.full((3, 1, *values.shape[1:]), -1, dtype=torch.int32, device=self.device)
        self.border = values[-1:].clone(), numbers[:, -1:].clone()

    def _values(self, begin: int, last: int) -> Tensor:
        """[planes, y, z] log density over the level; empty on the lattice's outermost samples."""
        lattice = self.lattice
        ranges = ((begin, last), (0, lattice.size[1]), (0, lattice.size[2]))
        axes = [lattice.axis(dim, *ends, self.device) for dim, ends in enumerate(ranges)]
        asked = occupied_at(self.cells, (axes[0], axes[1], axes[2]))
        for dim, (low, high) in enumerate(ranges):
            if low == 0:
                asked.select(dim, 0).fill_(False)
            if high == lattice.size[dim]:
                asked.select(dim, -1).fill_(False)
        values = torch.full(asked.shape, EMPTY, device=self.device)
        where = asked.nonzero()
        points = torch.stack([axes[dim][where[:, dim]] for dim in range(3)], -1)
        values[asked] = raw_density(self.model, points) - self.level
        return values

    def _number_edges(self, values: Tensor, inside: Tensor, first: int) -> Tensor:
        """Numbers of the vertices on edges [3, planes, y, z], by axis and lower sample; -1: none. Adds new vertices."""
        numbers = torch.full((3, *values.shape), -1, dtype=torch.int32, device=self.device)
        known = 0 if self.border is None else 1
        if self.border is not None:
            numbers[1:, :1] = self.border[1][1:]
        for axis in range(3):
            n = values.shape[axis] - 1
            crossed = inside.narrow(axis, 0, n) != inside.narrow(axis, 1, n)
            if axis > 0:
                crossed[:known] = False
            lower = crossed.nonzero()
            new = torch.arange(self.n_vertices, self.n_vertices + len(lower), dtype=torch.int32, device=self.device)
            numbers[axis][tuple(lower.T)] = new
            self.n_vertices += len(lower)
            self.vertices.append(self._place(values, lower, axis, first))
        return numbers

    def _place(self, values: Tensor, lower: Tensor, axis: int, first: int) -> Tensor:
        """[n, 3] where the edges from samples ``lower`` along ``axis`` cross the level (Illinois variant of the false position)."""
        upper = lower.clone()
        upper[:, axis] += 1
        at_low, at_high = values[tuple(lower.T)], values[tuple(upper.T)]
        start = torch.stack([lower[:, d] + (first if d == 0 else 0) for d in range(3)], -1) * self.lattice.edge
        start = start + torch.tensor(self.lattice.origin, device=self.device)
        low, high = torch.zeros_like(at_low), torch.ones_like(at_low)
        share = at_low / (at_low - at_high)
        side = torch.zeros_like(at_low)
        for _ in range(REFINEMENTS if self.refine else 0):
            points = start.clone()
            points[:, axis] += share * self.lattice.edge
            found = raw_density(self.model, points) - self.level
            is_low = (found > 0) == (at_low > 0)
            at_high = torch.where(is_low & (side > 0), at_high / 2, at_high)
            at_low = torch.where(~is_low & (side < 0), at_low / 2, at_low)
            low, at_low = torch.where(is_low, share, low), torch.where(is_low, found, at_low)
            high, at_high = torch.where(is_low, high, share), torch.where(is_low, at_high, found)
            side = torch.where(is_low, 1.0, -1.0)
            share = low + (high - low) * at_low / (at_low - at_high)
        start[:, axis] += share.clamp(0.001, 0.999) * self.lattice.edge
        return start

    def _triangulate(self, inside: Tensor, numbers: Tensor) -> None:
        """Faces of all cells between the slab's planes."""
        n = [size - 1 for size in inside.shape]
        cases = torch.zeros(n, dtype=torch.uint8, device=self.device)
        for bit, (i, j, k) in enumerate(CORNERS):
            cases |= inside[i : i + n[0], j : j + n[1], k : k + n[2]].to(torch.uint8) << bit
        cells = ((cases > 0) & (cases < 255)).nonzero()
        edges = self.table[cases[tuple(cells.T)].long()]
        valid = edges[..., 0] >= 0
        cells = cells[:, None].expand(-1, edges.shape[1], -1)[valid]
        edges = edges[valid]
        corner = cells[:, None] + self.edge_corner[edges]
        self.faces.append(numbers[self.edge_axis[edges], corner[..., 0], corner[..., 1], corner[..., 2]])

    def mesh(self) -> Mesh:
        if not self.faces:
            return Mesh(torch.zeros(0, 3, device=self.device), torch.zeros(0, 3, dtype=torch.int32, device=self.device))
        vertices, self.vertices = torch.cat(self.vertices), []
        return in_box(Mesh(vertices, torch.cat(self.faces)), render_box(self.model).to(self.device))


def in_box(mesh: Mesh, box: Tensor) -> Mesh:
    """What sticks out of a box [2, 3] is pressed onto its sides."""
    return Mesh(torch.minimum(torch.maximum(mesh.vertices, box[0]), box[1]), mesh.faces)
