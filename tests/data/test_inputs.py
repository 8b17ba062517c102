"""Inputs that broke programs of this kind, one damage per test, on a scene of 8 photographs of a cube.

Numbers are those of the collection that the project's issues refer to: B1 to B18 (files and images) here, B20 to B34 in
test_inputs_cameras.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support.scenes import HEIGHT, WIDTH, cube_photograph, cube_pose, edit, write_cube_scene

from nerfleet.cli.info import info
from nerfleet.data import MASKED_PIXEL, load_scene
from nerfleet.errors import NerfleetError


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


@pytest.mark.parametrize("downscale", [25, 10**30])
def test_b1_nothing_left_after_downscale(cube: Path, downscale: int) -> None:
    with pytest.raises(NerfleetError, match=f"0001.png: nothing is left of it at --downscale {downscale}"):
        load(cube, downscale=downscale)


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


def test_b10_a_large_photograph_is_not_warned_of(cube: Path, recwarn: pytest.WarningsRecorder) -> None:
    Image.new("1", (12_000, 8_000)).save(cube.parent / "images/0002.png")
    assert info(cube)["sizes"]["12000x8000"] == 1
    assert not recwarn.list


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
