"""The occupancy grid: where densities are looked at, decay, bits and cascades."""

from __future__ import annotations

import math

import pytest
import torch
from tests.support.compare import MARK, assert_close, check_op, marked, untouched
from torch import Tensor

import nerfleet.kernels.occupancy.op  # noqa: F401  (registers the ops)
from nerfleet.kernels.control.op import HYPER_MEAN_DENSITY, N_HYPER, N_STATE, STATE_STEP
from nerfleet.kernels.march.reference import MIN_STEP, N_CELLS, cell_index, morton
from nerfleet.kernels.occupancy import reference


def random_grid(n_cascades: int, seed: int = 0) -> Tensor:
    """Values around the threshold, a few large, a few infinite, a tenth unseen; [cascades * 128^3]."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(n_cascades * N_CELLS, generator=generator) ** 8 * 0.05
    values[torch.rand(len(values), generator=generator) < 0.1] = -1.0
    values[17] = torch.inf
    return values


def test_inner_cells_cover_the_finer_cascade() -> None:
    inner = reference.inner_cells(torch.device("cpu"))
    assert inner.unique().numel() == N_CELLS // 8
    points = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    fine = cell_index(points, torch.zeros(200, dtype=torch.int64))
    coarse = cell_index(points, torch.ones(200, dtype=torch.int64)) - N_CELLS
    assert torch.equal(inner[fine // 8], coarse)


def test_bits_of_a_few_cells() -> None:
    grid = torch.zeros(2 * N_CELLS)
    fine = int(morton(torch.tensor([0, 0, 0])))
    outside = N_CELLS + int(morton(torch.tensor([3, 4, 5])))
    grid[fine], grid[outside], grid[40] = 1.0, 1.0, 1e-9
    occupied = (reference.bits(grid)[:, None].long() >> torch.arange(8) & 1).view(-1).nonzero().flatten().tolist()
    assert occupied == sorted([fine, N_CELLS + int(morton(torch.tensor([32, 32, 32]))), outside])  # 1e-9 is below the mean


def test_threshold_is_the_mean_at_most_a_hundredth() -> None:
    grid = torch.full((N_CELLS,), 0.005)
    grid[: N_CELLS // 2] = 0.003
    assert int((reference.bits(grid) == 255).sum()) == N_CELLS // 16
    grid *= 100
    assert int((reference.bits(grid) == 255).sum()) == N_CELLS // 8


@pytest.mark.parametrize("n_cascades", [1, 3])
def test_update(n_cascades: int, device: torch.device) -> None:
    grid = random_grid(n_cascades)
    grid[17] = 0.7
    updates = torch.rand(len(grid), generator=torch.Generator().manual_seed(1)) * 0.01 * (torch.arange(len(grid)) % 3 == 0)
    expected = torch.where(grid < 0, grid, torch.maximum(grid * 0.95, updates))
    on_device = (updates.clone().to(device), grid.clone().to(device), torch.zeros(len(grid) // 8, dtype=torch.uint8, device=device))
    hyper = torch.full((N_HYPER,), 7.0, device=device)
    torch.ops.nerfleet.occupancy_update(*on_device, hyper)
    assert_close(on_device[1], expected, torch.float32)
    assert bool((on_device[1].cpu() == -1).eq(grid == -1).all())  # unseen stays unseen
    assert not on_device[0].any()
    mean = reference.mean_density(expected.double())
    assert float(hyper[HYPER_MEAN_DENSITY]) == pytest.approx(float(mean), rel=1e-4)
    assert hyper[:3].tolist() == [7.0] * 3
    differing = on_device[2].cpu() ^ reference.bits(on_device[1].cpu())
    assert int((differing != 0).sum()) <= 2 * n_cascades  # cells within rounding of the mean

    reference.update(updates, grid)
    assert torch.equal(grid, expected)
    assert not updates.any()


@pytest.mark.parametrize("value, byte", [(-1.0, 0), (0.0, 0), (math.inf, 255)])
def test_update_of_empty_full_and_unseen_grids(value: float, byte: int, device: torch.device) -> None:
    grid, updates = torch.full((2 * N_CELLS,), value, device=device), torch.zeros(2 * N_CELLS, device=device)
    bitfield, hyper = marked(N_CELLS // 4, dtype=torch.int32, device=device).to(torch.uint8), torch.zeros(N_HYPER, device=device)
    torch.ops.nerfleet.occupancy_update(updates, grid, bitfield, hyper)
    assert bool((bitfield == byte).all())
    assert bool((grid == value).all())


@pytest.mark.parametrize("n", [0, 1, 1001])
def test_splat(n: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(2)
    cells = torch.randint(0, 50, (n,), generator=generator, dtype=torch.int32)
    raw = torch.randn(n, generator=generator) * 3
    updates = torch.zeros(64, device=device)
    torch.ops.nerfleet.occupancy_splat(cells.to(device), raw.to(device), updates)
    expected = [max([0.0] + [math.exp(r) * MIN_STEP for c, r in zip(cells.tolist(), raw.tolist()) if c == i]) for i in range(64)]
    assert_close(updates, torch.tensor(expected, dtype=torch.float64), torch.float32, 8)
    oracle = torch.zeros(64, dtype=torch.float64)
    reference.splat(cells, raw.double(), oracle)
    assert_close(oracle, torch.tensor(expected, dtype=torch.float64), torch.float64, 8)


def sample(grid: Tensor, aabb_scale: int, n: int, n_uniform: int, *, first: int = 0, step: int = 5, seed: int = 1) -> tuple[Tensor, Tensor]:
    cells, positions = marked(n + 3, dtype=torch.int32, device=grid.device), marked(n + 3, 3, device=grid.device)
    state = torch.zeros(N_STATE, dtype=torch.int64, device=grid.device)
    state[STATE_STEP] = step
    torch.ops.nerfleet.occupancy_sample(grid, state, seed, aabb_scale, first, n_uniform, cells[:n], positions[:n])
    assert untouched(cells[n:])
    assert untouched(positions[n:])
    return cells[:n].cpu(), positions[:n].cpu()


@pytest.mark.parametrize("aabb_scale, n_cascades", [(1, 1), (4, 3)])
def test_samples_lie_in_their_cells(aabb_scale: int, n_cascades: int, device: torch.device) -> None:
    n = 5001
    cells, positions = sample(random_grid(n_cascades).to(device), aabb_scale, n, n // 2)
    assert int(cells.min()) >= 0
    assert MARK not in cells.tolist()
    internal = (positions.double() - 0.5) * aabb_scale + 0.5
    assert bool(((internal - 0.5).abs() <= aabb_scale / 2).all())
    cascade = cells.long() // N_CELLS
    inside = ((internal - 0.5) / 2.0 ** cascade[:, None] + 0.5) * 128
    cell = inside.floor().clamp(0, 127)
    codes = morton(cell.long()) + cascade * N_CELLS
    on_border = ((inside - inside.round()).abs() < 1e-3).any(-1)
    assert bool(((codes == cells) | on_border).all())
    assert float(on_border.float().mean()) < 0.02
    spread = (inside - cell).mean(0)
    assert bool(((spread > 0.45) & (spread < 0.55)).all())
    assert len(cascade.unique()) == n_cascades


def test_uniform_samples_avoid_unseen_cells_and_others_seek_occupied_ones(device: torch.device) -> None:
    grid = random_grid(1)
    cells, _ = sample(grid.to(device), 1, 4000, 2000)
    values = grid[cells.long()]
    assert int((values[:2000] < 0).sum()) <= 2  # a tenth is unseen, ten tries
    share = float((grid > 0.01).float().mean())
    found = float((values[2000:] > 0.01).float().mean())
    assert found == pytest.approx(1 - (1 - share) ** 10, abs=0.05)
    expected = (torch.arange(2000) + 0.5) * N_CELLS / 2000
    assert float((cells[:2000] - expected).abs().max()) <= N_CELLS / 2000  # one in each part of the grid


def test_samples_depend_on_seed_step_and_index_only(device: torch.device) -> None:
    grid = random_grid(1).to(device)
    whole, part = sample(grid, 1, 600, 400), sample(grid, 1, 200, 400, first=300)
    assert torch.equal(whole[0][300:500], part[0])
    assert torch.equal(whole[1][300:500], part[1])
    for other in (sample(grid, 1, 600, 400, step=6), sample(grid, 1, 600, 400, seed=2)):
        assert not torch.equal(whole[1], other[1])


def test_schema_and_fake(device: torch.device) -> None:
    grid = torch.zeros(N_CELLS, device=device)
    state = torch.zeros(N_STATE, dtype=torch.int64, device=device)
    cells, positions = torch.zeros(8, dtype=torch.int32, device=device), torch.zeros(8, 3, device=device)
    ops = torch.ops.nerfleet
    check_op(ops.occupancy_sample.default, (grid, state, 1, 1, 0, 8, cells, positions))
    check_op(ops.occupancy_splat.default, (cells, torch.ones(8, device=device), torch.zeros(N_CELLS, device=device)))
    bitfield = torch.zeros(N_CELLS // 8, dtype=torch.uint8, device=device)
    check_op(ops.occupancy_update.default, (torch.ones(N_CELLS, device=device), grid, bitfield, torch.zeros(N_HYPER, device=device)))
