"""The first occupancy grid against brute force: a cell is seen if one of its corners is in some photograph."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras, Lens
from nerfleet.kernels.march.reference import N_CELLS, morton
from nerfleet.kernels.occupancy.reference import bits
from nerfleet.nn.occupancy_grid import OccupancyGrid, initial_grid, n_cascades

FISHEYE = (0.06, -0.02, 0.003, 0.0)


def two_cameras() -> Cameras:
    """A pinhole that looks along +x from the left, and a fisheye inside the box that looks along +z."""
    poses = torch.tensor([[[0.0, 0, 1, -0.6], [1, 0, 0, 0.5], [0, 1, 0, 0.5]], [[1.0, 0, 0, 0.4], [0, 1, 0, 0.6], [0, 0, 1, 0.7]]])
    params = torch.zeros(2, N_LENS_PARAMS)
    params[1, :4] = torch.tensor(FISHEYE)
    return Cameras(
        camera_to_world=poses, focal=torch.tensor([[60.0, 60.0], [20.0, 22.0]]), principal=torch.tensor([[20.0, 15.0], [18.0, 14.0]]),
        resolution=torch.tensor([[40, 30], [36, 28]], dtype=torch.int32),
        lens=torch.tensor([int(Lens.PERSPECTIVE), int(Lens.OPENCV_FISHEYE)], dtype=torch.int32),
        lens_params=params,
    )  # fmt: skip


def pinhole_sees(point: list[float]) -> bool:
    x, y, z = point
    depth, right, down = x + 0.6, y - 0.5, z - 0.5
    return depth > 0 and 0 <= 60 * right / depth + 20 < 40 and 0 <= 60 * down / depth + 15 < 30


def fisheye_sees(point: list[float]) -> bool:
    x, y, z = point[0] - 0.4, point[1] - 0.6, point[2] - 0.7
    if z <= 0:
        return False
    radius = math.hypot(x, y)
    theta = math.atan2(radius, z)
    bent = theta * (1 + sum(k * theta ** (2 * i + 2) for i, k in enumerate(FISHEYE)))
    factor = bent / radius if radius else 1.0
    return 0 <= 20 * x * factor + 18 < 36 and 0 <= 22 * y * factor + 14 < 28


def corners(cell: list[int], cascade: int) -> list[list[float]]:
    return [[((c + o) / 128 - 0.5) * 2**cascade + 0.5 for c, o in zip(cell, (k & 1, k >> 1 & 1, k >> 2))] for k in range(8)]


def near_an_edge(cell: list[int], cascade: int) -> bool:
    """Whether moving the corners a hair changes the answer: rounding may decide either way."""
    answers = {any(pinhole_sees([x + d for x in p]) or fisheye_sees([x + d for x in p]) for p in corners(cell, cascade)) for d in (-1e-4, 0.0, 1e-4)}
    return len(answers) > 1


@pytest.fixture(scope="module")
def grid() -> OccupancyGrid:
    return initial_grid(two_cameras(), 2)


def test_seen_cells_against_brute_force(grid: OccupancyGrid) -> None:
    assert grid.n_cascades == 2
    generator = torch.Generator().manual_seed(0)
    checked = {True: 0, False: 0}
    for cascade in range(2):
        for cell in torch.randint(0, 128, (400, 3), generator=generator).tolist():
            if near_an_edge(cell, cascade):
                continue
            seen = any(pinhole_sees(p) or fisheye_sees(p) for p in corners(cell, cascade))
            index = cascade * N_CELLS + int(morton(torch.tensor(cell)))
            assert float(grid.values[index]) == (0.0 if seen else -1.0), (cascade, cell)
            assert int(grid.bitfield[index >> 3]) >> (index & 7) & 1 == int(seen)
            checked[seen] += 1
    assert min(checked.values()) > 50


def test_only_the_lens_can_see_some_cells(grid: OccupancyGrid) -> None:
    """The fisheye's corner cells lie outside of the same camera without its lens."""
    cameras = two_cameras()
    plain = initial_grid(
        Cameras(cameras.camera_to_world, cameras.focal, cameras.principal, cameras.resolution, torch.zeros_like(cameras.lens), cameras.lens_params), 1
    )
    assert int(((grid.values[:N_CELLS] >= 0) & (plain.values < 0)).sum()) > 1000


def all_seeing() -> Cameras:
    cameras = two_cameras()
    lens = torch.tensor([int(Lens.PERSPECTIVE), int(Lens.EQUIRECTANGULAR)], dtype=torch.int32)
    return Cameras(cameras.camera_to_world, cameras.focal, cameras.principal, cameras.resolution, lens, cameras.lens_params)


def test_panoramas_see_everything() -> None:
    grid = initial_grid(all_seeing(), 1)
    assert bool((grid.values == 0).all())
    assert bool((grid.bitfield == 255).all())


@pytest.mark.parametrize("aabb_scale, expected", [(1, 1), (2, 2), (4, 3), (128, 8)])
def test_number_of_cascades(aabb_scale: int, expected: int) -> None:
    assert n_cascades(aabb_scale) == expected


def test_bits_follow_from_values() -> None:
    values: Tensor = torch.rand(2 * N_CELLS, generator=torch.Generator().manual_seed(0)) * 0.02
    grid = OccupancyGrid.from_values(values)
    assert torch.equal(grid.bitfield, bits(values))
    assert 0.3 < float((grid.bitfield[: N_CELLS // 8].float() > 0).float().mean()) <= 1
    assert grid.to("cpu").n_cascades == 2
