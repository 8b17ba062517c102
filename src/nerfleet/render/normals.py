"""Surface normals of a rendering: the direction in which density falls, at each pixel's mean depth.

By central differences of the logarithm of density (its gradient has the direction of the density's own), on the scale of
``STEP``: much finer and the grid's own roughness shows, much coarser and edges round off.
"""

from __future__ import annotations

import torch
from torch import Tensor

import nerfleet.kernels.field.op
import nerfleet.kernels.rays.camera  # noqa: F401  (registers the op)
from nerfleet.geometry.box import to_unit_cube
from nerfleet.geometry.cameras import Cameras
from nerfleet.kernels.field.op import field_density
from nerfleet.nn.model import Model
from nerfleet.render.renderer import Rendered, render_box

STEP = 4.0e-3
"""Half the distance of the two points of a difference, internal units."""
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
        gradient = _log_density_gradient(model, origins + directions * depth[rows, None], step)
        normal = torch.nn.functional.normalize(-gradient, dim=-1)
        normal = torch.where((normal * directions).sum(-1, keepdim=True) > 0, -normal, normal)
        found[rows] = torch.where(alpha[rows, None] >= MIN_ALPHA, normal, 0.0)
    return found.view(height, width, 3)


def _log_density_gradient(model: Model, points: Tensor, step: float) -> Tensor:
    """[n, 3] at points [n, 3] (internal space), up to a positive factor."""
    shifts = step * torch.cat([torch.eye(3), -torch.eye(3)]).to(points)
    around = to_unit_cube(points[:, None] + shifts, model.aabb_scale).clamp(0, 1).view(-1, 3)
    raw = field_density(around.contiguous(), model.table, model.mlp, model.spec).view(-1, 2, 3)
    return torch.nan_to_num(raw[:, 0] - raw[:, 1], 0.0, 1e4, -1e4)
