"""hash_grid.cu, field.cu and field_backward.cu against the references, on a GPU and emulated."""

from __future__ import annotations

import pytest
import torch
from tests.support.backends import EMULATED, GPU, Backend, assert_same_direction
from tests.support.emulator import marked

from nerfleet.errors import NerfleetError
from nerfleet.kernels.field import cuda as field_cuda
from nerfleet.kernels.field import reference as field_reference
from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.kernels.hash_grid import fixed_point
from nerfleet.kernels.hash_grid import reference as grid_reference
from nerfleet.kernels.hash_grid.op import grid_arguments
from nerfleet.kernels.hash_grid.spec import LEVEL_INTS, GridSpec

GRIDS = {
    "base": GridSpec(8, 4, 14, 16, 2.0),
    "two features, smoothstep": GridSpec(5, 2, 12, 8, 1.6, interpolation="Smoothstep"),
    "eight features": GridSpec(3, 8, 11, 4, 2.1),
    "one feature, nearest": GridSpec(4, 1, 12, 8, 1.7, interpolation="Nearest"),
    "one feature, dense": GridSpec(3, 1, 10, 5, 1.5, kind="DenseGrid"),
    "tiled": GridSpec(4, 2, 12, 6, 1.9, kind="TiledGrid"),
}


@pytest.fixture(params=[EMULATED, GPU])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    return Backend(request.param, monkeypatch)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def points(n: int, generator: torch.Generator) -> torch.Tensor:
    """[n, 3] in the unit cube: some alone, some neighbours on a line, as samples of a ray are; the corners too."""
    positions = torch.rand(n, 3, generator=generator)
    if n > 60:
        positions[10:60] = (positions[10] + torch.linspace(0, 0.02, 50)[:, None]).clamp(0, 1)
    positions[0], positions[-1] = 0.0, 1.0
    return positions


def parameters(spec: FieldSpec, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    table = torch.randn(spec.grid.n_params, generator=generator) * 0.3
    return table.half(), (torch.randn(spec.n_mlp_params, generator=generator) * 0.2).half()


SOME_GRIDS = [pytest.param(name, marks=() if name in ("base", "two features, smoothstep") else pytest.mark.slow) for name in GRIDS]
"""Emulated kernels are built first, which takes a second or two each: the rarer ones are slow tests (on a GPU all of them run)."""


@pytest.mark.parametrize("name", SOME_GRIDS)
@pytest.mark.parametrize("n", [1, 131])
def test_encoding(name: str, n: int, backend: Backend, generator: torch.Generator) -> None:
    grid, positions = GRIDS[name], points(n, generator)
    table, _ = parameters(FieldSpec(grid), generator)
    expected = grid_reference.hash_grid(positions, table.float(), *grid_arguments(grid))
    torch.testing.assert_close(backend("hash_grid", positions, table, *grid_arguments(grid)).float(), expected, rtol=2e-3, atol=1e-3)


def test_gradient_of_some_levels(backend: Backend, generator: torch.Generator) -> None:
    """Columns of all levels' gradients give the same as all levels at once."""
    grid = GridSpec(n_levels=8, n_features=4, log2_hashmap_size=10, base_resolution=4, growth=1.7)
    positions, gradient = points(131, generator), torch.randn(131, grid.n_output, generator=generator).half()
    n_features, scales, levels, interpolation = grid_arguments(grid)
    count = torch.tensor([120], dtype=torch.int32)
    whole, parts = (torch.zeros(grid.n_params // 2, dtype=torch.int64) for _ in range(2))
    backend("hash_grid_backward", positions, gradient, n_features, scales, levels, interpolation, whole, count, None)
    for a, b in ((4, 8), (0, 4)):
        layout = levels[LEVEL_INTS * a : LEVEL_INTS * b]
        backend("hash_grid_backward", positions, gradient[:, 4 * a : 4 * b], n_features, scales[a:b], layout, interpolation, parts, count, None)
        assert bool(parts.any())
    assert torch.equal(parts, whole)


@pytest.mark.parametrize("name", SOME_GRIDS)
def test_encoding_gradient(name: str, backend: Backend, generator: torch.Generator) -> None:
    grid, positions = GRIDS[name], points(131, generator)
    gradient = torch.randn(131, grid.n_output, generator=generator).half()
    count = torch.tensor([120], dtype=torch.int32)
    pairs = torch.zeros(grid.n_params // 2, dtype=torch.int64)
    order = torch.randperm(120, generator=generator)
    backend("hash_grid_backward", positions, gradient[order], *grid_arguments(grid), pairs, count, order.int())
    written = fixed_point.unpack(pairs)
    table = torch.zeros(grid.n_params, requires_grad=True)
    grid_reference.hash_grid(positions[:120], table, *grid_arguments(grid)).backward(gradient[:120].float())
    assert table.grad is not None
    assert_same_direction(written, table.grad, 1e-4)
    missing = (written == 0) & (table.grad.abs() > 1e-3)
    assert not missing.any()
    assert not (written != 0)[table.grad == 0].any()
    exact = backend("hash_grid_gradient", positions[:120], gradient[:120], *grid_arguments(grid), grid.n_params)
    assert_same_direction(exact, table.grad, 1e-4)


@pytest.mark.parametrize("size", [1e-6, 3e4])
def test_gradients_of_any_size(size: float, backend: Backend, generator: torch.Generator) -> None:
    """For users, whose losses are not scaled to suit fixed point."""
    grid, positions = GRIDS["base"], points(131, generator)
    gradient = (torch.rand(131, grid.n_output, generator=generator) * size).half()
    found = backend("hash_grid_gradient", positions, gradient, *grid_arguments(grid), grid.n_params)
    expected = torch.ops.nerfleet.hash_grid_gradient(positions, gradient.float(), *grid_arguments(grid), grid.n_params)
    assert_same_direction(found.float().clamp(max=65504), expected.half().float().clamp(max=65504), 1e-3)
    gradient[77, 5] = torch.inf
    assert torch.isnan(backend("hash_grid_gradient", positions, gradient, *grid_arguments(grid), grid.n_params)).all()


def test_addends_that_are_not_finite_or_too_large(backend: Backend) -> None:
    """One sample in the middle of a cell of a coarse level, so that its eight corners get one eighth each."""
    grid = GridSpec(2, 4, 12, 16, 1.0)
    positions = torch.full((1, 3), 0.5 / (grid.scales[0]) * 2)
    gradient = torch.tensor([[torch.nan, 1.0, -torch.inf, -1.0, 2.0**-24, -(2.0**-21), 65504.0, -65504.0]]).half()
    pairs = torch.zeros(grid.n_params // 2, dtype=torch.int64)
    backend("hash_grid_backward", positions, gradient, *grid_arguments(grid), pairs, None, None)
    entries = fixed_point.unpack(pairs).view(2, -1, 4)
    first, second = (level[level.abs().sum(1) > 0] for level in entries)
    assert first.sum(0).tolist() == pytest.approx([0.0, 1.0, 0.0, -1.0], abs=1e-6)
    assert float(second.sum(0)[1]) == pytest.approx(-(2.0**-21), rel=1e-3)
    assert (float(second[:, 2].max()), float(second[:, 3].min())) == (128.0, -128.0)


def test_weight_gradients_are_the_same_in_any_slots(backend: Backend, generator: torch.Generator) -> None:
    """Records change places, the sequence stays: not one bit changes, whatever the blocks."""
    spec = FieldSpec(GRIDS["base"])
    n = 300
    _, mlp = parameters(spec, generator)
    features, rays = (torch.randn(n, 32, generator=generator) * 0.3).half(), torch.randint(0, 9, (n,), generator=generator, dtype=torch.int32)
    directions = torch.nn.functional.normalize(torch.randn(9, 3, generator=generator), dim=-1)
    d_rgb, d_raw, count = torch.randn(n, 3, generator=generator), torch.randn(n, generator=generator), torch.tensor([n], dtype=torch.int32)
    results = []
    for slots in (torch.arange(n), torch.randperm(n, generator=generator)):
        records = [torch.empty_like(x).index_copy_(0, slots, x) for x in (features, rays, d_rgb, d_raw)]
        grad_mlp, grad_features = torch.zeros(spec.n_mlp_params), torch.zeros(n, 32, dtype=torch.float16)
        dims, gradients = (spec.density_dims, spec.rgb_dims), (records[2], records[3], count, slots.int(), grad_mlp, grad_features)
        backend("field_backward", records[0], records[1], directions, mlp, *dims, *gradients)
        results.append((grad_mlp, grad_features))
    assert results[0][0].any()
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


SOME_FIELDS = [
    ("base", 64),
    pytest.param("two features, smoothstep", 32, marks=pytest.mark.slow),
    pytest.param("eight features", 128, marks=pytest.mark.slow),
]
SOME_NETWORKS = [(32, 64), *(pytest.param(n, hidden, marks=pytest.mark.slow) for n, hidden in ((10, 64), (24, 32), (24, 128)))]


@pytest.mark.parametrize(("grid", "hidden"), SOME_FIELDS)
@pytest.mark.parametrize("n", [1, 77])
def test_field(grid: str, hidden: int, n: int, backend: Backend, generator: torch.Generator) -> None:
    spec = FieldSpec(GRIDS[grid], density_neurons=hidden, rgb_neurons=hidden)
    table, mlp = parameters(spec, generator)
    positions = points(n, generator)
    directions = torch.nn.functional.normalize(torch.randn(n, 3, generator=generator), dim=-1)
    rgb, raw, features = backend("field", positions, directions, table, mlp, *spec.arguments)
    expected_rgb, expected_raw = field_reference.field(positions, directions, table.float(), mlp.float(), *spec.arguments)
    torch.testing.assert_close(rgb, expected_rgb, rtol=0, atol=2e-3)
    torch.testing.assert_close(raw, expected_raw, rtol=2e-3, atol=3e-3)
    expected_features = grid_reference.hash_grid(positions, table.float(), *grid_arguments(spec.grid))
    torch.testing.assert_close(features.float(), expected_features, rtol=2e-3, atol=1e-3)
    density = backend("field_density", positions, table, mlp, *spec.arguments)
    torch.testing.assert_close(density, raw, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("n_features", "hidden"), SOME_NETWORKS)
def test_field_gradient(n_features: int, hidden: int, backend: Backend, generator: torch.Generator) -> None:
    spec = FieldSpec(GridSpec(n_features // 2, 2, 12, 4, 1.3), density_neurons=hidden, rgb_neurons=hidden)
    n, capacity, n_rays = 150, 200, 20
    _, mlp = parameters(spec, generator)
    features = (torch.randn(capacity, n_features, generator=generator) * 0.3).half()
    features[n:] = torch.nan
    rays = torch.randint(0, n_rays, (capacity,), generator=generator, dtype=torch.int32)
    directions = torch.nn.functional.normalize(torch.randn(n_rays, 3, generator=generator), dim=-1)
    d_rgb, d_raw = torch.randn(capacity, 3, generator=generator), torch.randn(capacity, generator=generator)
    grad_mlp, grad_features = torch.zeros(spec.n_mlp_params), marked(capacity, n_features, dtype=torch.float16)
    count = torch.tensor([n], dtype=torch.int32)
    dims, order = (spec.density_dims, spec.rgb_dims), torch.randperm(n, generator=generator)
    backend("field_backward", features, rays, directions, mlp, *dims, d_rgb, d_raw, count, order.int(), grad_mlp, grad_features)

    leaf, weights = features[:n].float().requires_grad_(), mlp.float().requires_grad_()
    outputs = field_reference.field_from_features(leaf, directions[rays[:n].long()], weights, *dims)
    torch.autograd.backward(outputs, [d_rgb[:n], d_raw[:n]])
    assert leaf.grad is not None
    assert weights.grad is not None
    assert_same_direction(grad_mlp, weights.grad, 3e-4)
    assert_same_direction(grad_features[:n], leaf.grad[order], 3e-4)
    assert (grad_features[n:] == marked(1, dtype=torch.float16)).all()
    at = 0
    for size in [a * b for dims_ in dims for a, b in zip(dims_, dims_[1:])]:  # each layer on its own
        assert_same_direction(grad_mlp[at : at + size], weights.grad[at : at + size], 2e-3)
        at += size


def test_unsupported_networks_are_named() -> None:
    with pytest.raises(NerfleetError, match="one hidden density layer"):
        field_cuda.sizes_of(32, [32, 64, 64, 16], [32, 64, 64, 16])
    with pytest.raises(NerfleetError, match="32, 64 or 128"):
        field_cuda.sizes_of(32, [32, 48, 16], [32, 48, 48, 16])
    with pytest.raises(NerfleetError, match="more shared memory than sm_75"):
        field_cuda.sizes_of(32, [32, 128, 16], [32, 128, 128, 16]).backward_warps("sm_75")


def test_wrong_types_are_named(backend: Backend, generator: torch.Generator) -> None:
    grid = GRIDS["base"]
    with pytest.raises(NerfleetError, match="float32 on CUDA"):
        backend("hash_grid", points(3, generator), torch.zeros(grid.n_params), *grid_arguments(grid))
