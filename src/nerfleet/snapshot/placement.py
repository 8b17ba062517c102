"""Where a model's scene lies: its own units and axes, its cameras and its upward direction, as far as a snapshot tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nerfleet.config import is_number
from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras, Lens
from nerfleet.geometry.poses import SceneTransform

_OPENCV = ("k1", "k2", "p1", "p2")
_FISHEYE = ("k1", "k2", "k3", "k4")
_FTHETA = ("ftheta_p0", "ftheta_p1", "ftheta_p2", "ftheta_p3", "ftheta_p4", "w", "h")
_FLAGS = {"latlong": Lens.LATLONG, "equirectangular": Lens.EQUIRECTANGULAR, "orthographic": Lens.ORTHOGRAPHIC}


@dataclass(frozen=True)
class Placement:
    """Attributes:
    transform: from the scene's own units and axes to internal space; None: the file does not tell.
    cameras: of the photographs, internal space, with their lenses. None: the file has none.
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
        lenses = [_lens(view.get("lens")) for view in views]
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RuntimeError, OverflowError):
        return None
    n = len(poses)
    whole = poses.shape == (n, 3, 4) and focal.shape == size.shape == principal.shape == (n, 2)
    if n == 0 or not whole or not bool(poses.isfinite().all() and (focal > 0).all() and (size > 0).all() and principal.isfinite().all()):
        return None
    kinds = torch.tensor([int(kind) for kind, _ in lenses], dtype=torch.int32)
    return Cameras(poses, focal, principal, size, kinds, torch.tensor([params for _, params in lenses], dtype=torch.float32))


def _lens(value: object) -> tuple[Lens, list[float]]:
    """Raises ValueError for parameters that are no finite numbers."""
    if not isinstance(value, dict):
        return Lens.PERSPECTIVE, [0.0] * N_LENS_PARAMS
    for flag, lens in _FLAGS.items():
        if value.get(flag):
            return lens, [0.0] * N_LENS_PARAMS
    lens, names = (Lens.FTHETA, _FTHETA) if "ftheta_p0" in value else (Lens.OPENCV_FISHEYE, _FISHEYE) if value.get("is_fisheye") else (Lens.OPENCV, _OPENCV)
    params = _numbers([value.get(name, 0.0) for name in names], len(names))
    if params is None:
        raise ValueError("lens")
    return lens, params + [0.0] * (N_LENS_PARAMS - len(params))


def _numbers(values: object, n: int) -> list[float] | None:
    if not isinstance(values, list | tuple) or len(values) != n or not all(is_number(value) for value in values):
        return None
    return [float(value) for value in values]
