"""Where a model's scene lies: its own units and axes, its cameras and its upward direction, as far as a snapshot tells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras, Lens
from nerfleet.geometry.poses import SceneTransform


@dataclass(frozen=True)
class Placement:
    """Attributes:
    transform: from the scene's own units and axes to internal space; None: the file does not tell.
    cameras: of the photographs, internal space; lenses are left out. None: the file has none.
    up: internal axes.
    """

    transform: SceneTransform | None
    cameras: Cameras | None
    up: tuple[float, float, float]


def read_placement(document: dict[str, Any]) -> Placement:
    """What the map of a snapshot tells; parts that are missing or damaged count as not told."""
    snapshot = document.get("snapshot")
    nerf = snapshot.get("nerf") if isinstance(snapshot, dict) else None
    dataset = nerf.get("dataset") if isinstance(nerf, dict) else None
    if not isinstance(dataset, dict):
        return Placement(None, None, (0.0, 1.0, 0.0))
    up = _numbers(dataset.get("up"), 3)
    x, y, z = up if up and any(up) else (0.0, 1.0, 0.0)
    return Placement(_transform(dataset), _cameras(dataset), (x, y, z))


def _transform(dataset: dict[str, Any]) -> SceneTransform | None:
    scale, offset = _numbers([dataset.get("scale")], 1), _numbers(dataset.get("offset"), 3)
    if not scale or not offset or scale[0] <= 0:
        return None
    x, y, z = offset
    return SceneTransform(scale[0], (x, y, z), dataset.get("from_mitsuba") is True)


def _cameras(dataset: dict[str, Any]) -> Cameras | None:
    try:
        poses = torch.tensor([frame["start"] for frame in dataset["xforms"]], dtype=torch.float32)
        views = dataset["metadata"]
        focal = torch.tensor([view["focal_length"] for view in views], dtype=torch.float32)
        size = torch.tensor([view["resolution"] for view in views], dtype=torch.int32)
        principal = torch.tensor([view["principal_point"] for view in views], dtype=torch.float32) * size
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, OverflowError):
        return None
    n = len(poses)
    whole = poses.shape == (n, 3, 4) and focal.shape == size.shape == principal.shape == (n, 2)
    if n == 0 or not whole or not bool(poses.isfinite().all() and (focal > 0).all() and (size > 0).all()):
        return None
    lens = torch.full((n,), int(Lens.PERSPECTIVE), dtype=torch.int32)
    return Cameras(poses, focal, principal, size, lens, torch.zeros(n, N_LENS_PARAMS))


def _numbers(values: object, n: int) -> list[float] | None:
    if not isinstance(values, list | tuple) or len(values) != n:
        return None
    good = all(isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in values)
    return [float(value) for value in values] if good else None
