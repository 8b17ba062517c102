"""Damaged transforms files: intrinsics, poses, splits, syntax, scene box (B20 to B34; see test_inputs.py)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.scenes import edit, write_cube_scene

from nerfleet.cli.info import info
from nerfleet.data import available_splits, load_scene
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Lens


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    return write_cube_scene(tmp_path / "cube")


def load(path: Path, **options: Any) -> Any:
    return load_scene(path, train_on_all=True, **options)


def drop_intrinsics(root: dict[str, Any]) -> None:
    for key in ("fl_x", "fl_y", "cx", "cy", "w", "h"):
        root.pop(key, None)


def test_b20_only_camera_angle_x(cube: Path) -> None:
    edit(cube, drop_intrinsics)
    edit(cube, lambda root: root.update(camera_angle_x=math.radians(60)))
    scene = load(cube, strict=True)
    focal = 16 / math.tan(math.radians(30))
    torch.testing.assert_close(scene.cameras.focal, torch.full((8, 2), focal))
    assert scene.cameras.principal.tolist() == [[16, 12]] * 8


def test_b20_no_focal_length(cube: Path) -> None:
    edit(cube, drop_intrinsics)
    with pytest.raises(NerfleetError, match="no focal length: give fl_x, camera_angle_x or x_fov"):
        load(cube)


@pytest.mark.parametrize("key, value", [("fl_x", 0), ("fl_x", "30"), ("fl_x", math.nan), ("camera_angle_x", 3.5), ("x_fov", 180)])
def test_b20_impossible_focal_length(cube: Path, key: str, value: object) -> None:
    edit(cube, drop_intrinsics)
    edit(cube, lambda root: root.update({key: value}))
    with pytest.raises(NerfleetError, match=f"0001.png, {key}"):
        load(cube)


def test_b21_intrinsics_per_frame(cube: Path) -> None:
    def move(root: dict[str, Any]) -> None:
        keys = {key: root.pop(key) for key in ("fl_x", "fl_y", "cx", "cy", "w", "h")}
        for i, frame in enumerate(root["frames"]):
            frame.update(keys, fl_x=30.0 + i)

    scene = load(edit(cube, move), strict=True)
    assert scene.cameras.focal.tolist() == [[30 + i, 30] for i in range(8)]
    edit(cube, lambda root: [root["frames"][i].pop(key) for i in range(4) for key in ("fl_x", "fl_y")])
    scene = load(cube)
    assert len(scene) == 4
    assert {s.reason.split(":")[0] for s in scene.skipped} == {"no focal length"}


def test_b24_fisheye_by_name(cube: Path) -> None:
    edit(cube, lambda root: root.update(camera_model="OPENCV_FISHEYE", k1=0.1, k2=-0.02, k3=0.003, k4=-0.0004))
    scene = load(cube, strict=True)
    assert (scene.cameras.lens == Lens.OPENCV_FISHEYE).all()
    torch.testing.assert_close(scene.cameras.lens_params[0], torch.tensor([0.1, -0.02, 0.003, -0.0004, 0, 0, 0]))
    edit(cube, lambda root: (root.pop("camera_model"), root.update(is_fisheye=True)))
    assert (load(cube, strict=True).cameras.lens == Lens.OPENCV_FISHEYE).all()


def test_b24_fisheye_coefficients_without_a_fisheye(cube: Path) -> None:
    edit(cube, lambda root: root.update(k1=0.01, k3=130.9, k4=1.0))
    scene = load(cube)
    assert (scene.cameras.lens == Lens.OPENCV).all()
    assert scene.cameras.lens_params[0, 1:].tolist() == [0] * 6
    assert scene.warnings[0].startswith("k3 and k4 are ignored")


def test_b24_lens_that_cannot_be_inverted(cube: Path) -> None:
    edit(cube, lambda root: root.update(k1=-130.9))
    with pytest.raises(NerfleetError, match="images/0001.png: its lens cannot be inverted"):
        load(cube)


@pytest.mark.parametrize("key", ["ftheta_p0", "latlong", "equirectangular", "orthographic", "rolling_shutter"])
def test_b24_what_is_not_read_yet_is_named(cube: Path, key: str) -> None:
    value: object = [0.0, 0.0, 0.1, 0.0] if key == "rolling_shutter" else True
    with pytest.raises(NerfleetError, match=f"{key}.*not supported yet"):
        load(edit(cube, lambda root: root.update({key: value})))


@pytest.mark.parametrize("value", [True, 1.5, "global"])
def test_b24_rolling_shutter_that_is_no_list(cube: Path, value: object) -> None:
    with pytest.raises(NerfleetError, match="rolling_shutter: is not supported yet"):
        load(edit(cube, lambda root: root.update(rolling_shutter=value)))


def test_b24_unknown_camera_model(cube: Path) -> None:
    with pytest.raises(NerfleetError, match="camera_model: THIN_PRISM_FISHEYE is not supported yet"):
        load(edit(cube, lambda root: root.update(camera_model="THIN_PRISM_FISHEYE")))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_b25_pose_with_nan(cube: Path, value: float) -> None:
    edit(cube, lambda root: root["frames"][4]["transform_matrix"][1].__setitem__(2, value))
    assert ("NaN" in cube.read_text()) or ("Infinity" in cube.read_text())
    scene = load(cube)
    assert [(s.frame, s.reason) for s in scene.skipped] == [("images/0005.png", "transform_matrix holds NaN or infinity")]
    assert scene.cameras.camera_to_world.isfinite().all()
    with pytest.raises(NerfleetError, match="images/0005.png: transform_matrix holds NaN"):
        load(cube, strict=True)


@pytest.mark.parametrize(
    "matrix, reason",
    [
        (None, "has no transform_matrix"),
        ([[1, 2], [3, 4]], "has shape"),
        ([["a"] * 4] * 4, "not a matrix of numbers"),
        ([[1, 0, 0, 0], [2, 0], [0], []], "not a matrix of numbers"),
        (np.zeros((4, 4)).tolist(), "cannot be inverted"),
    ],
)
def test_b25_pose_of_another_kind(cube: Path, matrix: object, reason: str) -> None:
    edit(cube, lambda root: root["frames"][4].update(transform_matrix=matrix))
    scene = load(cube)
    assert len(scene) == 7
    assert reason in scene.skipped[0].reason


@pytest.mark.parametrize("n", [1, 2])
def test_b27_few_frames(tmp_path: Path, n: int) -> None:
    path = write_cube_scene(tmp_path / "cube", n)
    edit(path, lambda root: root.update(sharpness_discard_threshold=0.5))
    edit(path, lambda root: [frame.update(sharpness=20.0) for frame in root["frames"]])
    scene = load_scene(path)
    assert len(scene) == n
    assert scene.notes == ("no held-out views: there is no test or val split and fewer than 8 images",)
    assert available_splits(path) == ("train",)
    with pytest.raises(NerfleetError, match=f"no test or val split and only {n} images"):
        load_scene(path, "test")


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"frames": []}', "frames: is empty"),
        ('{"fl_x": 3}', "has no key frames"),
        ("[1, 2]", "holds a list, not an object"),
        ('{"frames": [1]}', "is not a list of objects"),
        ('{"frames": {"a": 1}}', "is not a list of objects"),
        ('{"a": 1,\n "b": }', "line 2: Expecting value"),
        ("", "line 1: Expecting value"),
    ],
)
def test_b28_nothing_to_read(cube: Path, text: str, message: str) -> None:
    cube.write_text(text)
    with pytest.raises(NerfleetError, match=message) as caught:
        load(cube)
    assert "\n" not in str(caught.value)
    assert "transforms.json" in str(caught.value)


def test_b28_no_scene(tmp_path: Path) -> None:
    with pytest.raises(NerfleetError, match="does not exist"):
        load(tmp_path / "nothing")
    with pytest.raises(NerfleetError, match="holds no transforms.json"):
        load(tmp_path)
    (tmp_path / "cameras.json").write_text("{}")
    with pytest.raises(NerfleetError, match=r"name the file itself \(cameras.json\)"):
        load(tmp_path)
    (tmp_path / "poses_bounds.npy").write_bytes(b"")
    with pytest.raises(NerfleetError, match="LLFF scene, which is not read yet"):
        load(tmp_path)
    (tmp_path / "sparse/0").mkdir(parents=True)
    (tmp_path / "sparse/0/cameras.bin").write_bytes(b"")
    with pytest.raises(NerfleetError, match="COLMAP model, which is not read yet"):
        load(tmp_path)


def split_files(cube: Path, **splits: list[int]) -> Path:
    root = json.loads(cube.read_text())
    cube.unlink()
    for split, indices in splits.items():
        frames = [root["frames"][i] for i in indices]
        cube.with_name(f"transforms_{split}.json").write_text(json.dumps({**root, "frames": frames}))
    return cube.parent


def test_b29_test_split_absent_val_used(cube: Path) -> None:
    folder = split_files(cube, train=[0, 1, 2, 3, 4], val=[5, 6])
    scene = load_scene(folder, "test")
    assert scene.split == "val"
    assert scene.names == ("images/0006.png", "images/0007.png")
    assert scene.warnings == ("there is no test split: the val split is used",)
    assert available_splits(folder) == ("train", "val")


def test_b29_every_eighth_without_any_split(cube: Path) -> None:
    assert load_scene(cube, "test").names == ("images/0001.png",)
    assert len(load_scene(cube)) == 7
    assert len(load_scene(cube, train_on_all=True)) == 8
    assert available_splits(cube) == ("train", "test")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_b31_byte_order_marks(cube: Path, encoding: str) -> None:
    cube.write_text(cube.read_text(encoding="utf-8"), encoding=encoding)
    assert len(load(cube, strict=True)) == 8


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero, a file without an end")
def test_b28_an_endless_file_is_not_read() -> None:
    with pytest.raises(NerfleetError, match="/dev/zero: is not a plain file"):
        load_scene("/dev/zero")


def test_b31_unknown_encoding(cube: Path) -> None:
    cube.write_bytes(b'{"frames": "\xff\xfa\xc3\x28"}')
    with pytest.raises(NerfleetError, match="neither UTF-8 nor UTF-16"):
        load(cube)


def test_b31_comments(cube: Path) -> None:
    text = cube.read_text().replace("{", '{ // "a": {\n /* two\n lines */ "note": "http://host/*x*/", ', 1)
    cube.write_text(text)
    assert len(load(cube, strict=True)) == 8
    cube.write_text("/* 1\n 2 */ {\n// 3\n ]")
    with pytest.raises(NerfleetError, match="line 4"):
        load(cube)


@pytest.mark.parametrize("digits, expected", [(400, "fl_x: .* is not a finite number"), (5000, "a number that is too long")])
def test_b31_endless_number(cube: Path, digits: int, expected: str) -> None:
    cube.write_text(cube.read_text().replace('"fl_x": 30.0', '"fl_x": ' + "9" * digits))
    with pytest.raises(NerfleetError, match=expected):
        load(cube)


@pytest.mark.parametrize("value, nearest", [(3, 4), (0, 1), (-1, 1), (256, 128), (0.5, 1), (20, 16)])
def test_b32_illegal_aabb_scale(cube: Path, value: float, nearest: int) -> None:
    with pytest.raises(NerfleetError, match=f"aabb_scale: {value} is not a power of two from 1 to 128: use {nearest}"):
        load(edit(cube, lambda root: root.update(aabb_scale=value)))


@pytest.mark.parametrize("value", ["16", True, None, [16]])
def test_b32_aabb_scale_of_another_type(cube: Path, value: object) -> None:
    with pytest.raises(NerfleetError, match="aabb_scale.*is not a finite number"):
        load(edit(cube, lambda root: root.update(aabb_scale=value)))


@pytest.mark.parametrize("value", [16.0, 16, 1, 128])
def test_b32_legal_aabb_scale(cube: Path, value: float) -> None:
    assert load(edit(cube, lambda root: root.update(aabb_scale=value))).aabb_scale == value


def test_b33_object_outside_the_box(cube: Path) -> None:
    before = info(cube)
    assert before["rays_in_box"] > 0.8
    assert before["warnings"] == []

    def shift(root: dict[str, Any]) -> None:
        for frame in root["frames"]:
            for row in frame["transform_matrix"][:3]:
                row[3] += 3

    report = info(edit(cube, shift))
    assert report["rays_in_box"] < 0.25
    assert "camera rays meet the scene box" in report["warnings"][0]
    assert "camera rays meet the scene box" in load(cube).warnings[0]


def test_b34_transparent_photographs_at_a_large_scale(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "cube", rgba=True)
    scene = load(edit(path, lambda root: root.update(aabb_scale=16)), strict=True)
    assert scene.has_alpha
    assert scene.background is None
    edit(path, lambda root: root.update(white_transparent=True))
    assert load(path).background == (1, 1, 1, 1)
