"""``nerfleet::camera_rays``: the rays through the pixels of one camera, ready to be rendered."""

from __future__ import annotations

import torch

from nerfleet.geometry.box import ray_box
from nerfleet.geometry.cameras import Cameras, pixel_rays
from nerfleet.kernels.march.reference import to_lattice

START_MARGIN = 1e-6
"""Rendering starts this far behind the box's face, in units of distance."""

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define(
    "camera_rays(Tensor camera_to_world, Tensor focal, Tensor principal, Tensor resolution, Tensor lens, Tensor lens_params, int width, int first, int n, "
    "float offset_x, float offset_y, float jitter, Tensor box, float cone_angle) -> (Tensor origins, Tensor directions, Tensor starts)"
)


@torch.library.impl(library, "camera_rays", "CPU")
def _camera_rays_cpu(camera_to_world, focal, principal, resolution, lens, lens_params, width, first, n, offset_x, offset_y, jitter, box, cone_angle):
    """Rays of pixels first .. first + n, counted row by row.

    Args:
        camera_to_world ... lens_params: fields of :class:`Cameras`, one camera.
        width: pixels of a row. offset_x, offset_y: where in its pixel a ray goes through, 0.5 for centres.
        jitter: where in its first step a ray starts, 0 to 1.
        box: [2, 3] on the CPU: rays are traced inside it.

    Returns:
        origins, directions [n, 3] (internal space, unit directions) and starts [n] as ``render_rays`` takes them.
    """
    camera = Cameras(camera_to_world, focal, principal, resolution, lens, lens_params)
    index = torch.arange(first, first + n)
    pixels = torch.stack([index % width + offset_x, index // width + offset_y], -1).float()
    origins, directions = pixel_rays(camera, torch.zeros(n, dtype=torch.int64), pixels)
    directions = torch.nn.functional.normalize(directions, dim=-1)
    near, far = ray_box(origins, directions, box)
    starts = torch.where(far > near, to_lattice(near + START_MARGIN, cone_angle) + jitter, -1.0)
    return origins.contiguous(), directions, starts


@torch.library.impl(library, "camera_rays", "CUDA")
def _camera_rays_cuda(*arguments):
    from nerfleet.kernels.rays import cuda

    return cuda.camera_rays(*arguments)


@torch.library.register_fake("nerfleet::camera_rays")
def _camera_rays_fake(camera_to_world, *rest):
    n = rest[7]
    return camera_to_world.new_empty((n, 3)), camera_to_world.new_empty((n, 3)), camera_to_world.new_empty(n)
