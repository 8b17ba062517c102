"""Colours of the surface that do not depend on where one looks from: the mean of what the training cameras saw there.

For each point the field is asked for its colour along the lines of sight of the cameras that see it, weighted by how squarely
they do (cosine to the power of ``SHARPNESS``). Weights are computed at vertices and interpolated, so no seam appears where the
set of cameras changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nerfleet.geometry.box import to_unit_cube
from nerfleet.geometry.cameras import Cameras
from nerfleet.kernels.field.op import field
from nerfleet.mesh.clean import vertex_normals
from nerfleet.mesh.surface import Mesh
from nerfleet.mesh.visibility import seen_vertices
from nerfleet.nn.model import Model

SHARPNESS = 2
TILT = 0.6
"""Tangent of the angle between the normal and the four directions around it that are used where no camera is known."""
POINTS_AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 22}


@dataclass(frozen=True)
class Views:
    """Attributes:
    places: [c, 3] of the cameras, internal space. weights: [c, n_vertices] float32: how much each counts at each vertex.
    """

    places: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> Views:
        return Views(self.places.to(device), self.weights.to(device))


def views_of(mesh: Mesh, cameras: Cameras | None) -> Views:
    """Cameras that see the mesh, and where; none at all is fine. Mesh and cameras (lenses: visibility.LENSES) on the CPU."""
    if cameras is None:
        return Views(torch.zeros(0, 3), torch.zeros(0, len(mesh.vertices)))
    normals = vertex_normals(mesh)
    weights = seen_vertices(mesh, cameras).float()
    places = cameras.camera_to_world[:, :, 3].float()
    for i in range(len(places)):
        towards = torch.nn.functional.normalize(places[i] - mesh.vertices, dim=-1)
        weights[i] *= (towards * normals).sum(-1).clamp(min=0) ** SHARPNESS
    return Views(places, weights)


@dataclass(frozen=True)
class SurfacePoints:
    """Points on a mesh.

    Attributes:
        corners: [n, 3] vertices of the face that each lies in. share: [n, 3] barycentric coordinates.
    """

    corners: Tensor
    share: Tensor

    def mix(self, values: Tensor) -> Tensor:
        """[n_vertices, ...] -> [n, ...] interpolated."""
        return torch.einsum("nk,nk...->n...", self.share, values[self.corners])


def vertex_points(mesh: Mesh) -> SurfacePoints:
    """The vertices themselves."""
    n = len(mesh.vertices)
    corners = torch.arange(n, device=mesh.vertices.device)[:, None].expand(n, 3)
    share = torch.zeros(n, 3, device=mesh.vertices.device)
    share[:, 0] = 1
    return SurfacePoints(corners, share)


def surface_colours(
    model: Model, mesh: Mesh, points: SurfacePoints, views: Views, progress: Callable[[float], None] | None = None
) -> tuple[Tensor, Tensor]:
    """Colour of points on a mesh, all on the model's device.

    Returns:
        sRGB [n, 3] float32, and seen [n] bool: a camera sees the point; others are looked at from around their normal.
    """
    normals = vertex_normals(mesh)
    colours = torch.empty(len(points.share), 3, device=model.device)
    seen = torch.empty(len(points.share), dtype=torch.bool, device=model.device)
    at_once = POINTS_AT_ONCE[model.device.type]
    for first in range(0, len(colours), at_once):
        rows = slice(first, first + at_once)
        part = SurfacePoints(points.corners[rows], points.share[rows])
        colours[rows], seen[rows] = _colours(model, mesh, part, normals, views)
        if progress is not None:
            progress(min(1.0, (first + at_once) / len(colours)))
    return colours, seen


def _colours(model: Model, mesh: Mesh, points: SurfacePoints, normals: Tensor, views: Views) -> tuple[Tensor, Tensor]:
    places = points.mix(mesh.vertices)
    unit = to_unit_cube(places, model.aabb_scale).clamp(0, 1)
    total, sum_of_weights = torch.zeros_like(places), torch.zeros(len(places), device=places.device)
    for camera, vertex_weights in zip(views.places, views.weights):
        weights = points.mix(vertex_weights)
        rows = (weights > 1e-3).nonzero()[:, 0]
        directions = torch.nn.functional.normalize(places[rows] - camera, dim=-1)
        rgb, _ = field(unit[rows], directions, model.table, model.mlp, model.spec)
        total.index_add_(0, rows, rgb * weights[rows, None])
        sum_of_weights.index_add_(0, rows, weights[rows])
    seen = sum_of_weights > 0
    colours = total / sum_of_weights.clamp_min(1e-12)[:, None]
    rest = (~seen).nonzero()[:, 0]
    colours[rest] = _around_normal(model, unit[rest], torch.nn.functional.normalize(points.mix(normals)[rest], dim=-1))
    return colours, seen


def _around_normal(model: Model, unit: Tensor, normals: Tensor) -> Tensor:
    """Mean colour seen along the normal and along four directions around it."""
    helper = torch.zeros_like(normals).scatter_(1, normals.abs().argmin(-1, keepdim=True), 1.0)
    u = torch.nn.functional.normalize(torch.linalg.cross(normals, helper), dim=-1)
    v = torch.linalg.cross(normals, u)
    total = torch.zeros_like(normals)
    for side in (torch.zeros_like(u), u, -u, v, -v):
        directions = -torch.nn.functional.normalize(normals + TILT * side, dim=-1)
        total += field(unit, directions, model.table, model.mlp, model.spec)[0]
    return total / 5
