"""What a step has to do, against the engine's own layout and arithmetic."""

from __future__ import annotations

import dataclasses

import pytest

from nerfleet.config import EncodingConfig, MLPConfig, NetworkConfig, TrainConfig
from nerfleet.nn.field import field_spec
from nerfleet.nn.occupancy_grid import n_cascades
from nerfleet.planner.calibration import REFERENCE
from nerfleet.planner.workload import OCCUPANCY_CELLS, SceneFacts, adapted, grid_levels, n_mlp_params, touched_share, workload

FOX = SceneFacts("fox", 4, 43, 43 * 1920 * 1080)


@pytest.mark.parametrize("aabb_scale", [1, 4, 128])
@pytest.mark.parametrize(
    "encoding",
    [
        EncodingConfig(),
        EncodingConfig(log2_hashmap_size=24),
        EncodingConfig(n_levels=16, n_features_per_level=2),
        EncodingConfig(n_levels=1, n_features_per_level=8),
        EncodingConfig(per_level_scale=1.5, base_resolution=20),
        EncodingConfig(otype="TiledGrid"),
    ],
)
def test_levels_are_those_of_the_engine(encoding: EncodingConfig, aabb_scale: int) -> None:
    network = NetworkConfig(encoding=encoding, density=MLPConfig(32, 2))
    spec = field_spec(network, aabb_scale)
    levels = grid_levels(encoding, aabb_scale)
    assert [level.entries for level in levels] == list(spec.grid.levels[1::6])
    assert [level.cells for level in levels] == pytest.approx(spec.grid.scales, rel=1e-5)
    assert n_mlp_params(network) == spec.n_mlp_params


def test_a_scene_that_was_measured_keeps_its_counts() -> None:
    assert adapted(REFERENCE.load.profile, REFERENCE.load.scene) is REFERENCE.load.profile
    load = workload(FOX, TrainConfig(), adapted(REFERENCE.load.profile, FOX))
    assert load.evaluated / load.batch == pytest.approx(1.19, rel=0.02)
    assert load.rays < REFERENCE.load.rays / 5  # photographs with surroundings: every ray meets something
    assert load.n_cells == OCCUPANCY_CELLS * n_cascades(4)


def test_distinct_sectors_grow_with_resolution_and_samples_up_to_their_limits() -> None:
    load = REFERENCE.load
    by_level = [load.read_sectors(level, load.batch) for level in load.levels]
    assert by_level == sorted(by_level)
    finest, coarsest = load.levels[-1], load.levels[0]
    assert load.read_sectors(finest, load.profile.kept) == pytest.approx(1_556_064, rel=0.01)
    assert load.read_sectors(finest, 2 * load.batch) == pytest.approx(2 * load.read_sectors(finest, load.batch), rel=0.05)
    assert load.read_sectors(coarsest, 100 * load.batch) <= coarsest.vertices * 4 / 8
    assert load.read_sectors(finest, 10) <= 10 * 6
    one_feature = dataclasses.replace(load, network=NetworkConfig(encoding=EncodingConfig(n_features_per_level=1)))
    assert one_feature.read_sectors(finest, load.batch) < load.read_sectors(finest, load.batch)


def test_hashes_that_meet() -> None:
    assert touched_share(0, 100) == 0
    assert touched_share(10, 1e6) == pytest.approx(1e-5, rel=1e-3)
    assert touched_share(1e9, 100) == 1
