"""Parameters: their sizes, start values and memory."""

from __future__ import annotations

import math

import pytest
import torch

from nerfleet.kernels.hash_grid.spec import derived_growth
from nerfleet.kernels.mlp.reference import n_weights, split_weights
from nerfleet.nn.field import ParameterGroup, allocate, field_spec, initial_mlp, initial_table
from nerfleet.nn.model import Model
from nerfleet.nn.occupancy_grid import OccupancyGrid
from nerfleet.presets import NETWORKS


@pytest.mark.parametrize("preset, aabb_scale, n_grid", [("base", 1, 11_681_792), ("base", 4, 12_855_296), ("small", 1, 933_888)])
def test_sizes_of_presets(preset: str, aabb_scale: int, n_grid: int) -> None:
    spec = field_spec(NETWORKS[preset], aabb_scale)
    assert (spec.grid.n_params, spec.n_mlp_params) == (n_grid, 3072 + 7168)
    assert spec.grid.growth == pytest.approx(math.exp(math.log(2048 * aabb_scale / 16) / 7))


def test_growth_of_a_single_level() -> None:
    assert derived_growth(1, 16, 4) == 1.0


def test_first_weights() -> None:
    spec = field_spec(NETWORKS["small"], 1)
    weights = initial_mlp(spec, torch.Generator().manual_seed(0))
    n_density = n_weights(spec.density_dims)
    for part, dims in ((weights[:n_density], spec.density_dims), (weights[n_density:], spec.rgb_dims)):
        for layer in split_weights(part, dims):
            bound = math.sqrt(6 / sum(layer.shape))
            assert 0.95 * bound < float(layer.abs().max()) <= bound
            assert abs(float(layer.mean())) < 0.1 * bound
    table = initial_table(spec, torch.Generator().manual_seed(0))
    assert len(table) == spec.grid.n_params
    assert 0.99e-4 < float(table.abs().max()) <= 1e-4
    assert torch.equal(weights, initial_mlp(spec, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_group_shares_what_it_may(device: str) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    group = ParameterGroup.from_values(values, torch.device(device), is_table=True)
    assert torch.equal(group.master.cpu(), values)
    working = torch.float32 if device == "cpu" else torch.float16
    assert {group.weights.dtype, group.ema.dtype} == {working}
    assert group.gradient.dtype == (torch.float32 if device == "cpu" else torch.int64)
    assert (group.weights is group.master) == (device == "cpu")
    assert group.steps.dtype == torch.int16
    assert not any(x.any() for x in (group.gradient, group.first_moment, group.second_moment, group.steps))
    assert len({x.data_ptr() for x in group.tensors()}) == (6 if device == "cpu" else 7)
    assert torch.equal(group.ema, group.weights)


def test_allocated_memory_is_zero() -> None:
    for dtype in (torch.float32, torch.int16):
        values = allocate(1 << 21, dtype, torch.device("cpu"))
        assert values.dtype == dtype
        assert not values.any()


def test_model_knows_its_field() -> None:
    network = NETWORKS["small"]
    spec = field_spec(network, 2)
    generator = torch.Generator().manual_seed(0)
    grid = OccupancyGrid.from_values(torch.zeros(2 * 128**3))
    model = Model(network, 2, 1 / 256, initial_mlp(spec, generator), initial_table(spec, generator), grid)
    assert model.spec == spec
    assert model.device.type == "cpu"
    copy = model.to("cpu")
    assert torch.equal(copy.table, model.table)
    assert copy.table.dtype == torch.float32
