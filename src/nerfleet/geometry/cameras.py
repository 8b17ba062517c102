"""Cameras as a structure of arrays, rays through their pixels and projection (conventions: docs/conventions.md)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.geometry import lenses

N_LENS_PARAMS = 7


class Lens(IntEnum):
    """Lens models; the meaning of ``Cameras.lens_params`` follows in brackets."""

    PERSPECTIVE = 0  # []
    OPENCV = 1  # [k1, k2, p1, p2]
    OPENCV_FISHEYE = 2  # [k1, k2, k3, k4]
    FTHETA = 3  # [p0, p1, p2, p3, p4, w, h]
    LATLONG = 4  # []
    EQUIRECTANGULAR = 5  # []
    ORTHOGRAPHIC = 6  # []


SUPPORTED_LENSES = (Lens.PERSPECTIVE, Lens.OPENCV, Lens.OPENCV_FISHEYE)


@dataclass(frozen=True)
class Cameras:
    """n cameras in internal space (x right, y down, z forward), all tensors on one device.

    Attributes:
        camera_to_world: [n, 3, 4] float32.
        focal: [n, 2] float32, pixels, x and y.
        principal: [n, 2] float32, pixels (pixel centres lie at + 0.5).
        resolution: [n, 2] int32, width and height.
        lens: [n] int32, values of :class:`Lens`.
        lens_params: [n, 7] float32, unused entries zero.
    """

    camera_to_world: Tensor
    focal: Tensor
    principal: Tensor
    resolution: Tensor
    lens: Tensor
    lens_params: Tensor

    def __len__(self) -> int:
        return self.camera_to_world.shape[0]

    def __getitem__(self, index: slice | list[int] | Tensor) -> Cameras:
        return Cameras(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def to(self, device: torch.device | str) -> Cameras:
        return Cameras(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})


def pixel_rays(cameras: Cameras, camera_indices: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Rays in internal space through pixel positions, lens included.

    Args:
        cameras: n cameras.
        camera_indices: [m] int64, which camera each ray belongs to.
        pixels: [m, 2] x and y in pixels (centre of the top left pixel: 0.5, 0.5); its dtype is the result's.

    Returns:
        origins [m, 3] and directions [m, 3], NOT normalised: a stored depth is a multiple of the direction, whose
        camera-space z is 1 (fisheye rays at 89.4 degrees and more from the axis have unit length instead).

    Raises:
        NerfleetError: a camera has a lens that is not supported yet.
    """
    dtype = pixels.dtype
    plane = (pixels - cameras.principal[camera_indices].to(dtype)) / cameras.focal[camera_indices].to(dtype)
    rays = torch.cat([plane, torch.ones_like(plane[:, :1])], dim=-1)
    for lens, rows, params in _rows_by_lens(cameras, camera_indices, dtype):
        if lens == Lens.OPENCV:
            rays[rows, :2] = lenses.opencv_undistort(plane[rows], params)
        elif lens == Lens.OPENCV_FISHEYE:
            rays[rows] = lenses.fisheye_rays(plane[rows], params)
    pose = cameras.camera_to_world.to(dtype)[camera_indices]
    return pose[:, :, 3], (pose[:, :, :3] @ rays[..., None])[..., 0]


def project(cameras: Cameras, camera_indices: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Pixel positions of points, lens included; inverse of :func:`pixel_rays`.

    Args:
        cameras: n cameras.
        camera_indices: [m] int64, which camera each point is seen by.
        points: [m, 3] in internal space; its dtype is the result's.

    Returns:
        pixels [m, 2], and in_front [m] bool: before the camera and where the lens does not fold back (a pixel is
        meaningless where this is false). Whether the pixel lies inside the image is left to the caller.

    Raises:
        NerfleetError: a camera has a lens that is not supported yet.
    """
    dtype = points.dtype
    pose = cameras.camera_to_world.to(dtype)
    world_to_camera = torch.linalg.inv(pose[:, :, :3])[camera_indices]
    local = (world_to_camera @ (points - pose[camera_indices, :, 3])[..., None])[..., 0]
    depth = local[:, 2]
    in_front = depth > 0
    plane = local[:, :2] / torch.where(depth == 0, torch.ones_like(depth), depth)[:, None]
    for lens, rows, params in _rows_by_lens(cameras, camera_indices, dtype):
        if lens == Lens.OPENCV:
            in_front[rows] &= lenses.opencv_is_regular(plane[rows], params)
            plane[rows] = lenses.opencv_distort(plane[rows], params)
        elif lens == Lens.OPENCV_FISHEYE:
            plane[rows], in_front[rows] = lenses.fisheye_project(local[rows], params)
    return plane * cameras.focal[camera_indices].to(dtype) + cameras.principal[camera_indices].to(dtype), in_front


def _rows_by_lens(cameras: Cameras, camera_indices: Tensor, dtype: torch.dtype) -> list[tuple[Lens, Tensor | slice, Tensor]]:
    """(lens, rows of the batch that use it, their parameters [rows, 7]) for every distorting lens in the batch."""
    kinds = [Lens(kind) for kind in torch.unique(cameras.lens).tolist()]
    for kind in kinds:
        if kind not in SUPPORTED_LENSES:
            raise NerfleetError(f"lens {kind.name}", "not supported yet", "use a perspective, OPENCV or OPENCV_FISHEYE camera")
    groups: list[tuple[Lens, Tensor | slice, Tensor]] = []
    for kind in kinds:
        if kind == Lens.PERSPECTIVE:
            continue
        rows = slice(None) if len(kinds) == 1 else (cameras.lens[camera_indices] == kind).nonzero()[:, 0]
        params = cameras.lens_params[camera_indices[rows]].to(dtype)
        if len(params):
            groups.append((kind, rows, params))
    return groups
