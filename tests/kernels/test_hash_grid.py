"""The hash grid: layout, known indices, reference against a scalar loop, ops against the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.support.compare import assert_close, assert_same_gradient, check_op, marked, untouched
from tests.support.specs import GRIDS, gradient_values, random_positions, random_table, working_dtype
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.kernels.hash_grid import fixed_point, reference
from nerfleet.kernels.hash_grid.op import grid_arguments, hash_grid
from nerfleet.kernels.hash_grid.spec import LEVEL_INTS, GridSpec, derived_growth
from nerfleet.nn.field import table_gradient

grids = pytest.mark.parametrize("spec", GRIDS.values(), ids=GRIDS.keys())


def reference_features(positions: Tensor, table: Tensor, spec: GridSpec) -> Tensor:
    """float64 features [n, L * F] on the CPU; the positions in the grid keep float32's cells."""
    return reference.hash_grid(positions.cpu(), table.cpu().double(), *grid_arguments(spec))


def away_from_borders(positions: Tensor, spec: GridSpec) -> Tensor:
    """The positions that no rounding moves into another cell of any level."""
    scaled = positions.double()[:, None] * torch.tensor(spec.scales, dtype=torch.float64)[None, :, None] + 0.5
    return positions[((scaled - scaled.round()).abs() > 1e-3).all(-1).all(-1)].contiguous()


@pytest.mark.parametrize("aabb_scale, log2_size, n_params", [(1, 19, 11_681_792), (4, 19, 12_855_296), (1, 15, 933_888)])
def test_number_of_parameters(aabb_scale: int, log2_size: int, n_params: int) -> None:
    assert GridSpec(8, 4, log2_size, 16, derived_growth(8, 16, aabb_scale)).n_params == n_params


def test_levels_follow_each_other() -> None:
    spec = GRIDS["defaults_aabb_4"]
    rows = np.array(spec.levels).reshape(-1, LEVEL_INTS)
    assert rows[0].tolist() == [16, 4096, 0, 0, 16, 256]
    assert rows[-1, 0] == 2048 * 4
    assert (rows[1:, 2] == np.cumsum(rows[:, 1])[:-1]).all()
    assert (rows[:, 1] % 8 == 0).all()
    assert rows[:, 3].tolist() == [int(r**3 > 1 << 13) for r in rows[:, 0]]
    assert spec.level_offsets == (*(2 * rows[:, 2]), spec.n_params)


def test_resolution_above_1625_always_hashes() -> None:
    def last_level(resolution: int) -> tuple[int, ...]:
        return GridSpec(1, 1, 40, resolution, 1.0).levels

    assert last_level(1625)[3] == 0
    assert last_level(1626)[3] == 1
    with pytest.raises(NerfleetError, match="1626"):
        _ = GridSpec(1, 1, 19, 1626, 1.0, kind="DenseGrid").levels


def test_known_indices() -> None:
    corner = torch.tensor([[1, 2, 3], [0, 1, 0], [0, 0, 1], [5, 0, 0]])
    hashed = (2048, 1 << 19, 100, 1, 2048, 0)
    by_hand = [(x ^ (y * 2654435761 % 2**32) ^ (z * 805459861 % 2**32)) % 2**19 for x, y, z in corner.tolist()]
    assert by_hand[1:] == [2654435761 % 2**19, 805459861 % 2**19, 5]
    assert reference.cell_index(corner, hashed).tolist() == [100 + i for i in by_hand]
    dense = (16, 4096, 7, 0, 16, 256)
    assert reference.cell_index(corner, dense).tolist() == [7 + 1 + 32 + 768, 7 + 16, 7 + 256, 7 + 5]
    assert reference.cell_index(torch.tensor([[16, 15, 15]]), dense).tolist() == [7 + 0]  # wraps around
    tiled = (262144, 128**3, 0, 0, 262144, 0)
    assert reference.cell_index(torch.tensor([[0, 16385, 9]]), tiled).tolist() == [262144 * 16385 % 2**32 % 128**3]


def scalar_features(position: list[float], table: np.ndarray, spec: GridSpec) -> list[float]:
    """Equations 2-4 of the paper, a vertex at a time."""
    features: list[float] = []
    for level in range(spec.n_levels):
        resolution, entries, first, hashed, _, _ = spec.levels[LEVEL_INTS * level : LEVEL_INTS * (level + 1)]
        scaled = [float(np.float32(x) * np.float32(spec.scales[level]) + np.float32(0.5)) for x in position]
        cell, fraction = [math.floor(x) for x in scaled], [x - math.floor(x) for x in scaled]
        if spec.interpolation == "Smoothstep":
            fraction = [3 * f**2 - 2 * f**3 for f in fraction]
        if spec.interpolation == "Nearest":
            fraction = [0.0] * 3
        value = np.zeros(spec.n_features)
        for corner in np.ndindex(2, 2, 2):
            x, y, z = (c + o for c, o in zip(cell, corner))
            weight = math.prod(f if o else 1 - f for f, o in zip(fraction, corner))
            plain = x + y * resolution
            plain += 0 if spec.kind == "TiledGrid" and resolution**2 > entries else z * resolution**2
            index = x ^ (y * 2654435761 % 2**32) ^ (z * 805459861 % 2**32) if hashed else plain
            at = (first + index % entries) * spec.n_features
            value += weight * table[at : at + spec.n_features]
        features += value.tolist()
    return features


@grids
def test_reference_equals_scalar_loop(spec: GridSpec) -> None:
    positions, table = random_positions(12, torch.device("cpu")), random_table(spec, torch.device("cpu")).double()
    expected = torch.tensor([scalar_features(p, table.numpy(), spec) for p in positions.tolist()], dtype=torch.float64)
    assert_close(reference_features(positions, table, spec), expected, torch.float32, 8)


@pytest.mark.parametrize("interpolation", ["Linear", "Smoothstep", "Nearest"])
def test_gradient_of_the_reference(interpolation: str) -> None:
    spec = GridSpec(3, 2, 6, 3, 1.6, interpolation=interpolation)
    positions = random_positions(9, torch.device("cpu")).double()
    table = torch.rand(spec.n_params, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: reference.hash_grid(positions, t, *grid_arguments(spec)), (table,), fast_mode=True)


@grids
@pytest.mark.parametrize("n", [0, 1, 1025])
def test_forward(spec: GridSpec, n: int, device: torch.device) -> None:
    positions, table = random_positions(n, device), random_table(spec, device)
    if spec.interpolation == "Nearest":
        positions = away_from_borders(positions.cpu(), spec).to(device)
    features = hash_grid(positions, table, spec)
    assert features.dtype == table.dtype
    depth = 8 * max(spec.scales) if spec.interpolation != "Nearest" else 1  # rounding of the grid position moves the weights
    assert_close(features, reference_features(positions, table, spec), working_dtype(device), int(depth))


@grids
def test_backward(spec: GridSpec, device: torch.device) -> None:
    positions = away_from_borders(random_positions(1001, torch.device("cpu")), spec)
    n = len(positions)
    assert n > 100
    weight = torch.randn(n, spec.n_output, generator=torch.Generator().manual_seed(5)).half().to(working_dtype(device))
    table = random_table(spec, torch.device("cpu")).double().requires_grad_()
    reference_features(positions, table, spec).backward(weight.double())
    assert table.grad is not None

    grad = table_gradient(spec.n_params, device)
    backward = torch.ops.nerfleet.hash_grid_backward
    backward(positions.to(device), weight.to(device), *grid_arguments(spec), grad, None, None)
    assert_same_gradient(gradient_values(grad), table.grad, working_dtype(device), int(8 * max(spec.scales)))

    backward(positions.to(device), weight.to(device), *grid_arguments(spec), grad, None, None)
    assert_same_gradient(gradient_values(grad), 2 * table.grad, working_dtype(device), int(16 * max(spec.scales)))  # adds


def test_backward_stops_at_the_count(device: torch.device) -> None:
    spec = GRIDS["small_preset"]
    positions, dtype = random_positions(300, device), working_dtype(device)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(6))
    scattered = torch.empty_like(positions)
    scattered[order.to(device)] = positions
    features = torch.ones(300, spec.n_output, dtype=dtype, device=device)
    features[200:] = torch.nan

    def gradient(count: int | None, rows: int, order: Tensor | None = None) -> Tensor:
        grad = table_gradient(spec.n_params, device)
        wanted = None if count is None else torch.tensor([count], dtype=torch.int32, device=device)
        points = positions if order is None else scattered
        torch.ops.nerfleet.hash_grid_backward(points[:rows], features[:rows], *grid_arguments(spec), grad, wanted, order)
        return gradient_values(grad)

    expected = gradient(None, 200)
    assert_close(gradient(200, 300), expected, dtype, 8)
    assert_close(gradient(1000, 200), expected, dtype, 8)  # more than there are
    assert not gradient(0, 300).any()
    assert torch.equal(gradient(200, 300, order.int().to(device)), gradient(200, 300))


def test_autograd(device: torch.device) -> None:
    spec = GRIDS["small_preset"]
    positions = away_from_borders(random_positions(200, torch.device("cpu")), spec)
    weight = torch.randn(len(positions), spec.n_output).half()
    table = random_table(spec, device).requires_grad_()
    (hash_grid(positions.to(device), table, spec) * weight.to(device, working_dtype(device))).sum().backward()
    oracle = random_table(spec, torch.device("cpu")).double().requires_grad_()
    (reference_features(positions, oracle, spec) * weight.double()).sum().backward()
    assert table.grad is not None
    assert oracle.grad is not None
    assert_same_gradient(table.grad, oracle.grad, working_dtype(device), int(8 * max(spec.scales)))


def test_same_result_every_time() -> None:
    spec, cpu = GRIDS["small_preset"], torch.device("cpu")
    positions, weight = random_positions(20_000, cpu), torch.randn(20_000, spec.n_output)
    grads = [torch.zeros(spec.n_params) for _ in range(2)]
    for grad in grads:
        torch.ops.nerfleet.hash_grid_backward(positions, weight, *grid_arguments(spec), grad, None, None)
    assert torch.equal(*grads)


def test_wrong_arguments_are_named() -> None:
    spec, cpu = GRIDS["small_preset"], torch.device("cpu")
    positions, table = random_positions(4, cpu), random_table(spec, cpu)
    for wrong, name in (((positions[:, :2], table), "positions"), ((positions.double(), table), "float32"), ((positions, table[:-1]), "table")):
        with pytest.raises(RuntimeError, match=name):
            hash_grid(*wrong, spec)


def test_schema_and_fake(device: torch.device) -> None:
    spec = GRIDS["one_level"]
    positions, table = random_positions(5, device), random_table(spec, device)
    check_op(torch.ops.nerfleet.hash_grid.default, (positions, table, *grid_arguments(spec)))
    grads = torch.ones(5, spec.n_output, device=device, dtype=table.dtype), table_gradient(spec.n_params, device)
    check_op(torch.ops.nerfleet.hash_grid_backward.default, (positions, grads[0], *grid_arguments(spec), grads[1], None, None))
    check_op(torch.ops.nerfleet.hash_grid_gradient.default, (positions, grads[0], *grid_arguments(spec), spec.n_params))


@pytest.mark.parametrize("n", [1, 8, 1001])
def test_fixed_point_sums_are_exact(n: int) -> None:
    values = torch.randn(3, n, generator=torch.Generator().manual_seed(8)).mul(10).half().float()
    values[0, 0], values[1, 0] = 2**-24, -127.0
    assert torch.equal(fixed_point.unpack(fixed_point.pack(values[0]))[:n], values[0])
    total = fixed_point.pack(values[0]) + fixed_point.pack(values[1]) + fixed_point.pack(values[2])
    assert torch.equal(fixed_point.unpack(total)[:n].double(), values.double().sum(0).float().double())


def test_marks_are_told_apart() -> None:
    buffer = marked(4)
    assert untouched(buffer)
    buffer[2] = 0
    assert not untouched(buffer)
