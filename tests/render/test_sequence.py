"""Many pictures: files, layers, and the same on several processes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support.models import ball_model, front_camera, uniform_model

from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Cameras
from nerfleet.geometry.poses import SceneTransform
from nerfleet.nn.model import Model
from nerfleet.render.camera_path import turntable
from nerfleet.render.depth_of_field import ThinLens
from nerfleet.render.develop import Look
from nerfleet.render.pictures import write_exr
from nerfleet.render.renderer import render_image
from nerfleet.render.sequence import INTERNAL, FrameRenderer, Job, Shot, render_pictures, render_video
from nerfleet.render.several_gpus import devices, render_pictures_on, render_video_on

SIZE = (24, 18)


@pytest.fixture(scope="module")
def shot() -> Shot:
    return Shot(turntable(5, (0.5, 0.5, 0.5), resolution=SIZE), tuple(f"f{i}" for i in range(5)))


def load() -> Model:
    """In this module, so that other processes find it."""
    return ball_model(radius=0.4)


def load_nothing() -> Model:
    raise NerfleetError("ball.ingp", "is gone", "look elsewhere")


def away() -> Cameras:
    camera = front_camera(*SIZE)
    camera.camera_to_world[0, 2, 3] = 5.0
    return camera


def test_png_files(shot: Shot, tmp_path: Path) -> None:
    model, done = load(), []
    job = Job("png", depth=True, normals=True, depth_unit=1e-3)
    assert render_pictures(model, shot, job, tmp_path / "out", done.append)
    assert done == [1, 2, 3, 4, 5]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(f"f{i}{part}.png" for i in range(5) for part in ("", "_depth", "_normals"))
    rendered = render_image(model, shot.cameras[3:4])
    depth = np.asarray(Image.open(tmp_path / "out" / "f3_depth.png"))
    assert np.abs(depth * 1e-3 - rendered.depth.numpy()).max() < 6e-4
    assert np.asarray(Image.open(tmp_path / "out" / "f3.png")).shape == (SIZE[1], SIZE[0], 4)


def test_exr_reads_back(shot: Shot, tmp_path: Path) -> None:
    openexr = pytest.importorskip("OpenEXR", reason="OpenEXR is not installed")
    model = load()
    transform = SceneTransform(0.25, (0.1, 0.2, 0.3))
    job = Job("exr", depth=True, normals=True, transform=transform)
    assert render_pictures(model, shot, job, tmp_path, lambda _: None, indices=[2])
    assert [p.name for p in tmp_path.iterdir()] == ["f2.exr"]
    with openexr.File(str(tmp_path / "f2.exr"), separate_channels=True) as file:
        channels = {name: channel.pixels for name, channel in file.channels().items()}
    assert set(channels) == {"R", "G", "B", "A", "Z", "N.X", "N.Y", "N.Z"}
    assert channels["R"].dtype == channels["N.X"].dtype == np.float16
    assert channels["Z"].dtype == np.float32
    rendered = render_image(model, shot.cameras[2:3])
    assert np.allclose(channels["Z"], rendered.depth / 0.25)
    linear = rendered.rgba_linear().numpy()
    for i, name in enumerate("RGBA"):
        assert np.allclose(channels[name], linear[..., i], atol=1e-3), name
    normals = np.stack([channels[f"N.{axis}"] for axis in "XYZ"], -1).astype(np.float32)
    covered = channels["A"] >= 0.5
    assert np.allclose(np.linalg.norm(normals[covered], axis=-1), 1, atol=1e-2)
    assert not normals[channels["A"] < 0.4].any()
    view = transform.directions_to_file(shot.cameras.camera_to_world[2, :, 2])
    assert (normals[covered] @ view.numpy() < 0.2).mean() > 0.9, "towards the camera"


def test_a_place_that_cannot_be_written_is_named(shot: Shot, tmp_path: Path) -> None:
    pytest.importorskip("OpenEXR", reason="OpenEXR is not installed")
    (tmp_path / "file").write_text("mine")
    for kind in ("png", "exr"):
        with pytest.raises(NerfleetError, match="file"):
            render_pictures(uniform_model(0.0), shot, Job(kind), tmp_path / "file" / "below", lambda _: None)  # type: ignore[arg-type]
    (tmp_path / "a.exr").mkdir()
    with pytest.raises(NerfleetError, match=r"a\.exr"):
        write_exr(tmp_path / "a.exr", np.zeros((4, 4, 4), np.float16))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.exr", "file"]


def test_lenses_belong_to_their_pictures(shot: Shot) -> None:
    lenses = (ThinLens(), ThinLens(0.3, 0.5), ThinLens(), ThinLens(), ThinLens())
    blurred = FrameRenderer(load(), Shot(shot.cameras, shot.names, lenses), Job("png"))
    sharp = FrameRenderer(load(), shot, Job("png"))
    assert torch.equal(blurred.layers(0)["rgba"], sharp.layers(0)["rgba"])
    assert not torch.equal(blurred.layers(1)["rgba"], sharp.layers(1)["rgba"])


@pytest.mark.parametrize("show", ["depth", "normals"])
def test_videos_of_depth_and_normals(show: Literal["depth", "normals"]) -> None:
    shot = Shot(front_camera(*SIZE), ("a",))
    luma = FrameRenderer(load(), shot, Job("video", show)).layers(0)["planes"][: SIZE[1]].float()
    middle, corner = float(luma[SIZE[1] // 2, SIZE[0] // 2]), float(luma[0, 0])
    assert corner == 16, "nothing is black"
    if show == "normals":
        assert middle > 40
        return
    seen = render_image(load(), shot.cameras)
    alpha, depth = (float(values[SIZE[1] // 2, SIZE[0] // 2]) for values in (seen.alpha, seen.depth))
    assert middle == pytest.approx(16 + 219 * alpha * (1 - depth / (2 * 1.5)), abs=3), "the box's centre is 1.5 away"


def test_empty_pictures_are_noticed(tmp_path: Path) -> None:
    assert not render_pictures(load(), Shot(away(), ("a",)), Job("png"), tmp_path, lambda _: None)


@pytest.mark.slow
def test_processes_write_the_same(shot: Shot, tmp_path: Path) -> None:
    """Videos and pictures of two processes against those of one."""
    pytest.importorskip("av", reason="PyAV is not installed")
    job, names, done = Job("video", look=Look((0.2, 0.3, 0.4))), devices("cpu", 2), []
    assert render_video(load(), shot, job, tmp_path / "one.mp4", lambda _: None)
    assert render_video_on(names, load, shot, job, tmp_path / "two.mp4", done.append)
    assert done == [1, 2, 3, 4, 5]
    assert (tmp_path / "one.mp4").read_bytes() == (tmp_path / "two.mp4").read_bytes()
    render_pictures(load(), shot, Job("png"), tmp_path / "one", lambda _: None)
    assert render_pictures_on(names, load, shot, Job("png"), tmp_path / "two", done.append)
    assert sorted(done[5:]) == [1, 2, 3, 4, 5]
    for name in shot.names:
        assert (tmp_path / "one" / f"{name}.png").read_bytes() == (tmp_path / "two" / f"{name}.png").read_bytes()


@pytest.mark.slow
def test_an_error_in_a_process_is_one_line(shot: Shot, tmp_path: Path) -> None:
    render = partial(render_video_on, devices("cpu", 2), load_nothing, shot, Job("video"), tmp_path / "a.mp4", lambda _: None)
    with pytest.raises(NerfleetError, match=r"ball\.ingp: is gone: look elsewhere"):
        render()
    assert list(tmp_path.iterdir()) == []


def test_more_gpus_than_there_are() -> None:
    with pytest.raises(NerfleetError, match="--gpus 0"):
        devices("cpu", 0)
    assert devices("cpu", 3) == ["cpu"] * 3
    with pytest.raises(NerfleetError, match=f"there are {torch.cuda.device_count()} GPUs"):
        devices("cuda", torch.cuda.device_count() + 1)


def test_internal_space_is_the_default() -> None:
    point = torch.tensor([0.1, 0.2, 0.3])
    assert torch.equal(INTERNAL.points_to_file(point), point)
    assert torch.equal(INTERNAL.directions_to_file(point), point)
