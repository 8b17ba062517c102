"""Training through the feeds: the command line, the report, several ranks, and as good a model as with everything in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.parallel.spawn import REPOSITORY, outside
from tests.pipeline.scenes import CPU, on_demand, options
from tests.train.small import CONFIG, NETWORK, SIZE

from nerfleet.cli.main import main
from nerfleet.data import load_scene
from nerfleet.data.synthetic import write_scene
from nerfleet.errors import NerfleetError
from nerfleet.pipeline.pixel_pool import PixelPool
from nerfleet.pipeline.progressive import ProgressivePhotographs
from nerfleet.presets import network_to_json
from nerfleet.render.evaluate import evaluate
from nerfleet.train.trainer import train

N_VIEWS = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipeline")
    write_scene(folder / "scene", n_train=N_VIEWS, n_val=1, n_test=2, width=SIZE, height=SIZE, supersample=1)
    (folder / "network.json").write_text(json.dumps(network_to_json(NETWORK)))
    return folder


def command(folder: Path, out: Path, *flags: str) -> list[str]:
    common = ["--network", str(folder / "network.json"), "--batch-size", "2048", "--device", "cpu", "--json", "--steps", "15", "--image-workers", "1"]
    return ["train", str(folder / "scene"), "--out", str(out), *common, *flags]


def call(*words: str) -> tuple[int, str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    "flags, path, said",
    [
        (["--images", "progressive"], "progressive", "photographs: training begins with the first of them, 1 processes read on (--images progressive)"),
        (["--image-memory", "30KB"], "pool", "18.3% of all, renewed by 1 processes (82 KB of photographs pass --image-memory 30 KB)"),
    ],
)
def test_command_line(flags: list[str], path: str, said: str, folder: Path, tmp_path: Path) -> None:
    code, out, err = call(*command(folder, tmp_path / "run", *flags))
    assert code == 0, err
    assert said in err
    answer = json.loads(out)
    images = answer["images"]
    assert images["images"] == path
    assert images["views"] == N_VIEWS
    assert 0 <= images["ring_fill"] <= 1
    assert images["decoded_photographs_per_s"] > 0
    assert images["failed_photographs"] == {}
    assert answer["psnr_mean"] > 5
    assert (tmp_path / "run" / "model.ingp").exists()
    assert not list(Path("/dev/shm").glob("nerfleet-*"))


@pytest.mark.parametrize(
    "flags, line",
    [
        (["--image-memory", "lots"], "--image-memory lots: is no size"),
        (["--images", "pool", "--image-memory", "1KB"], "--image-memory: 125 pixels are too few for 20 photographs: allow at least"),
        (["--image-workers", "-1"], "--image-workers -1: is negative"),
    ],
)
def test_what_cannot_be_is_one_line(flags: list[str], line: str, folder: Path, tmp_path: Path) -> None:
    code, _, err = call(*command(folder, tmp_path / "run", *flags))
    assert code == 2
    assert line in err


def test_a_scene_that_is_not_decoded_cannot_be_trained_on_alone(folder: Path) -> None:
    with pytest.raises(NerfleetError, match="its photographs are not decoded"):
        train(on_demand(folder / "scene"), CONFIG, device="cpu")


def test_feeds_are_closed_when_training_fails(folder: Path) -> None:
    scene = on_demand(folder / "scene")
    feed = ProgressivePhotographs(scene, CPU, options())
    with pytest.raises(RuntimeError, match="enough"):
        train(scene, dataclasses.replace(CONFIG, steps=10**6), device="cpu", photographs=feed, on_progress=_stop)
    assert feed._closed
    assert feed._loader.workers == []


def _stop(_: Any) -> None:
    raise RuntimeError("enough")


@pytest.mark.slow
def test_a_pool_of_a_tenth_teaches_as_much_as_all_pixels(tmp_path: Path) -> None:
    """PSNR within 0.2 dB after the same number of steps."""
    write_scene(tmp_path / "scene", n_train=24, n_val=1, n_test=4, width=96, height=96, supersample=2)
    config = dataclasses.replace(CONFIG, steps=400, batch_size=1 << 13, max_rays=1 << 13)
    whole, held_out = load_scene(tmp_path / "scene"), load_scene(tmp_path / "scene", "test")
    scores = [evaluate(train(whole, dataclasses.replace(config, seed=seed), device="cpu").model, held_out).psnr_mean for seed in (1, 2)]
    scene = on_demand(tmp_path / "scene", train_on_all=False)
    pooled = []
    for seed in (1, 2):
        feed = PixelPool(scene, CPU, len(whole.pixels) // 10, options(seed=seed))
        pooled.append(evaluate(train(scene, dataclasses.replace(config, seed=seed), device="cpu", photographs=feed).model, held_out).psnr_mean)
    assert sum(pooled) / 2 > sum(scores) / 2 - 0.2


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--images", "progressive"], ["--images", "pool", "--image-memory", "15KB"]], ids=["progressive", "pool"])
def test_two_ranks(flags: list[str], folder: Path, tmp_path: Path) -> None:
    """Each rank feeds itself from its own part of the photographs."""
    words = command(folder, tmp_path / "run", "--gpus", "2", *flags)
    ended = subprocess.run([sys.executable, "-m", "nerfleet", *words], env=outside(), cwd=REPOSITORY, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["world_size"] == 2
    assert answer["images"]["views"] == N_VIEWS // 2
    assert answer["psnr_mean"] > 5
    assert not list(Path("/dev/shm").glob("nerfleet-*"))
