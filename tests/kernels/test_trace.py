"""Tracing against the dense oracle: every lattice point of every ray, marched, evaluated and composited in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.support.compare import assert_close, check_op, marked, tolerance, untouched
from tests.support.specs import random_directions, random_mlp, random_table, working_dtype
from torch import Tensor

import nerfleet.kernels.trace.op  # noqa: F401  (registers the ops)
from nerfleet.geometry.box import ray_box, scene_box, to_unit_cube
from nerfleet.kernels.composite.reference import composite
from nerfleet.kernels.control.op import COUNT_EVALUATED, COUNT_HIT, COUNT_KEPT, N_COUNTERS, N_STATE, STATE_RAYS
from nerfleet.kernels.field import reference as field_reference
from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.kernels.hash_grid.spec import GridSpec, derived_growth
from nerfleet.kernels.march import reference as march_reference
from nerfleet.kernels.march.reference import N_CELLS, morton, to_lattice
from nerfleet.kernels.mlp.reference import split_weights
from nerfleet.kernels.occupancy.reference import bits
from nerfleet.nn.occupancy_grid import n_cascades
from nerfleet.train.buffers import SampleBatch

LIMIT = 1e-4
SAMPLES = ("ray_indices", "ranks", "positions", "t", "dt", "features", "rgb", "raw", "weight", "after", "prefix")


@dataclass(frozen=True)
class World:
    """A random field with random occupancy, and rays into it."""

    spec: FieldSpec
    aabb_scale: int
    cone: float
    table: Tensor
    mlp: Tensor
    bitfield: Tensor
    origins: Tensor
    directions: Tensor
    starts: Tensor

    @property
    def march(self) -> tuple[Tensor, int, float, int]:
        return self.bitfield, n_cascades(self.aabb_scale), self.cone, self.aabb_scale


def blobs(aabb_scale: int, share: float, seed: int = 0) -> Tensor:
    """Bits of a grid in which blocks of 8^3 cells are occupied with probability ``share``; coarse cascades follow fine ones."""
    cascades = n_cascades(aabb_scale)
    generator = torch.Generator().manual_seed(seed)
    blocks = (torch.rand(cascades, N_CELLS // 512, generator=generator) < share).float()
    return bits(blocks.repeat_interleave(512, dim=1).view(-1) * 2 - 1)


def world(device: torch.device, aabb_scale: int = 1, *, n: int = 60, share: float = 0.15, density: float = 12.0) -> World:
    """Rays from outside and inside the box, along the axes among them; some miss, one has no start."""
    spec = FieldSpec(GridSpec(4, 4, 10, 8, derived_growth(4, 8, aabb_scale)))
    cone = 0.0 if aabb_scale == 1 else 1 / 256
    mlp = random_mlp(spec, device)
    split_weights(mlp[: sum(a * b for a, b in zip(spec.density_dims, spec.density_dims[1:]))], spec.density_dims)[-1][0] *= density
    directions = random_directions(n, device)
    generator = torch.Generator().manual_seed(7)
    aims = 0.5 + (torch.rand(n, 3, generator=generator) - 0.5).to(device) * aabb_scale * 0.6
    back = torch.rand(n, 1, generator=generator).to(device) * 2 * aabb_scale
    back[::5] = 0  # inside
    origins = aims - directions * back
    origins[-3:] += 50.0
    near, far = ray_box(origins, directions, scene_box(aabb_scale))
    starts = torch.where(far > near, to_lattice(near, cone) + torch.rand(n, generator=generator).to(device), -1.0)
    starts[-4:-3] = -1.0
    return World(spec, aabb_scale, cone, random_table(spec.grid, device), mlp, blobs(aabb_scale, share).to(device), origins, directions, starts)


@dataclass(frozen=True)
class Dense:
    """The oracle's answer, [n, s] each; kept: samples that carry weight."""

    colour: Tensor
    transmittance: Tensor
    t: Tensor
    dt: Tensor
    valid: Tensor
    kept: Tensor
    values: dict[str, Tensor]


def dense(w: World, step_cascades: bool, limited: bool, box: Tensor | None = None, limit: float = LIMIT) -> Dense:
    """``step_cascades``: which cells are looked up; ``limited``: to the samples of a training ray."""
    origins, directions = w.origins.cpu().double(), w.directions.cpu().double()
    march = (w.bitfield.cpu(), n_cascades(w.aabb_scale), w.cone, w.aabb_scale)
    n_steps = 1030 if w.aabb_scale == 1 else 1300
    t, dt, valid = march_reference.march(origins, directions, w.starts.cpu().double(), *march, n_steps, step_cascades)
    points = origins[:, None] + directions[:, None] * t[..., None]
    if box is not None:
        valid &= ((points >= box[0]) & (points <= box[1])).all(-1)
    if limited:
        valid &= torch.cumsum(valid, 1) <= march_reference.MAX_SAMPLES
    rgb, raw = torch.zeros(*valid.shape, 3, dtype=torch.float64), torch.zeros(valid.shape, dtype=torch.float64)
    positions = to_unit_cube(points[valid], w.aabb_scale).clamp(0, 1)
    along = directions[:, None].expand_as(points)[valid]
    rgb[valid], raw[valid] = field_reference.field(positions, along, w.table.cpu().double(), w.mlp.cpu().double(), *w.spec.arguments)
    colour, transmittance, weights, kept = composite(rgb, raw, dt, valid, limit)
    after = torch.cumprod(torch.where(valid, torch.exp(-torch.exp(raw) * dt), 1), -1)
    values = {"rgb": rgb, "raw": raw, "weight": weights, "after": after, "prefix": torch.cumsum(weights[..., None] * rgb, 1), "points": points}
    return Dense(colour, transmittance, t, dt, valid, kept, values)


@dataclass(frozen=True)
class Traced:
    rgb: Tensor
    transmittance: Tensor
    kept: Tensor
    samples: SampleBatch
    counters: Tensor


def run_trace(w: World, capacity: int = 60_000, n_rays: int | None = None) -> Traced:
    device, n = w.origins.device, len(w.origins)
    samples = SampleBatch.allocate(capacity, w.spec.grid.n_output, device)
    for name in SAMPLES:
        getattr(samples, name).fill_(-12345 if name in ("ray_indices", "ranks") else torch.nan)
    state = torch.zeros(N_STATE, dtype=torch.int64, device=device)
    state[STATE_RAYS] = n if n_rays is None else n_rays
    rgb, transmittance, kept = marked(n, 3, device=device), marked(n, device=device), marked(n, dtype=torch.int32, device=device)
    counters = torch.zeros(N_COUNTERS, dtype=torch.int32, device=device)
    buffers = (rgb, transmittance, kept, *(getattr(samples, name) for name in SAMPLES), counters)
    torch.ops.nerfleet.trace(w.origins, w.directions, w.starts, state, *w.march, w.table, w.mlp, *w.spec.arguments, LIMIT, *buffers)
    return Traced(rgb, transmittance, kept, samples, counters)


def lattice_index(w: World, rays: Tensor, t: Tensor) -> Tensor:
    """k of samples: their place on the ray's lattice."""
    return (to_lattice(t.cpu().double(), w.cone) - w.starts.cpu().double()[rays]).round().long()


def allowed(w: World, steepness: float = 0.25) -> tuple[torch.dtype, int]:
    """dtype and depth for ``assert_close``: on the CPU the rounding of a position, in cells of the finest level, is what counts.

    steepness: how much single samples differ more than whole rays (weights follow exp(raw)).
    """
    dtype = working_dtype(w.origins.device)
    return dtype, int((max(w.spec.grid.scales) * steepness) ** 2) if dtype == torch.float32 else int(1000 * steepness)


@pytest.mark.parametrize("aabb_scale, share", [(1, 0.15), (1, 1.0), (4, 0.15), (4, 0.6)])
def test_training_rays_against_dense(aabb_scale: int, share: float, device: torch.device) -> None:
    w = world(device, aabb_scale, share=share)
    expected, traced = dense(w, step_cascades=True, limited=True), run_trace(w)
    n_kept = int(traced.counters[COUNT_KEPT])
    assert bool((expected.transmittance == 0).any()), "no ray is cut: the test would show less"
    assert bool((expected.transmittance == 1).any())
    rays = traced.samples.ray_indices[:n_kept].cpu().long()
    found = torch.zeros_like(expected.kept)
    k = lattice_index(w, rays, traced.samples.t[:n_kept])
    assert len({(int(a), int(b)) for a, b in zip(rays, k)}) == n_kept  # each sample once
    found[rays, k] = True
    assert torch.equal(traced.kept.cpu().long(), found.sum(1))
    ranks = (torch.cumsum(found, 1) - 1)[rays, k]
    assert torch.equal(traced.samples.ranks[:n_kept].cpu().long(), ranks)
    # rounding may move a sample over a cell's border, or end a ray a sample earlier or later
    same = (found == expected.kept).all(1)
    assert float((found ^ expected.kept).float().sum()) <= 2e-3 * n_kept
    assert int(same.sum()) >= 0.8 * len(same)
    assert_close(traced.rgb.cpu()[same], expected.colour[same], *allowed(w))
    assert_close(traced.transmittance.cpu()[same], expected.transmittance[same], *allowed(w))
    assert bool((traced.transmittance.cpu()[same & (expected.transmittance == 0)] == 0).all())
    assert bool((traced.transmittance.cpu()[~expected.valid.any(1)] == 1).all())
    assert int(traced.counters[COUNT_HIT]) == pytest.approx(int(expected.valid.any(1).sum()), abs=1)
    assert int(traced.counters[COUNT_EVALUATED]) >= n_kept

    rows = same[rays]
    for name in ("rgb", "raw", "weight", "after", "prefix"):
        oracle = expected.values[name][rays, k][rows]
        assert_close(getattr(traced.samples, name)[:n_kept].cpu()[rows], oracle, *allowed(w, 1.0))
    assert_close(traced.samples.dt[:n_kept].cpu()[rows], expected.dt[rays, k][rows], torch.float32, 4000)
    positions = to_unit_cube(expected.values["points"][rays, k], w.aabb_scale).clamp(0, 1)
    assert_close(traced.samples.positions[:n_kept].cpu()[rows], positions[rows], torch.float32, 100)
    features = torch.ops.nerfleet.hash_grid(traced.samples.positions[:n_kept].contiguous(), w.table, *w.spec.arguments[:4])
    assert_close(traced.samples.features[:n_kept], features, *allowed(w))
    for name in SAMPLES:
        assert untouched(getattr(traced.samples, name)[n_kept:]), name


def test_skipping_stops_where_steps_ask_for_a_coarser_cascade(device: torch.device) -> None:
    """Cascade 0 is empty, cascade 1 full: from a corner of cascade 0 the samples begin at distance 1, inside an empty cell."""
    w = world(device, 4, n=100, density=0.0)
    w.bitfield.zero_()
    w.bitfield[N_CELLS // 8 : N_CELLS // 4] = 255
    w.origins.fill_(1e-4)
    w.directions.copy_(torch.nn.functional.normalize(random_directions(100, device).abs() + 0.5, dim=-1))
    w.starts.copy_(torch.linspace(0, 1, 100, device=device))
    expected, traced = dense(w, step_cascades=True, limited=True), run_trace(w)
    counts = torch.bincount(traced.samples.ray_indices[: int(traced.counters[COUNT_KEPT])].cpu().long(), minlength=100)
    assert int(expected.kept.sum(1).min()) > 20
    assert int((counts != expected.kept.sum(1)).sum()) <= 2  # rounding


def test_no_more_samples_than_allowed(device: torch.device) -> None:
    """A diagonal through a full box of edge 1 is 1,024 steps long; one that starts earlier has no more."""
    w = world(device, 1, n=8, share=1.0, density=0.0)  # never opaque
    direction = torch.nn.functional.normalize(torch.ones(3), dim=0).to(device)
    w.directions[:], w.origins[:], w.starts[:] = direction, 0.0, torch.linspace(0, 0.9, 8, device=device)
    traced = run_trace(w)
    counts = torch.bincount(traced.samples.ray_indices[: int(traced.counters[COUNT_KEPT])].cpu().long(), minlength=8)
    assert bool((counts <= 1024).all())
    assert bool((counts >= 1022).all())


def test_samples_past_the_capacity_are_counted_but_not_stored(device: torch.device) -> None:
    w = world(device)
    whole, cut = run_trace(w), run_trace(w, capacity=501)
    assert int(whole.counters[COUNT_KEPT]) > 501
    assert int(cut.counters[COUNT_KEPT]) == int(whole.counters[COUNT_KEPT]) == int(cut.kept.sum())
    assert_close(cut.rgb, whole.rgb, *allowed(w))
    assert_close(cut.transmittance, whole.transmittance, *allowed(w))
    assert not untouched(cut.samples.t[-1:])


def test_only_the_asked_rays_are_traced(device: torch.device) -> None:
    w = world(device)
    whole, part = run_trace(w), run_trace(w, n_rays=21)
    assert_close(part.rgb[:21], whole.rgb[:21], *allowed(w))
    assert untouched(part.rgb[21:])
    assert untouched(part.transmittance[21:])
    assert untouched(part.kept[21:])
    assert torch.equal(part.kept[:21], whole.kept[:21])
    assert int(part.samples.ray_indices[: int(part.counters[COUNT_KEPT])].max()) < 21


@pytest.mark.parametrize("case", ["no rays", "all miss", "all empty"])
def test_nothing_to_see(case: str, device: torch.device) -> None:
    w = world(device)
    if case == "all miss":
        w.starts.fill_(-1.0)
    if case == "all empty":
        w.bitfield.zero_()
    traced = run_trace(w, n_rays=0 if case == "no rays" else None)
    assert not traced.counters[: COUNT_HIT + 1].any()
    if case == "no rays":
        assert untouched(traced.rgb)
    else:
        assert bool((traced.rgb == 0).all())
        assert bool((traced.transmittance == 1).all())
        assert not traced.kept.any()
    assert untouched(traced.samples.t)


def test_a_start_on_the_border_is_not_lost(device: torch.device) -> None:
    """Rounding may put the first lattice point just outside of the box: the ray goes on all the same."""
    w = world(device, 1, n=400, share=1.0)
    generator = torch.Generator().manual_seed(3)
    w.directions.copy_(random_directions(400, device, seed=11))
    w.origins.copy_(torch.rand(400, 3, generator=generator).to(device) - w.directions * 3)
    near, far = ray_box(w.origins, w.directions, scene_box(1))
    w.starts.copy_(to_lattice(near, 0.0))
    traced = run_trace(w)
    assert bool((far - near > 0.02).sum() > 300)
    assert bool((traced.transmittance[far - near > 0.02] < 1).all())


def run_render(w: World, box: Tensor, step_cascades: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    scene = (*w.march, w.table, w.mlp, *w.spec.arguments)
    rgb, alpha, depth = torch.ops.nerfleet.render_rays(w.origins, w.directions, w.starts, box, *scene, LIMIT, step_cascades)
    return rgb.cpu(), alpha.cpu(), depth.cpu()


@pytest.mark.parametrize("aabb_scale, share", [(1, 0.15), (1, 1.0), (4, 0.05), (4, 0.3)])
@pytest.mark.parametrize("crop", [False, True])
@pytest.mark.parametrize("step_cascades", [False, True])
def test_rendering_against_dense(aabb_scale: int, share: float, crop: bool, step_cascades: bool, device: torch.device) -> None:
    w = world(device, aabb_scale, share=share)
    box = scene_box(aabb_scale)
    if crop:
        box = 0.5 + (box - 0.5) * torch.tensor([0.3, 0.55, 0.8])
    expected = dense(w, step_cascades, limited=False, box=box.double())
    rgb, alpha, depth = run_render(w, box, step_cascades)
    cut = expected.transmittance == 0
    weights = expected.values["weight"]
    full = weights.sum(1)
    oracle_rgb = torch.where(cut[:, None], expected.colour / full[:, None].clamp_min(1e-9), expected.colour)
    oracle_alpha, oracle_depth = torch.where(cut, 1.0, full), (weights * expected.t).sum(1) / full.clamp_min(1e-9)
    assert int((full > 0).sum()) > 10
    # a sample that rounding moves over a border changes a ray a little: most rays agree closely, all roughly
    for actual, oracle in ((rgb, oracle_rgb), (alpha[:, None], oracle_alpha[:, None]), (depth[:, None] * (alpha[:, None] > 0), oracle_depth[:, None])):
        error = (actual.double() - oracle).abs().amax(-1) / oracle.abs().max()
        assert float(error.sort().values[int(0.9 * len(error))]) < tolerance(*allowed(w))
        assert float(error.max()) < 0.05
    assert bool((alpha[cut] == 1).all())
    assert bool((alpha[~expected.valid.any(1)] == 0).all())


def test_rendering_nothing(device: torch.device) -> None:
    w = world(device, n=0)
    rgb, alpha, depth = run_render(w, scene_box(1))
    assert (rgb.shape, alpha.shape, depth.shape) == ((0, 3), (0,), (0,))
    w = world(device)
    w.bitfield.zero_()
    assert not any(values.any() for values in run_render(w, scene_box(1)))


def test_one_occupied_cell_is_found_from_everywhere(device: torch.device) -> None:
    """Skipping empty space, over all cascades, does not miss a single cell."""
    w = world(device, 4, n=200)
    cell = torch.tensor([77, 40, 90])
    grid = torch.full((3 * N_CELLS,), -1.0)
    grid[int(morton(cell))] = 1.0
    w.bitfield.copy_(bits(grid).to(device))
    w.origins.copy_(0.5 - random_directions(200, device, seed=5) * 1.7)
    target = ((cell + 0.5) / 128).to(device)
    w.directions.copy_(torch.nn.functional.normalize(target - w.origins, dim=-1))
    w.starts.copy_(to_lattice(torch.full((200,), 0.01), w.cone).to(device))
    expected, (_, alpha, _) = dense(w, False, limited=False), run_render(w, scene_box(4), step_cascades=False)
    assert bool(expected.valid.any(1).float().mean() > 0.5)
    different = (alpha > 0) != expected.valid.any(1)
    assert int(different.sum()) <= 2


def test_schema_and_fake(device: torch.device) -> None:
    w = world(device, n=12)
    samples = SampleBatch.allocate(4000, w.spec.grid.n_output, device)
    state = torch.zeros(N_STATE, dtype=torch.int64, device=device)
    state[STATE_RAYS] = 12
    rays = (torch.zeros(12, 3, device=device), torch.zeros(12, device=device), torch.zeros(12, dtype=torch.int32, device=device))
    buffers = (*rays, *(getattr(samples, name) for name in SAMPLES))
    counters = torch.zeros(N_COUNTERS, dtype=torch.int32, device=device)
    scene = (*w.march, w.table, w.mlp, *w.spec.arguments, LIMIT)
    ops = torch.ops.nerfleet
    check_op(ops.trace.default, (w.origins, w.directions, w.starts, state, *scene, *buffers, counters))
    check_op(ops.render_rays.default, (w.origins, w.directions, w.starts, scene_box(1), *scene, True))
