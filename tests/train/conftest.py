"""The small scene and one finished training of it, which several tests look at."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from tests.train.small import CONFIG, SIZE

from nerfleet.data.scene import Scene
from nerfleet.data.synthetic import synthetic_scene
from nerfleet.geometry.cameras import Cameras
from nerfleet.nn.occupancy_grid import OccupancyGrid, initial_grid
from nerfleet.train import step
from nerfleet.train.trainer import TrainResult, train

FIRST_GRIDS: dict[tuple[bytes, int], OccupancyGrid] = {}


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


@pytest.fixture
def first_grid_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which cells the cameras see is worked out once for a set of cameras: seconds at every start of a training."""

    def remembered(cameras: Cameras, aabb_scale: int) -> OccupancyGrid:
        key = cameras.camera_to_world.numpy().tobytes(), aabb_scale
        if key not in FIRST_GRIDS:
            FIRST_GRIDS[key] = initial_grid(cameras, aabb_scale)
        return copy.deepcopy(FIRST_GRIDS[key])

    monkeypatch.setattr(step, "initial_grid", remembered)
