"""Where a snapshot's model lies in its scene file's space, and the cameras of the photographs that it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from nerfleet.config import is_number
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras, Lens
from nerfleet.geometry.poses import SceneTransform

_OPENCV = ("k1", "k2", "p1", "p2")
_FISHEYE = ("k1", "k2", "k3", "k4")
_FTHETA = ("ftheta_p0", "ftheta_p1", "ftheta_p2", "ftheta_p3", "ftheta_p4", "w", "h")
_FLAGS = {"latlong": Lens.LATLONG, "equirectangular": Lens.EQUIRECTANGULAR, "orthographic": Lens.ORTHOGRAPHIC}


@dataclass(frozen=True)
class Placement:
    """Attributes:
    transform: from the scene file's space to internal space. up: unit length, the scene file's axes.
    cameras: of the training photographs, internal space, or None.
    """

    transform: SceneTransform
    up: tuple[float, float, float]
    cameras: Cameras | None


def read_placement(document: Mapping[str, Any], where: str) -> Placement | None:
    """The placement in a snapshot's map; None where it holds no data set (``where`` names the file in errors)."""
    snapshot = document.get("snapshot")
    nerf = snapshot.get("nerf") if isinstance(snapshot, dict) else None
    dataset = nerf.get("dataset") if isinstance(nerf, dict) else None
    if not isinstance(dataset, dict):
        return None
    here = f"{where}: snapshot.nerf.dataset"
    default = SceneTransform()
    offset = _numbers(dataset.get("offset", list(default.offset)), 3, here, "offset")
    (scale,) = _numbers([dataset.get("scale", default.scale)], 1, here, "scale")
    if scale <= 0:
        raise NerfleetError(here, f"scale {scale:g} is not above 0", "the file is damaged")
    transform = SceneTransform(scale, (offset[0], offset[1], offset[2]), dataset.get("from_mitsuba") is True)
    up = torch.tensor(_numbers(dataset.get("up", [0.0, 1.0, 0.0]), 3, here, "up"))
    if float(up.norm()) < 1e-6:
        raise NerfleetError(here, "up has no direction", "the file is damaged")
    in_file = transform.directions_to_file(torch.nn.functional.normalize(up, dim=0)).tolist()
    return Placement(transform, (in_file[0], in_file[1], in_file[2]), _cameras(dataset, here))


def _cameras(dataset: Mapping[str, Any], where: str) -> Cameras | None:
    poses, metadata = dataset.get("xforms"), dataset.get("metadata")
    if not isinstance(poses, list) or not isinstance(metadata, list) or not poses or len(poses) != len(metadata):
        return None
    rows = [_camera(pose, entry, f"{where} {i}") for i, (pose, entry) in enumerate(zip(poses, metadata))]
    matrices, focal, principal, resolution, lens, params = (list(column) for column in zip(*rows))
    return Cameras(
        camera_to_world=torch.tensor(matrices).view(-1, 3, 4),
        focal=torch.tensor(focal),
        principal=torch.tensor(principal),
        resolution=torch.tensor(resolution, dtype=torch.int32),
        lens=torch.tensor(lens, dtype=torch.int32),
        lens_params=torch.tensor(params),
    )


def _camera(pose: Any, entry: Any, where: str) -> tuple[Any, ...]:
    start = pose.get("start") if isinstance(pose, dict) else None
    if not isinstance(start, list) or not isinstance(entry, dict):
        raise NerfleetError(where, "has no pose or no metadata", "the file is damaged")
    matrix = [_numbers(row, 4, where, "xforms") for row in start[:3]]
    if len(matrix) != 3:
        raise NerfleetError(where, "xforms is no matrix of 3 rows", "the file is damaged")
    size = _numbers(entry.get("resolution"), 2, where, "resolution")
    if min(size) < 1:
        raise NerfleetError(where, f"resolution {size[0]:g} x {size[1]:g} is empty", "the file is damaged")
    centre = _numbers(entry.get("principal_point", [0.5, 0.5]), 2, where, "principal_point")
    focal = _numbers(entry.get("focal_length"), 2, where, "focal_length")
    lens, params = _lens(entry.get("lens"), where)
    return matrix, focal, [centre[0] * size[0], centre[1] * size[1]], [int(v) for v in size], int(lens), params


def _lens(value: Any, where: str) -> tuple[Lens, list[float]]:
    if not isinstance(value, dict):
        return Lens.PERSPECTIVE, [0.0] * N_LENS_PARAMS
    for flag, lens in _FLAGS.items():
        if value.get(flag):
            return lens, [0.0] * N_LENS_PARAMS
    lens, names = (Lens.FTHETA, _FTHETA) if "ftheta_p0" in value else (Lens.OPENCV_FISHEYE, _FISHEYE) if value.get("is_fisheye") else (Lens.OPENCV, _OPENCV)
    params = _numbers([value.get(name, 0.0) for name in names], len(names), where, "lens")
    if not any(params) and lens == Lens.OPENCV:
        lens = Lens.PERSPECTIVE
    return lens, params + [0.0] * (N_LENS_PARAMS - len(params))


def _numbers(value: Any, count: int, where: str, key: str) -> list[float]:
    if not isinstance(value, list) or len(value) != count or not all(is_number(entry) for entry in value):
        raise NerfleetError(where, f"{key} is not {count} finite numbers", "the file is damaged")
    return [float(entry) for entry in value]
