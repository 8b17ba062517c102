"""Focal length, principal point and lens of a frame, from the keys of a transforms.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nerfleet.data.findings import Findings
from nerfleet.data.json_file import read_number
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import N_LENS_PARAMS, Lens

_CAMERA_MODELS = {
    "PERSPECTIVE": Lens.PERSPECTIVE,
    "PINHOLE": Lens.PERSPECTIVE,
    "SIMPLE_PINHOLE": Lens.PERSPECTIVE,
    "OPENCV": Lens.OPENCV,
    "RADIAL": Lens.OPENCV,
    "SIMPLE_RADIAL": Lens.OPENCV,
    "OPENCV_FISHEYE": Lens.OPENCV_FISHEYE,
    "FISHEYE": Lens.OPENCV_FISHEYE,
}
_NOT_YET = ("ftheta_p0", "ftheta_p1", "latlong", "equirectangular", "orthographic")


@dataclass(frozen=True)
class Intrinsics:
    """All in pixels of the image file."""

    focal: tuple[float, float]
    principal: tuple[float, float]
    lens: Lens
    lens_params: tuple[float, ...]


def read_intrinsics(
    root: Mapping[str, Any], frame: Mapping[str, Any], width: int, height: int, where: str, findings: Findings
) -> Intrinsics | None:
    """Intrinsics of one frame; its own keys override the file's. None if no focal length is given.

    Args:
        root, frame: the file's and the frame's JSON objects.
        width, height: size of the image file, pixels. ``w`` and ``h`` only normalise ``cx`` and ``cy``.
        where: file and frame, for messages.

    Raises:
        NerfleetError: a value that cannot be, or a lens that is not read yet.
    """
    merged = {**root, **frame}
    focal = _focal(frame, width, height, where) or _focal(root, width, height, where)
    if focal is None:
        return None
    nominal = tuple(read_number(merged.get(key, size), where, key) for key, size in (("w", width), ("h", height)))
    if min(nominal) <= 0:
        raise NerfleetError(
            where, f"w, h = {nominal[0]:g}, {nominal[1]:g}", "write the size of the image file, or leave them out"
        )
    cx = read_number(merged.get("cx", nominal[0] / 2), where, "cx")
    cy = read_number(merged.get("cy", nominal[1] / 2), where, "cy")
    lens, params = _lens(merged, where, findings)
    return Intrinsics(focal, (cx / nominal[0] * width, cy / nominal[1] * height), lens, params)


def size_disagrees(root: Mapping[str, Any], frame: Mapping[str, Any], width: int, height: int) -> bool:
    """Whether ``w`` and ``h`` are given and differ from the image file's size by half a pixel or more."""
    merged = {**root, **frame}
    return any(abs(float(merged.get(key, size)) - size) >= 0.5 for key, size in (("w", width), ("h", height)))


def _focal(keys: Mapping[str, Any], width: int, height: int, where: str) -> tuple[float, float] | None:
    """Per axis the first of x_fov (degrees), fl_x (pixels), camera_angle_x (radians); one axis fills both."""
    x, y = _axis_focal(keys, "x", width, where), _axis_focal(keys, "y", height, where)
    if x is None and y is None:
        return None
    return x or y or 0.0, y or x or 0.0


def _axis_focal(keys: Mapping[str, Any], axis: str, size: int, where: str) -> float | None:
    for key in (f"{axis}_fov", f"fl_{axis}", f"camera_angle_{axis}"):
        if keys.get(key) is None:
            continue
        value = read_number(keys[key], where, key)
        if key.startswith("fl_"):
            focal, limit = value, math.inf
        else:
            angle, limit = (math.radians(value), 180.0) if key.endswith("_fov") else (value, math.pi)
            focal = 0.5 * size / math.tan(0.5 * angle) if 0 < value < limit else 0.0
        if not 0 < value < limit:
            unit = "degrees" if key.endswith("_fov") else "pixels" if key.startswith("fl_") else "radians"
            raise NerfleetError(
                f"{where}, {key}", f"{value:g} {unit} is no focal length", "it must be above 0 and below half a turn"
            )
        return focal
    return None


def _lens(merged: Mapping[str, Any], where: str, findings: Findings) -> tuple[Lens, tuple[float, ...]]:
    """Lens and its parameters, padded with zeros. k3 and p1 (k4 and p2) share slots of a fisheye lens; p wins."""
    _refuse_not_yet(merged, where)
    k1, k2, k3, k4, p1, p2 = (read_number(merged.get(key) or 0.0, where, key) for key in ("k1", "k2", "k3", "k4", "p1", "p2"))
    named = merged.get("camera_model")
    if named is not None and str(named).upper() not in _CAMERA_MODELS:
        raise NerfleetError(f"{where}, camera_model", f"{named} is not supported yet", f"use one of {', '.join(_CAMERA_MODELS)}")
    lens = _CAMERA_MODELS.get(str(named).upper()) if named is not None else None
    if merged.get("is_fisheye"):
        lens = Lens.OPENCV_FISHEYE
    padding = (0.0,) * (N_LENS_PARAMS - 4)
    if lens == Lens.OPENCV_FISHEYE:
        params = (k1, k2, p1 or k3, p2 or k4)
        if (p1 and k3) or (p2 and k4):
            findings.warn("a fisheye lens gives both k3, k4 and p1, p2: p1, p2 are used in their place")
        if any(params) or named is not None:
            return lens, params + padding
        findings.warn(
            "is_fisheye with all lens coefficients zero is read as a pinhole camera; else set camera_model to OPENCV_FISHEYE"
        )
        return Lens.PERSPECTIVE, (0.0,) * N_LENS_PARAMS
    if k3 or k4:
        findings.warn("k3 and k4 are ignored: they belong to a fisheye lens, and the file names none (is_fisheye, camera_model)")
    params = (k1, k2, p1, p2)
    if lens == Lens.PERSPECTIVE and any(params):
        findings.warn(f"camera_model {named} has lens coefficients k1, k2, p1, p2: they are ignored")
    if lens == Lens.PERSPECTIVE or not any(params):
        return Lens.PERSPECTIVE, (0.0,) * N_LENS_PARAMS
    return Lens.OPENCV, params + padding


def _refuse_not_yet(merged: Mapping[str, Any], where: str) -> None:
    for key in _NOT_YET:
        if key in merged and merged[key] is not False:
            raise NerfleetError(
                f"{where}, {key}", "this lens is not supported yet", "undistort the photographs to pinhole cameras"
            )
    shutter = merged.get("rolling_shutter")
    if any(shutter) if isinstance(shutter, list) else shutter:
        raise NerfleetError(
            f"{where}, rolling_shutter", "is not supported yet", "remove the key to train as if the shutter were global"
        )
