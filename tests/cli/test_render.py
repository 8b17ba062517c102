"""What ``nerfleet render`` can do beyond plain pictures, from the command line to the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support.models import ball_model
from tests.support.scenes import HEIGHT, WIDTH, write_cube_scene

from nerfleet.cli.main import main
from nerfleet.data import load_scene
from nerfleet.render.camera_path import CameraPath, Keyframe, read_camera_path, write_camera_path
from nerfleet.snapshot.document import write_document
from nerfleet.snapshot.write import snapshot_document

SMALL = ("--width", "24", "--height", "18", "--device", "cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model.ingp``, which knows the cameras of the scene ``cube``, and ``path.json``."""
    folder = tmp_path_factory.mktemp("render")
    write_cube_scene(folder / "cube", rgba=True)
    document = snapshot_document(ball_model(radius=0.4), scene=load_scene(folder / "cube", train_on_all=True), training_step=7)
    write_document(folder / "model.ingp", document)
    keyframes = tuple(Keyframe((0.0, 0.0, 0.0, 1.0), (0.5, 0.5, z), scale=1.0) for z in (-1.0, -0.8, -0.5))
    write_camera_path(folder / "path.json", CameraPath(keyframes, duration_seconds=2.0))
    return folder


def render(capsys: pytest.CaptureFixture[str], folder: Path, *words: object) -> tuple[dict[str, Any], str]:
    """(answer, what was said)"""
    code = main(["render", str(folder / "model.ingp"), *map(str, words), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out), err


def picture(file: str | Path) -> np.ndarray:
    with Image.open(file) as image:
        return np.asarray(image)


def test_the_orbit_follows_the_photographs(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The cube's cameras stand 4 away at height 1.5: 1.32 and 0.495 internal."""
    words = ("--turntable", 2, *SMALL, "--out", tmp_path / "a", "--save-path", tmp_path / "orbit.json", "--seconds", 7)
    found, _ = render(capsys, folder, *words)
    assert len(found["files"]) == found["n_pictures"] == 2
    path = read_camera_path(tmp_path / "orbit.json")
    assert (path.loop, path.duration_seconds) == (True, 7)
    assert path.keyframes[0].focus_distance == pytest.approx(0.33 * np.hypot(4, 1.5), rel=1e-3)
    assert path.keyframes[0].fov == pytest.approx(np.degrees(2 * np.arctan(HEIGHT / 2 / 30)), rel=1e-3)
    assert path.keyframes[0].position[1] == pytest.approx(0.5 + 0.33 * 1.5, abs=1e-3)
    again, _ = render(capsys, folder, "--camera-path", tmp_path / "orbit.json", "--frames", 2, *SMALL, "--out", tmp_path / "b")
    for first, second in zip(found["files"], again["files"]):
        assert np.array_equal(picture(first), picture(second))


def test_elevation_distance_and_field_of_view(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--turntable", 1, *SMALL, "--elevation", 60, "--distance", 2, "--fov", 30, "--save-path", tmp_path / "o.json", "--out", tmp_path / "a")
    render(capsys, folder, *words)
    keyframe = read_camera_path(tmp_path / "o.json").keyframes[0]
    distance = 2 * 0.33 * np.hypot(4, 1.5)
    assert keyframe.fov == 30
    assert keyframe.position[1] == pytest.approx(0.5 + distance * np.sin(np.radians(60)), rel=1e-3)


def test_a_range_of_frames_and_their_names(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--camera-path", folder / "path.json", "--frames", 6, *SMALL)
    whole, _ = render(capsys, folder, *words, "--out", tmp_path / "all")
    part, _ = render(capsys, folder, *words, "--frame-range", "2-3,5", "--names", "video_%03d.png", "--out", tmp_path / "part")
    assert [Path(file).name for file in part["files"]] == ["video_002.png", "video_003.png", "video_005.png"]
    for file, i in zip(part["files"], (2, 3, 5)):
        assert np.array_equal(picture(file), picture(whole["files"][i]))


def test_smoothing_lags_behind(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--camera-path", folder / "path.json", "--frames", 3, *SMALL)
    plain, _ = render(capsys, folder, *words, "--out", tmp_path / "plain")
    smooth, _ = render(capsys, folder, *words, "--smoothing", 1, "--out", tmp_path / "smooth")
    same = [np.array_equal(picture(a), picture(b)) for a, b in zip(plain["files"], smooth["files"])]
    assert same == [True, False, False]


def test_exposure_brightens(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--scene", folder / "cube", "--background", "black")
    means = [
        picture(render(capsys, folder, *words, "--exposure", stops, "--out", tmp_path / str(stops))[0]["files"][0]).mean() for stops in (-2, 0, 1)
    ]
    assert means[0] < 0.7 * means[1] < 0.7 * means[2]


def test_depth_of_field_in_the_scenes_units(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--scene", folder / "cube", "--spp", 4)
    sharp, _ = render(capsys, folder, *words, "--out", tmp_path / "sharp")
    blurred, said = render(capsys, folder, *words, "--aperture", 0.8, "--out", tmp_path / "blurred")
    near, _ = render(capsys, folder, *words, "--aperture", 0.8, "--focus", 1.5, "--out", tmp_path / "near")
    assert "grainy" in said
    names = [found["files"][0] for found in (sharp, blurred, near)]
    a, b, c = (picture(name).astype(float) for name in names)
    assert 0 < np.abs(a - b).mean() < np.abs(a - c).mean(), "by default the middle of the picture is in focus"


def test_exr_with_depth_and_normals(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    openexr = pytest.importorskip("OpenEXR", reason="OpenEXR is not installed")
    words = ("--scene", folder / "cube", "--depth", "--normals")
    found, _ = render(capsys, folder, *words, "--format", "exr", "--out", tmp_path / "exr")
    png, _ = render(capsys, folder, *words, "--out", tmp_path / "png")
    assert (found["depth_unit"], found["units"]) == (1.0, "scene")
    assert [Path(file).name for file in found["files"]] == ["images_0001.exr"]
    with openexr.File(found["files"][0], separate_channels=True) as file:
        depth = file.channels()["Z"].pixels
    assert depth.shape == (HEIGHT, WIDTH)
    assert 3 < depth[HEIGHT // 2, WIDTH // 2] < 5, "the camera stands 4.3 from the middle of the ball, in the scene's units"
    assert np.allclose(picture(png["files"][1]) * png["depth_unit"], depth, atol=png["depth_unit"])
    assert len(png["files"]) == 3


def test_a_flight_along_the_photographs(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--scene", folder / "cube", "--split", "train", "--train-on-all", "--flight", "--frames", 3, *SMALL)
    found, _ = render(capsys, folder, *words, "--save-path", tmp_path / "flight.json", "--out", tmp_path / "out")
    assert len(found["files"]) == 3
    assert len(read_camera_path(tmp_path / "flight.json").keyframes) == 8


def test_progress_and_time_left(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nerfleet.cli.render.PLAIN_LINE_SECONDS", 0.0)
    _, said = render(capsys, folder, "--turntable", 3, *SMALL, "--out", tmp_path / "out")
    assert "1/3 pictures" in said
    assert "left" in said


@pytest.mark.slow
def test_two_processes_from_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--turntable", 4, *SMALL)
    one, _ = render(capsys, folder, *words, "--out", tmp_path / "one.mp4")
    two, _ = render(capsys, folder, *words, "--gpus", 2, "--out", tmp_path / "two.mp4")
    assert Path(one["files"][0]).read_bytes() == Path(two["files"][0]).read_bytes()
