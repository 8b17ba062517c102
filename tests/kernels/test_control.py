"""begin and advance: learning rate, average, ray count, counters."""

from __future__ import annotations

import pytest
import torch
from tests.support.compare import check_op

from nerfleet.kernels.control.op import (
    COUNT_EVALUATED,
    COUNT_HIT,
    COUNT_KEPT,
    COUNT_NONFINITE,
    HYPER_EMA_NEW,
    HYPER_EMA_OLD,
    HYPER_LEARNING_RATE,
    HYPER_MEAN_DENSITY,
    RING,
    STAT_EVALUATED,
    STAT_HIT,
    STAT_KEPT,
    STAT_LEARNING_RATE,
    STAT_LOSS,
    STAT_RAYS,
    STAT_SKIPPED,
    STAT_STEP,
    STATE_RAYS,
    STATE_SKIPPED,
    STATE_SKIPPED_IN_A_ROW,
    STATE_STEP,
)  # fmt: skip
from nerfleet.train.buffers import Control

SCHEDULE = (1.0, 1e-2, 20_000, 10_000, 0.33, 0.95)


def begin(control: Control, *schedule: float) -> list[float]:
    torch.ops.nerfleet.begin(control.state, control.hyper, *schedule)
    return control.hyper.tolist()


@pytest.mark.parametrize("step, decays", [(0, 0), (19_999, 0), (20_000, 1), (29_999, 1), (30_000, 2), (50_000, 4)])
def test_learning_rate(step: int, decays: int, device: torch.device) -> None:
    control = Control.allocate(256, device)
    control.state[STATE_STEP] = step
    assert begin(control, *SCHEDULE)[HYPER_LEARNING_RATE] == pytest.approx(1e-2 * 0.33**decays, rel=1e-5)


def test_schedule_counts_reference_batches(device: torch.device) -> None:
    control = Control.allocate(256, device)
    rates = []
    for step in (39_999, 40_000):
        control.state[STATE_STEP] = step
        rates.append(begin(control, 0.5, *SCHEDULE[1:])[HYPER_LEARNING_RATE])
    assert rates == pytest.approx([1e-2, 3.3e-3], rel=1e-5)


def test_average_is_debiased(device: torch.device) -> None:
    """The factors keep e_t = sum_i d^(t - i) (1 - d) w_i / (1 - d^t), whatever was there before the first step."""
    control = Control.allocate(256, device)
    weights = torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    average, d = 1e6, 0.95
    for step, weight in enumerate(weights):
        control.state[STATE_STEP] = step
        hyper = begin(control, *SCHEDULE)
        average = average * hyper[HYPER_EMA_OLD] + weight * hyper[HYPER_EMA_NEW]
        if step == 0:
            assert average == pytest.approx(weight, rel=1e-6)
    t = len(weights)
    expected = sum(d ** (t - 1 - i) * (1 - d) * w for i, w in enumerate(weights)) / (1 - d**t)
    assert average == pytest.approx(expected, rel=1e-4)


def test_begin_leaves_the_mean_density(device: torch.device) -> None:
    control = Control.allocate(256, device)
    control.hyper[HYPER_MEAN_DENSITY] = 0.25
    assert begin(control, *SCHEDULE)[HYPER_MEAN_DENSITY] == 0.25


@pytest.mark.parametrize(
    "rays, kept, following",
    [(4096, 1 << 18, 4096), (4096, 1 << 17, 8192), (4096, 3 << 17, 2736), (4096, 0, 1 << 18), (4096, 1 << 30, 16), (1000, 260_000, 1008)],
)
def test_next_ray_count(rays: int, kept: int, following: int, device: torch.device) -> None:
    control = Control.allocate(rays, device)
    control.counters[COUNT_KEPT] = kept
    torch.ops.nerfleet.advance(control.state, control.counters, control.hyper, control.loss_sum, control.stats, 1 << 18, 1 << 18)
    assert int(control.state[STATE_RAYS]) == following


def test_a_step_is_recorded_and_cleared(device: torch.device) -> None:
    control = Control.allocate(512, device)
    control.state[STATE_STEP] = RING + 5
    for index, value in ((COUNT_KEPT, 1000), (COUNT_EVALUATED, 3000), (COUNT_HIT, 77), (COUNT_NONFINITE, 2)):
        control.counters[index] = value
    control.hyper[HYPER_LEARNING_RATE] = 0.5
    control.loss_sum.fill_(51.2)
    torch.ops.nerfleet.advance(control.state, control.counters, control.hyper, control.loss_sum, control.stats, 1000, 4096)
    row = control.stats[5].tolist()
    expected = {
        STAT_STEP: RING + 5,
        STAT_RAYS: 512,
        STAT_KEPT: 1000,
        STAT_EVALUATED: 3000,
        STAT_HIT: 77,
        STAT_LOSS: 0.1,
        STAT_SKIPPED: 1,
        STAT_LEARNING_RATE: 0.5,
    }
    assert row == pytest.approx([expected[i] for i in range(8)])
    assert not control.stats[6:].any()
    assert not control.counters.any()
    assert not control.loss_sum.any()
    assert int(control.state[STATE_STEP]) == RING + 6


def test_skipped_steps_are_counted(device: torch.device) -> None:
    control = Control.allocate(512, device)
    seen = []
    for bad in (1, 1, 0, 3):
        control.counters[COUNT_NONFINITE] = bad
        torch.ops.nerfleet.advance(control.state, control.counters, control.hyper, control.loss_sum, control.stats, 1000, 4096)
        seen.append((int(control.state[STATE_SKIPPED]), int(control.state[STATE_SKIPPED_IN_A_ROW])))
    assert seen == [(1, 1), (2, 2), (2, 0), (3, 1)]


def test_schema_and_fake(device: torch.device) -> None:
    control = Control.allocate(256, device)
    check_op(torch.ops.nerfleet.begin.default, (control.state, control.hyper, *SCHEDULE))
    check_op(torch.ops.nerfleet.advance.default, (control.state, control.counters, control.hyper, control.loss_sum, control.stats, 1000, 4096))
