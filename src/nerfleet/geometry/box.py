"""The scene box: a cube centred on 0.5 in internal space, and rays through axis-aligned boxes."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.geometry.poses import SceneTransform


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


def crop_box(corners: tuple[tuple[float, float, float], tuple[float, float, float]], transform: SceneTransform, aabb_scale: float) -> Tensor:
    """[2, 3] float32 internal space: a crop box given in the scene file's units and axes, which stays parallel to the axes.

    Raises:
        NerfleetError: the box misses the scene box.
    """
    ends = transform.points_to_internal(torch.tensor(corners, dtype=torch.float64))
    box, whole = torch.stack([ends.amin(0), ends.amax(0)]).float(), scene_box(aabb_scale)
    if bool((box[1] <= whole[0]).any() or (box[0] >= whole[1]).any()):
        reach = transform.points_to_file(whole.double())
        low, high = (" ".join(f"{v:.3g}" for v in row) for row in (reach.amin(0).tolist(), reach.amax(0).tolist()))
        raise NerfleetError("crop box", "lies outside of the scene box", f"the scene box reaches from {low} to {high}")
    return box


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
