"""Camera paths against values worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nerfleet.errors import NerfleetError
from nerfleet.render.camera_path import (
    CameraPath,
    Keyframe,
    evaluate,
    path_cameras,
    read_camera_path,
    turntable,
    write_camera_path,
)

IDENTITY = (0.0, 0.0, 0.0, 1.0)
HALF = math.sqrt(0.5)


def path_of(xs: list[float], **kwargs: object) -> CameraPath:
    """Keyframes along x whose fov is 40 + x."""
    return CameraPath(tuple(Keyframe(IDENTITY, (x, 0.0, 0.0), fov=40 + x) for x in xs), **kwargs)  # type: ignore[arg-type]


def x_at(path: CameraPath, time: float) -> float:
    keyframe = evaluate(path, time)
    assert keyframe.fov == pytest.approx(40 + keyframe.position[0]), "all fields share the weights"
    return keyframe.position[0]


# Four keyframes: timestamps 1/4, 2/4, 3/4, 1; open path: three segments, play time is multiplied by 3/4.
@pytest.mark.parametrize(
    ("order", "time", "expected"),
    [
        (0, 0.0, 0.0),
        (0, 0.1, 0.0),  # 0.3 of segment 0
        (0, 0.2, 6.0),  # 0.6 of segment 0
        (0, 1.0, 36.0),
        (1, 0.0, 0.0),
        (1, 0.5, 12.0),  # middle of segment 1: (6 + 18) / 2
        (1, 1.0, 36.0),
        (2, 0.0, 0.0),  # clamped: (p0 + p0) / 2
        (2, 0.5, (0 + 6 * 6 + 18) / 8),  # middle of segment 1: weights 1/8, 6/8, 1/8
        (2, 1.0, 27.0),  # (18 + 36) / 2
        (3, 0.0, 1.0),  # (p0 + 4 p0 + p1) / 6
        (3, 0.5, (0 + 23 * 6 + 23 * 18 + 36) / 48),
        (3, 1.0, (18 + 4 * 36 + 36) / 6),
        (3, 1 / 3, (0 + 4 * 6 + 18) / 6),  # start of segment 1
    ],
)
def test_orders(order: int, time: float, expected: float) -> None:
    assert x_at(path_of([0, 6, 18, 36], spline_order=order), time) == pytest.approx(expected)


def test_loop_wraps_and_closes() -> None:
    path = path_of([0, 6, 18, 36], loop=True, spline_order=3)
    assert x_at(path, 0.0) == pytest.approx((36 + 0 + 6) / 6)
    assert x_at(path, 1.0) == pytest.approx(x_at(path, 0.0))
    linear = replace(path, spline_order=1)
    assert x_at(linear, 7 / 8) == pytest.approx(18.0), "middle of the segment from the last keyframe to the first"


def test_timestamps_end_segments() -> None:
    stamps = (0.1, 0.5, 0.9)
    frames = tuple(replace(f, timestamp=t) for f, t in zip(path_of([0, 10, 20]).keyframes, stamps))
    path = CameraPath(frames, spline_order=1)
    assert x_at(path, 0.1) == pytest.approx(5.0)  # 0.1 * 0.5 = 0.05, half of segment 0
    assert x_at(path, 0.6) == pytest.approx(15.0)  # 0.3 lies half-way between 0.1 and 0.5
    loop = replace(path, loop=True)
    assert x_at(loop, 0.3 / 0.9) == pytest.approx(15.0)
    assert x_at(loop, 0.7 / 0.9) == pytest.approx(10.0)  # back from 20 to 0


@pytest.mark.parametrize("stamps", [(0.0, 0.5, 0.9), (0.5, 0.5, 0.9), (0.2, 0.1, 0.9), (-1.0, 0.5, 0.9)])
def test_timestamps_that_do_not_rise_are_all_replaced(stamps: tuple[float, ...]) -> None:
    frames = tuple(replace(f, timestamp=t) for f, t in zip(path_of([0, 10, 20]).keyframes, stamps))
    assert CameraPath(frames).timestamps() == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_quaternion_signs_do_not_matter() -> None:
    turn = (0.0, HALF, 0.0, HALF)  # 90 degrees about y
    flipped = tuple(-value for value in turn)
    expected = (0.0, math.sin(math.pi / 8), 0.0, math.cos(math.pi / 8))
    for second in (turn, flipped):
        path = CameraPath((Keyframe(IDENTITY, (0, 0, 0)), Keyframe(second, (0, 0, 0))), spline_order=1)  # type: ignore[arg-type]
        assert evaluate(path, 0.5).rotation == pytest.approx(expected)


def test_rotation_matrix() -> None:
    pose = Keyframe((0.0, HALF, 0.0, HALF), (1.0, 2.0, 3.0)).camera_to_world
    assert pose == pytest.approx(np.array([[0, 0, 1, 1], [0, 1, 0, 2], [-1, 0, 0, 3.0]]))


def test_one_keyframe_and_times_outside() -> None:
    assert evaluate(path_of([5]), 0.7) == path_of([5]).keyframes[0]
    path = path_of([0, 6, 18], spline_order=1)
    assert x_at(path, -1.0) == 0.0
    assert x_at(path, 2.0) == 18.0


def test_focus_distance() -> None:
    assert Keyframe(IDENTITY, (0, 0, 0), slice=0.25, scale=1.5).focus_distance == 1.75


def test_path_cameras() -> None:
    cameras = path_cameras(path_of([0, 10], spline_order=1), 3, 64, 48)
    assert cameras.camera_to_world[:, 0, 3].tolist() == pytest.approx([0, 5, 10])
    fov = [40, 45, 50]
    assert cameras.focal[:, 1].tolist() == pytest.approx([24 / math.tan(math.radians(f / 2)) for f in fov])
    assert torch.equal(cameras.focal[:, 0], cameras.focal[:, 1])
    wide = path_cameras(path_of([0, 10], spline_order=1), 3, 64, 48, fov_axis=0)
    assert wide.focal[0, 0].item() == pytest.approx(32 / math.tan(math.radians(20)))
    loop = path_cameras(path_of([0, 10], spline_order=1, loop=True), 4, 64, 48)
    assert loop.camera_to_world[:, 0, 3].tolist() == pytest.approx([0, 5, 10, 5])


def test_turntable_by_hand() -> None:
    cameras = turntable(4, centre=(0.5, 0.4, 0.5), radius=3.0, height=4.0, resolution=(64, 48), fov=90.0)
    pose = cameras.camera_to_world
    offset = pose[:, :, 3] - torch.tensor([0.5, 0.4, 0.5])
    assert offset.norm(dim=1).tolist() == pytest.approx([5.0] * 4)
    assert offset[:, 1].tolist() == pytest.approx([4.0] * 4)
    assert torch.allclose(offset[0, [0, 2]], -offset[2, [0, 2]], atol=1e-5), "half a turn is the other side"
    assert torch.allclose(pose[:, :, 2], -offset / 5, atol=1e-6), "looks at the centre"
    assert (pose[:, 1, 1] < 0).all(), "image y points down"
    assert torch.allclose(torch.linalg.det(pose[:, :, :3]), torch.ones(4), atol=1e-5)
    assert cameras.focal[0].tolist() == pytest.approx([24.0, 24.0])
    assert cameras.resolution[0].tolist() == [64, 48]


def test_turntable_with_another_up() -> None:
    pose = turntable(5, radius=2.0, height=1.0, up=(0.0, 0.0, 3.0)).camera_to_world
    assert pose[:, 2, 3].tolist() == pytest.approx([1.5] * 5)
    assert torch.allclose(pose[:, 2, 0], torch.zeros(5), atol=1e-6), "the horizon is level"


def test_round_trip(tmp_path: Path) -> None:
    frames = (
        Keyframe((0.0, HALF, 0.0, HALF), (0.1, 0.2, 0.3), 0.5, 1.5, 33.0, 0.25, 0.4),
        Keyframe(IDENTITY, (0.4, 0.5, 0.6), 0.0, 1.0, 50.0, 0.0, 1.0),
    )
    path = CameraPath(frames, loop=True, spline_order=2, duration_seconds=7.5, time=0.25)
    write_camera_path(tmp_path / "path.json", path)
    read = read_camera_path(tmp_path / "path.json")
    assert read.keyframes[0].rotation == pytest.approx(frames[0].rotation)
    assert replace(read.keyframes[0], rotation=frames[0].rotation) == frames[0]
    assert replace(read, keyframes=frames) == path
    assert [file.name for file in tmp_path.iterdir()] == ["path.json"]
    assert set(json.loads((tmp_path / "path.json").read_text())) == {"path", "loop", "time", "duration_seconds", "spline_order"}


def test_older_files_use_dof(tmp_path: Path) -> None:
    entry = {"R": [0, 0, 0, 2], "T": [1, 2, 3], "slice": 0, "scale": 1, "fov": 50, "dof": 0.5}
    (tmp_path / "old.json").write_text(json.dumps({"path": [entry]}))
    read = read_camera_path(tmp_path / "old.json")
    assert read.keyframes[0] == Keyframe(IDENTITY, (1, 2, 3), aperture_size=0.5)
    assert (read.loop, read.spline_order) == (False, 3)


GOOD = {"R": [0, 0, 0, 1], "T": [0, 0, 0], "slice": 0, "scale": 1, "fov": 50, "aperture_size": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "no keyframes"),
        ('{"path": []}', "no keyframes"),
        (json.dumps({"path": [GOOD], "spline_order": 7}), "spline_order 7"),
        (json.dumps({"path": [GOOD, 3]}), "keyframe 1"),
        (json.dumps({"path": [{**GOOD, "fov": None}]}), "keyframe 0: lacks fov"),
        (json.dumps({"path": [{**GOOD, "fov": 200}]}), "fov 200"),
        (json.dumps({"path": [{**GOOD, "R": [0, 0, 1]}]}), "R is not a list of 4"),
        (json.dumps({"path": [{**GOOD, "R": [0, 0, 0, 0]}]}), "R is zero"),
        (json.dumps({"path": [{**GOOD, "T": [0, 0, "a"]}]}), "not a finite number"),
        (json.dumps({"path": [{**GOOD, "T": [0, 0, float("nan")]}]}), "not a finite number"),
        (json.dumps({"path": [{**GOOD, "T": [0, 0, 1e308]}]}), "not a finite number"),
        (json.dumps({"path": [{**GOOD, "R": [1e30] * 3 + [10**400]}]}), "not a finite number"),
        (json.dumps({"path": [{**GOOD, "fov": 1e-300}]}), "fov 1e-300"),
        (json.dumps({"path": [GOOD], "duration_seconds": 1e20}), "duration_seconds 1e[+]20 is out of range"),
        (json.dumps({"path": [GOOD], "duration_seconds": -1}), "duration_seconds -1 is out of range"),
        ('{"path": ' + "9" * 5000 + "}", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(NerfleetError, match=message) as error:
        read_camera_path(file)
    assert str(file) in str(error.value)


def test_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NerfleetError, match=r"none\.json"):
        read_camera_path(tmp_path / "none.json")


def test_impossible_requests_are_named() -> None:
    with pytest.raises(NerfleetError, match="0 frames"):
        turntable(0)
    with pytest.raises(NerfleetError, match="radius"):
        turntable(4, radius=0.0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=7),
    st.sampled_from([0, 1, 2, 3]),
    st.booleans(),
    st.floats(0, 1),
)
def test_never_leaves_the_hull(xs: list[float], order: int, loop: bool, time: float) -> None:
    x = evaluate(path_of(xs, spline_order=order, loop=loop), time).position[0]
    assert min(xs) - 1e-9 <= x <= max(xs) + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=3, max_size=6), st.sampled_from([1, 2, 3]), st.booleans(), st.floats(0, 0.999))
def test_is_continuous(xs: list[float], order: int, loop: bool, time: float) -> None:
    path = path_of(xs, spline_order=order, loop=loop)
    step = evaluate(path, time + 1e-4).position[0] - evaluate(path, time).position[0]
    assert abs(step) <= 1e-4 * len(xs) * 10 + 1e-9
