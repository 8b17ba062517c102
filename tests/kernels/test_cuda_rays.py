"""rays.cu, camera_rays.cu, composite.cu, control.cu, adam.cu and occupancy.cu against the CPU's ops, on a GPU and emulated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.backends import EMULATED, GPU, Backend
from tests.support.emulator import marked

import nerfleet.kernels.adam.op
import nerfleet.kernels.composite.op
import nerfleet.kernels.control.op
import nerfleet.kernels.occupancy.op
import nerfleet.kernels.rays.camera
import nerfleet.kernels.rays.op  # noqa: F401  (registers the ops)
from nerfleet.geometry.box import scene_box
from nerfleet.kernels.hash_grid import fixed_point
from nerfleet.kernels.march.reference import N_CELLS


@pytest.fixture(params=[EMULATED, GPU])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    return Backend(request.param, monkeypatch)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def compare(backend: Backend, op: str, arguments: tuple[Any, ...], written: list[torch.Tensor], atol: float = 1e-6, rtol: float = 1e-5) -> list[torch.Tensor]:
    """Runs an op on the CPU and on CUDA from the same state -> what CUDA wrote."""
    expected = [tensor.clone() for tensor in written]
    getattr(torch.ops.nerfleet, op)(*arguments, *expected)
    backend(op, *arguments, *written)
    for ours, theirs in zip(written, expected):
        torch.testing.assert_close(ours, theirs, atol=atol, rtol=rtol)
    return written


def cameras(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Three views: perspective, OPENCV, fisheye."""
    resolution = torch.tensor([[20, 10], [16, 16], [7, 9]], dtype=torch.int32)
    rotation, _ = torch.linalg.qr(torch.randn(3, 3, 3, generator=generator))
    pose = torch.cat([rotation, torch.rand(3, 3, 1, generator=generator)], -1).contiguous()
    focal = torch.rand(3, 2, generator=generator) * 10 + 15
    lens_params = torch.zeros(3, 7)
    lens_params[1, :4] = torch.tensor([0.05, -0.02, 0.001, 0.002])
    lens_params[2, :4] = torch.tensor([0.05, -0.02, 0.01, 0.002])
    return pose, focal, resolution / 2.0 + 0.3, resolution, torch.tensor([0, 1, 2], dtype=torch.int32), lens_params


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(("aabb_scale", "cone", "background", "in_srgb"), [(1, 0.0, 0, False), (4, 1 / 256, 1, True), (16, 1 / 256, 2, False)])
def test_training_rays(aabb_scale: int, cone: float, background: int, in_srgb: bool, pool: bool, backend: Backend, generator: torch.Generator) -> None:
    views = cameras(generator)
    sizes = views[3].long().prod(1)
    sizes = sizes // 3 if pool else sizes
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    places = torch.cat([3 * torch.arange(int(n), dtype=torch.int32) for n in sizes]) if pool else torch.zeros(0, dtype=torch.int32)
    pixels = torch.randint(0, 256, (int(offsets[-1]), 4), generator=generator, dtype=torch.uint8)
    pixels[::3, 3] = 255
    pixels[5:40] = torch.tensor([255, 0, 255, 0], dtype=torch.uint8)
    state = torch.tensor([77, 200, 0, 0])
    drawable = torch.cat([offsets[:1], (offsets.diff() * torch.tensor([1, 0 if pool else 1, 1])).cumsum(0)])
    arguments = (pixels, offsets, drawable, places, *views, state, 123456789012, cone, aabb_scale, background, in_srgb)
    written = [marked(256, 3), marked(256, 3), marked(256), marked(256, 3), marked(256, 3)]
    _, _, starts, _, _ = compare(backend, "sample_rays", arguments, written, atol=2e-6, rtol=1e-5)
    assert (starts[:200] == -1).any()
    assert (starts[:200] >= 0).any()
    assert (starts[200:] == marked(1)).all()


def test_no_rays_while_no_photograph_is_there(backend: Backend, generator: torch.Generator) -> None:
    pixels, offsets, places = torch.zeros(300, 4, dtype=torch.uint8), torch.tensor([0, 100, 200, 300]), torch.zeros(0, dtype=torch.int32)
    arguments = (pixels, offsets, torch.zeros_like(offsets), places, *cameras(generator), torch.tensor([7, 64, 0, 0]), 5, 0.0, 1, 0, False)
    written = [marked(64, 3), marked(64, 3), marked(64), marked(64, 3), marked(64, 3)]
    backend("sample_rays", *arguments, *written)
    assert (written[2] == -1).all()
    assert all(torch.isfinite(tensor).all() and (tensor != marked(1)).all() for tensor in written)


@pytest.mark.parametrize("view", range(3))
@pytest.mark.parametrize("cone", [0.0, 1 / 256])
def test_camera_rays(view: int, cone: float, backend: Backend, generator: torch.Generator) -> None:
    camera = [tensor[view : view + 1].contiguous() for tensor in cameras(generator)]
    width = int(camera[3][0, 0])
    arguments = (*camera, width, 5, 50, 0.5, 0.25, 0.5, scene_box(2.0), cone)
    expected = torch.ops.nerfleet.camera_rays(*arguments)
    for ours, theirs in zip(backend("camera_rays", *arguments), expected):
        torch.testing.assert_close(ours, theirs, atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", range(7))
def test_loss(kind: int, backend: Backend, generator: torch.Generator) -> None:
    n, state = 700, torch.tensor([5, 650, 0, 0])

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    transmittance = random(n)
    transmittance[::5], transmittance[1::5] = 1.0, 0.0
    arguments = (random(n, 3), transmittance, random(n, 3), random(n, 3), random(n) - 0.2, state, kind, 128.0)
    written = [marked(n, 3), marked(n, 3), torch.zeros(1), torch.zeros(8, dtype=torch.int32)]
    gradient = compare(backend, "ray_loss", arguments, written, rtol=1e-4)[0]
    assert (gradient[650:] == marked(1)).all()
    arguments[0][3] = torch.nan
    arguments[1][3], arguments[4][3] = 0.5, 1.0
    counters = torch.zeros(8, dtype=torch.int32)
    backend("ray_loss", *arguments, marked(n, 3), marked(n, 3), torch.zeros(1), counters)
    assert counters[3] == 1


@pytest.mark.parametrize("mean_density", [0.001, 0.5])
def test_gradient_of_compositing(mean_density: float, backend: Backend, generator: torch.Generator) -> None:
    n, s = 300, 900

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    rays = torch.randint(0, n, (s,), generator=generator, dtype=torch.int32)
    samples = (rays, random(s, 3), torch.randn(s, generator=generator) * 8, random(s) * 0.3, random(s) * 0.01, random(s), random(s), random(s, 3))
    hyper = torch.tensor([0.0, 0.0, 0.0, mean_density])
    arguments = (*samples, torch.randn(n, 3, generator=generator) * 1e-3, random(n, 3), torch.tensor([800], dtype=torch.int32), hyper, 0.1)
    _, d_raw = compare(backend, "composite_backward", arguments, [marked(s, 3), marked(s)], rtol=1e-4)
    assert (d_raw[800:] == marked(1)).all()


@pytest.mark.parametrize("kind", range(7))
@pytest.mark.parametrize("first_step", [4, 6])
def test_gradient_that_favours_surfaces(first_step: int, kind: int, backend: Backend, generator: torch.Generator) -> None:
    n, s = 100, 300

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    rays = torch.randint(0, n, (s,), generator=generator, dtype=torch.int32)
    samples = (rays, random(s, 3), torch.randn(s, generator=generator) * 3, random(s) * 0.3, random(s) * 0.01, random(s), random(s) + 1e-3, random(s, 3))
    ends = (random(n, 3), torch.randn(n, 3, generator=generator) * 1e-3, random(n, 3))
    rule = (torch.tensor([0.5]), torch.tensor([5, n, 0, 0]), first_step, kind, torch.tensor([250], dtype=torch.int32), torch.tensor([0.0, 0.0, 0.0, 0.5]), 0.1)
    _, d_raw = compare(backend, "relaxed_backward", (*samples, *ends, *rule), [marked(s, 3), marked(s)], rtol=1e-3)
    assert (d_raw[250:] == marked(1)).all()


@pytest.mark.parametrize("step", [0, 1, 5, 19_999, 20_000, 30_001, 60_000])
def test_schedule(step: int, backend: Backend) -> None:
    state, hyper, expected = torch.tensor([step, 4096, 2, 1]), torch.zeros(4), torch.zeros(4)
    schedule = (1.0, 1e-2, 20_000, 10_000, 0.33, 0.95)
    torch.ops.nerfleet.begin(state, expected, *schedule)
    backend("begin", state, hyper, *schedule)
    torch.testing.assert_close(hyper, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("counts", [[300_000, 400_000, 3000, 0, 5, 0, 0, 0], [100, 400, 30, 2, 5, 0, 0, 0], [0] * 8])
def test_end_of_a_step(counts: list[int], backend: Backend) -> None:
    ours = [torch.tensor([300, 4096, 2, 1]), torch.tensor(counts, dtype=torch.int32), torch.rand(4), torch.tensor([3.5]), torch.zeros(256, 8)]
    theirs = [tensor.clone() for tensor in ours]
    torch.ops.nerfleet.advance(*theirs, 1 << 18, 1 << 18)
    backend("advance", *ours, 1 << 18, 1 << 18)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("n", "fixed"), [(1000, True), (1003, False), (7, True), (2, True)])
@pytest.mark.parametrize("skip_zero", [True, False])
@pytest.mark.parametrize("n_bad", [0, 1])
def test_adam(n: int, fixed: bool, skip_zero: bool, n_bad: int, backend: Backend, generator: torch.Generator) -> None:
    gradient = torch.randn(n, generator=generator) * 1e-2
    gradient[torch.rand(n, generator=generator) < 0.5] = 0.0
    gradient[16:80] = 0.0
    if fixed:
        pairs = fixed_point.pack(gradient)
        gradient = fixed_point.unpack(pairs)[:n]
    else:
        gradient[3] = torch.inf
    master = torch.randn(n, generator=generator)
    moments = (torch.randn(n, generator=generator) * 1e-4, torch.rand(n, generator=generator) * 1e-6)
    steps = torch.randint(0, 300, (n,), generator=generator, dtype=torch.int16)
    steps[0], steps[1] = 32767, 0
    ours = [master.clone(), master.half(), master.half(), pairs if fixed else gradient.clone(), *(m.clone() for m in moments), steps.clone()]
    theirs = [master.clone(), master.clone(), master.half().float(), gradient, *moments, steps]
    hyper, counters = torch.tensor([1e-2, 0.9, 0.1, 0.0]), torch.tensor([0, 0, 0, n_bad, 0, 0, 0, 0], dtype=torch.int32)
    constants = (hyper, counters, 0.9, 0.99, 1e-15, 0.0 if skip_zero else 1e-6, 128.0, skip_zero)
    torch.ops.nerfleet.adam(*theirs, *constants)
    backend("adam", *ours, *constants)
    for i, (a, b) in enumerate(zip(ours, theirs)):
        rounding = 2e-3 if i in (1, 2) else 2e-6
        if i == 3:
            assert not a.any()
            continue
        torch.testing.assert_close(a.float(), b.float(), rtol=rounding, atol=rounding)


@pytest.mark.parametrize(("n_cascades", "aabb_scale"), [(1, 1), (3, 4)])
def test_occupancy_samples(n_cascades: int, aabb_scale: int, backend: Backend, generator: torch.Generator) -> None:
    grid = torch.rand(n_cascades * N_CELLS, generator=generator) * 0.03
    grid[::3], grid[1::5] = -1.0, 0.0
    state = torch.tensor([33, 0, 0, 0])
    cells, _ = compare(backend, "occupancy_sample", (grid, state, 99, aabb_scale, 1000, 3000), [marked(4000, dtype=torch.int32), marked(4000, 3)])
    raw = torch.randn(4000, generator=generator) * 3
    compare(backend, "occupancy_splat", (cells, raw), [torch.zeros_like(grid)])


@pytest.mark.gpu
@pytest.mark.parametrize("n_cascades", [1, 3])
def test_occupancy_update(n_cascades: int, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    grid = torch.rand(n_cascades * N_CELLS, generator=generator) * 0.012
    grid[::3], grid[1::5] = -1.0, 0.0
    updates = torch.rand(n_cascades * N_CELLS, generator=generator) * 0.015
    bits = marked(n_cascades * N_CELLS // 8, dtype=torch.int32).to(torch.uint8)
    compare(Backend("cuda", monkeypatch), "occupancy_update", (), [updates, grid, bits, torch.zeros(4)], rtol=1e-4)
