"""Poses between a scene file's space and internal space (docs/conventions.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerfleet.geometry.cameras import Cameras

DETERMINANT_TOLERANCE = 0.01


def remove_rotation_scale(rotation: Tensor) -> Tensor:
    """[n, 3, 3] -> [n, 3, 3]: matrices whose determinant is off 1 by more than 0.01 are divided by its cube root.

    Source: instant-ngp's rule for transforms.json poses (a negative determinant negates all three columns).
    """
    determinant = torch.linalg.det(rotation)
    root = determinant.sign() * determinant.abs().pow(1 / 3)
    off = (determinant - 1).abs() > DETERMINANT_TOLERANCE
    return rotation / torch.where(off, root, torch.ones_like(root))[:, None, None]


@dataclass(frozen=True)
class SceneTransform:
    """Similarity and axis cycle from the file's space (OpenGL cameras) to internal space.

    ``internal = cycle(file * scale + offset)`` with ``cycle(x, y, z) = (y, z, x)``; cameras also have their
    second and third columns negated. ``from_mitsuba`` scenes skip the cycle and negate columns 1 and 3 on top.
    """

    scale: float = 0.33
    offset: tuple[float, float, float] = (0.5, 0.5, 0.5)
    from_mitsuba: bool = False

    def poses_to_internal(self, camera_to_world: Tensor) -> Tensor:
        """[n, 3 or 4, 4] file poses -> [n, 3, 4] internal poses (any scale of the rotation is removed)."""
        rotation = remove_rotation_scale(camera_to_world[:, :3, :3]) * self._column_signs(camera_to_world)
        translation = camera_to_world[:, :3, 3] * self.scale + self._offset(camera_to_world)
        return torch.cat([self._cycle(rotation, -2), self._cycle(translation, -1)[..., None]], dim=-1)

    def poses_to_file(self, camera_to_world: Tensor) -> Tensor:
        """[n, 3, 4] internal poses -> [n, 3, 4] file poses; inverse of :meth:`poses_to_internal`."""
        rotation = self._uncycle(camera_to_world[:, :, :3], -2) * self._column_signs(camera_to_world)
        translation = self.points_to_file(camera_to_world[:, :, 3])
        return torch.cat([rotation, translation[..., None]], dim=-1)

    def points_to_internal(self, points: Tensor) -> Tensor:
        """[..., 3] file space -> [..., 3] internal space."""
        return self._cycle(points * self.scale + self._offset(points), -1)

    def points_to_file(self, points: Tensor) -> Tensor:
        """[..., 3] internal space -> [..., 3] file space; inverse of :meth:`points_to_internal`."""
        return (self._uncycle(points, -1) - self._offset(points)) / self.scale

    def directions_to_internal(self, directions: Tensor) -> Tensor:
        """[..., 3] file axes -> [..., 3] internal axes, without scale and offset (the up vector, normals)."""
        return self._cycle(directions, -1)

    def directions_to_file(self, directions: Tensor) -> Tensor:
        """[..., 3] internal axes -> [..., 3] file axes; inverse of :meth:`directions_to_internal`."""
        return self._uncycle(directions, -1)

    def _offset(self, like: Tensor) -> Tensor:
        return torch.tensor(self.offset, dtype=like.dtype, device=like.device)

    def _column_signs(self, like: Tensor) -> Tensor:
        signs = (-1.0, -1.0, 1.0) if self.from_mitsuba else (1.0, -1.0, -1.0)
        return torch.tensor(signs, dtype=like.dtype, device=like.device)

    def _cycle(self, values: Tensor, dim: int) -> Tensor:
        return values if self.from_mitsuba else values.roll(-1, dim)

    def _uncycle(self, values: Tensor, dim: int) -> Tensor:
        return values if self.from_mitsuba else values.roll(1, dim)


def cameras_to_file(cameras: Cameras, transform: SceneTransform) -> Cameras:
    """The same cameras with their poses in the scene file's space and OpenGL axes (to write a transforms.json)."""
    return replace(cameras, camera_to_world=transform.poses_to_file(cameras.camera_to_world))
