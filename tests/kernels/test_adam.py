"""Adam: against torch.optim.Adam where the two coincide, against its reference elsewhere."""

from __future__ import annotations

import pytest
import torch
from tests.support.compare import assert_close, check_op
from torch import Tensor

from nerfleet.kernels.adam import reference
from nerfleet.kernels.adam.op import bias_corrections
from nerfleet.kernels.control.op import COUNT_NONFINITE, HYPER_EMA_NEW, HYPER_EMA_OLD, HYPER_LEARNING_RATE, N_COUNTERS, N_HYPER
from nerfleet.kernels.hash_grid import fixed_point
from nerfleet.nn.field import ParameterGroup

RATE, BETA1, BETA2, EPSILON = 1e-2, 0.9, 0.99, 1e-15
CPU = torch.device("cpu")


class Group:
    """A parameter group on a device beside the reference's own state in float64."""

    def __init__(self, n: int, device: torch.device, is_table: bool = False) -> None:
        values = torch.randn(n, generator=torch.Generator().manual_seed(1))
        self.group = ParameterGroup.from_values(values, device, is_table)
        self.master, self.ema = values.double(), values.to(self.group.ema.dtype).cpu().double()
        self.first, self.second = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
        self.steps = torch.zeros(n, dtype=torch.int64)
        self.hyper = torch.zeros(N_HYPER, device=device)
        self.hyper[HYPER_LEARNING_RATE], self.hyper[HYPER_EMA_OLD], self.hyper[HYPER_EMA_NEW] = RATE, 0.8, 0.2
        self.counters = torch.zeros(N_COUNTERS, dtype=torch.int32, device=device)

    def step(self, gradient: Tensor, l2_reg: float = 0.0, scale: float = 1.0, skip_zero: bool = True) -> None:
        scaled = gradient * scale
        self.group.gradient.copy_(fixed_point.pack(scaled) if self.group.gradient.dtype == torch.int64 else scaled)
        torch.ops.nerfleet.adam(*self.group.tensors(), self.hyper, self.counters, BETA1, BETA2, EPSILON, l2_reg, scale, skip_zero)
        state = (self.master, self.ema, gradient.double(), self.first, self.second, self.steps)
        reference.adam(*state, RATE, 0.8, 0.2, BETA1, BETA2, EPSILON, l2_reg, skip_zero)

    def compare(self, depth: int) -> None:
        group = self.group
        for actual, expected in ((group.master, self.master), (group.first_moment, self.first), (group.second_moment, self.second)):
            assert_close(actual, expected, torch.float32, depth)
        assert_close(group.ema, self.ema, group.ema.dtype, depth)
        assert group.steps.tolist() == self.steps.tolist()
        assert torch.equal(group.weights.cpu(), group.master.to(group.weights.dtype).cpu())
        assert not group.gradient.any()


def gradients(n: int, steps: int, zeros: float = 0.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [(torch.rand(n, generator=generator) * 1.9 - 0.95).half().float() * (torch.rand(n, generator=generator) >= zeros) for _ in range(steps)]


def test_coincides_with_torch() -> None:
    parameter = torch.randn(50, dtype=torch.float64, requires_grad=True)
    master, first, second = parameter.detach().clone(), torch.zeros(50, dtype=torch.float64), torch.zeros(50, dtype=torch.float64)
    steps, ema = torch.zeros(50, dtype=torch.int64), torch.zeros(50, dtype=torch.float64)
    optimizer = torch.optim.Adam([parameter], lr=RATE, betas=(BETA1, BETA2), eps=1e-30, weight_decay=1e-3)
    for gradient in gradients(50, 20):
        parameter.grad = gradient.double()
        optimizer.step()
        reference.adam(master, ema, gradient.double(), first, second, steps, RATE, 0.0, 1.0, BETA1, BETA2, 1e-30, 1e-3, False)
    assert torch.allclose(master, parameter.detach(), rtol=1e-10)
    assert torch.equal(ema, master)


def test_epsilon_is_not_scaled() -> None:
    master = torch.zeros(1, dtype=torch.float64)
    state = [torch.zeros(1, dtype=torch.float64) for _ in range(3)]
    reference.adam(
        master,
        state[0],
        torch.tensor([0.5], dtype=torch.float64),
        state[1],
        state[2],
        torch.zeros(1, dtype=torch.int64),
        RATE,
        0,
        1,
        BETA1,
        BETA2,
        1.0,
        0,
        True,
    )
    first, second = (1 - BETA1) * 0.5, (1 - BETA2) * 0.25
    assert float(master) == pytest.approx(-RATE * (1 - BETA2) ** 0.5 / (1 - BETA1) * first / (second**0.5 + 1.0))


@pytest.mark.parametrize("beta2", [0.99, 0.999])
def test_bias_corrections_reach_every_step_count(beta2: float) -> None:
    table = bias_corrections(BETA1, beta2)
    for t in (1, 2, 100, 5000, 32767):
        assert float(table[t]) == pytest.approx((1 - beta2**t) ** 0.5 / (1 - BETA1**t), rel=1e-6)


@pytest.mark.parametrize("n", [1, 8, 1003, 40_000])
@pytest.mark.parametrize("skip_zero, l2_reg", [(True, 0.0), (False, 1e-2)])
def test_updates(n: int, skip_zero: bool, l2_reg: float, device: torch.device) -> None:
    group = Group(n, device, is_table=skip_zero)
    for gradient in gradients(n, 6, zeros=0.5):
        group.step(gradient, l2_reg, scale=128.0, skip_zero=skip_zero)
    group.compare(depth=64)
    assert n < 100 or len(set(group.steps.tolist())) == (7 if skip_zero else 1)  # each parameter counts its own


def test_a_gradient_that_is_not_finite_leaves_its_parameter_alone(device: torch.device) -> None:
    group = Group(100, device)
    bad = gradients(100, 1)[0]
    bad[3], bad[7], bad[20] = torch.nan, torch.inf, -torch.inf
    before = group.group.master.clone()
    group.step(bad)
    group.compare(depth=16)
    assert (group.group.master == before).nonzero().flatten().tolist() == [3, 7, 20]


def test_a_step_that_is_not_finite_moves_only_the_average(device: torch.device) -> None:
    group = Group(1003, device)
    group.step(gradients(1003, 1)[0])
    before = {name: getattr(group.group, name).clone() for name in ("master", "weights", "first_moment", "second_moment", "steps", "ema")}
    group.counters[COUNT_NONFINITE] = 1
    group.group.gradient.fill_(5.0)
    torch.ops.nerfleet.adam(*group.group.tensors(), group.hyper, group.counters, BETA1, BETA2, EPSILON, 1e-6, 128.0, False)
    for name in ("master", "weights", "first_moment", "second_moment", "steps"):
        assert torch.equal(getattr(group.group, name), before[name]), name
    assert_close(group.group.ema, before["ema"].double() * 0.8 + before["weights"].double() * 0.2, group.group.ema.dtype, 8)
    assert not group.group.gradient.any()


def test_step_counts_saturate(device: torch.device) -> None:
    group = Group(20, device)
    group.group.steps.fill_(32766)
    for _ in range(3):
        group.group.gradient.fill_(1.0)
        torch.ops.nerfleet.adam(*group.group.tensors(), group.hyper, group.counters, BETA1, BETA2, EPSILON, 0.0, 1.0, True)
    assert group.group.steps.tolist() == [32767] * 20
    assert bool(torch.isfinite(group.group.master).all())


def test_schema_and_fake(device: torch.device) -> None:
    group = Group(16, device)
    tensors = group.group.tensors()
    if device.type == "cpu":  # there the working copy is the master itself, which the schema check cannot follow
        tensors[1] = tensors[1].clone()
    group.group.gradient.fill_(1.0)
    check_op(torch.ops.nerfleet.adam.default, (*tensors, group.hyper, group.counters, BETA1, BETA2, EPSILON, 0.0, 1.0, True))
