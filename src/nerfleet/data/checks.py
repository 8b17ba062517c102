"""Checks of cameras before any training: do their rays meet the scene box, can their lenses be inverted."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.data.findings import Findings
from nerfleet.errors import NerfleetError
from nerfleet.geometry.box import ray_box, scene_box
from nerfleet.geometry.cameras import Cameras, pixel_rays, project

_GRID = 12  # rays per image axis
_MAX_CAMERAS = 64  # spread over the scene: enough for a percentage
FEW_HITS = 0.25
LENS_ERROR_PX = 0.5


def share_of_rays_in_box(cameras: Cameras, aabb_scale: int) -> float:
    """Share of a grid of camera rays, from 0 to 1, that hit the scene box at all."""
    some = cameras[torch.linspace(0, len(cameras) - 1, min(len(cameras), _MAX_CAMERAS)).long()]
    indices, pixels = _pixel_grid(some)
    t_near, t_far = ray_box(*pixel_rays(some, indices, pixels), scene_box(aabb_scale))
    return float((t_far > t_near).float().mean())


def check_box_hits(cameras: Cameras, aabb_scale: int, findings: Findings) -> None:
    """Warns where few rays meet the box: the object lies outside of it, or the scale is wrong."""
    share = share_of_rays_in_box(cameras, aabb_scale)
    if share < FEW_HITS:
        findings.warn(f"only {share:.0%} of the camera rays meet the scene box: check scale, offset and aabb_scale")


def check_lenses(cameras: Cameras, names: list[str], findings: Findings) -> None:
    """Projects rays back to their pixels, once for each different lens, and warns where more than 0.5 px is lost.

    Raises:
        NerfleetError: a lens that cannot be inverted at most of its pixels (coefficients of another lens model).
    """
    keys = torch.cat([cameras.lens[:, None].float(), cameras.lens_params, cameras.focal, cameras.principal], dim=1)
    _, group = torch.unique(keys, dim=0, return_inverse=True)
    first = [int((group == g).nonzero()[0]) for g in range(int(group.max()) + 1)]
    distorting = [i for i in first if cameras.lens_params[i].any()]
    if not distorting:
        return
    some = cameras[distorting]
    indices, pixels = _pixel_grid(some)
    origins, directions = pixel_rays(some, indices, pixels.double())
    back, in_front = project(some, indices, origins + directions)
    lost = ~(((back - pixels).abs().amax(-1) < LENS_ERROR_PX) & in_front)
    for row, camera in enumerate(distorting):
        share = float(lost[indices == row].float().mean())
        if share > 0.5:
            raise NerfleetError(names[camera], "its lens cannot be inverted", "check camera_model and the coefficients k1 ... p2")
        if share > 0:
            findings.warn(f"{names[camera]}: its lens cannot be inverted within {LENS_ERROR_PX} px at {share:.0%} of the pixels")


def _pixel_grid(cameras: Cameras) -> tuple[Tensor, Tensor]:
    """Camera indices [n * 144] and pixel centres [n * 144, 2], a regular grid over each image, corners included."""
    ticks = torch.linspace(0, 1, _GRID)
    grid = torch.cartesian_prod(ticks, ticks)
    pixels = 0.5 + grid[None] * (cameras.resolution[:, None, :] - 1)
    return torch.arange(len(cameras)).repeat_interleave(len(grid)), pixels.reshape(-1, 2)
