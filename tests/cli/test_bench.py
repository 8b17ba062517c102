"""``nerfleet bench``: the keys that programs rely on, on a tiny scene."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nerfleet.cli import bench
from nerfleet.cli.main import main
from nerfleet.data.synthetic import write_scene

STEP_KEYS = {
    "ms_per_step", "trained_samples_per_step", "evaluated_samples_per_step", "trained_samples_per_s", "rays_per_step", "stages_ms", "device", "world_size",
    "strategy", "peak_bytes",
}  # fmt: skip


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    write_scene(folder, n_train=3, n_test=2, width=16, height=12)
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["bench", *words, "--device", "cpu", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_step(scene: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "HASH_GRID_POINTS", 64)
    monkeypatch.setattr(bench, "STAGE_STEPS", 1)
    report = run(capsys, "step", "--scene", str(scene), "--warm-up", "1", "--steps", "2", "--batch-size", "512", "--network", "small")
    assert STEP_KEYS <= report.keys()
    assert report["ms_per_step"] > 0
    assert report["trained_samples_per_step"] > 100
    assert report["evaluated_samples_per_step"] >= report["trained_samples_per_step"]
    stages, floors = report["stages_ms"], report["floor_ms"]
    assert {"sample_rays", "trace", "ray_loss", "composite_backward", "field_backward", "hash_grid_backward", "adam", "occupancy_refresh"} <= stages.keys()
    assert floors.keys() <= stages.keys()
    assert all(value > 0 for value in stages.values())
    assert report["hash_grid_ms"]["backward"] > 0
    assert (report["device"], report["world_size"], report["strategy"]) == ("cpu", 1, "single")


def test_render(scene: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(capsys, "render", "--scene", str(scene), "--warm-up", "1", "--steps", "1", "--batch-size", "512", "--network", "small")
    assert (report["width"], report["height"]) == (16, 12)
    assert 0 < report["ms_per_image"] <= report["ms_to_host"]


def test_a_bad_number_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "step", "--steps", "-1"]) == 2
    assert "--steps -1: is negative" in capsys.readouterr().err
