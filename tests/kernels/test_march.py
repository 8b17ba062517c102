"""The stepping lattice, Morton order and cascades: reference against known facts and scalar code, numba against it."""

from __future__ import annotations

import math

import pytest
import torch

from nerfleet.kernels.march import reference
from nerfleet.kernels.march.reference import MAX_STEP, MIN_STEP, N_CELLS

cones = pytest.mark.parametrize("cone_angle", [0.0, 1 / 256, 1 / 32])


@cones
def test_lattice_round_trip(cone_angle: float) -> None:
    t = torch.logspace(-5, 4, 500, dtype=torch.float64)
    n = reference.to_lattice(t, cone_angle)
    assert torch.allclose(reference.from_lattice(n, cone_angle), t, rtol=1e-10)
    assert bool((n.diff() > 0).all())
    assert float(reference.to_lattice(torch.zeros(1), cone_angle)) == 0


@pytest.mark.parametrize("cone_angle", [1 / 256, 1 / 32])
def test_lattice_pieces_join(cone_angle: float) -> None:
    _, t_begin, t_end, _, n_end = reference.lattice_pieces(cone_angle)
    for n in (t_begin / MIN_STEP, n_end):
        around = torch.tensor([n - 1e-9, n, n + 1e-9], dtype=torch.float64)
        assert float(reference.from_lattice(around, cone_angle).diff().abs().max()) < 1e-7
    before, after = (
        reference.from_lattice(torch.tensor([t_begin / MIN_STEP + d, t_begin / MIN_STEP + d + 1], dtype=torch.float64), cone_angle) for d in (-1, 0)
    )
    assert float(before[1] - before[0]) == pytest.approx(MIN_STEP)
    assert float(after[1] / after[0]) == pytest.approx(1 + cone_angle)
    beyond = reference.from_lattice(torch.tensor([n_end, n_end + 1, n_end + 2], dtype=torch.float64), cone_angle)
    assert beyond.diff().tolist() == pytest.approx([MAX_STEP, MAX_STEP])
    assert float(beyond[0]) == pytest.approx(t_end)


def test_steps_grow_with_distance() -> None:
    t = reference.from_lattice(torch.arange(2000, dtype=torch.float64), 1 / 256)
    steps = t.diff()
    assert bool((steps.diff() > -1e-12).all())
    assert float(steps[0]) == pytest.approx(math.sqrt(3) / 1024)
    assert float(steps.max()) <= MAX_STEP * (1 + 1e-9)


def test_morton_order() -> None:
    cells = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 0, 0], [127, 127, 127]])
    assert reference.morton(cells).tolist() == [0, 1, 2, 4, 8, N_CELLS - 1]
    random = torch.randint(0, 128, (50, 3), generator=torch.Generator().manual_seed(0))
    digits = [int("".join(f"{z:07b}"[i] + f"{y:07b}"[i] + f"{x:07b}"[i] for i in range(7)), 2) for x, y, z in random.tolist()]
    assert reference.morton(random).tolist() == digits


def test_cascade_of_positions_and_steps() -> None:
    positions = 0.5 + torch.tensor([[0.0, 0, 0], [0.5, 0, 0], [0, -0.51, 0], [0, 0, 1.0], [1.01, 0, 0], [9, 0, 0]])
    assert reference.cascade_of(positions, None, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert reference.cascade_of(positions, None, 1).tolist() == [0] * 6
    dt = torch.tensor([MIN_STEP, 0.999 / 256, 1 / 256, 1.99 / 256, 2 / 256, 1.0])
    assert reference.cascade_of(torch.full((6, 3), 0.5), dt, 3).tolist() == [0, 0, 1, 1, 2, 2]  # smallest m with 256 dt < 2^m


def test_cells_of_cascades() -> None:
    positions = torch.tensor([[0.0, 0.0, 0.0], [0.999, 0.999, 0.999], [0.5, 0.5, 0.5], [0.01, 0.0, 0.0]])
    fine = reference.cell_index(positions, torch.zeros(4, dtype=torch.int64))
    assert fine.tolist() == [0, N_CELLS - 1, int(reference.morton(torch.tensor([64, 64, 64]))), 1]
    coarse = reference.cell_index(positions, torch.ones(4, dtype=torch.int64))
    cells = torch.tensor([[32, 32, 32], [95, 95, 95], [64, 64, 64], [32, 32, 32]])
    assert coarse.tolist() == (N_CELLS + reference.morton(cells)).tolist()


def test_bits_are_lowest_first() -> None:
    bitfield = torch.tensor([0b00000101, 0b10000000], dtype=torch.uint8)
    assert reference.occupied(bitfield, torch.arange(16)).nonzero().flatten().tolist() == [0, 2, 15]


def test_dense_march_keeps_what_is_inside_and_occupied() -> None:
    bitfield = torch.zeros(N_CELLS // 8, dtype=torch.uint8)
    cell = int(reference.morton(torch.tensor([10, 64, 64])))
    bitfield[cell >> 3] = 1 << (cell & 7)
    origin, direction = torch.tensor([[-1.0, 64.5 / 128, 64.5 / 128]]), torch.tensor([[1.0, 0, 0]])
    start = torch.tensor([1 / MIN_STEP + 0.25])
    t, dt, valid = reference.march(origin, direction, start, bitfield, 1, 0.0, 1, 700, True)
    x = origin[0, 0] + t[valid]
    assert bool(((x >= 10 / 128) & (x < 11 / 128)).all())
    assert int(valid.sum()) in (4, 5)  # a cell is 4.6 steps wide
    assert torch.allclose(dt, torch.full_like(dt, MIN_STEP), atol=1e-6)
    assert not reference.march(origin, direction, -start, bitfield, 1, 0.0, 1, 700, True)[2].any()
