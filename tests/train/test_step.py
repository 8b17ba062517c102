"""One training step: all gradients against autograd through the dense reference, and what a few steps in a row do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tests.support.specs import gradient_values
from tests.train.small import NETWORK, config
from torch import Tensor

from nerfleet.config import REFERENCE_BATCH, MLPConfig
from nerfleet.data.scene import Scene
from nerfleet.geometry.box import to_unit_cube
from nerfleet.kernels.composite.op import EMPTY_RAW, MEAN_DENSITY_FLOOR, PUSH
from nerfleet.kernels.composite.reference import LOSSES, composite, loss_and_gradient
from nerfleet.kernels.control.op import (
    COUNT_KEPT,
    HYPER_MEAN_DENSITY,
    RAY_MULTIPLE,
    STAT_KEPT,
    STAT_LOSS,
    STAT_RAYS,
    STATE_RAYS,
    STATE_SKIPPED,
    STATE_SKIPPED_IN_A_ROW,
)
from nerfleet.kernels.field import reference as field_reference
from nerfleet.kernels.march import reference as march_reference
from nerfleet.train.step import MIN_TRANSMITTANCE, SingleDevice, TrainStep, is_refresh, refresh_period

CPU = torch.device("cpu")


def new_step(scene: Scene, device: torch.device = CPU, **changes: Any) -> TrainStep:
    return TrainStep(scene, config(**changes), device, SingleDevice())


def dense_loss(step: TrainStep, table: Tensor, mlp: Tensor) -> Tensor:
    """Scaled loss of the rays that the step has just traced: the whole chain in float64, every lattice point of every ray."""
    n = int(step.control.state[STATE_RAYS])
    rays = {name: getattr(step.rays, name)[:n].cpu().double() for name in ("origins", "directions", "starts", "targets", "backgrounds")}
    origins, directions = rays["origins"], rays["directions"]
    march = (step.occupancy.bitfield.cpu(), step.occupancy.n_cascades, step.cone_angle, step.aabb_scale)
    t, dt, valid = march_reference.march(origins, directions, rays["starts"], *march, 1030, True)
    points = (origins[:, None] + directions[:, None] * t[..., None])[valid]
    along = directions[:, None].expand(*valid.shape, 3)[valid]
    rgb, raw = field_reference.field(to_unit_cube(points, step.aabb_scale).clamp(0, 1), along, table, mlp, *step.spec.arguments)
    all_rgb = torch.zeros(*valid.shape, 3, dtype=torch.float64).index_put((valid,), rgb)
    all_raw = torch.zeros(valid.shape, dtype=torch.float64).index_put((valid,), raw)
    colour, transmittance, _, kept = composite(all_rgb, all_raw, dt, valid, MIN_TRANSMITTANCE)
    value, _ = loss_and_gradient(colour + transmittance[:, None] * rays["backgrounds"], rays["targets"], LOSSES["Huber"])
    loss = value[kept.any(1)].sum() * step.config.loss_scale / n
    # the two regularisers have no loss of their own: a constant gradient on the raw density
    push = torch.zeros_like(all_raw)
    if float(step.control.hyper[HYPER_MEAN_DENSITY]) < MEAN_DENSITY_FLOOR:
        push -= PUSH * (all_raw < 0)
    push += PUSH * ((all_raw > EMPTY_RAW) & (t < step.config.near_distance))
    return loss + (all_raw * push * kept).sum()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_gradients_equal_autograd_through_the_dense_reference(scene: Scene, device: str) -> None:
    network = dataclasses.replace(NETWORK, rgb=MLPConfig(32, 2))  # what CUDA takes too
    step = new_step(scene, torch.device(device), network=network, batch_size=1 << 17, near_distance=1.2)
    for i in range(6):
        step(i)
    step.control.state[STATE_RAYS] = 200
    step.forward_backward()
    kept = int(step.control.counters[COUNT_KEPT])
    assert 1000 < kept <= len(step.samples.t)

    parameters = [group.weights.detach().cpu().double().requires_grad_() for group in (step.table, step.mlp)]
    dense_loss(step, *parameters).backward()
    precise = device == "cpu"
    for group, parameter in zip((step.table, step.mlp), parameters):
        actual, expected = gradient_values(group.gradient).cpu().double(), parameter.grad
        assert expected is not None
        cosine = float(actual @ expected / (actual.norm() * expected.norm()))
        assert cosine > (1 - 1e-5 if precise else 0.999)
        assert float(actual.norm() / expected.norm()) == pytest.approx(1, rel=1e-3 if precise else 2e-2)
        different = (actual != 0) != (expected != 0)  # a sample on a border may touch other entries; fp16 rounds to zero
        assert float(different.double().mean()) < (1e-3 if precise else 0.2)


def test_loss_goes_down_and_the_batch_stays_full(scene: Scene) -> None:
    target = 1 << 16
    step = new_step(scene, batch_size=target, max_rays=1 << 14)
    for i in range(30):
        step(i)
    loss, kept, rays = (step.control.stats[:30, column] for column in (STAT_LOSS, STAT_KEPT, STAT_RAYS))
    assert bool(torch.isfinite(loss).all())
    assert float(loss[27:].mean()) < 0.75 * float(loss[:3].mean())
    wanted = rays[:-1] * target / kept[:-1]  # rays that would have filled the batch, before rounding up
    filled = kept[1:] * wanted / rays[1:] / target
    steady = [i for i in range(10, 29) if (i + 1) % refresh_period(i + 1, target / REFERENCE_BATCH)]  # a refresh takes samples away at once
    assert len(steady) > 10
    assert bool(((filled[steady] - 1).abs() < 0.25).all()), filled.tolist()
    assert bool((rays[1:] >= wanted.floor()).all())
    assert bool((rays[1:] < wanted + RAY_MULTIPLE).all())


def test_same_seed_gives_identical_weights(scene: Scene) -> None:
    runs = [new_step(scene, seed=seed) for seed in (5, 5, 6)]
    for step in runs:
        for i in range(4):
            step(i)
    first, again, other = (step.state_tensors() for step in runs)
    for name, values in first.items():
        assert torch.equal(values, again[name]), name
    assert not torch.equal(first["mlp.master"], other["mlp.master"])


def test_a_step_with_nan_is_skipped_and_counted(scene: Scene) -> None:
    step = new_step(scene)
    step(0)
    table_before, mlp_before = step.table.master.clone(), step.mlp.master.clone()
    used = int(step.table.steps.nonzero()[0])
    step.mlp.weights[7] = torch.nan  # shared with the master copy
    mlp_before[7] = torch.nan
    step(1)
    assert torch.equal(step.table.master, table_before)
    assert torch.equal(step.mlp.master.nan_to_num(), mlp_before.nan_to_num())
    assert int(step.control.state[STATE_SKIPPED]) == int(step.control.state[STATE_SKIPPED_IN_A_ROW]) == 1
    assert int(step.table.steps[used]) == 1
    assert not step.table.gradient.any()

    step.mlp.weights[7] = 0.1
    step(2)
    assert not torch.equal(step.table.master, table_before)
    assert int(step.control.state[STATE_SKIPPED_IN_A_ROW]) == 0
    assert int(step.control.state[STATE_SKIPPED]) == 1


def test_nan_in_one_gradient_leaves_that_parameter_alone(scene: Scene) -> None:
    step = new_step(scene)
    step.forward_backward()
    before = step.mlp.master.clone()
    step.mlp.gradient[3] = torch.nan
    step.update()
    moved = step.mlp.master != before
    assert not bool(moved[3])
    assert bool(moved[4:100].any())
    assert bool(torch.isfinite(step.mlp.master).all())


def test_an_empty_grid_gives_no_gradient_and_asks_for_more_rays(scene: Scene) -> None:
    step = new_step(scene)
    step.occupancy.bitfield.zero_()
    before = step.table.master.clone()
    step.forward_backward()
    step.update()
    assert torch.equal(step.table.master, before)
    assert int(step.control.state[STATE_RAYS]) == step.config.max_rays
    assert int(step.control.state[STATE_SKIPPED]) == 0


@pytest.mark.parametrize("step, ratio, period", [(0, 1.0, 1), (31, 1.0, 1), (32, 1.0, 2), (10_000, 1.0, 16), (0, 1 / 4, 4), (0, 1 / 64, 16), (100, 4.0, 6)])
def test_refresh_period(step: int, ratio: float, period: int) -> None:
    assert refresh_period(step, ratio) == period


def test_refresh_finds_what_is_dense(scene: Scene) -> None:
    step = new_step(scene, batch_size=1 << 17)
    seen = step.occupancy.values >= 0
    step.mlp.weights.zero_()  # raw density 0 everywhere: density 1, value MIN_STEP below the threshold but equal to the mean
    for i in range(3):
        step.control.state[0] = i
        step.refresh_occupancy(i)
    values = step.occupancy.values
    assert bool((values[~seen] == -1).all())
    found = values[seen] > 0
    assert 0.3 < float(found.float().mean()) < 1
    assert float(values.max()) == pytest.approx(march_reference.MIN_STEP)
    assert not step.occupancy_updates.any()


def test_compiling_leaves_no_trace(scene: Scene) -> None:
    compiled, fresh = new_step(scene, torch.device("cpu")), new_step(scene, torch.device("cpu"))
    compiled.compile()
    for step in (compiled, fresh):
        for number in range(3):
            step(number)
    ours, theirs = compiled.state_tensors(), fresh.state_tensors()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
    assert torch.equal(compiled.control.stats, fresh.control.stats)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_surfaces_are_favoured_from_their_step_on(scene: Scene, device: str) -> None:
    """At batch 2^12 a step counts as 1/64: reference step 1 is step 64, and before it nothing differs."""
    plain, late = new_step(scene, torch.device(device)), new_step(scene, torch.device(device), surface_from=1)
    early = new_step(scene, torch.device(device), surface_from=0)
    for i in range(3):
        for step in (plain, late, early):
            step(i)
    assert torch.equal(plain.table.master, late.table.master)
    assert torch.equal(plain.mlp.master, late.mlp.master)
    assert not torch.equal(plain.table.master, early.table.master)
    assert bool(torch.isfinite(early.table.master).all())
    assert int(early.control.state[STATE_SKIPPED]) == 0


def test_a_step_with_more_samples_than_slots_has_no_gradient(scene: Scene) -> None:
    """On CUDA it would be chance which samples are trained on."""
    step = new_step(scene)
    step(0)
    step.control.state[STATE_RAYS] = step.config.max_rays
    before = step.table.master.clone()
    step.forward_backward()
    assert int(step.control.counters[COUNT_KEPT]) > step.capacity
    assert not step.table.gradient.any()
    assert not step.mlp.gradient.any()
    step.update()
    assert torch.equal(step.table.master, before)
    assert float(step.control.stats[1, STAT_LOSS]) > 0
    assert int(step.control.state[STATE_RAYS]) < step.config.max_rays // 4
    assert int(step.control.state[STATE_SKIPPED]) == 0


def test_rays_may_be_drawn_as_soon_as_the_step_before_has_ended(scene: Scene) -> None:
    """As a captured step does: before the occupancy grid is refreshed, and before new weights have arrived."""
    plain, early = new_step(scene), new_step(scene)
    for number in range(6):
        plain(number)
    early.draw()
    for number in range(6):
        if is_refresh(number, early.config.reference_step_ratio):
            early.refresh_occupancy(number)
        assert early.drawn
        early.learn()
        early.update()
        assert not early.drawn
        early.draw()
    assert torch.equal(early.table.weights, plain.table.weights)
    assert torch.equal(early.mlp.weights, plain.mlp.weights)
    assert torch.equal(early.occupancy.values, plain.occupancy.values)
