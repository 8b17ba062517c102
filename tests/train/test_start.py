"""Training that goes on from a model instead of from noise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from tests.train.small import config

from nerfleet.config import EncodingConfig
from nerfleet.data.scene import Scene
from nerfleet.errors import NerfleetError
from nerfleet.train.step import SingleDevice, Start, TrainStep
from nerfleet.train.trainer import TrainResult, train

pytestmark = pytest.mark.usefixtures("first_grid_remembered")


@pytest.fixture
def first(finished: tuple[TrainResult, Path]) -> TrainResult:
    return finished[0]


def test_it_goes_on_from_weights_cells_and_step(scene: Scene, first: TrainResult) -> None:
    begun = TrainStep(scene, config(), torch.device("cpu"), SingleDevice(), Start(first.model, 40))
    assert torch.equal(begun.mlp.master, first.model.mlp)
    assert torch.equal(begun.owned.master, first.model.table)
    assert torch.equal(begun.occupancy.values, first.model.occupancy.values)
    assert torch.equal(begun.occupancy.bitfield, first.model.occupancy.bitfield)
    result = train(scene, config(steps=42), device="cpu", start=Start(first.model, 40))
    assert result.steps == 42
    assert result.last_step is not None
    assert result.last_step.step == 41
    assert not torch.equal(result.model.table, first.model.table)


def test_a_model_that_has_its_steps_stays_as_it_is(scene: Scene, first: TrainResult) -> None:
    same = train(scene, config(steps=40), device="cpu", start=Start(first.model, 40))
    assert same.steps == 40
    assert torch.equal(same.model.table, first.model.table)
    assert torch.equal(same.model.occupancy.bitfield, first.model.occupancy.bitfield)


def test_a_checkpoint_comes_first(scene: Scene, first: TrainResult, tmp_path: Path) -> None:
    said: list[str] = []
    train(scene, config(steps=3), device="cpu", out=tmp_path)
    result = train(scene, config(steps=5), device="cpu", out=tmp_path, start=Start(first.model, 40), say=said.append)
    assert result.steps == 5
    assert "continues at step 3" in said[-1]


def test_another_network_or_box_is_refused(scene: Scene, first: TrainResult) -> None:
    other = dataclasses.replace(config(), network=dataclasses.replace(config().network, encoding=EncodingConfig(n_levels=2, log2_hashmap_size=8)))
    with pytest.raises(NerfleetError, match="has another network"):
        train(scene, other, device="cpu", start=Start(first.model, 40))
    with pytest.raises(NerfleetError, match="its edge is 1, the scene's is 2"):
        train(dataclasses.replace(scene, aabb_scale=2), config(), device="cpu", start=Start(first.model, 40))
