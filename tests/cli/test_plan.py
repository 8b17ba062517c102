"""``nerfleet plan``, ``cost`` and ``bench --save`` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nerfleet.cli import bench
from nerfleet.cli.main import main
from nerfleet.data.synthetic import write_scene


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    write_scene(folder / "small", n_train=3, n_val=0, n_test=1, width=16, height=12, supersample=1)
    return folder / "small"


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def complaint(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([*map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


def test_plan(scene: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "plan", scene, "--gpus", "4 x RTX 4090", "--log2-hashmap-size", 24)
    assert found["chosen"]["strategy"] in ("grid", "hybrid")
    assert "The grid is split" in found["why"]
    assert len(found["ranks"]) == found["chosen"]["n_gpus"]
    assert main(["plan", str(scene), "--gpus", "4 x RTX 4090"]) == 0
    text = capsys.readouterr().out
    assert "cluster: 4 x RTX 4090" in text
    assert "nerfleet train SCENE --gpus" in text or "One GPU" in text


def test_what_was_measured_here_predicts_itself(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "HASH_GRID_POINTS", 64)
    monkeypatch.setattr(bench, "STAGE_STEPS", 2)
    flags = ("--warm-up", 2, "--steps", 2, "--batch-size", 512, "--network", "small", "--device", "cpu")
    measured = answer(capsys, "bench", "step", "--scene", scene, *flags, "--save", tmp_path / "step.json")
    kept = json.loads((tmp_path / "step.json").read_text())
    assert kept["scene"]["n_pixels"] == 3 * 16 * 12
    assert len(kept["touched"]) == 8
    assert all(level[1] >= level[2] and level[1] >= level[3] for level in kept["touched"])
    found = answer(capsys, "plan", scene, "--calibration", tmp_path / "step.json", "--network", "small", "--batch-size", 512)
    assert found["chosen"]["predicted_ms_per_step"] == pytest.approx(measured["ms_per_step"], rel=0.01)
    assert found["chosen"]["measured"] is True


@pytest.mark.parametrize(
    "words, line",
    [
        (["plan"], "plan: needs either a scene or --tasks"),
        (["plan", "SCENE", "--gpus", "2 x RTX 4900"], "'RTX 4900' is not in the catalogue: did you mean RTX 4090"),
        (["plan", "SCENE", "--gpus", "V100"], "PyTorch for CUDA 13 does not run on a V100"),
        (["plan", "SCENE", "--gpus", "T4", "--link", "wire"], "--link: 'wire' is not known"),
        (["plan", "SCENE", "--gpus", "T4", "--cluster", "c.yaml"], "--cluster and --gpus: contradict each other"),
        (["plan", "SCENE", "--gpus", "RTX 3060", "--log2-hashmap-size", "27"], "what would fit: log2_hashmap_size"),
        (["plan", "SCENE", "--gpus", "T4", "--log2-hashmap-size", "40"], "encoding.log2_hashmap_size: 40 is out of range"),
        (["plan", "SCENE", "--calibration", "none.json"], "none.json: No such file"),
        (["plan", "nowhere", "--gpus", "T4"], "nowhere"),
        (["plan", "SCENE", "--gpus", "T4", "--gpus-per-host", "-1"], "--gpus-per-host -1: is negative"),
        (["cost"], "cost: needs a scene or --measured"),
        (["cost", "--measured", "1=36h"], "--machine-price 0: is no price"),
        (["cost", "--measured", "1=36h", "--machine-price", "-3"], "--machine-price -3: is no price"),
        (["cost", "--measured", "1=36h", "--machine-price", "nan"], "--machine-price nan: is no price"),
        (["cost", "--measured", "1:36", "--machine-price", "3"], "--measured 1:36: is not GPUs=TIME"),
        (["cost", "--measured", "0=36h", "--machine-price", "3"], "--measured 0=36h: is not GPUs=TIME"),
        (["cost", "--measured", "1=36h", "1=3h", "--machine-price", "3"], "1 GPUs are given twice"),
        (["cost", "--measured", "1=36h", "--machine-price", "3", "--machine-gpus", "0"], "--machine-gpus 0: is no number"),
        (["cost", "--measured", "1=36h", "--machine-price", "3", "--plot", "a.png"], "--plot a.png: is no .svg file"),
        (["cost", "SCENE", "--gpu-counts", "0"], "--gpu-counts 0: is no number"),
        (["cost", "SCENE", "--catalog", "none.yaml"], "none.yaml: No such file"),
        (["bench", "render", "--save", "a.json"], "--save: has no meaning for bench render"),
    ],
)
def test_what_is_wrong_is_one_line(scene: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert line in complaint(capsys, *[str(scene) if word == "SCENE" else word for word in words])


@pytest.mark.parametrize("text", ["[]", "{}", "nonsense", '{"stages_ms": 3}', '{"collectives": [{"ms": -1}], "device": "cpu", "world_size": 2, "hosts": []}'])
def test_what_is_no_calibration(scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    assert "bad.json: is n" in complaint(capsys, "plan", scene, "--gpus", "T4", "--calibration", tmp_path / "bad.json")


def test_the_articles_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("cost", "--measured", "1=36h", "4=8.5h", "8=4.5h", "--machine-gpus", 4, "--machine-price", 12)
    found = answer(capsys, *words)
    assert [option["cost"] for option in found["options"]] == [432, 102, 108]
    assert found["options"][1]["saving"] == pytest.approx(0.76, abs=0.005)
    assert [option["cost_per_hour"] for option in found["options"]] == [12, 12, 24]
    assert "cheapest" in found["options"][1]["advice"]
    assert main([*map(str, words)]) == 0
    assert "102.00" in capsys.readouterr().out
    spot = answer(capsys, *words, "--spot-price", 4, "--interruptions-per-hour", 0.1)
    assert len(spot["options"]) == 6
    assert spot["options"][1]["cost"] < 432
    assert 60 < spot["options"][1]["checkpoint_every_seconds"] < 3600


def test_cost_of_a_scene(scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "cost", scene, "--gpu-counts", 1, 4, 8, "--plot", tmp_path / "cost.svg")
    assert {(option["name"], option["n_gpus"]) for option in found["options"]} >= {("g5.12xlarge", 1), ("g5.12xlarge", 8), ("p5.48xlarge", 4)}
    one, four = (next(o for o in found["options"] if o["name"] == "g5.12xlarge" and o["n_gpus"] == n and not o["spot"]) for n in (1, 4))
    assert one["cost_per_hour"] == four["cost_per_hour"] == 5.672  # rented whole
    assert (tmp_path / "cost.svg").read_text().startswith("<svg")
    old = next(option for option in found["options"] if option["name"] == "p3.8xlarge")
    assert "for comparison only" in old["advice"]
    assert main(["cost", "--print-catalog"]) == 0
    (tmp_path / "own.yaml").write_text(capsys.readouterr().out)
    assert answer(capsys, "cost", scene, "--catalog", tmp_path / "own.yaml")["currency"] == "USD"
