"""With the pixels split over ranks of unequal speed, every pixel is equally likely to be looked at."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import nerfleet.kernels.rays.op  # noqa: F401  (registers the op)
from nerfleet.data.part import Part, take_part
from nerfleet.data.scene import Scene
from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras
from nerfleet.geometry.poses import SceneTransform
from nerfleet.kernels.control.op import N_STATE, STATE_RAYS, STATE_STEP
from nerfleet.parallel.data_parallel import DataParallel
from nerfleet.parallel.shares import edges, shares

SIZES = [(5, 4), (9, 7), (3, 3), (12, 8), (1, 1), (6, 10), (8, 5)]
"""Width and height of seven views."""
N_STEPS, N_RAYS = 300, 512


def numbered_scene() -> Scene:
    """Every pixel's colour is its number."""
    n = len(SIZES)
    counts = torch.tensor([w * h for w, h in SIZES])
    number = torch.arange(int(counts.sum()))
    pixels = torch.stack([number & 255, number >> 8, torch.zeros_like(number), torch.full_like(number, 255)], -1).to(torch.uint8)
    pose = torch.tensor([[1.0, 0, 0, 0.5], [0, 1, 0, 0.5], [0, 0, 1, -1]]).repeat(n, 1, 1)
    size = torch.tensor(SIZES)
    lenses = (torch.zeros(n, dtype=torch.int32), torch.zeros(n, N_LENS_PARAMS))
    cameras = Cameras(pose, torch.full((n, 2), 20.0), size / 2, size.int(), *lenses)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    names = tuple(f"view {i}" for i in range(n))
    return Scene("numbers", None, "train", names, cameras, pixels, offsets, 1, SceneTransform())


def looked_at(scene: Scene, seed: int, state: Tensor) -> tuple[Tensor, Tensor]:
    """(numbers of the pixels, ray directions) of one step."""
    n, c = int(state[STATE_RAYS]), scene.cameras
    origins, directions, targets, backgrounds = (torch.zeros(n, 3) for _ in range(4))
    fields = (c.camera_to_world, c.focal, c.principal, c.resolution, c.lens, c.lens_params)
    written = (origins, directions, torch.zeros(n), targets, backgrounds)
    drawable = scene.pixel_offsets.clamp(0, len(scene.pixels))
    held = (scene.pixels, scene.pixel_offsets, drawable, torch.zeros(0, dtype=torch.int32))
    torch.ops.nerfleet.sample_rays(*held, *fields, state, seed, 0.0, 1, 1, True, *written)
    return (targets[:, 0] * 255).round().long() + 256 * (targets[:, 1] * 255).round().long(), directions


def strategy(rank: int, parts: list[float], pixel_shares: list[float] | None) -> DataParallel:
    ranks = SimpleNamespace(rank=rank, world_size=len(parts), device=torch.device("cpu"), heartbeat=SimpleNamespace(rest=lambda: None))
    return DataParallel(ranks, parts, pixel_shares, measured=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("speeds", [(3.0, 2.0, 1.0), (1.0,) * 9], ids=["3 ranks of unequal speed", "more ranks than views"])
def test_every_pixel_is_equally_likely(speeds: tuple[float, ...]) -> None:
    scene, parts = numbered_scene(), shares(speeds)
    bounds = edges(parts)
    held = [take_part(scene, Part(bounds[rank], bounds[rank + 1])) for rank in range(len(parts))]
    pixel_shares = [len(part.pixels) / len(scene.pixels) for part in held]
    counts = torch.zeros(len(scene.pixels))
    weighted = torch.zeros(len(scene.pixels), dtype=torch.float64)
    for rank, part in enumerate(held):
        parallel = strategy(rank, parts, pixel_shares)
        state = torch.zeros(N_STATE, dtype=torch.int64)
        own = parallel.rank_state(state)
        for step in range(N_STEPS):
            state[STATE_STEP], state[STATE_RAYS] = step, N_RAYS
            parallel.divide(state, own)
            numbers, directions = looked_at(part, parallel.seed(7), own)
            found = numbers.bincount(minlength=len(counts)).float()
            gradient, loss = torch.full((int(own[STATE_RAYS]), 3), 1 / int(own[STATE_RAYS])), torch.zeros(1)
            parallel.weigh(gradient, loss, state, own)
            counts += found
            weighted += found * float(gradient[0, 0])
    expected = float(counts.sum()) / len(counts)
    assert float(counts.sum()) == pytest.approx(N_STEPS * N_RAYS, rel=0.01)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(counts) - 1
    # strata make counts more even than chance; 4 standard deviations above the mean of chi-square is far too uneven
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5
    assert float(weighted.std() / weighted.mean()) < 2 * expected**-0.5
    assert float(weighted.sum()) == pytest.approx(N_STEPS, rel=1e-5)


def test_a_part_sees_what_the_whole_scene_sees() -> None:
    """Pixel numbers and directions of a rank's rays are those of the same pixels in the whole scene."""
    scene = numbered_scene()
    part = take_part(scene, Part(0.3, 0.71))
    state = torch.tensor([0, 256, 0, 0])
    directions_of = {}
    for step in range(20):
        state[STATE_STEP] = step
        directions_of.update(zip(*(x.tolist() for x in looked_at(scene, 1, state))))
    numbers, directions = looked_at(part, 2, state)
    assert set(numbers.tolist()) <= set(range(round(0.3 * len(scene.pixels)), round(0.71 * len(scene.pixels))))
    for number, direction in zip(numbers.tolist(), directions.tolist()):
        assert direction == pytest.approx(directions_of[number], abs=1e-6)


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 5])
def test_replicated_views_give_the_same_batch_on_any_number_of_ranks(n_ranks: int) -> None:
    scene = numbered_scene()
    state = torch.tensor([11, 1000, 0, 0])
    whole, _ = looked_at(scene, 5, state)
    found = []
    for rank in range(n_ranks):
        parallel = strategy(rank, shares([1.0 + r for r in range(n_ranks)]), None)
        own = parallel.rank_state(state)
        parallel.divide(state, own)
        found.append(looked_at(scene, parallel.seed(5), own)[0])
    assert torch.equal(torch.cat(found), whole)
