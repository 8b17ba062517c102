"""The planner inside a training: which strategy ``--parallel auto`` takes with measurements, and shares for unequal ranks."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.parallel.spawn import NETWORK_JSON, REPOSITORY, finish, outside, start

from nerfleet.cli.main import parse
from nerfleet.cli.on_ranks import words
from nerfleet.cli.train import Arguments
from nerfleet.config import EncodingConfig, NetworkConfig, TrainConfig
from nerfleet.data.synthetic import write_scene
from nerfleet.errors import NerfleetError
from nerfleet.parallel.auto import Seat, planned
from nerfleet.planner.calibration import REFERENCE, Calibration

OWN = Calibration((REFERENCE,))
SCENE = REFERENCE.load.scene


def config(log2: int, world_size: int) -> TrainConfig:
    return TrainConfig(network=NetworkConfig(encoding=EncodingConfig(log2_hashmap_size=log2)), batch_size=(1 << 18) * world_size)


def test_ranks_as_their_drivers_name_them() -> None:
    seats = [Seat("a", "NVIDIA GeForce RTX 4090", 25.3e9)] * 4
    assert planned(config(24, 4), SCENE, seats, OWN, can_split=True).option.simulated.grid > 1
    assert planned(config(24, 4), SCENE, seats, OWN, can_split=False).option.simulated.grid == 1
    small = planned(config(19, 4), SCENE, [Seat("a", "NVIDIA H200", 150e9)] * 4, OWN, can_split=True).option
    assert (small.strategy, small.simulated.load.batch) == ("data", 1 << 20)
    assert planned(config(19, 2), SCENE, [Seat("a", "NVIDIA H200", 150e9), Seat("b", "NVIDIA H200", 150e9)], OWN, True).option.n_gpus == 2


def test_devices_of_which_nothing_is_known() -> None:
    with pytest.raises(NerfleetError, match="rank on a: 'Riva 128' is not in the catalogue"):
        planned(config(19, 2), SCENE, [Seat("a", "Riva 128", 4e6)] * 2, OWN, True)
    with pytest.raises(NerfleetError, match="--calibration: has no step that was measured on a CPU"):
        planned(config(19, 2), SCENE, [Seat("a", "cpu", 8e9)] * 2, OWN, True)
    measured = dataclasses.replace(REFERENCE, gpu=dataclasses.replace(REFERENCE.gpu, name="cpu"))
    assert planned(config(19, 2), SCENE, [Seat("a", "cpu", 8e9)] * 2, Calibration((measured,)), True).option.n_gpus == 2


def test_calibration_files_reach_the_ranks() -> None:
    arguments = parse(Arguments, "nerfleet train", ["scene", "--gpus", "2", "--calibration", "a.json", "b c.json"])
    assert arguments.calibration == (Path("a.json"), Path("b c.json"))
    assert parse(Arguments, "nerfleet train", words(arguments)) == arguments


@pytest.mark.slow
def test_unequal_ranks_reach_the_sum_of_their_speeds() -> None:
    """Speeds 1, 1 and 3: at least 90 % of the sum of what each would do alone."""
    ((code, out, err), *others) = finish(start(3, "tests.parallel.mixed", "1,1,3"), 240)
    assert [code, *(one[0] for one in others)] == [0, 0, 0], err
    found = json.loads(out)
    assert found["rays_per_s"] >= 0.9 * sum(found["own"])
    assert found["shares"] == pytest.approx([0.2, 0.2, 0.6], abs=0.03)


@pytest.mark.slow
def test_a_training_follows_its_measurements(tmp_path: Path) -> None:
    write_scene(tmp_path / "scene", 7, 0, 2, 32, 32, supersample=1)
    (tmp_path / "small.json").write_text(json.dumps(NETWORK_JSON))

    def run(*flags: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "nerfleet", *map(str, flags)]
        return subprocess.run(command, env=outside(), cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=True)

    common = ("--network", tmp_path / "small.json", "--device", "cpu", "--batch-size", 1024)
    run("bench", "step", "--scene", tmp_path / "scene", *common, "--warm-up", 5, "--steps", 5, "--save", tmp_path / "step.json", "--json")
    run("bench", "collectives", "--device", "cpu", "--gpus", 2, "--save", tmp_path / "collectives.json", "--json")
    files = ("--calibration", tmp_path / "step.json", tmp_path / "collectives.json")
    ended = run("train", tmp_path / "scene", *common, "--gpus", 2, *files, "--steps", 10, "--out", tmp_path / "run", "--json")
    assert json.loads(ended.stdout)["strategy"] == "data"
    assert "Data parallel: the table of" in ended.stderr
    assert "rest on data sheets" not in ended.stderr
