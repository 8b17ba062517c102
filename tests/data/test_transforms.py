"""Keys of transforms.json and the choice of views, on the cube scene."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support.scenes import HEIGHT, WIDTH, cube_photograph, cube_pose, edit, write_cube_scene

from nerfleet.data import available_splits, load_scene
from nerfleet.data.progress import progress_bar
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import project


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    return write_cube_scene(tmp_path / "cube")


def load(path: Path, **options: Any) -> Any:
    return load_scene(path, train_on_all=True, **options)


def test_poses_agree_with_the_pictures(cube: Path) -> None:
    """The centre of the cube's top face projects onto a pixel of that face's colour in every photograph."""
    scene = load(cube)
    point = scene.transform.points_to_internal(torch.tensor([0.0, 0.0, 1.0]))
    pixels, in_front = project(scene.cameras, torch.arange(8), point.repeat(8, 1))
    assert in_front.all()
    for i, (x, y) in enumerate(pixels.tolist()):
        assert scene.image(i)[int(y), int(x), :3].tolist() == [220, 40, 220]


def test_natural_order_and_n_frames(cube: Path) -> None:
    def number(root: dict[str, Any]) -> None:
        for i, frame in enumerate(root["frames"]):
            shutil.copy(cube.parent / frame["file_path"], cube.parent / f"r_{i + 5}.png")
            frame["file_path"] = f"r_{i + 5}"
        root["frames"].reverse()

    edit(cube, number)
    assert load(cube).names == tuple(f"r_{i}" for i in range(5, 13))
    scene = load(edit(cube, lambda root: root.update(n_frames=6)))
    assert scene.names == tuple(f"r_{i}" for i in range(5, 11))


def test_held_out_views_follow_plain_string_order(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "cube", 17)

    def number(root: dict[str, Any]) -> None:
        for i, frame in enumerate(root["frames"]):
            frame["file_path"] = f"images/{i + 1}.png"
            (path.parent / f"images/{i + 1:04d}.png").rename(path.parent / frame["file_path"])

    edit(path, number)
    plain = sorted(f"images/{i + 1}.png" for i in range(17))
    assert set(load_scene(path, "test").names) == {plain[0], plain[8], plain[16]}
    assert set(load_scene(path).names) == set(plain) - {plain[0], plain[8], plain[16]}


def test_listed_twice(cube: Path) -> None:
    edit(cube, lambda root: root["frames"].extend([dict(root["frames"][2]), {**root["frames"][3], "file_path": "./images/0002"}]))
    scene = load(cube)
    assert len(scene) == 8
    reasons = {s.frame: s.reason for s in scene.skipped}
    assert reasons["images/0003.png"] == "listed twice"
    assert len(reasons) == 2


def test_blurred_frames_are_dropped(cube: Path) -> None:
    edit(cube, lambda root: [frame.update(sharpness=3.0 if i == 5 else 30.0) for i, frame in enumerate(root["frames"])])
    assert len(load(cube)) == 8
    scene = load(edit(cube, lambda root: root.update(sharpness_discard_threshold=0.5)))
    assert [s.frame for s in scene.skipped] == ["images/0006.png"]
    assert len(scene) == 7


def test_scale_and_offset(cube: Path) -> None:
    edit(cube, lambda root: root.update(scale=0.1, offset=[0.1, 0.2, 0.3]))
    position = cube_pose(0.0)[:3, 3] * 0.1 + [0.1, 0.2, 0.3]
    expected = torch.tensor(position[[1, 2, 0]], dtype=torch.float32)
    torch.testing.assert_close(load(cube).cameras.camera_to_world[0, :, 3], expected)
    edit(cube, lambda root: root.update(offset=0.5))
    assert load(cube).transform.offset == (0.5, 0.5, 0.5)


def test_aabb_overrides_scale_and_offset(cube: Path) -> None:
    scene = load(
        edit(cube, lambda root: root.update(scale=9, aabb=[[-1, -2, 0], [1, 3, 1]], render_aabb=[[0, 0, 0], [1, 1, 0.5]]))
    )
    assert scene.transform.scale == pytest.approx(0.2)
    assert scene.transform.offset == pytest.approx((0.5, 0.4, 0.4))
    assert scene.render_aabb.tolist() == [[0, 0, 0], [1, 1, 0.5]]
    with pytest.raises(NerfleetError, match="aabb: has a maximum that is not above its minimum"):
        load(edit(cube, lambda root: root.update(aabb=[[0, 0, 0], [1, 0, 1]])))


def test_mitsuba(cube: Path) -> None:
    transform = load(edit(cube, lambda root: root.update(from_mitsuba=True))).transform
    assert (transform.scale, transform.offset, transform.from_mitsuba) == (0.66, (0.165, 0.165, 0.165), True)


def test_size_keys_normalise_the_centre_only(cube: Path) -> None:
    scene = load(edit(cube, lambda root: root.update(w=64.0, h=48.0, cx=30, cy=24)))
    assert scene.cameras.focal[0].tolist() == [30, 30]
    assert scene.cameras.principal[0].tolist() == [15, 12]
    assert "8 of 8 images have another size than w, h" in scene.warnings[0]


def test_downscale_keeps_rays(cube: Path) -> None:
    full, small = load(cube), load(cube, downscale=4)
    assert small.cameras.resolution.tolist() == [[8, 6]] * 8
    torch.testing.assert_close(small.cameras.focal, full.cameras.focal / 4)
    torch.testing.assert_close(small.cameras.principal, full.cameras.principal / 4)
    block = full.image(3)[4:8, 8:12, :3].float().mean((0, 1))
    assert (small.image(3)[1, 2, :3] - block).abs().max() <= 0.5
    with pytest.raises(NerfleetError, match="nothing is left of it at --downscale 25"):
        load(cube, downscale=25)


def test_colour_that_means_transparency(cube: Path) -> None:
    photograph = cube_photograph(cube_pose(0))
    photograph[photograph[..., 3] == 0] = 255
    Image.fromarray(photograph[..., :3].copy()).save(cube.parent / "images/0001.png")
    scene = load(edit(cube, lambda root: root.update(white_transparent=True)))
    assert scene.has_alpha
    assert ((scene.image(0)[..., 3] == 0).numpy() == (photograph == 255).all(-1)).all()


def test_separate_alpha(cube: Path) -> None:
    alpha = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    alpha[:, 5:, 0] = 200
    Image.fromarray(alpha).save(cube.parent / "images/0001.alpha.png")
    scene = load(cube)
    assert (scene.image(0)[..., 3].numpy() == alpha[..., 0]).all()
    assert (scene.image(1)[..., 3] == 255).all()


def add_depth(cube: Path, unit: float) -> np.ndarray:
    steps = (np.arange(HEIGHT * WIDTH, dtype=np.uint16) * 10).reshape(HEIGHT, WIDTH)
    (cube.parent / "depth").mkdir()
    Image.fromarray(steps).save(cube.parent / "depth/1.png")
    edit(cube, lambda root: (root["frames"][0].update(depth_path="depth/1.png"), root.update(integer_depth_scale=unit)))
    return steps


def test_depth_maps(cube: Path) -> None:
    steps = add_depth(cube, 0.001)
    scene = load(cube, strict=True)
    assert scene.depth.dtype == torch.float16
    expected = torch.from_numpy(steps.reshape(-1) * 0.001 * 0.33).half()
    torch.testing.assert_close(scene.depth[: scene.pixel_offsets[1]], expected, rtol=2e-3, atol=1e-6)
    assert not scene.depth[scene.pixel_offsets[1] :].any()
    small = load(cube, downscale=2)
    torch.testing.assert_close(
        small.depth[: 12 * 16], expected.reshape(HEIGHT, WIDTH)[1::2, 1::2].reshape(-1), rtol=2e-3, atol=1e-6
    )


def test_depth_maps_without_a_scale_are_told(cube: Path) -> None:
    add_depth(cube, -1)
    scene = load(cube)
    assert scene.depth is None
    assert "depth_path is ignored" in scene.warnings[0]


def split_scene(cube: Path) -> Path:
    root = json.loads(cube.read_text())
    cube.unlink()
    for split, span in (("train", slice(0, 5)), ("val", slice(5, 6)), ("test", slice(6, 8))):
        cube.with_name(f"transforms_{split}.json").write_text(json.dumps({**root, "frames": root["frames"][span]}))
    return cube.parent


def test_folder_of_splits(cube: Path) -> None:
    folder = split_scene(cube)
    assert available_splits(folder) == ("train", "val", "test")
    for path in (folder, folder / "transforms_train.json", folder / "transforms_test.json"):
        assert [len(load_scene(path, split, strict=True)) for split in ("train", "val", "test")] == [5, 1, 2]
    assert len(load(folder)) == 8
    assert load_scene(folder, "test").split == "test"
    with pytest.raises(NerfleetError, match="split trainval: is no split"):
        load_scene(folder, "trainval")


def test_split_files_share_the_training_file_s_space(cube: Path) -> None:
    folder = split_scene(cube)
    edit(folder / "transforms_train.json", lambda root: root.update(scale=0.1, aabb_scale=2))
    test = load_scene(folder, "test")
    assert (test.transform.scale, test.aabb_scale) == (0.1, 2)


def test_test_split_without_images_gives_way(cube: Path) -> None:
    folder = split_scene(cube)
    edit(folder / "transforms_test.json", lambda root: [f.update(file_path="gone") for f in root["frames"]])
    scene = load_scene(folder, "test")
    assert scene.split == "val"
    assert "transforms_test.json is not used: none of its 2 images exists" in scene.warnings[0]


def test_progress_and_workers(cube: Path) -> None:
    calls: list[tuple[int, int]] = []
    one = load(cube, workers=1, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(i, 8) for i in range(1, 9)]
    assert torch.equal(one.pixels, load(cube, workers=5).pixels)


def test_memory_that_cannot_be_had(cube: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nerfleet.data.decode.available_bytes", lambda: 1000)
    with pytest.raises(NerfleetError, match="the photographs need .* are free: use --downscale 2"):
        load(cube)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_bar(cube: Path, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    stderr.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", stderr)
    with progress_bar("cube") as progress:
        load(cube, progress=progress)
    assert ("8/8" in stderr.getvalue()) == terminal
