"""Inputs that broke programs of this kind, one damage per test, on a scene of 8 photographs of a cube.

Numbers B1 to B34 are those of the collection that the project's issues refer to.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from nerfleet.cli.info import info
from nerfleet.data import MASKED_PIXEL, available_splits, load_scene
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Lens
from tests.support.scenes import HEIGHT, WIDTH, cube_photograph, cube_pose, edit, write_cube_scene


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    return write_cube_scene(tmp_path / "cube")


def load(path: Path, **options: Any) -> Any:
    return load_scene(path, train_on_all=True, **options)


def rename(path: Path, index: int, file_path: str) -> Path:
    return edit(path, lambda root: root["frames"][index].update(file_path=file_path))


def assert_whole(scene: Any, n: int = 8) -> None:
    """All n photographs are there, and look like the cube."""
    assert len(scene) == n
    assert not scene.skipped
    for i in range(n):
        expected = cube_photograph(cube_pose(2 * np.pi * i / 8))[..., :3]
        assert (scene.image(i)[..., :3].numpy() == expected).all()


def test_undamaged(cube: Path) -> None:
    scene = load(cube, strict=True)
    assert_whole(scene)
    assert scene.names == tuple(f"images/{i + 1:04d}.png" for i in range(8))
    assert (scene.pixels[:, 3] == 255).all()
    assert not scene.has_alpha
    assert scene.warnings == ()
    assert scene.cameras.resolution.tolist() == [[WIDTH, HEIGHT]] * 8


def test_b1_mixed_sizes(cube: Path) -> None:
    Image.fromarray(np.full((32, 24, 3), 7, np.uint8)).save(cube.parent / "images/0004.png")
    edit(cube, lambda root: [root.pop(key) for key in ("w", "h", "cx", "cy")])
    scene = load(cube)
    assert scene.cameras.resolution[3].tolist() == [24, 32]
    assert scene.image(3).shape == (32, 24, 4)
    assert (scene.image(3)[..., :3] == 7).all()
    assert scene.cameras.principal[3].tolist() == [12, 16]


def test_b1_odd_size_downscaled(cube: Path) -> None:
    Image.fromarray(np.full((24, 33, 3), 9, np.uint8)).save(cube.parent / "images/0001.png")
    scene = load(cube, downscale=2)
    assert scene.cameras.resolution.tolist() == [[16, 12]] * 8
    assert (scene.image(0)[..., :3] == 9).all()
    assert scene.pixel_offsets[-1] == len(scene.pixels) == 8 * 16 * 12


@pytest.mark.parametrize("sharpness", [True, False])
def test_b2_missing_image(cube: Path, sharpness: bool) -> None:
    (cube.parent / "images/0003.png").unlink()
    if sharpness:
        edit(cube, lambda root: [frame.update(sharpness=30.0) for frame in root["frames"]])
    scene = load(cube)
    assert len(scene) == 7
    assert [(s.frame, s.reason) for s in scene.skipped] == [("images/0003.png", "image is missing")]
    assert scene.warnings == ("1 of 8 listed images are missing (images/0003.png)",)
    with pytest.raises(NerfleetError, match=r"1 of 8 listed images are missing \(images/0003.png\)"):
        load(cube, strict=True)


def test_b3_no_extension(cube: Path) -> None:
    rename(cube, 0, "images/0001")
    assert_whole(load(cube, strict=True))
    Image.fromarray(np.zeros((HEIGHT, WIDTH, 3), np.uint8)).save(cube.parent / "images/0001.jpg")
    scene = load(cube)
    assert_whole(scene)
    assert "match several files" in scene.warnings[0]
    assert "0001.jpg" in scene.warnings[0]


def test_b3_upper_case_and_dots_in_names(cube: Path) -> None:
    (cube.parent / "images/0001.png").rename(cube.parent / "images/t_0.5.PNG")
    rename(cube, 0, "images/t_0.5")
    scene = load(cube, strict=True)
    assert len(scene) == 8


@pytest.mark.parametrize("file_path", [".\\images\\0001.png", "./..\\cube\\images/0001.png"])
def test_b4_backslashes(cube: Path, file_path: str) -> None:
    rename(cube, 0, file_path)
    scene = load(cube, strict=True)
    assert len(scene) == 8
    assert (scene.image(scene.names.index(file_path))[..., :3].numpy() == cube_photograph(cube_pose(0))[..., :3]).all()


def test_b4_literal_backslash_wins(cube: Path) -> None:
    Image.fromarray(np.full((HEIGHT, WIDTH, 3), 5, np.uint8)).save(cube.parent / "images\\0001.png")
    scene = load(rename(cube, 0, "images\\0001.png"))
    assert (scene.image(scene.names.index("images\\0001.png"))[..., :3] == 5).all()


@pytest.mark.parametrize("prefix", ["/home/nobody/set/", "C:\\Users\\nobody\\", "D:/"])
def test_b6_foreign_absolute_path(cube: Path, prefix: str) -> None:
    rename(cube, 0, f"{prefix}images/0001.png")
    scene = load(cube)
    assert len(scene) == 8
    assert "looked up beside the transforms file" in scene.warnings[0]
    assert "0001.png" in scene.warnings[0]


def test_b7_non_ascii(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "场景_é")
    (path.parent / "images/0001.png").rename(path.parent / "images/图 1.png")
    scene = load(rename(path, 0, "images/图 1.png"), strict=True)
    assert len(scene) == 8
    assert scene.name == "场景_é"
    (path.parent / "images/图 1.png").unlink()
    assert "images/图 1.png" in load(path).warnings[0]


def test_b9_empty_file(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "cube", extension="jpg")
    (path.parent / "images/0002.jpg").write_bytes(b"")
    scene = load(path)
    assert len(scene) == 7
    assert [(s.frame, s.reason) for s in scene.skipped] == [("images/0002.jpg", "the file is empty")]
    with pytest.raises(NerfleetError, match="images/0002.jpg: the file is empty"):
        load(path, strict=True)


@pytest.mark.parametrize("extension", ["jpg", "png", "webp", "bmp"])
@pytest.mark.parametrize("simplejpeg", [True, False])
def test_b10_truncated(tmp_path: Path, extension: str, simplejpeg: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not simplejpeg:
        monkeypatch.setattr("nerfleet.data.images._decode_jpeg", lambda path, out: False)
    path = write_cube_scene(tmp_path / "cube", extension=extension)
    whole = load(path)
    file = path.parent / f"images/0002.{extension}"
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * 0.6)])
    scene = load(path)
    assert len(scene) == 7
    assert scene.skipped[0].frame == f"images/0002.{extension}"
    assert torch.equal(torch.cat([scene.image(i) for i in range(7)]), torch.cat([whole.image(i) for i in (0, 2, 3, 4, 5, 6, 7)]))
    assert scene.pixel_offsets[-1] == len(scene.pixels)
    with pytest.raises(NerfleetError, match=f"images/0002.{extension}"):
        load(path, strict=True)


def test_b10_info_finds_truncated_files_too(cube: Path) -> None:
    file = cube.parent / "images/0002.png"
    file.write_bytes(file.read_bytes()[:-40])
    report = info(cube)
    assert report["n_used"] == 7
    assert report["skipped"][0]["frame"] == "images/0002.png"


def test_b10_not_an_image(cube: Path) -> None:
    (cube.parent / "images/0002.png").write_text("<html>404</html>")
    scene = load(cube)
    assert scene.skipped[0].reason == "is not an image of a known format"


def test_b10_every_image_damaged(cube: Path) -> None:
    for file in (cube.parent / "images").iterdir():
        file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(NerfleetError, match=r"no frame can be used.*images/000\d.png"):
        load(cube)


@pytest.mark.parametrize("mode", ["L", "LA", "I;16", "1", "P"])
def test_b12_grey_and_palette(cube: Path, mode: str) -> None:
    grey = cube_photograph(cube_pose(0))[..., 0]
    expected = np.dstack([grey] * 3)
    file = cube.parent / "images/0001.png"
    if mode == "I;16":
        Image.fromarray(grey.astype(np.uint16) * 257 + 100).save(file)  # v / 257 rounds back
    elif mode == "1":
        Image.fromarray(grey > 128).save(file)
        expected = np.dstack([np.where(grey > 128, 255, 0)] * 3)
    else:
        Image.fromarray(grey).convert(mode).save(file)
    scene = load(cube, strict=True)
    assert (scene.image(0)[..., :3].numpy() == expected).all()
    assert (scene.image(0)[..., 3] == 255).all()


def test_b12_colour_palette_with_transparency(cube: Path) -> None:
    rgba = cube_photograph(cube_pose(0))
    image = Image.fromarray(rgba[..., :3].copy()).quantize(16)
    transparent = image.getpixel((0, 0))
    image.save(cube.parent / "images/0001.png", transparency=transparent)
    scene = load(cube)
    assert scene.has_alpha
    assert (scene.image(0)[..., 3].numpy() == rgba[..., 3]).all()
    hit = rgba[..., 3] > 0
    assert (scene.image(0).numpy()[hit, :3] == rgba[hit, :3]).all()


def test_b13_cmyk_is_not_rgba(cube: Path) -> None:
    rgb = cube_photograph(cube_pose(0))[..., :3].copy()
    Image.fromarray(rgb).convert("CMYK").save(cube.parent / "images/0001.jpg", quality=100, subsampling=0)
    scene = load(rename(cube, 0, "images/0001.jpg"))
    error = scene.image(0)[..., :3].int() - torch.from_numpy(rgb).int()
    assert error.abs().float().mean() < 4
    assert not scene.has_alpha


def test_b16_alpha_is_kept_apart_from_masks(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "cube", rgba=True)
    scene = load(path, strict=True)
    assert scene.has_alpha
    expected = cube_photograph(cube_pose(0))
    assert (scene.image(0).numpy() == expected).all()
    assert not any("mask" in note for note in scene.notes)


def write_mask(path: Path, ignored: np.ndarray) -> None:
    Image.fromarray(np.where(ignored, 255, 0).astype(np.uint8)).save(path)


def masked(scene: Any, index: int) -> np.ndarray:
    return (scene.image(index).numpy() == MASKED_PIXEL).all(-1)


@pytest.fixture
def left_half() -> np.ndarray:
    return np.broadcast_to(np.arange(WIDTH) < WIDTH // 2, (HEIGHT, WIDTH)).copy()


def test_b17_dynamic_mask(cube: Path, left_half: np.ndarray) -> None:
    write_mask(cube.parent / "images/dynamic_mask_0001.png", left_half)
    scene = load(cube, strict=True)
    assert (masked(scene, 0) == left_half).all()
    assert not masked(scene, 1).any()
    assert not scene.has_alpha
    assert "1 masks applied, 6.2% of the pixels ignored" in scene.notes


def test_b17_mask_is_reduced_with_any(cube: Path) -> None:
    ignored = np.zeros((HEIGHT, WIDTH), bool)
    ignored[5, 9] = True
    write_mask(cube.parent / "images/dynamic_mask_0001.png", ignored)
    reduced = masked(load(cube, downscale=4), 0)
    assert reduced[1, 2]
    assert reduced.sum() == 1


def test_b17_mask_of_another_size(cube: Path) -> None:
    write_mask(cube.parent / "images/dynamic_mask_0001.png", np.zeros((10, 10), bool))
    with pytest.raises(NerfleetError, match=r"dynamic_mask_0001.png: is 10x10, its photograph 0001.png is 32x24: make both"):
        load(cube)


@pytest.mark.parametrize("name", ["dynamic_mask_0001.jpg", "dynamic_mask_0001.png.png"])
def test_b17_misnamed_mask_is_told(cube: Path, left_half: np.ndarray, name: str) -> None:
    write_mask(cube.parent / "images" / name, left_half)
    scene = load(cube)
    assert not masked(scene, 0).any()
    assert scene.warnings == (f"{name} is not used: a mask is a PNG named dynamic_mask_0001.png",)


def test_b17_all_white_mask(cube: Path) -> None:
    write_mask(cube.parent / "images/dynamic_mask_0001.png", np.ones((HEIGHT, WIDTH), bool))
    scene = load(cube)
    assert masked(scene, 0).all()
    assert scene.warnings == ("1 of 8 images are masked completely and train nothing (images/0001.png)",)


def test_b18_mask_path_is_zero_where_ignored(cube: Path, left_half: np.ndarray) -> None:
    (cube.parent / "masks").mkdir()
    write_mask(cube.parent / "masks/0001.png", ~left_half)
    edit(cube, lambda root: root["frames"][0].update(mask_path="masks/0001.png"))
    assert (masked(load(cube, strict=True), 0) == left_half).all()
    report = info(cube)
    assert report["n_masks"] == 1
    assert report["masked"] == pytest.approx(0.5 / 8)
    (cube.parent / "masks/0001.png").unlink()
    with pytest.raises(NerfleetError, match="mask_path masks/0001.png"):
        load(cube)


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
    assert_whole(load(cube, strict=True))


def test_b31_unknown_encoding(cube: Path) -> None:
    cube.write_bytes(b'{"frames": "\xff\xfa\xc3\x28"}')
    with pytest.raises(NerfleetError, match="neither UTF-8 nor UTF-16"):
        load(cube)


def test_b31_comments(cube: Path) -> None:
    text = cube.read_text().replace("{", '{ // "a": {\n /* two\n lines */ "note": "http://host/*x*/", ', 1)
    cube.write_text(text)
    assert_whole(load(cube, strict=True))
    cube.write_text("/* 1\n 2 */ {\n// 3\n ]")
    with pytest.raises(NerfleetError, match="line 4"):
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
