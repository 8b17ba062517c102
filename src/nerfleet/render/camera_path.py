"""Camera paths: instant-ngp's JSON (keyframes and a spline), its evaluation, and turntables.

Keyframes are camera-to-world in internal space (x right, y down, z forward). Segment i runs from keyframe i to i + 1 and ends at
timestamp i; splines of order 2 and 3 are uniform B-splines, which pass near their keyframes, not through them.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nerfleet.config import is_number
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras, Lens

ORDERS = (0, 1, 2, 3)
MIN_FOV = 1e-3
MAX_DURATION_SECONDS = 86_400
MAX_NUMBER = 1e30
"""Below what single precision holds, so that means of keyframes stay finite."""


@dataclass(frozen=True)
class Keyframe:
    """One camera of a path.

    Attributes:
        rotation: quaternion (x, y, z, w), camera-to-world, internal space.
        position: internal space.
        slice, scale: their sum is the distance of the plane in focus.
        fov: degrees, along the image axis that the renderer is told (vertical by default).
        aperture_size: radius of the lens, internal units; 0 is a pinhole.
        timestamp: where the segment that starts here ends, on the path's own time axis; 0 = not given.
    """

    rotation: tuple[float, float, float, float]
    position: tuple[float, float, float]
    slice: float = 0.0
    scale: float = 1.0
    fov: float = 50.0
    aperture_size: float = 0.0
    timestamp: float = 0.0

    @property
    def focus_distance(self) -> float:
        return self.slice + self.scale

    @property
    def camera_to_world(self) -> NDArray[np.float64]:
        """[3, 4] pose."""
        return np.concatenate([_rotation_matrix(self.rotation), np.array(self.position)[:, None]], axis=1)


@dataclass(frozen=True)
class CameraPath:
    """Keyframes and how to play them. ``time`` is where an editor stood, in [0, 1]."""

    keyframes: tuple[Keyframe, ...]
    loop: bool = False
    spline_order: int = 3
    duration_seconds: float = 5.0
    time: float = 0.0

    def timestamps(self) -> list[float]:
        """The keyframes' own timestamps if they are positive and rising, else (i + 1) / n."""
        given = [keyframe.timestamp for keyframe in self.keyframes]
        if all(later > earlier for earlier, later in zip([0.0, *given], given)):
            return given
        return [(i + 1) / len(given) for i in range(len(given))]


def evaluate(path: CameraPath, play_time: float) -> Keyframe:
    """The camera at ``play_time`` in [0, 1] (values outside are clamped), by the path's spline."""
    frames, n = path.keyframes, len(path.keyframes)
    if n == 1:
        return frames[0]
    ends = path.timestamps()
    n_segments = n if path.loop else n - 1
    time = min(max(play_time, 0.0), 1.0) * ends[n_segments - 1]
    segment = next((i for i in range(n_segments) if time < ends[i]), n_segments - 1)
    start = ends[segment - 1] if segment > 0 else 0.0
    fraction = (time - start) / (ends[segment] - start)
    first, weights = _weights(path.spline_order, fraction)
    indices = [segment + first + k for k in range(len(weights))]
    chosen = [frames[i % n] if path.loop else frames[min(max(i, 0), n - 1)] for i in indices]
    return _mix(chosen, weights, time)


def path_cameras(path: CameraPath, n_frames: int, width: int, height: int, fov_axis: int = 1) -> Cameras:
    """Perspective cameras of a video of ``n_frames`` pictures; the field of view spans the width (0) or the height (1).

    The last picture of an open path is its end; a loop stops one picture before its start.
    """
    _require_frames(n_frames, width, height)
    return keyframe_cameras(path_keyframes(path, n_frames), width, height, fov_axis)


def keyframe_cameras(keyframes: list[Keyframe], width: int, height: int, fov_axis: int = 1) -> Cameras:
    """One perspective camera for each keyframe; the field of view spans the width (0) or the height (1)."""
    poses = np.stack([keyframe.camera_to_world for keyframe in keyframes])
    fov = np.radians([keyframe.fov for keyframe in keyframes])
    return _perspective(poses, 0.5 * (width, height)[fov_axis] / np.tan(0.5 * fov), width, height)


def path_keyframes(path: CameraPath, n_frames: int) -> list[Keyframe]:
    """The path's camera at each picture of a video, as in :func:`path_cameras`."""
    last = n_frames if path.loop else max(n_frames - 1, 1)
    return [evaluate(path, i / last) for i in range(n_frames)]


def smoothed(keyframes: list[Keyframe], n_frames: float) -> list[Keyframe]:
    """The cameras of a video, each following its own with a delay of ``n_frames`` pictures (exponential mean); 0: as they are."""
    if n_frames <= 0:
        return keyframes
    share = 1.0 - math.exp(-1.0 / n_frames)
    found = keyframes[:1]
    for keyframe in keyframes[1:]:
        found.append(_mix([found[-1], keyframe], (1.0 - share, share), keyframe.timestamp))
    return found


def turntable(
    n_frames: int,
    centre: tuple[float, float, float] = (0.5, 0.5, 0.5),
    radius: float = 1.2,
    height: float = 0.6,
    resolution: tuple[int, int] = (512, 512),
    fov: float = 45.0,
    up: tuple[float, float, float] = (0.0, 1.0, 0.0),
) -> Cameras:
    """One even turn around ``centre``, looking at it.

    Args:
        n_frames: pictures in the turn; the first is not repeated at the end.
        centre, radius, height: internal units; the circle of that radius lies ``height`` above the centre along ``up``.
        resolution: width and height, pixels.
        fov: degrees, vertical.
        up: any length, internal space (file z is internal y).
    """
    _require_frames(n_frames, *resolution)
    if radius <= 0:
        raise NerfleetError(
            f"turntable, radius {radius}", "must be positive", "give the distance from the axis in internal units"
        )
    axis = np.array(up) / np.linalg.norm(up)
    side = np.cross(axis, np.eye(3)[int(np.abs(axis).argmin())])
    side /= np.linalg.norm(side)
    angle = (2.0 * math.pi / n_frames) * np.arange(n_frames)[:, None]
    offset = radius * (np.cos(angle) * side + np.sin(angle) * np.cross(axis, side)) + height * axis
    forward = -offset / np.linalg.norm(offset, axis=1, keepdims=True)
    right = np.cross(forward, axis)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    poses = np.stack([right, np.cross(forward, right), forward, offset + np.array(centre)], axis=2)
    focal = np.full(n_frames, 0.5 * resolution[1] / math.tan(math.radians(0.5 * fov)))
    return _perspective(poses, focal, *resolution)


def read_camera_path(file: Path) -> CameraPath:
    """Read instant-ngp's camera path JSON.

    Raises:
        NerfleetError: not readable, not JSON, a key that is missing or of the wrong kind, no keyframe, an unknown spline order.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise NerfleetError(str(file), error.strerror or "cannot be read", "check the path of the camera path file") from error
    except (ValueError, RecursionError) as error:
        raise NerfleetError(str(file), f"is not JSON ({error})", "save the camera path again") from error
    entries = document.get("path") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise NerfleetError(str(file), 'has no keyframes under "path"', "add at least one camera to the path")
    order = document.get("spline_order", 3)
    if order not in ORDERS:
        raise NerfleetError(str(file), f"spline_order {order!r} is unknown", "use 0, 1, 2 or 3")
    duration = _number(file, "duration_seconds", document.get("duration_seconds", 5.0))
    if not 0 <= duration <= MAX_DURATION_SECONDS:
        raise NerfleetError(str(file), f"duration_seconds {duration:g} is out of range", f"use 0 to {MAX_DURATION_SECONDS:,}")
    return CameraPath(
        keyframes=tuple(_read_keyframe(file, i, entry) for i, entry in enumerate(entries)),
        loop=bool(document.get("loop", False)),
        spline_order=int(order),
        duration_seconds=duration,
        time=_number(file, "time", document.get("time", 0.0)),
    )


def write_camera_path(file: Path, path: CameraPath) -> None:
    """Write instant-ngp's camera path JSON (temporary name, then rename). Timestamps are written as they play."""
    entries = [
        {
            "R": list(keyframe.rotation),
            "T": list(keyframe.position),
            "slice": keyframe.slice,
            "scale": keyframe.scale,
            "fov": keyframe.fov,
            "aperture_size": keyframe.aperture_size,
            "timestamp": timestamp,
        }
        for keyframe, timestamp in zip(path.keyframes, path.timestamps())
    ]
    document = {
        "path": entries,
        "loop": path.loop,
        "time": path.time,
        "duration_seconds": path.duration_seconds,
        "spline_order": path.spline_order,
    }
    temporary = file.with_name(file.name + ".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")
        os.replace(temporary, file)
    except OSError as error:
        raise NerfleetError(str(file), error.strerror or "cannot be written", "choose another place") from None


def _read_keyframe(file: Path, index: int, entry: Any) -> Keyframe:
    """One element of ``path``; the older key ``dof`` stands for ``aperture_size``."""
    name = f"keyframe {index}"
    if not isinstance(entry, dict):
        raise NerfleetError(str(file), name, "is not an object", "save the camera path again")
    entry = {"aperture_size": entry.get("dof"), **entry}
    missing = [key for key in ("R", "T", "slice", "scale", "fov", "aperture_size") if entry.get(key) is None]
    if missing:
        raise NerfleetError(str(file), name, f"lacks {', '.join(missing)}", "save the camera path again")
    lists = {key: entry[key] for key in ("R", "T")}
    for key, length in (("R", 4), ("T", 3)):
        if not isinstance(lists[key], list) or len(lists[key]) != length:
            raise NerfleetError(str(file), name, f"{key} is not a list of {length} numbers", "save the camera path again")
    rotation = tuple(_number(file, f"{name}, R", value) for value in entry["R"])
    norm = math.sqrt(sum(value * value for value in rotation))
    if not 0.0 < norm < math.inf:
        raise NerfleetError(str(file), name, "R is zero or too large", "give a unit quaternion (x, y, z, w)")
    x, y, z, w = (value / norm for value in rotation)
    tx, ty, tz = (_number(file, f"{name}, T", value) for value in entry["T"])
    numbers = {key: _number(file, f"{name}, {key}", entry[key]) for key in ("slice", "scale", "fov", "aperture_size")}
    if not MIN_FOV <= numbers["fov"] < 180.0:
        raise NerfleetError(str(file), name, f"fov {numbers['fov']:g} is not between {MIN_FOV} and 180 degrees", "give it in degrees")
    return Keyframe((x, y, z, w), (tx, ty, tz), **numbers, timestamp=_number(file, name, entry.get("timestamp", 0.0)))


def _number(file: Path, name: str, value: Any) -> float:
    if not is_number(value) or abs(value) > MAX_NUMBER:
        raise NerfleetError(str(file), name, f"{value!r} is not a finite number", "save the camera path again")
    return float(value)


def _weights(order: int, u: float) -> tuple[int, tuple[float, ...]]:
    """Offset of the first keyframe from the segment's own, and the weights of it and those that follow; they sum to 1."""
    if order == 0:
        return (0, (1.0,)) if u < 0.5 else (1, (1.0,))
    if order == 1:
        return 0, (1.0 - u, u)
    if order == 2:
        return -1, (0.5 * (1.0 - u) ** 2, 0.5 + u - u * u, 0.5 * u * u)
    return -1, ((1 - u) ** 3 / 6, (3 * u**3 - 6 * u**2 + 4) / 6, (1 + 3 * u + 3 * u**2 - 3 * u**3) / 6, u**3 / 6)


def _mix(frames: list[Keyframe], weights: tuple[float, ...], time: float) -> Keyframe:
    """Weighted mean of all fields; each quaternion is first flipped to the side of the running sum (q and -q turn alike)."""
    rotation = np.zeros(4)
    for frame, weight in zip(frames, weights):
        quaternion = np.array(frame.rotation)
        rotation += weight * (quaternion if rotation @ quaternion >= 0.0 else -quaternion)
    x, y, z, w = (rotation / np.linalg.norm(rotation)).tolist()
    px, py, pz = np.average([frame.position for frame in frames], axis=0, weights=weights).tolist()

    def mean(name: str) -> float:
        return sum(weight * float(getattr(frame, name)) for frame, weight in zip(frames, weights))

    mixed = {name: mean(name) for name in ("slice", "scale", "fov", "aperture_size")}
    return replace(frames[0], rotation=(x, y, z, w), position=(px, py, pz), **mixed, timestamp=time)


def _rotation_matrix(quaternion: tuple[float, float, float, float]) -> NDArray[np.float64]:
    """Unit quaternion (x, y, z, w) -> [3, 3]."""
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def _perspective(poses: NDArray[np.float64], focal: NDArray[np.float64], width: int, height: int) -> Cameras:
    """Cameras of one size with square pixels and a centred principal point: poses [n, 3, 4], focal [n] pixels."""
    n = len(poses)
    return Cameras(
        camera_to_world=torch.from_numpy(poses.astype(np.float32)),
        focal=torch.from_numpy(focal.astype(np.float32))[:, None].repeat(1, 2),
        principal=torch.tensor([[0.5 * width, 0.5 * height]]).repeat(n, 1),
        resolution=torch.tensor([[width, height]], dtype=torch.int32).repeat(n, 1),
        lens=torch.full((n,), int(Lens.PERSPECTIVE), dtype=torch.int32),
        lens_params=torch.zeros(n, N_LENS_PARAMS),
    )


def _require_frames(n_frames: int, width: int, height: int) -> None:
    if min(n_frames, width, height) < 1:
        wrong = f"{n_frames} frames of {width} x {height} pixels cannot be rendered"
        raise NerfleetError("camera path", wrong, "ask for at least one frame of at least one pixel")
