"""The small scene and one finished training of it, which several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.train.small import CONFIG, SIZE

from nerfleet.data.scene import Scene
from nerfleet.data.synthetic import synthetic_scene
from nerfleet.train.trainer import TrainResult, train


@pytest.fixture(scope="session")
def scene() -> Scene:
    return synthetic_scene("train", n_views=8, width=SIZE, height=SIZE)


@pytest.fixture(scope="session")
def held_out() -> Scene:
    return synthetic_scene("test", n_views=2, width=SIZE, height=SIZE)


@pytest.fixture(scope="session")
def finished(scene: Scene, held_out: Scene, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, Path]:
    """Result and run folder of an uninterrupted training."""
    out = tmp_path_factory.mktemp("finished")
    return train(scene, CONFIG, device="cpu", out=out, held_out=held_out), out
