"""Random numbers and training rays: known answers, equal chances, masks, targets, reproducibility."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.compare import assert_close, check_op, untouched
from torch import Tensor

from nerfleet.data.scene import MASKED_PIXEL
from nerfleet.geometry.cameras import Cameras, Lens, pixel_rays
from nerfleet.geometry.color import composite
from nerfleet.kernels.control.op import N_STATE, STATE_RAYS, STATE_STEP
from nerfleet.kernels.march.reference import from_lattice
from nerfleet.kernels.rays.op import BACKGROUNDS, NO_RAY
from nerfleet.kernels.rays.philox import split_seed, words
from nerfleet.train.buffers import RayBatch

SIZES = ((7, 5), (4, 9), (16, 3))
"""Width and height of the photographs: 35 + 36 + 48 pixels."""


def test_philox_known_answers() -> None:
    """From the authors' Random123 distribution (kat_vectors, philox4x32-10)."""
    ones = 0xFFFFFFFF
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    cases = [
        ([0] * 6, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ones] * 6, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (pi, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ]
    for (*counter, key_0, key_1), expected in cases:
        out = np.empty((1, 4), np.uint32)
        words(np.array([counter], np.uint32), key_0, key_1, out)
        assert out[0].tolist() == expected


def test_seed_is_split_in_two_words() -> None:
    assert split_seed(0x123456789ABCDEF0) == (0x9ABCDEF0, 0x12345678)


def photographs(device: torch.device, lens: Lens = Lens.PERSPECTIVE) -> tuple[Tensor, Tensor, Cameras]:
    """Pixels, offsets and cameras that look at the scene box from 1.2 away; two pixels are masked."""
    generator = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, *np.cumsum([w * h for w, h in SIZES])])
    pixels = torch.randint(0, 256, (int(offsets[-1]), 4), generator=generator, dtype=torch.uint8)
    pixels[3] = pixels[60] = torch.tensor(MASKED_PIXEL, dtype=torch.uint8)
    turns = [torch.eye(3), torch.tensor([[0.0, 0, -1], [0, 1, 0], [1, 0, 0]]), torch.tensor([[-1.0, 0, 0], [0, 1, 0], [0, 0, -1]])]
    poses = torch.stack([torch.cat([turn, (0.5 - 1.2 * turn[:, 2:])], 1) for turn in turns])
    sizes = torch.tensor(SIZES, dtype=torch.int32)
    params = torch.zeros(len(SIZES), 7)
    if lens != Lens.PERSPECTIVE:
        params[:, :4] = torch.tensor([0.05, -0.01, 0.002, 0.001])
    cameras = Cameras(poses, sizes.float() * 1.5, sizes.float() / 2, sizes, torch.full((len(SIZES),), int(lens), dtype=torch.int32), params)
    return pixels.to(device), offsets.to(device), cameras.to(device)


def sample(
    device: torch.device, n: int, *, step: int = 3, seed: int = 11, background: str = "random", srgb: bool = False, cone: float = 0.0,
    aabb_scale: int = 1, lens: Lens = Lens.PERSPECTIVE, capacity: int | None = None, pool: tuple[Tensor, Tensor, Tensor] | None = None,
    ready: tuple[int, ...] = (0, 1, 2),
) -> RayBatch:  # fmt: skip
    pixels, offsets, c = photographs(device, lens)
    pixels, offsets, places = pool or (pixels, offsets, torch.zeros(0, dtype=torch.int32, device=device))
    counts = offsets.diff() * torch.tensor([view in ready for view in range(len(SIZES))], device=device)
    drawable = torch.cat([offsets[:1], counts.cumsum(0)])
    rays = RayBatch.allocate(capacity or n, device)
    for buffer in (rays.origins, rays.directions, rays.starts, rays.targets, rays.backgrounds):
        buffer.fill_(torch.nan)
    state = torch.zeros(N_STATE, dtype=torch.int64, device=device)
    state[STATE_RAYS], state[STATE_STEP] = n, step
    cameras = (c.camera_to_world, c.focal, c.principal, c.resolution, c.lens, c.lens_params)
    how = (state, seed, cone, aabb_scale, BACKGROUNDS[background], srgb)
    written = (rays.origins, rays.directions, rays.starts, rays.targets, rays.backgrounds)
    torch.ops.nerfleet.sample_rays(pixels, offsets, drawable, places, *cameras, *how, *written)
    return rays


def all_rays(device: torch.device, lens: Lens = Lens.PERSPECTIVE) -> tuple[Tensor, Tensor]:
    """Origins and unit directions [119, 3] through the centre of every pixel."""
    _, _, cameras = photographs(device, lens)
    views = torch.cat([torch.full((w * h,), view) for view, (w, h) in enumerate(SIZES)])
    centres = torch.cat([torch.tensor([[x + 0.5, y + 0.5] for y in range(h) for x in range(w)]) for w, h in SIZES])
    origins, directions = pixel_rays(cameras, views.to(device), centres.to(device))
    return origins, torch.nn.functional.normalize(directions, dim=-1)


def pixel_of(rays: RayBatch, device: torch.device, lens: Lens = Lens.PERSPECTIVE) -> Tensor:
    """[n] which of the 119 pixels each ray looks through."""
    origins, directions = all_rays(device, lens)
    distance = torch.cdist(torch.cat([rays.origins, rays.directions], -1), torch.cat([origins, directions], -1), compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distance.min(-1)
    assert float(nearest.values.max()) < 1e-4
    return nearest.indices


def test_every_pixel_is_equally_likely(device: torch.device) -> None:
    pixels, n, n_steps = 119, 256, 60
    counts = torch.zeros(pixels)
    for step in range(n_steps):
        counts += torch.bincount(pixel_of(sample(device, n, step=step), device), minlength=pixels).cpu()
    expected = n * n_steps / pixels
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < pixels - 1 + 4 * (2 * (pixels - 1)) ** 0.5  # stratified: at most what independent draws give
    assert chi_square > 1  # and still random


def test_rays_are_spread_over_the_pixels(device: torch.device) -> None:
    """Ray i of n comes from the i-th of n equal parts of all pixels."""
    n = 70
    chosen = pixel_of(sample(device, n), device).cpu()
    assert bool((chosen >= torch.arange(n) * 119 // n).all())
    assert bool((chosen <= (torch.arange(1, n + 1) * 119 - 1) // n).all())


@pytest.mark.parametrize("lens", [Lens.PERSPECTIVE, Lens.OPENCV, Lens.OPENCV_FISHEYE])
def test_rays_pass_through_pixel_centres(lens: Lens, device: torch.device) -> None:
    rays = sample(device, 300, lens=lens)
    pixel_of(rays, device, lens)  # asserts that every ray is one of them
    assert_close(rays.directions.norm(dim=-1), torch.ones(300), torch.float32, 8)


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize("srgb", [False, True])
def test_targets(background: str, srgb: bool, device: torch.device) -> None:
    rays = sample(device, 300, background=background, srgb=srgb)
    pixels = photographs(device)[0][pixel_of(rays, device)]
    assert_close(rays.targets, composite(pixels.cpu(), rays.backgrounds.cpu().double(), in_srgb=srgb), torch.float32, 64)
    if background == "random":
        assert 0.45 < float(rays.backgrounds.mean()) < 0.55
        assert 0 <= float(rays.backgrounds.min()) < 0.05
        assert 0.95 < float(rays.backgrounds.max()) < 1
    else:
        assert bool((rays.backgrounds == float(background == "white")).all())


@pytest.mark.parametrize("cone, aabb_scale", [(0.0, 1), (1 / 256, 4)])
def test_starts(cone: float, aabb_scale: int, device: torch.device) -> None:
    """At the entry of the box (or at the camera inside of it) plus less than a step; masked pixels and misses give none."""
    rays = sample(device, 600, cone=cone, aabb_scale=aabb_scale)
    chosen = pixel_of(rays, device).cpu()
    masked = (chosen == 3) | (chosen == 60)
    starts, half = rays.starts.cpu().double(), aabb_scale / 2
    origins, directions = (x.cpu().double() for x in (rays.origins, rays.directions))
    slabs = torch.stack([(0.5 - half - origins) / directions, (0.5 + half - origins) / directions])
    near, far = slabs.amin(0).amax(-1).clamp_min(0), slabs.amax(0).amin(-1)
    misses = far <= near
    assert bool((starts[masked | misses] == NO_RAY).all())
    assert bool(masked.any())
    hits = ~(masked | misses)
    assert int(hits.sum()) > 100
    first, before = from_lattice(starts, cone)[hits], from_lattice((starts - 1).clamp_min(0), cone)[hits]
    assert bool((first >= near[hits] - 1e-5).all())
    assert bool((before <= near[hits] + 1e-5).all())
    points = origins[hits] + directions[hits] * (first + 1e-5)[:, None]
    assert bool(((points - 0.5).abs() <= half + 1e-4).all(-1)[first < far[hits]].all())
    if cone == 0.0:
        jitter = (starts - near / from_lattice(torch.ones(1, dtype=torch.float64), 0.0))[hits]
        assert 0.4 < float(jitter.mean()) < 0.6


def pool_of(device: torch.device, shares: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Some random pixels of each photograph: pixels, offsets, places."""
    pixels, offsets, _ = photographs(device)
    generator = torch.Generator().manual_seed(4)
    places = [torch.randperm(w * h, generator=generator)[:n] for (w, h), n in zip(SIZES, shares)]
    chosen = torch.cat([place + int(offset) for place, offset in zip(places, offsets)]).to(device)
    starts = torch.tensor([0, *np.cumsum([len(place) for place in places])], device=device)
    return pixels[chosen], starts, torch.cat(places).int().to(device)


def test_pool_gives_only_its_own_pixels(device: torch.device) -> None:
    """Rays and colours belong together, no pixel outside of the pool is looked at, and a photograph without pixels never."""
    pool = pool_of(device, (20, 0, 30))
    rays = sample(device, 2000, pool=pool, background="black")
    all_pixels, offsets, _ = photographs(device)
    seen = pixel_of(rays, device)
    view = torch.repeat_interleave(torch.arange(3, device=device), pool[1].diff())
    assert set(seen.tolist()) == set((offsets[view] + pool[2]).tolist())
    assert_close(rays.targets, composite(all_pixels[seen].cpu(), torch.zeros(3, dtype=torch.float64)), torch.float32, 64)


def test_pool_of_all_pixels_in_order_is_no_pool(device: torch.device) -> None:
    pixels, offsets, _ = photographs(device)
    places = torch.cat([torch.arange(w * h, dtype=torch.int32) for w, h in SIZES]).to(device)
    whole, pooled = sample(device, 500), sample(device, 500, pool=(pixels, offsets, places))
    for name in ("origins", "directions", "starts", "targets", "backgrounds"):
        assert torch.equal(getattr(whole, name), getattr(pooled, name)), name


@pytest.mark.parametrize("ready", [(0,), (1,), (0, 2)])
def test_only_photographs_that_are_there_are_drawn(ready: tuple[int, ...], device: torch.device) -> None:
    """All pixels of these, and no other."""
    seen = pixel_of(sample(device, 1500, ready=ready), device)
    offsets = photographs(device)[1]
    view = torch.searchsorted(offsets, seen, right=True) - 1
    assert set(view.tolist()) == set(ready)
    assert len(set(seen.tolist())) == sum(w * h for v, (w, h) in enumerate(SIZES) if v in ready)


def test_nothing_is_drawn_while_nothing_is_there(device: torch.device) -> None:
    rays = sample(device, 50, ready=())
    assert bool((rays.starts == NO_RAY).all())
    assert all(bool(torch.isfinite(getattr(rays, name)).all()) for name in ("origins", "directions", "targets", "backgrounds"))


def test_scenes_of_more_than_2_32_pixels() -> None:
    """Their pixel numbers do not fit into the product of 64 bits that a random word and a count of pixels give otherwise."""
    from nerfleet.kernels.rays import cpu

    n, total = 4096, (1 << 35) + 12345
    index, jitter, backgrounds = np.empty(n, np.int64), np.empty(n, np.float32), np.empty((n, 3), np.float32)
    cpu.choose(0, n, n, 3, 5, 0, total, index, jitter, backgrounds)
    place = index - np.arange(n) * total / n
    assert bool((place >= -1).all())
    assert bool((place <= total / n + 1).all())
    assert abs(place.mean() / (total / n) - 0.5) < 0.05


def test_same_seed_and_step_give_the_same_rays(device: torch.device) -> None:
    first, again = sample(device, 200), sample(device, 200)
    for name in ("origins", "directions", "starts", "targets", "backgrounds"):
        assert torch.equal(getattr(first, name), getattr(again, name)), name
    for other in (sample(device, 200, step=4), sample(device, 200, seed=12), sample(device, 200, seed=11 + (1 << 32))):
        assert not torch.equal(first.backgrounds, other.backgrounds)
        assert not torch.equal(first.directions, other.directions)


def test_only_the_asked_rays_are_written(device: torch.device) -> None:
    rays = sample(device, 37, capacity=64)
    for name in ("origins", "directions", "starts", "targets", "backgrounds"):
        values = getattr(rays, name)
        assert bool(torch.isfinite(values[:37]).all()), name
        assert untouched(values[37:]), name


def test_schema_and_fake(device: torch.device) -> None:
    pixels, offsets, c = photographs(device)
    rays, state = RayBatch.allocate(16, device), torch.zeros(N_STATE, dtype=torch.int64, device=device)
    state[STATE_RAYS] = 16
    cameras = (c.camera_to_world, c.focal, c.principal, c.resolution, c.lens, c.lens_params)
    buffers = (rays.origins, rays.directions, rays.starts, rays.targets, rays.backgrounds)
    places = torch.zeros(len(pixels), dtype=torch.int32, device=device)
    check_op(torch.ops.nerfleet.sample_rays.default, (pixels, offsets, offsets, places, *cameras, state, 5, 0.0, 1, 0, False, *buffers))
