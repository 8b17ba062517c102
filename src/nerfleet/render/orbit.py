"""A way around the subject, found from the cameras that photographed it: a whole turn, or to and fro where they saw one side only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Cameras
from nerfleet.render.camera_path import CameraPath, Keyframe

WIDEST_GAP = 2 * math.pi / 3
"""Cameras that leave more than this free (radians) photographed one side only."""
MIN_SPREAD = 0.05
"""Smallest eigenvalue of the mean of I - d d^T at which optical axes d meet somewhere."""
KEYFRAMES = 48


@dataclass(frozen=True)
class Orbit:
    """Positions on a circle around an axis, all looking at the centre.

    Attributes:
        centre, up: internal space; up has unit length.
        radius: distance from the axis. height: above the centre, along up.
        fov: degrees, vertical.
        first, last: angles (radians) between which the camera swings to and fro; last = first + 2 pi is a whole turn.
    """

    centre: tuple[float, float, float] = (0.5, 0.5, 0.5)
    up: tuple[float, float, float] = (0.0, 1.0, 0.0)
    radius: float = 1.2
    height: float = 0.6
    fov: float = 45.0
    first: float = 0.0
    last: float = 2 * math.pi

    @property
    def is_turn(self) -> bool:
        return self.last - self.first >= 2 * math.pi - 1e-6

    @property
    def distance(self) -> float:
        return math.hypot(self.radius, self.height)

    def poses(self, n: int) -> NDArray[np.float64]:
        """[n, 3, 4] camera-to-world, even in time over one round; the first is not repeated at the end."""
        if n < 1 or self.radius <= 0:
            raise NerfleetError("orbit", f"{n} pictures at radius {self.radius:g}", "ask for at least one picture and a positive radius")
        time = np.arange(n) / n
        share = time if self.is_turn else 0.5 - 0.5 * np.cos(2 * math.pi * time)
        angle = (self.first + (self.last - self.first) * share)[:, None]
        axis = np.array(self.up)
        side, across = _horizon(axis)
        offset = self.radius * (np.cos(angle) * side + np.sin(angle) * across) + self.height * axis
        forward = -offset / np.linalg.norm(offset, axis=1, keepdims=True)
        right = np.cross(forward, axis)
        right /= np.linalg.norm(right, axis=1, keepdims=True)
        return np.stack([right, np.cross(forward, right), forward, offset + np.array(self.centre)], axis=2)


def orbit_path(orbit: Orbit, duration_seconds: float = 5.0) -> CameraPath:
    """The same way as a camera path that instant-ngp opens: a loop whose cubic spline passes through points of the orbit."""
    poses = orbit.poses(KEYFRAMES)
    through = poses[:, :, 3]
    weights = 4 * np.eye(KEYFRAMES) + np.roll(np.eye(KEYFRAMES), 1, 0) + np.roll(np.eye(KEYFRAMES), -1, 0)
    control = np.linalg.solve(weights / 6, through)  # a uniform cubic B-spline is (p - 1, 4 p, p + 1) / 6 where a segment begins
    frames = []
    for pose, position in zip(poses, control):
        x, y, z = position.tolist()
        frames.append(Keyframe(quaternion(pose[:, :3]), (x, y, z), scale=orbit.distance, fov=orbit.fov))
    return CameraPath(tuple(frames), loop=True, duration_seconds=duration_seconds)


def flight_path(cameras: Cameras, fov: float, duration_seconds: float = 5.0) -> CameraPath:
    """A smooth flight near the cameras' positions, in their order."""
    poses = cameras.camera_to_world.double().cpu().numpy()
    frames = []
    for pose in poses:
        x, y, z = pose[:, 3].tolist()
        frames.append(Keyframe(quaternion(pose[:, :3]), (x, y, z), fov=fov))
    return CameraPath(tuple(frames), duration_seconds=duration_seconds)


def find_orbit(cameras: Cameras, up: tuple[float, float, float]) -> Orbit | None:
    """The orbit of cameras that look at a subject between them; None if there is no such point.

    Its centre is nearest to all optical axes (least squares), its radius and height are the cameras' medians.

    Args:
        cameras: in internal space. up: internal axes, any length.
    """
    poses = cameras.camera_to_world.double().cpu().numpy()
    axis = np.array(up, dtype=np.float64)
    if len(poses) < 3 or not np.isfinite(poses).all() or np.linalg.norm(axis) < 1e-6:
        return None
    axis /= np.linalg.norm(axis)
    positions, looks = poses[:, :, 3], poses[:, :, 2] / np.linalg.norm(poses[:, :, 2], axis=1, keepdims=True)
    across = np.eye(3) - looks[:, :, None] * looks[:, None, :]
    if np.linalg.eigvalsh(across.mean(0))[0] < MIN_SPREAD:
        return None
    centre = np.linalg.solve(across.sum(0), (across @ positions[:, :, None]).sum(0)[:, 0])
    offset = positions - centre
    if np.median(-(offset * looks).sum(1)) <= 0:  # they look away from one another
        return None
    heights = offset @ axis
    flat = offset - heights[:, None] * axis
    radius = float(np.median(np.linalg.norm(flat, axis=1)))
    if radius < 1e-3:
        return None
    side, sideways = _horizon(axis)
    first, last = _arc(np.arctan2(flat @ sideways, flat @ side))
    fov = np.degrees(2 * np.arctan(0.5 * cameras.resolution[:, 1].double().numpy() / cameras.focal[:, 1].double().numpy()))
    x, y, z = centre.tolist()
    ux, uy, uz = axis.tolist()
    return Orbit((x, y, z), (ux, uy, uz), radius, float(np.median(heights)), float(np.clip(np.median(fov), 5, 120)), first, last)


def _arc(angles: NDArray[np.float64]) -> tuple[float, float]:
    """First and last angle of the smallest arc that holds all; a whole turn if no gap is wide."""
    ordered = np.sort(angles)
    gaps = np.diff(np.append(ordered, ordered[0] + 2 * math.pi))
    widest = int(gaps.argmax())
    first = float(ordered[(widest + 1) % len(ordered)])
    return (first, first + 2 * math.pi) if gaps[widest] < WIDEST_GAP else (first, first + 2 * math.pi - float(gaps[widest]))


def _horizon(axis: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two unit vectors across ``axis`` and one another: where angle 0 is, and where it grows to."""
    side = np.cross(axis, np.eye(3)[int(np.abs(axis).argmin())])
    side /= np.linalg.norm(side)
    return side, np.cross(axis, side)


def quaternion(rotation: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """(x, y, z, w) of a rotation [3, 3]: the eigenvector of Bar-Itzhack's matrix (2000), which needs no case distinction."""
    (a, b, c), (d, e, f), (g, h, i) = rotation
    matrix = np.array(
        [
            [a - e - i, b + d, c + g, h - f],
            [b + d, e - a - i, f + h, c - g],
            [c + g, f + h, i - a - e, d - b],
            [h - f, c - g, d - b, a + e + i],
        ]
    )
    x, y, z, w = np.linalg.eigh(matrix)[1][:, -1].tolist()
    return (x, y, z, w) if w >= 0 else (-x, -y, -z, -w)
