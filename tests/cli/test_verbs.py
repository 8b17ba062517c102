"""The verbs eval, render, info and convert, from the command line to their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support.models import ball_model
from tests.support.scenes import HEIGHT, WIDTH, write_cube_scene

from nerfleet.cli.main import main
from nerfleet.render.camera_path import CameraPath, Keyframe, write_camera_path
from nerfleet.snapshot.document import read_document, write_document
from nerfleet.snapshot.load import load_model
from nerfleet.snapshot.write import snapshot_document

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a model, and the scene ``cube`` of 8 photographs."""
    folder = tmp_path_factory.mktemp("verbs")
    write_document(folder / "run" / "model.ingp", snapshot_document(ball_model(radius=0.4), training_step=7))
    write_cube_scene(folder / "cube", rgba=True)
    return folder


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a verb with --json and returns the one object that it prints."""

    def call(*words: object) -> Any:
        code = main([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        assert out.count("\n") == 1
        return json.loads(out)

    return call


@pytest.fixture
def complaint(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a verb that must fail with exit code 2 and one line; returns the line."""

    def call(*words: object) -> str:
        code = main([*map(str, words)])
        out, err = capsys.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1), err
        return err

    return call


def pixels(file: Path | str) -> np.ndarray:
    with Image.open(file) as image:
        return np.asarray(image)


def test_eval_answers_by_contract(folder: Path, answer: Call) -> None:
    found = answer("eval", folder / "run", "--scene", folder / "cube")
    assert set(found) >= {"psnr_mean", "ssim_mean", "views", "split", "background"}
    assert (found["split"], found["background"]) == ("test", "black")
    assert [set(view) for view in found["views"]] == [{"name", "psnr", "ssim"}]
    assert found["views"][0]["name"] == "images/0001.png"
    assert found["psnr_mean"] == found["views"][0]["psnr"]


def test_eval_of_some_pixels_and_views(folder: Path, answer: Call) -> None:
    words = ("eval", folder / "run", "--scene", folder / "cube", "--split", "train", "--views", "1,3-4", "--pixels", 50)
    found = answer(*words, "--seed", 3)
    assert [view["name"] for view in found["views"]] == [f"images/{i:04d}.png" for i in (3, 5, 6)]
    assert found["ssim_mean"] is None
    assert found == answer(*words, "--seed", 3)
    assert found != answer(*words, "--seed", 4)


def test_eval_for_people(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["eval", str(folder / "run"), "--scene", str(folder / "cube"), "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "images/0001.png" in out
    assert "mean" in out
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["images_0001.png"]
    assert pixels(tmp_path / "out/images_0001.png").shape == (HEIGHT, 3 * WIDTH, 3)


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--background", "red"], "use black, white or #rrggbb"),
        (["--pixels", "-1"], "--pixels -1"),
        (["--seed", "-1"], "--seed -1"),
        (["--pixels", "5", "--out", "x"], "leave out --pixels"),
        (["--views", "9"], "there are 1 views"),
        (["--downscale", "0"], "downscale 0"),
        (["--downscale", "100"], "nothing is left"),
        (["--split", "dev"], "invalid choice 'dev'"),
    ],
)
def test_wrong_flags_of_eval(words: list[str], expected: str, folder: Path, complaint: Call) -> None:
    assert expected in complaint("eval", folder / "run", "--scene", folder / "cube", *words)


def test_eval_needs_a_model_and_a_scene(folder: Path, complaint: Call) -> None:
    assert "is a scene, not a model" in complaint("eval", folder / "cube", "--scene", folder / "cube")
    assert "does not exist" in complaint("eval", folder / "none.ingp", "--scene", folder / "cube")
    assert "--scene" in complaint("eval", folder / "run")
    assert "nowhere" in complaint("eval", folder / "run", "--scene", folder / "nowhere")


def test_render_views(folder: Path, answer: Call, tmp_path: Path) -> None:
    words = ("render", folder / "run", "--scene", folder / "cube", "--split", "train", "--views", "0,2", "--depth")
    found = answer(*words, "--out", tmp_path / "out")
    names = ["images_0002.png", "images_0002_depth.png", "images_0004.png", "images_0004_depth.png"]
    assert [Path(file).name for file in found["files"]] == names == sorted(p.name for p in (tmp_path / "out").iterdir())
    assert (found["width"], found["height"]) == (WIDTH, HEIGHT)
    picture, depth = (pixels(file) for file in found["files"][:2])
    assert picture.shape == (HEIGHT, WIDTH, 4)
    assert 0 < (picture[..., 3] > 0).mean() < 1
    assert depth.dtype == np.uint16
    assert np.array_equal(depth > 0, depth * found["depth_unit"] > 0.3)
    assert depth.max() * found["depth_unit"] < 3


def test_render_over_a_background_in_another_size(folder: Path, answer: Call, tmp_path: Path) -> None:
    words = ("render", folder / "run", "--scene", folder / "cube", "--out", tmp_path, "--background", "#102030")
    found = answer(*words, "--width", 2 * WIDTH, "--spp", 2)
    picture = pixels(found["files"][0])
    assert picture.shape == (2 * HEIGHT, 2 * WIDTH, 3)
    assert picture[0, 0].tolist() == [0x10, 0x20, 0x30]
    assert (picture[HEIGHT, WIDTH] != [0x10, 0x20, 0x30]).any()


def test_render_a_turn(folder: Path, answer: Call, tmp_path: Path) -> None:
    found = answer("render", folder / "run", "--turntable", 4, "--height", 18, "--out", tmp_path / "turn")
    assert [Path(file).name for file in found["files"]] == [f"frame_{i:04d}.png" for i in range(4)]
    assert (found["width"], found["height"]) == (32, 18)
    first, second = (pixels(file) for file in found["files"][:2])
    assert first[9, 16, 3] > 0
    assert not np.array_equal(first, second)


def test_render_a_path_to_video(folder: Path, answer: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    av = pytest.importorskip("av")
    keyframes = tuple(Keyframe((0.0, 0.0, 0.0, 1.0), (0.5, 0.5, z), aperture_size=0.1) for z in (-1.0, -0.5))
    write_camera_path(tmp_path / "path.json", CameraPath(keyframes, duration_seconds=2.0))
    words = ("render", folder / "run", "--camera-path", tmp_path / "path.json", "--width", 32, "--height", 18)
    found = answer(*words, "--fps", 3, "--out", tmp_path / "new" / "a.mp4")
    assert found["files"] == [str(tmp_path / "new" / "a.mp4")]
    with av.open(found["files"][0]) as video:
        pictures = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert len(pictures) == 6
    assert pictures[0].shape == (18, 32, 3)
    assert pictures[0][9, 16].max() > 20
    assert len(answer(*words, "--seconds", 1, "--fps", 4, "--out", tmp_path / "b")["files"]) == 4
    assert len(answer(*words, "--frames", 3, "--out", tmp_path / "c")["files"]) == 3


def test_empty_pictures_are_remarked(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_camera_path(tmp_path / "away.json", CameraPath((Keyframe((0.0, 0.0, 0.0, 1.0), (0.5, 0.5, 3.0), aperture_size=0.1),)))
    words = ["render", str(folder / "run"), "--camera-path", str(tmp_path / "away.json"), "--frames", "1", "--width", "16"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "nothing of the model is in any picture" in err
    assert "depth of field with --spp 1 is grainy" in err


@pytest.mark.parametrize(
    "words, expected",
    [
        ([], "0 sources are named"),
        (["--turntable", "3", "--scene", "x"], "2 sources are named"),
        (["--turntable", "3", "--out", "x.png"], "is not a folder"),
        (["--turntable", "3", "--out", "x.mp4", "--depth"], "cannot go into a video"),
        (["--turntable", "-3"], "--turntable -3"),
        (["--turntable", "3", "--spp", "0"], "--spp 0"),
        (["--turntable", "3", "--width", "99999"], "--width 99999"),
        (["--turntable", "3", "--fps", "0"], "--fps 0"),
        (["--turntable", "3", "--out", "x.mp4", "--normals"], "cannot go into a video"),
        (["--turntable", "3", "--crf", "60"], "--crf 60"),
        (["--turntable", "3", "--gpus", "0"], "--gpus 0"),
        (["--turntable", "3", "--elevation", "90"], "--elevation 90"),
        (["--turntable", "3", "--frame-range", "2-3"], "--frame-range 2-3: there are 3 pictures"),
        (["--turntable", "3", "--flight"], "--flight: has no meaning"),
        (["--turntable", "3", "--names", "same.png"], "--names same.png"),
        (["--scene", "x", "--whole-turn"], "--whole-turn: has no meaning"),
        (["--camera-path", "nowhere.json"], "nowhere.json: No such file"),
    ],
)
def test_wrong_flags_of_render(words: list[str], expected: str, folder: Path, complaint: Call, tmp_path: Path) -> None:
    out = [] if "--out" in words else ["--out", tmp_path / "out"]
    assert expected in complaint("render", folder / "run", *words, *out)
    assert list(tmp_path.iterdir()) == []


def test_render_does_not_overwrite_what_is_something_else(folder: Path, complaint: Call, tmp_path: Path) -> None:
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "file").write_text("mine")
    words = ("render", folder / "run", "--turntable", 2, "--width", 16, "--out")
    assert "is a folder" in complaint(*words, tmp_path / "folder.mp4")
    assert "is not a folder" in complaint(*words, tmp_path / "file")
    assert "file" in complaint(*words, tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_info_of_a_model(folder: Path, answer: Call, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer("info", folder / "run")
    assert found["model"] == str(folder / "run" / "model.ingp")
    assert (found["training_step"], found["aabb_scale"], found["crop"], found["n_images"]) == (7, 1, None, None)
    assert found["network"]["encoding"]["n_levels"] == 2
    assert found["occupied"] == [pytest.approx(4 / 3 * np.pi * 0.4**3, rel=0.01)]
    assert main(["info", str(folder / "run")]) == 0
    out = capsys.readouterr().out
    assert "HashGrid, 2 levels x 4 features, 2^8 entries" in out
    assert "26.8" in out


def test_info_of_a_scene(folder: Path, answer: Call, complaint: Call, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer("info", folder / "cube", "--downscale", 2)
    assert (found["n_frames"], found["n_used"], found["image_bytes"]) == (8, 8, 8 * WIDTH * HEIGHT)
    assert main(["info", str(folder / "cube")]) == 0
    assert "8 listed, 8 used, 0 skipped" in capsys.readouterr().out
    assert "--downscale 0" in complaint("info", folder / "cube", "--downscale", 0)


def test_convert_there_and_back(folder: Path, answer: Call, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.msgpack", tmp_path / "b.ingp"
    found = answer("convert", folder / "run", plain)
    assert found == {"model": str(plain), "size_bytes": plain.stat().st_size}
    answer("convert", plain, packed)
    assert read_document(packed) == read_document(plain) == read_document(folder / "run" / "model.ingp")
    assert packed.stat().st_size < plain.stat().st_size
    assert load_model(packed).aabb_scale == 1


def test_wrong_flags_of_convert(folder: Path, complaint: Call, tmp_path: Path) -> None:
    model = folder / "run" / "model.ingp"
    assert "neither an .ingp nor a .msgpack" in complaint("convert", model, tmp_path / "a.obj")
    assert "is the model itself" in complaint("convert", folder / "run", model)
    (tmp_path / "cut.ingp").write_bytes(model.read_bytes()[:-100])
    assert "is truncated" in complaint("convert", tmp_path / "cut.ingp", tmp_path / "a.ingp")
    assert [p.name for p in tmp_path.iterdir()] == ["cut.ingp"]
