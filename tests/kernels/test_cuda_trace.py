"""trace.cu and render.cu against the CPU's tracing, on a GPU and emulated."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.support.backends import EMULATED, GPU, Backend
from tests.support.emulator import marked

import nerfleet.kernels.trace.op  # noqa: F401  (registers the ops)
from nerfleet.geometry.box import ray_box, scene_box
from nerfleet.kernels.control.op import COUNT_EVALUATED, COUNT_HIT, COUNT_KEPT, COUNT_ORDERED
from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.kernels.hash_grid.spec import GridSpec
from nerfleet.kernels.march.reference import N_CELLS, march, to_lattice
from nerfleet.kernels.occupancy import cpu as occupancy_cpu

SPEC = FieldSpec(GridSpec(8, 4, 12, 16, 2.0))
SCENES = {"aabb 1": (1, 0.0, 1), "aabb 4, cone": (4, 1 / 256, 3)}
N_SAMPLE_BUFFERS = 11
KEPT, RAYS, RANKS, DISTANCES = 2, 3, 4, 6
"""Places in what ``Scene.trace`` returns."""


class Scene:
    """Rays through random occupancy and a random field, dense enough that some rays are cut."""

    def __init__(self, aabb_scale: int, cone_angle: float, n_cascades: int, n_rays: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.table = (torch.randn(SPEC.grid.n_params, generator=generator) * 0.3).half()
        self.mlp = (torch.randn(SPEC.n_mlp_params, generator=generator) * 0.2).half()
        self.mlp[2048:2112] *= 30  # the row of the raw density
        half = aabb_scale / 2
        self.origins = (torch.rand(n_rays, 3, generator=generator) - 0.5) * 1.2 * aabb_scale + 0.5
        aims = (torch.rand(n_rays, 3, generator=generator) - 0.5) * half + 0.5
        self.directions = torch.nn.functional.normalize(aims - self.origins, dim=-1)
        near, far = ray_box(self.origins, self.directions, scene_box(aabb_scale))
        jitter = torch.rand(n_rays, generator=generator)
        self.starts = torch.where(far <= near, -1.0, to_lattice(near, cone_angle) + jitter)
        self.starts[3] = -1.0
        bits = torch.randint(0, 256, (n_cascades * N_CELLS // 8,), generator=generator, dtype=torch.uint8)
        blocks = torch.rand(len(bits) // 8, generator=generator) < 0.04
        bits[~blocks.repeat_interleave(8)] = 0
        occupancy_cpu.coarsen(bits.numpy(), n_cascades)
        self.march = (bits, n_cascades, cone_angle, aabb_scale)
        self.n_rays = n_rays - 5

    def trace(self, run, half: bool, capacity: int) -> list[torch.Tensor]:  # type: ignore[no-untyped-def]
        """[rgb, transmittance, kept, the sample buffers, counters]."""
        n, s = len(self.starts), capacity
        features = marked(s, SPEC.grid.n_output, dtype=torch.float16 if half else torch.float32)
        values = [marked(s, 3), marked(s), marked(s), features, marked(s, 3), marked(s), marked(s), marked(s), marked(s, 3)]
        samples = [marked(s, dtype=torch.int32), marked(s, dtype=torch.int32), *values]
        written = [marked(n, 3), marked(n), marked(n, dtype=torch.int32), *samples, torch.zeros(8, dtype=torch.int32)]
        state = torch.tensor([5, self.n_rays, 0, 0])
        weights = (self.table, self.mlp) if half else (self.table.float(), self.mlp.float())
        run("trace", self.origins, self.directions, self.starts, state, *self.march, *weights, *SPEC.arguments, 1e-4, *written)
        return written


def on_cpu(op: str, *arguments: object) -> object:
    return getattr(torch.ops.nerfleet, op)(*arguments)


@pytest.fixture(params=[EMULATED, GPU])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    return Backend(request.param, monkeypatch)


def n_rays_for(backend: Backend) -> int:
    return 20 if backend.kind == "emulated" else 5000


def by_ray_and_distance(samples: list[torch.Tensor], n: int) -> np.ndarray:
    return np.lexsort((samples[DISTANCES - RAYS][:n].numpy(), samples[0][:n].numpy()))


def test_training_rays(backend: Backend) -> None:
    """Without a cone both marches look at the same points: every sample must be the same."""
    scene = Scene(*SCENES["aabb 1"], n_rays_for(backend))
    expected, found = scene.trace(on_cpu, half=False, capacity=1 << 18), scene.trace(backend, half=True, capacity=1 << 18)
    n = scene.n_rays
    torch.testing.assert_close(found[0][:n], expected[0][:n], rtol=0, atol=3e-2)
    torch.testing.assert_close(found[1][:n], expected[1][:n], rtol=0, atol=3e-2)
    assert (found[1][n:] == marked(1)).all()
    assert (found[1][:n] == 0).any()
    assert ((found[1][:n] == 1) == (expected[1][:n] == 1)).float().mean() > 0.99
    counts, expected_counts = found[-1], expected[-1]
    assert counts[COUNT_HIT] == expected_counts[COUNT_HIT]
    kept, expected_kept = int(counts[COUNT_KEPT]), int(expected_counts[COUNT_KEPT])
    assert kept == pytest.approx(expected_kept, rel=2e-3)  # half precision can move a cut by a sample
    assert kept <= int(counts[COUNT_EVALUATED]) <= expected_kept + 32 * int(counts[COUNT_HIT])
    if kept == expected_kept:
        ours, theirs = found[RAYS:-1], expected[RAYS:-1]
        assert torch.equal(found[KEPT][:n], expected[KEPT][:n])
        order, expected_order = by_ray_and_distance(ours, kept), by_ray_and_distance(theirs, kept)
        for i in range(N_SAMPLE_BUFFERS):
            torch.testing.assert_close(ours[i][:kept][order].float(), theirs[i][:kept][expected_order].float(), rtol=2e-3, atol=3e-2)
    assert (found[DISTANCES][kept:] == marked(1)).all()


def test_set_of_samples_with_cone(backend: Backend) -> None:
    """With a cone the samples are those of the dense march, cut where the ray becomes opaque."""
    scene = Scene(*SCENES["aabb 4, cone"], n_rays_for(backend))
    found = scene.trace(backend, half=True, capacity=1 << 18)
    t, _, valid = march(scene.origins, scene.directions, scene.starts, *scene.march, 1400, True)
    kept = int(found[-1][COUNT_KEPT])
    rays, distances = found[RAYS][:kept], found[DISTANCES][:kept]
    wrong = 0
    for ray in range(scene.n_rays):
        ours, dense = distances[rays == ray].sort(), t[ray][valid[ray]]
        assert torch.equal(found[RANKS][:kept][rays == ray][ours.indices], torch.arange(int(found[KEPT][ray]), dtype=torch.int32))
        ours = ours.values
        whole = found[1][ray] > 0
        expected = dense if whole else dense[: len(ours)]
        wrong += len(ours) != len(expected) or not torch.allclose(ours, expected, rtol=1e-4, atol=1e-5)
    assert wrong <= scene.n_rays // 100  # a sample on the border of a cell may round to either side
    assert kept > 8 * scene.n_rays


@pytest.mark.parametrize("name", SCENES)
def test_a_ray_does_not_depend_on_its_neighbours(name: str, backend: Backend) -> None:
    """Rays in another order share warps with others and find other slots: not one bit changes, and the sequence is that of the rays."""
    scene = Scene(*SCENES[name], n_rays_for(backend))
    impatient = (8, 2) if backend.kind == "emulated" else ()  # lanes and tries: the few emulated rays would not need more tries
    n = scene.n_rays
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(2))
    sequences = []
    for rays in (torch.arange(n), shuffled):
        own = copy.copy(scene)
        for field in ("origins", "directions", "starts"):
            values = getattr(scene, field).clone()
            values[:n] = values[rays]
            setattr(own, field, values)
        found = own.trace(lambda op, *arguments: backend(op, *arguments, *impatient), half=True, capacity=1 << 18)
        order = marked(1 << 18, dtype=torch.int32)
        backend("sample_order", found[RAYS], found[RANKS], found[KEPT], torch.tensor([5, n, 0, 0]), found[-1], order)
        records = [buffer[order[: int(found[-1][COUNT_ORDERED])].long()] for buffer in found[RAYS:-1]]
        records[0] = rays[records[0].long()]  # as the first run numbers them
        again = torch.argsort(records[0], stable=True)
        back = torch.argsort(rays)
        sequences.append([*(x[:n][back] for x in found[:RAYS]), *(x[again] for x in records), found[-1][: COUNT_HIT + 1]])
    assert int(sequences[0][KEPT].sum()) > n
    for ours, theirs in zip(*sequences):
        assert torch.equal(ours, theirs)


def test_full_buffers_change_no_colour(backend: Backend) -> None:
    scene = Scene(*SCENES["aabb 1"], 30)
    whole, cramped = scene.trace(backend, half=True, capacity=1 << 16), scene.trace(backend, half=True, capacity=100)
    torch.testing.assert_close(cramped[0], whole[0], rtol=0, atol=1e-5)
    assert int(cramped[-1][COUNT_KEPT]) == int(whole[-1][COUNT_KEPT]) > 100
    assert (cramped[DISTANCES] != marked(1)).all()


@pytest.mark.parametrize("step_cascades", [False, True])
@pytest.mark.parametrize("name", SCENES)
def test_rendering(name: str, step_cascades: bool, backend: Backend) -> None:
    scene = Scene(*SCENES[name], n_rays_for(backend))
    box = scene_box(SCENES[name][0])
    rays = (scene.origins, scene.directions, scene.starts, box, *scene.march)
    expected = on_cpu("render_rays", *rays, scene.table.float(), scene.mlp.float(), *SPEC.arguments, 1e-4, step_cascades)
    found = backend("render_rays", *rays, scene.table, scene.mlp, *SPEC.arguments, 1e-4, step_cascades)
    for ours, theirs in zip(found, expected):  # type: ignore[call-overload]
        close = torch.isclose(ours, theirs, rtol=5e-3, atol=5e-3).view(len(ours), -1).all(1)
        assert close.float().mean() > 0.99


def test_crop_box(backend: Backend) -> None:
    scene = Scene(*SCENES["aabb 1"], 30)
    outside = torch.tensor([[2.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    rays = (scene.origins, scene.directions, scene.starts, outside, *scene.march)
    rgb, alpha, depth = backend("render_rays", *rays, scene.table, scene.mlp, *SPEC.arguments, 1e-4, True)
    assert (rgb == 0).all()
    assert (alpha == 0).all()
    assert (depth == 0).all()
