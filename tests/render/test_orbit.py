"""Orbits found from cameras whose subject is known."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Cameras
from nerfleet.render.camera_path import Keyframe, path_cameras, read_camera_path, turntable, write_camera_path
from nerfleet.render.orbit import Orbit, find_orbit, flight_path, orbit_path, quaternion

CENTRE = (0.6, 0.4, 0.5)


def around(n: int = 12) -> Cameras:
    return turntable(n, CENTRE, radius=1.0, height=0.5, resolution=(64, 48), fov=50.0)


def test_a_ring_of_cameras_gives_its_orbit() -> None:
    orbit = find_orbit(around(), (0.0, 2.0, 0.0))
    assert orbit is not None
    assert orbit.centre == pytest.approx(CENTRE, abs=1e-5)
    assert (orbit.radius, orbit.height, orbit.fov) == pytest.approx((1.0, 0.5, 50.0), abs=1e-4)
    assert orbit.is_turn
    assert orbit.distance == pytest.approx(math.hypot(1.0, 0.5))


def test_cameras_on_one_side_give_a_swing_that_stays_there() -> None:
    orbit = find_orbit(around(36)[:10], (0.0, 1.0, 0.0))
    assert orbit is not None
    assert not orbit.is_turn
    assert orbit.last - orbit.first == pytest.approx(math.radians(90), abs=1e-3)
    positions = orbit.poses(60)[:, :, 3]
    seen = around(36)[:10].camera_to_world[:, :, 3].double().numpy()
    nearest = np.linalg.norm(positions[:, None] - seen[None], axis=-1).min(1)
    assert nearest.max() < math.radians(5) + 0.01
    assert np.linalg.norm(positions[30] - positions[0]) > 1.3, "half-way it is at the other end"


@pytest.mark.parametrize("kind", ["parallel", "outwards", "few", "nan", "no up"])
def test_where_there_is_no_subject_there_is_no_orbit(kind: str) -> None:
    cameras, up = around(), (0.0, 1.0, 0.0)
    if kind == "parallel":
        pose = cameras.camera_to_world.clone()
        pose[:, :, :3] = pose[:1, :, :3]
        cameras = dataclasses.replace(cameras, camera_to_world=pose)
    elif kind == "outwards":
        pose = cameras.camera_to_world.clone()
        pose[:, :, [0, 2]] *= -1
        cameras = dataclasses.replace(cameras, camera_to_world=pose)
    elif kind == "few":
        cameras = cameras[:2]
    elif kind == "nan":
        cameras.camera_to_world[0, 0, 0] = math.nan
    else:
        up = (0.0, 0.0, 0.0)
    assert find_orbit(cameras, up) is None


def test_poses_are_those_of_a_turntable() -> None:
    orbit = Orbit(CENTRE, (0.0, 1.0, 0.0), 1.0, 0.5, 50.0)
    assert np.allclose(orbit.poses(12), around().camera_to_world.numpy(), atol=1e-5)
    with pytest.raises(NerfleetError, match="0 pictures"):
        orbit.poses(0)


def test_the_path_goes_along_the_orbit(tmp_path: Path) -> None:
    orbit = Orbit(CENTRE, (0.0, 0.6, 0.8), 1.0, 0.5, 50.0)
    write_camera_path(tmp_path / "orbit.json", orbit_path(orbit, 3.0))
    path = read_camera_path(tmp_path / "orbit.json")
    assert (path.loop, path.duration_seconds, path.spline_order) == (True, 3.0, 3)
    assert path.keyframes[0].focus_distance == pytest.approx(orbit.distance)
    cameras = path_cameras(path, 96, 64, 48)
    found = cameras.camera_to_world.double().numpy()
    expected = orbit.poses(96)
    assert np.abs(found[:, :, 3] - expected[:, :, 3]).max() < 1e-4
    assert np.abs(found[:, :, :3] - expected[:, :, :3]).max() < 1e-3


def test_a_flight_stays_near_its_cameras() -> None:
    cameras = around(8)
    flight = path_cameras(flight_path(cameras, 40.0), 30, 64, 48)
    assert torch.allclose(flight.camera_to_world[0, :, 3], (5 * cameras.camera_to_world[0, :, 3] + cameras.camera_to_world[1, :, 3]) / 6, atol=1e-5)
    distance = (flight.camera_to_world[:, :, 3] - torch.tensor(CENTRE)).norm(dim=-1)
    assert (distance - math.hypot(1, 0.5)).abs().max() < 0.15


@given(st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda q: sum(v * v for v in q) > 0.01))
def test_quaternions_come_back(given_quaternion: tuple[float, float, float, float]) -> None:
    unit = np.array(given_quaternion) / np.linalg.norm(given_quaternion)
    x, y, z, w = unit.tolist()
    matrix = Keyframe((x, y, z, w), (0, 0, 0)).camera_to_world[:, :3]
    assert abs(np.dot(quaternion(matrix), unit)) == pytest.approx(1.0, abs=1e-9)
