"""The verb train, from the command line to the run folder."""

from __future__ import annotations

import contextlib
import io
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.scenes import edit, write_cube_scene
from tests.train.small import NETWORK, SIZE, STEPS

import nerfleet.cli.train as verb
from nerfleet.cli.main import main
from nerfleet.config import REFERENCE_BATCH, train_config_from_dict
from nerfleet.data import load_scene
from nerfleet.data.synthetic import write_scene
from nerfleet.presets import NETWORKS, network_to_json
from nerfleet.render.evaluate import evaluate
from nerfleet.snapshot.document import read_document
from nerfleet.snapshot.load import load_model


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


def call(*words: object) -> Answer:
    """A command line in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([*map(str, words)])
    return Answer(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in scene as files, ``scene``, and a small network, ``network.json``."""
    folder = tmp_path_factory.mktemp("train")
    write_scene(folder / "scene", n_train=8, n_val=1, n_test=2, width=SIZE, height=SIZE, supersample=1)
    (folder / "network.json").write_text(json.dumps(network_to_json(NETWORK)))
    return folder


@pytest.fixture(scope="module")
def words(folder: Path) -> list[object]:
    return ["train", folder / "scene", "--network", folder / "network.json", "--batch-size", 4096, "--device", "cpu"]


@pytest.fixture(scope="module")
def trained(folder: Path, words: list[object]) -> tuple[Answer, Path]:
    """A finished training with --json, and its run folder."""
    return call(*words, "--steps", STEPS, "--out", folder / "run", "--json"), folder / "run"


def test_one_object_on_stdout_and_progress_on_stderr(trained: tuple[Answer, Path]) -> None:
    answer, run = trained
    assert answer.code == 0, answer.err
    assert answer.out.count("\n") == 1
    found = json.loads(answer.out)
    assert set(found) >= {"steps", "trained_samples", "train_seconds", "world_size", "strategy", "psnr_mean", "model"}
    assert (found["steps"], found["world_size"], found["strategy"], found["stopped_by"]) == (STEPS, 1, "single", "steps")
    assert found["model"] == str(run / "model.ingp")
    assert found["psnr_mean"] > 9
    assert found["trained_samples"] > 1000 * STEPS
    for part in ("step ", f"/{STEPS}", "loss 0.", "PSNR ~", "rays/s", "samples/s", "gone", "left"):
        assert part in answer.err


def test_the_run_folder_is_complete(trained: tuple[Answer, Path]) -> None:
    answer, run = trained
    assert sorted(p.name for p in run.iterdir()) == ["checkpoints", "config.json", "model.ingp", "report.html", "report.json"]
    assert json.loads((run / "report.json").read_text()) == json.loads(answer.out)
    page = (run / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 2 * 2
    assert "Held-out PSNR" in page
    config = train_config_from_dict(json.loads((run / "config.json").read_text()))
    assert (config.network, config.steps, config.batch_size) == (NETWORK, STEPS, 4096)


def test_the_model_scores_as_the_run_said(trained: tuple[Answer, Path], folder: Path) -> None:
    answer, run = trained
    loaded = evaluate(load_model(run), load_scene(folder / "scene", split="test"))
    assert loaded.psnr_mean == pytest.approx(json.loads(answer.out)["psnr_mean"], abs=0.01)
    document = read_document(run / "model.ingp")
    assert document["snapshot"]["training_step"] == STEPS


def test_the_same_command_again_continues(trained: tuple[Answer, Path], words: list[object]) -> None:
    answer = call(*words, "--steps", STEPS + 2, "--checkpoint-every", "5m", "--out", trained[1])
    assert answer.code == 0
    assert answer.out == ""
    checkpoint = trained[1] / "checkpoints" / f"step_{STEPS:09d}"
    changes = f"steps {STEPS} -> {STEPS + 2}, checkpoint_every_seconds 30.0 -> 300.0"
    assert f"continues at step {STEPS} from {checkpoint}; changed since: {changes}\n" in answer.err
    assert f"{STEPS + 2} steps in " in answer.err
    assert "held-out PSNR " in answer.err.splitlines()[-1]


def test_another_network_in_the_same_folder_is_refused(trained: tuple[Answer, Path], folder: Path) -> None:
    before = (trained[1] / "config.json").read_text()
    answer = call("train", folder / "scene", "--network", "small", "--out", trained[1], "--device", "cpu")
    assert (answer.code, answer.out) == (2, "")
    assert "holds a model of another network configuration: choose another --out, or the same --network" in answer.err.splitlines()[-1]
    assert (trained[1] / "config.json").read_text() == before


def test_frames_that_are_skipped_are_told(words: list[object], tmp_path: Path) -> None:
    scene = write_cube_scene(tmp_path / "cube")
    (tmp_path / "cube" / "images" / "0003.png").write_text("no picture")
    answer = call("train", scene, *words[2:], "--steps", 0, "--out", tmp_path / "run")
    assert "1 frames skipped, the first: images/0003.png: is not an image of a known format\n" in answer.err


def test_zero_steps_write_a_model_in_the_default_folder(words: list[object], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = call(*words, "--steps", 0, "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert (found["steps"], found["trained_samples"]) == (0, 0)
    run = tmp_path / "runs" / load_scene(folder / "scene").name
    assert (tmp_path / found["model"]).samefile(run / "model.ingp")
    model = load_model(run)
    assert float(model.table.abs().max()) < 1.01e-4  # rounded to half
    assert not (run / "checkpoints").exists()
    assert (run / "report.html").exists()


@pytest.mark.parametrize("n", [1, 2])
def test_few_photographs_are_not_scored(n: int, words: list[object], tmp_path: Path) -> None:
    scene = write_cube_scene(tmp_path / "cube", n=n)
    answer = call("train", scene, *words[2:], "--steps", 3, "--out", tmp_path / "run", "--json")
    assert answer.code == 0, answer.err
    assert "no held-out views: the result is not scored" in answer.err
    found = json.loads(answer.out)
    assert (found["steps"], found["psnr_mean"], found["ssim_mean"]) == (3, None, None)
    assert "Held-out PSNR" not in (tmp_path / "run" / "report.html").read_text()


def away(root: dict[str, Any]) -> None:
    for frame in root["frames"]:
        for row in range(3):
            frame["transform_matrix"][row][3] += 50


def test_a_scene_outside_the_box_is_warned_of_first(words: list[object], tmp_path: Path) -> None:
    scene = edit(write_cube_scene(tmp_path / "cube"), away)
    wanted = ("train", scene, *words[2:], "--steps", 3, "--out", tmp_path / "run")
    answer = call(*wanted, "--json")
    assert answer.code == 0, answer.err
    assert answer.err.index("of the camera rays meet the scene box") < answer.err.index("step ")
    assert json.loads(answer.out)["steps"] == 3
    strict = call(*wanted, "--strict")
    assert (strict.code, strict.out, strict.err.count("\n")) == (2, "", 1)
    assert "of the camera rays meet the scene box" in strict.err


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sends this process SIGINT, that many times, when progress is first shown."""

    def install(times: int) -> None:
        original = verb.progress_line

        def line(progress: Any) -> str:
            monkeypatch.setattr(verb, "progress_line", original)
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            return original(progress)

        monkeypatch.setattr(verb, "progress_line", line)

    return install


def test_an_interrupt_saves_and_says_how_to_go_on(interrupted: Callable[[int], None], words: list[object], tmp_path: Path) -> None:
    interrupted(1)
    answer = call(*words, "--out", tmp_path / "run", "--json")
    assert answer.code == 130
    assert answer.err.endswith("stopped by a signal; run the same command to continue\nnerfleet: interrupted\n")
    found = json.loads(answer.out)
    assert found["stopped_by"] == "signal"
    assert (tmp_path / "run" / "checkpoints" / f"step_{found['steps']:09d}" / "complete.json").exists()
    assert load_model(tmp_path / "run").network.encoding == NETWORK.encoding


def test_a_second_interrupt_ends_it_at_once(interrupted: Callable[[int], None], words: list[object], tmp_path: Path) -> None:
    interrupted(2)
    answer = call(*words, "--out", tmp_path / "run", "--json")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err.endswith("nerfleet: interrupted\n")
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(
    "flags, expected",
    [
        (["--steps", "-1"], "steps: -1 is negative: use 0 or more"),
        (["--steps", "many"], "--steps"),
        (["--max-seconds", "-2"], "max_seconds: -2.0 is negative"),
        (["--batch-size", "7"], "batch_size: 7 samples are out of range: use 256 to 2^24"),
        (["--checkpoint-every", "often"], "checkpoint-every: 'often' is not a time: write 30s, 5m or 1h"),
        (["--checkpoint-every", "0s"], "checkpoint_every_seconds: 0.0: use a positive number of seconds"),
        (["--network", "huge"], "network: 'huge' is not a preset"),
        (["--network", "nowhere.json"], "nowhere.json: No such file or directory"),
        (["--preset", "expert"], "--preset"),
        (["--downscale", "0"], "downscale"),
        (["--background", "green"], "--background"),
        (["--seed", "-1"], "seed: -1 is out of range"),
        (["--near-distance", "-1"], "near_distance: -1.0"),
        (["--pixels", "-1"], "eval_pixels"),
        (["--eval-every", "-1"], "eval_every_steps"),
        (["--device", "tpu"], "--device"),
        (["--setps", "3"], "--steps"),
    ],
)
def test_wrong_flags_are_one_line(flags: list[str], expected: str, folder: Path, tmp_path: Path) -> None:
    answer = call("train", folder / "scene", "--out", tmp_path / "run", "--steps", 0, *flags)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1), answer.err
    assert expected in answer.err
    assert not (tmp_path / "run").exists()


def test_a_missing_scene_is_one_line(tmp_path: Path) -> None:
    answer = call("train", tmp_path / "nowhere", "--device", "cpu")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert str(tmp_path / "nowhere") in answer.err


def test_a_folder_that_cannot_be_made_is_one_line(words: list[object], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    answer = call(*words, "--steps", 1, "--out", tmp_path / "file" / "run")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines()[-1].startswith(f"nerfleet: error: {tmp_path / 'file' / 'run'}: Not a directory: choose another --out (`nerfleet doctor`")


def test_flags_become_the_configuration() -> None:
    plain = verb.config_from(verb.Arguments(Path("s")), "cpu")
    assert (plain.network, plain.batch_size, plain.checkpoint_every_seconds) == (NETWORKS["base"], verb.CPU_BATCH, 30.0)
    assert verb.config_from(verb.Arguments(Path("s")), "cuda").batch_size == REFERENCE_BATCH
    original = verb.config_from(verb.Arguments(Path("s"), nerf_compatibility=True, network="small", checkpoint_every="2m"), "cuda")
    assert (original.background, original.network, original.checkpoint_every_seconds) == ("black", NETWORKS["small"], 120.0)
    basic = verb.config_from(verb.Arguments(Path("s"), preset="basic"), "cuda")
    assert (basic.nerf_compatibility, basic.batch_size) == (True, 16 << 14)
    assert verb.config_from(verb.Arguments(Path("s"), preset="basic", batch_size=4096), "cuda").batch_size == 4096


@pytest.mark.parametrize("text, expected", [("30s", 30), ("5m", 300), ("1h", 3600), ("0.5", 0.5), (" 2s ", 2)])
def test_times(text: str, expected: float) -> None:
    assert verb.seconds(text) == expected


def test_the_progress_line() -> None:
    from nerfleet.train.trainer import Progress

    line = verb.progress_line(Progress(1500, 20_000, 0.001234, 29.09, 123_456.0, 2_500_000.0, 61.0, 3700.0, 0))
    assert line == "step 1,500/20,000  loss 0.00123  PSNR ~29.1 dB  123.5k rays/s  2.5M samples/s  1:01 gone  1:01:40 left"
    assert "3 steps skipped (not finite)" in verb.progress_line(Progress(1, 2, 0.1, 10.0, 1.0, 1.0, 1.0, None, 3))
