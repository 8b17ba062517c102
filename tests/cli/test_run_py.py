"""scripts/run.py: instant-ngp's flags, and training on several ranks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.parallel.spawn import NETWORK_JSON, REPOSITORY, finish, free_port, outside
from tests.support.models import ball_model
from tests.support.scenes import write_cube_scene

from nerfleet.cli import instant_ngp
from nerfleet.cli.instant_ngp import main, training_arguments
from nerfleet.cli.instant_ngp_flags import parse_flags, sort_files
from nerfleet.cli.train import Arguments
from nerfleet.data.synthetic import write_scene
from nerfleet.errors import NerfleetError
from nerfleet.render.camera_path import CameraPath, Keyframe, write_camera_path
from nerfleet.snapshot.document import read_document, write_document
from nerfleet.snapshot.write import snapshot_document

INSTANT_NGP_FLAGS = """--scene --training_data --network --load_snapshot --snapshot --save_snapshot --nerf_compatibility --test_transforms
--near_distance --exposure --screenshot_transforms --screenshot_frames --screenshot_dir --screenshot_spp --video_camera_path
--video_camera_smoothing --video_fps --video_n_seconds --video_render_range --video_spp --video_output --save_mesh --marching_cubes_res
--marching_cubes_density_thresh --width --screenshot_w --height --screenshot_h --gui --train --n_steps --second_window --vr --sharpen --mode""".split()
OWN_FLAGS = "--distributed --world_size --rank --dist_url".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``cube`` (8 photographs), ``model.ingp``, ``path.json``, ``small.json``."""
    folder = tmp_path_factory.mktemp("run_py")
    write_cube_scene(folder / "cube", rgba=True)
    write_document(folder / "model.ingp", snapshot_document(ball_model(radius=0.4), training_step=7))
    write_camera_path(folder / "path.json", CameraPath((Keyframe((0.0, 0.0, 0.0, 1.0), (0.5, 0.5, -1.0)), Keyframe((0.0, 0.0, 0.0, 1.0), (0.5, 0.5, -0.5)))))
    (folder / "small.json").write_text(json.dumps(NETWORK_JSON))
    return folder


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_every_flag_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_flags(["--help"])
    known = set(re.findall(r"--\w+", capsys.readouterr().out))
    assert set(INSTANT_NGP_FLAGS) | set(OWN_FLAGS) <= known


def test_positional_files_are_told_apart(folder: Path) -> None:
    words = [folder / "path.json", folder / "small.json", folder / "cube" / "transforms.json", folder / "model.ingp"]
    found = sort_files(parse_flags([str(word) for word in words]))
    assert (found.camera_path, found.network, found.scene, found.snapshot) == (words[0], str(words[1]), words[2], words[3])
    assert sort_files(parse_flags([str(folder / "cube"), "--network", "big"])).network == "big"
    with pytest.raises(NerfleetError, match="is a second scene"):
        sort_files(parse_flags([str(folder / "cube"), str(folder / "cube" / "transforms.json")]))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "nothing to do"),
        (["--scen", "x"], "unrecognized arguments"),
        (["nowhere.json"], "nowhere.json: No such file"),
        (["--train"], "--train: there is no scene"),
        (["--mode", "sdf"], "--mode sdf: only radiance fields"),
        (["--mode", "quick"], "--mode quick: is no mode"),
        (["--world_size", "2"], "add --distributed"),
        (["--distributed", "--world_size", "2", "--rank", "2"], "--rank 2: there are 2 ranks"),
        (["--save_snapshot", "a.obj"], "a.obj"),
        (["--screenshot_transforms", "a.json"], "add --screenshot_dir"),
        (["--scene", "s", "--distributed", "--rank", "0", "--dist_url", "file://x"], "--dist_url file://x: is not understood"),
        (["--scene", "s", "--distributed", "--rank", "0", "--dist_url", "env://"], "MASTER_ADDR and MASTER_PORT are not set"),
    ],
)
def test_bad_requests_are_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == 1


def test_flags_without_meaning_say_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder / "model.ingp"), "--vr", "--gui", "--sharpen", "0.5"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == ["--gui", "--vr", "--sharpen"]


def test_training_flags(folder: Path) -> None:
    def wanted(*words: str) -> Arguments:
        flags = parse_flags([str(folder / "cube"), "--device", "cpu", *words])
        return training_arguments(flags, sort_files(flags))

    plain = wanted()
    assert (plain.steps, plain.network, plain.preset, plain.train_on_all, plain.gpus) == (35_000, "base", "none", True, 1)
    assert plain.near_distance == Arguments.near_distance
    other = wanted("--n_steps", "7", "--mode", "advanced", "--nerf_compatibility", "--near_distance", "0.4", "--distributed", "--world_size", "3")
    assert (other.steps, other.preset, other.nerf_compatibility, other.near_distance, other.gpus) == (7, "advanced", True, 0.4, 3)
    assert wanted().out == plain.out, "the same command continues"
    assert other.out != plain.out
    assert wanted("--run_dir", "here").out == Path("here")
    (folder / "cube" / "transforms_test.json").write_text('{"frames": []}')
    try:
        assert not wanted().train_on_all, "of split files, those for training"
    finally:
        (folder / "cube" / "transforms_test.json").unlink()


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        (["--rank", "1"], {}, {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}),
        ([], {"RANK": "0"}, {"RANK": "0", "LOCAL_RANK": "0"}),
        (["--dist_url", "tcp://node0:1234"], {"JOB_COMPLETION_INDEX": "1"}, {"RANK": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "node0", "MASTER_PORT": "1234"}),
        (["--rank", "1"], {"MASTER_ADDR": "a", "MASTER_PORT": "5"}, {"RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "5"}),
        ([], {}, {}),
    ],
)
def test_joining(words: list[str], environment: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    own = dict(environment)
    monkeypatch.setattr(instant_ngp.os, "environ", own)
    instant_ngp.join(parse_flags(["--scene", "s", "--device", "cpu", "--distributed", "--world_size", "2", *words]))
    assert {name: own.get(name) for name in expected} == expected
    assert bool(own) == bool(expected)


def test_a_world_size_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert main(["--scene", "s", "--distributed", "--rank", "0"]) == 2
    assert "WORLD_SIZE many: is no number of ranks" in capsys.readouterr().err


def test_a_pod_is_the_rank_that_its_name_ends_with(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = parse_flags(["--scene", "s", "--distributed"])
    monkeypatch.setattr(instant_ngp.socket, "gethostname", lambda: "trainer-3.trainer.default")
    assert instant_ngp.own_rank(flags) is None
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert instant_ngp.own_rank(flags) == 3


def test_pictures_scores_and_video_of_a_snapshot(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("av", reason="PyAV is not installed")
    scene = str(folder / "cube" / "transforms.json")
    words = [str(folder / "model.ingp"), str(folder / "path.json"), "--device", "cpu", "--save_snapshot", str(tmp_path / "copy.msgpack")]
    words += ["--test_transforms", scene, "--screenshot_transforms", scene, "--screenshot_frames", "1", "3", "--screenshot_dir", str(tmp_path / "shots")]
    words += ["--screenshot_spp", "2", "--width", "32", "--height", "24", "--video_spp", "1", "--video_fps", "4", "--video_output", str(tmp_path / "v.mp4")]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert re.search(r"^PSNR=[\d.]+ \[min=[\d.]+ max=[\d.]+\] SSIM=[\d.]+$", out, re.MULTILINE)
    assert "images/0008.png" in out, "all frames of the file"
    assert sorted(p.name for p in (tmp_path / "shots").iterdir()) == ["0002.png", "0004.png"]
    assert (tmp_path / "v.mp4").stat().st_size > 500
    assert read_document(tmp_path / "copy.msgpack")["snapshot"]["training_step"] == 7


def test_a_video_as_pictures_and_the_standard_view(folder: Path, tmp_path: Path) -> None:
    words = [str(folder / "model.ingp"), "--device", "cpu", "--video_camera_path", str(folder / "path.json"), "--video_spp", "1", "--video_fps", "6"]
    words += ["--video_render_range", "2", "3", "--video_camera_smoothing", "--video_output", str(tmp_path / "f" / "video_%04d.png")]
    words += ["--width", "16", "--height", "12", "--screenshot_dir", str(tmp_path / "s"), "--screenshot_spp", "1"]
    assert main(words) == 0
    assert sorted(p.name for p in (tmp_path / "f").iterdir()) == ["video_0002.png", "video_0003.png"]
    assert [p.name for p in (tmp_path / "s").iterdir()] == ["frame_0000.png"]


SCRIPT = [sys.executable, str(REPOSITORY / "scripts" / "run.py")]


@pytest.mark.slow
def test_train_render_and_train_on(tmp_path: Path) -> None:
    """Two ranks that run.py starts itself; then more steps from the snapshot, as two ranks that join one another."""
    write_scene(tmp_path / "scene", 7, 2, 5, 32, 32, supersample=1)
    (tmp_path / "small.json").write_text(json.dumps(NETWORK_JSON))
    common = ["--scene", str(tmp_path / "scene"), "--train", "--device", "cpu", "--distributed", "--world_size", "2"]
    words = [*common, "--network", str(tmp_path / "small.json"), "--n_steps", "12", "--save_snapshot", str(tmp_path / "a.ingp")]
    words += ["--test_transforms", str(tmp_path / "scene" / "transforms_test.json")]
    environment = {name: value for name, value in outside().items() if name != "PYTHONPATH"}  # it finds its own sources, and so do its ranks
    first = subprocess.run([*SCRIPT, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert first.returncode == 0, first.stderr
    assert "2 ranks, gloo" in first.stderr
    assert "PSNR=" in first.stdout
    assert read_document(tmp_path / "a.ingp")["snapshot"]["training_step"] == 12

    words = [*common, "--load_snapshot", str(tmp_path / "a.ingp"), "--n_steps", "20", "--save_snapshot", str(tmp_path / "b.ingp")]
    words += ["--dist_url", f"tcp://127.0.0.1:{free_port()}"]
    ranks = [
        subprocess.Popen([*SCRIPT, *words, "--rank", str(i)], env=outside(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    results = finish(ranks, 500)
    assert [code for code, _, _ in results] == [0, 0], results
    assert read_document(tmp_path / "b.ingp")["snapshot"]["training_step"] == 20
