"""Surface normals of a rendering, by finite differences of density at each pixel's mean depth.

Differentiated is x / (1 + x) with x = density * 4 STEP, over 13 directions (the axes and diagonals of a cube). Differences of the
density's logarithm along the axes alone err twice as much: inside of things density is high and rough (docs/log.md).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import nerfleet.kernels.field.op
import nerfleet.kernels.rays.camera  # noqa: F401  (registers the op)
from nerfleet.geometry.box import to_unit_cube
from nerfleet.geometry.cameras import Cameras
from nerfleet.kernels.field.op import field_density
from nerfleet.nn.model import Model
from nerfleet.render.renderer import Rendered, render_box

STEP = 12.0e-3
"""Half the distance of the two points of a difference, internal units. Much finer and the grid's own roughness shows, much coarser and edges round off."""
_AXES = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
_FACE_DIAGONALS = ((1, 1, 0), (1, -1, 0), (1, 0, 1), (1, 0, -1), (0, 1, 1), (0, 1, -1))
_BODY_DIAGONALS = ((1, 1, 1), (1, 1, -1), (1, -1, 1), (-1, 1, 1))
DIRECTIONS = (*_AXES, *_FACE_DIAGONALS, *_BODY_DIAGONALS)
MIN_ALPHA = 0.5
"""Where less is covered there is no surface to speak of."""
PIXELS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 18}


def surface_normals(model: Model, camera: Cameras, rendered: Rendered, step: float = STEP) -> Tensor:
    """Unit normals [h, w, 3] in internal axes, turned to the camera's side; zero where alpha is under MIN_ALPHA.

    Args:
        rendered: what :func:`render_image` made of this ONE camera.
        step: half the length of a difference, internal units.
    """
    width, height = (int(v) for v in camera.resolution[0])
    camera = camera.to(model.device)
    fields = (camera.camera_to_world, camera.focal, camera.principal, camera.resolution, camera.lens, camera.lens_params)
    depth, alpha = rendered.depth.reshape(-1), rendered.alpha.reshape(-1)
    found = torch.zeros(width * height, 3, device=model.device)
    box, at_once = render_box(model), PIXELS_AT_ONCE[model.device.type]
    for first in range(0, width * height, at_once):
        n = min(at_once, width * height - first)
        origins, directions, _ = torch.ops.nerfleet.camera_rays(*fields, width, first, n, 0.5, 0.5, 0.0, box, model.cone_angle)
        rows = slice(first, first + n)
        gradient = _density_gradient(model, origins + directions * depth[rows, None], step)
        normal = torch.nn.functional.normalize(-gradient, dim=-1)
        normal = torch.where((normal * directions).sum(-1, keepdim=True) > 0, -normal, normal)
        found[rows] = torch.where(alpha[rows, None] >= MIN_ALPHA, normal, 0.0)
    return found.view(height, width, 3)


def _density_gradient(model: Model, points: Tensor, step: float) -> Tensor:
    """[n, 3] at points [n, 3] (internal space), up to a positive factor."""
    directions = torch.nn.functional.normalize(torch.tensor(DIRECTIONS, dtype=torch.float32), dim=-1).to(points.device)
    gradient = torch.zeros_like(points)
    for direction in directions:
        ends = to_unit_cube(torch.cat([points + step * direction, points - step * direction]), model.aabb_scale).clamp(0, 1)
        raw = field_density(ends, model.table, model.mlp, model.spec)
        ahead, behind = torch.sigmoid(raw + math.log(4 * step)).chunk(2)
        gradient += (ahead - behind)[:, None] * direction
    return gradient
