"""The scene box: a cube centred on 0.5 in internal space, and rays through axis-aligned boxes."""

from __future__ import annotations

import torch
from torch import Tensor


def scene_box(aabb_scale: float) -> Tensor:
    """[2, 3] float32, minimum and maximum of the cube with edge ``aabb_scale`` around 0.5."""
    half = aabb_scale / 2
    return torch.tensor([[0.5 - half] * 3, [0.5 + half] * 3])


def to_unit_cube(points: Tensor, aabb_scale: float) -> Tensor:
    """[..., 3] internal space -> [..., 3] in [0, 1] inside the scene box: what the hash grid sees."""
    return (points - 0.5) / aabb_scale + 0.5


def from_unit_cube(points: Tensor, aabb_scale: float) -> Tensor:
    """Inverse of :func:`to_unit_cube`."""
    return (points - 0.5) * aabb_scale + 0.5


def ray_box(origins: Tensor, directions: Tensor, box: Tensor) -> tuple[Tensor, Tensor]:
    """Where rays enter and leave a box, in multiples of their directions (slab method).

    Args:
        origins: [m, 3].
        directions: [m, 3], any length; components may be zero.
        box: [2, 3] minimum and maximum.

    Returns:
        t_near [m], at least 0, and t_far [m]. The ray misses the box where ``t_far < t_near``.
    """
    box = box.to(origins)
    parallel = directions == 0
    safe = torch.where(parallel, torch.ones_like(directions), directions)
    t0 = (box[0] - origins) / safe
    t1 = (box[1] - origins) / safe
    low, high = torch.minimum(t0, t1), torch.maximum(t0, t1)
    between = (origins >= box[0]) & (origins <= box[1])
    infinity = torch.full_like(low, torch.inf)
    low = torch.where(parallel, torch.where(between, -infinity, infinity), low)
    high = torch.where(parallel, torch.where(between, infinity, -infinity), high)
    return low.amax(-1).clamp(min=0), high.amin(-1)
