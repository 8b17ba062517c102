"""Compositing, losses and their gradients: against scalar loops, autograd in float64 and finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from tests.support.compare import assert_close, check_op, marked, untouched
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.kernels.composite import op, reference
from nerfleet.kernels.composite.reference import LOSSES, loss_and_gradient
from nerfleet.kernels.control.op import COUNT_NONFINITE, HYPER_MEAN_DENSITY, N_COUNTERS, N_HYPER, N_STATE, STATE_RAYS

LIMIT = 1e-4


def random_rays(n: int = 5, s: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """rgb, raw, dt, valid; the last ray is opaque early, the first has no samples."""
    generator = torch.Generator().manual_seed(0)
    rgb = torch.rand(n, s, 3, generator=generator, dtype=dtype)
    raw = torch.randn(n, s, generator=generator, dtype=dtype) * 2
    raw[-1] += 8
    dt = torch.rand(n, s, generator=generator, dtype=dtype) * 0.05
    valid = torch.rand(n, s, generator=generator) < 0.7
    valid[0] = False
    return rgb, raw, dt, valid


def test_reference_equals_scalar_loop() -> None:
    rgb, raw, dt, valid = random_rays()
    colour, transmittance, weights, kept = reference.composite(rgb, raw, dt, valid, LIMIT)
    n_cut = 0
    for i in range(len(rgb)):
        through, sums, expected = 1.0, [0.0] * 3, []
        for j in range(rgb.shape[1]):
            use = bool(valid[i, j]) and through >= LIMIT
            assert bool(kept[i, j]) == use
            alpha = 1 - math.exp(-math.exp(float(raw[i, j])) * float(dt[i, j])) if use else 0.0
            expected.append(through * alpha)
            sums = [a + through * alpha * float(c) for a, c in zip(sums, rgb[i, j])]
            through *= 1 - alpha
        assert weights[i].tolist() == pytest.approx(expected)
        assert colour[i].tolist() == pytest.approx(sums)
        n_cut += through < LIMIT
        assert float(transmittance[i]) == pytest.approx(0.0 if through < LIMIT else through)
    assert n_cut == 1
    assert float(transmittance[0]) == 1.0


def test_gradient_of_the_reference() -> None:
    rgb, raw, dt, valid = random_rays(3, 6)
    raw = raw.clamp(-2, 2)

    def colour(rgb: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        return reference.composite(rgb, raw, dt, valid, 1e-12)[:2]

    assert torch.autograd.gradcheck(colour, (rgb.requires_grad_(), raw.requires_grad_()))


def per_sample(rgb: Tensor, raw: Tensor, dt: Tensor, valid: Tensor, limit: float) -> tuple[Tensor, dict[str, Tensor]]:
    """What a trace stores: (kept [n, s], flat values of the kept samples)."""
    _, _, weights, kept = reference.composite(rgb, raw, dt, valid, limit)
    alpha = torch.where(valid, 1 - torch.exp(-torch.exp(raw) * dt), 0)
    after, prefix = torch.cumprod(1 - alpha, -1), torch.cumsum(weights[..., None] * rgb, 1)
    return kept, {"rgb": rgb[kept], "raw": raw[kept], "dt": dt[kept], "weight": weights[kept], "after": after[kept], "prefix": prefix[kept]}


@pytest.mark.parametrize("limit", [0.0, LIMIT])
def test_analytic_gradient_equals_autograd(limit: float) -> None:
    rgb, raw, dt, valid = random_rays()
    background, upstream = torch.rand(len(rgb), 3, dtype=torch.float64), torch.randn(len(rgb), 3, dtype=torch.float64)
    rgb.requires_grad_()
    raw.requires_grad_()
    colour, transmittance, _, kept = reference.composite(rgb, raw, dt, valid, limit)
    final = colour + transmittance[:, None] * background
    (final * upstream).sum().backward()
    assert rgb.grad is not None
    assert raw.grad is not None
    with torch.no_grad():
        kept, values = per_sample(rgb, raw, dt, valid, limit)
        ray = kept.nonzero()[:, 0]
        d_rgb, d_raw = reference.composite_backward(**values, gradient=upstream[ray], final=final[ray])
    assert torch.allclose(d_rgb, rgb.grad[kept], atol=1e-12)
    assert torch.allclose(d_raw, raw.grad[kept], atol=1e-12)
    assert bool((rgb.grad[~kept] == 0).all())


@pytest.mark.parametrize("name", ["L2", "Huber"])
def test_relaxed_gradient_is_that_of_a_sample_before_what_is_behind(name: str) -> None:
    """By autograd: only this sample's colour and density move, the pixel is it in front of a colour that stands still."""
    rgb, raw, dt, valid = random_rays()
    raw = raw.clamp(max=3)
    background, target = torch.rand(len(rgb), 3, dtype=torch.float64), torch.rand(len(rgb), 3, dtype=torch.float64)
    colour, transmittance, _, _ = reference.composite(rgb, raw, dt, valid, 0.0)
    final = colour + transmittance[:, None] * background
    kept, values = per_sample(rgb, raw, dt, valid, 0.0)
    ray = kept.nonzero()[:, 0]
    d_rgb, d_raw = reference.relaxed_backward(**values, target=target[ray], final=final[ray], loss=LOSSES[name])
    behind = (final[ray] - values["prefix"]) / values["after"][:, None]
    own, density = values["rgb"].clone().requires_grad_(), values["raw"].clone().requires_grad_()
    alpha = (1 - torch.exp(-torch.exp(density) * values["dt"]))[:, None]
    loss, _ = loss_and_gradient((1 - alpha) * behind + alpha * own, target[ray], LOSSES[name])
    before = values["after"] / (1 - alpha[:, 0].detach())  # the light that reaches the sample weighs it
    (loss.sum(-1) * before).sum().backward()
    assert own.grad is not None
    assert density.grad is not None
    assert torch.allclose(d_rgb, own.grad, atol=1e-12)
    assert torch.allclose(d_raw, density.grad, atol=1e-12)


def test_relaxed_gradient_of_an_opaque_sample_is_its_own_error() -> None:
    one = torch.ones(1, dtype=torch.float64)
    rgb, target = torch.tensor([[0.2, 0.5, 0.9]], dtype=torch.float64), torch.tensor([[0.25, 0.5, 0.2]], dtype=torch.float64)
    arguments = {"raw": 5 * one, "dt": 10 * one, "weight": one, "after": 0 * one, "prefix": rgb, "final": rgb}
    d_rgb, d_raw = reference.relaxed_backward(rgb=rgb, target=target, loss=LOSSES["L2"], **arguments)
    assert torch.allclose(d_rgb, 2 * (rgb - target))
    assert float(d_raw) == 0


def test_derivative_of_density_is_limited() -> None:
    raw = torch.tensor([20.0, 15.0, -20.0], dtype=torch.float64)
    ones = torch.ones(3, dtype=torch.float64)
    arguments = {"rgb": ones[:, None].expand(3, 3), "dt": ones, "weight": ones, "after": ones, "prefix": torch.zeros(3, 3)}
    _, d_raw = reference.composite_backward(raw=raw, gradient=ones[:, None].expand(3, 3), final=torch.zeros(3, 3), **arguments)
    assert d_raw.tolist() == pytest.approx([3 * math.exp(15), 3 * math.exp(15), 3 * math.exp(-15)])


def test_loss_values_by_hand() -> None:
    prediction, target = torch.tensor([0.5, 0.5], dtype=torch.float64), torch.tensor([0.45, 0.9], dtype=torch.float64)
    expected = {
        "Huber": [0.05**2, (0.4 - 0.05) / 5], "L2": [0.05**2, 0.4**2], "RelativeL2": [0.05**2 / 0.26, 0.16 / 0.26], "L1": [0.05, 0.4],
        "MAPE": [0.05 / 0.51, 0.4 / 0.51], "SMAPE": [0.05 / 0.485, 0.4 / 0.71], "LogL1": [math.log(1.05), math.log(1.4)],
    }  # fmt: skip
    assert set(expected) == set(LOSSES)
    for name, values in expected.items():
        assert loss_and_gradient(prediction, target, LOSSES[name])[0].tolist() == pytest.approx(values), name
    assert loss_and_gradient(prediction, target, LOSSES["Huber"])[1].tolist() == pytest.approx([0.1, -0.2])
    with pytest.raises(NerfleetError, match="number 9"):
        loss_and_gradient(prediction, target, 9)


@pytest.mark.parametrize("name", ["Huber", "L2", "L1", "LogL1"])
def test_loss_gradient_is_the_derivative(name: str) -> None:
    prediction = torch.linspace(-0.7, 0.9, 33, dtype=torch.float64).requires_grad_()
    value, gradient = loss_and_gradient(prediction, torch.full((33,), 0.123, dtype=torch.float64), LOSSES[name])
    (expected,) = torch.autograd.grad(value.sum(), prediction)
    assert torch.allclose(gradient, expected)


@pytest.mark.parametrize("name", ["RelativeL2", "MAPE", "SMAPE"])
def test_relative_losses_hold_the_scale_fixed(name: str) -> None:
    prediction, target = torch.tensor([0.3, -0.2], dtype=torch.float64), torch.tensor([0.6, 0.1], dtype=torch.float64)
    value, gradient = loss_and_gradient(prediction, target, LOSSES[name])
    difference = prediction - target
    slope = 2 * value / difference if name == "RelativeL2" else value / difference
    assert torch.allclose(gradient, slope)


def loss_inputs(n: int, rows: int, device: torch.device) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(4)
    colours = {name: torch.rand(rows, 3, generator=generator).to(device) for name in ("rgb", "targets", "backgrounds")}
    transmittance, starts = torch.rand(rows, generator=generator), torch.rand(rows, generator=generator) * 100
    if rows > 3:
        transmittance[0], transmittance[1], starts[2] = 0.0, 1.0, -1.0  # cut, no samples, no ray
    state = torch.zeros(N_STATE, dtype=torch.int64, device=device)
    state[STATE_RAYS] = n
    return colours | {"transmittance": transmittance.to(device), "starts": starts.to(device), "state": state}


def run_loss(inputs: dict[str, Tensor], loss: int = 0, scale: float = 128.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rgb, device = inputs["rgb"], inputs["rgb"].device
    gradient, final = marked(*rgb.shape, device=device), marked(*rgb.shape, device=device)
    loss_sum, counters = torch.zeros(1, device=device), torch.zeros(N_COUNTERS, dtype=torch.int32, device=device)
    order = (inputs[name] for name in ("rgb", "transmittance", "targets", "backgrounds", "starts", "state"))
    torch.ops.nerfleet.ray_loss(*order, loss, scale, gradient, final, loss_sum, counters)
    return gradient, final, loss_sum, counters


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_ray_loss(loss: int, device: torch.device) -> None:
    n, rows = 301, 320
    inputs = loss_inputs(n, rows, device)
    gradient, final, loss_sum, counters = run_loss(inputs, loss)
    host = {name: value[:n].cpu().double() for name, value in inputs.items() if name != "state"}
    expected_final = host["rgb"] + host["transmittance"][:, None] * host["backgrounds"]
    value, derivative = loss_and_gradient(expected_final, host["targets"], loss)
    counted = (host["starts"] >= 0) & (host["transmittance"] < 1)
    assert int(counted.sum()) == n - 2
    assert_close(final[:n], expected_final, torch.float32, 4)
    assert_close(gradient[:n], derivative * counted[:, None] * 128 / n, torch.float32, 32)
    assert_close(loss_sum, (value * counted[:, None]).sum()[None] / 3, torch.float32, 3 * n)
    assert untouched(gradient[n:])
    assert untouched(final[n:])
    assert not counters.any()


@pytest.mark.parametrize("poison", ["rgb", "transmittance", "targets"])
def test_ray_loss_notices_what_is_not_finite(poison: str, device: torch.device) -> None:
    inputs = loss_inputs(40, 40, device)
    inputs[poison][7] = torch.nan
    assert int(run_loss(inputs)[3][COUNT_NONFINITE]) > 0


def sample_inputs(rows: int, n_rays: int, device: torch.device) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    values = {name: torch.rand(rows, generator=generator) for name in ("t", "dt", "weight", "after")}
    values |= {"raw": torch.randn(rows, generator=generator) * 6, "ray_indices": torch.randint(0, n_rays, (rows,), generator=generator, dtype=torch.int32)}
    values |= {name: torch.rand(rows, 3, generator=generator) for name in ("rgb", "prefix")}
    values |= {name: torch.randn(n_rays, 3, generator=generator) for name in ("gradient", "final")}
    return {name: value.to(device) for name, value in values.items()}


ORDER = ("ray_indices", "rgb", "raw", "t", "dt", "weight", "after", "prefix", "gradient", "final")


@pytest.mark.parametrize("mean_density", [0.0, 1.0])
@pytest.mark.parametrize("count, written", [(0, 0), (90, 90), (1000, 97)])
def test_backward(count: int, written: int, mean_density: float, device: torch.device) -> None:
    inputs = sample_inputs(97, 11, device)
    hyper = torch.zeros(N_HYPER, device=device)
    hyper[HYPER_MEAN_DENSITY] = mean_density
    d_rgb, d_raw = marked(97, 3, device=device), marked(97, device=device)
    counter = torch.tensor([count], dtype=torch.int32, device=device)
    torch.ops.nerfleet.composite_backward(*(inputs[name] for name in ORDER), counter, hyper, 0.3, d_rgb, d_raw)
    host = {name: value.cpu() if name == "ray_indices" else value.cpu().double() for name, value in inputs.items()}
    rays = host["ray_indices"].long()
    names = ("rgb", "raw", "dt", "weight", "after", "prefix")
    expected_rgb, expected_raw = reference.composite_backward(*(host[name] for name in names), host["gradient"][rays], host["final"][rays])
    if mean_density < op.MEAN_DENSITY_FLOOR:
        expected_raw -= op.PUSH * (host["raw"] < 0)
    near = (host["raw"] > op.EMPTY_RAW) & (host["t"] < 0.3)
    assert bool(near.any())
    expected_raw += op.PUSH * near
    assert_close(d_rgb[:written], expected_rgb[:written], torch.float32, 8)
    relative = (d_raw[:written].cpu().double() - expected_raw[:written]).abs() / (expected_raw[:written].abs() + 1e-3)
    assert written == 0 or float(relative.max()) < 1e-4  # densities span many orders of magnitude
    assert untouched(d_rgb[written:])
    assert untouched(d_raw[written:])


@pytest.mark.parametrize("first_step", [0, 7, 8])
def test_relaxed_backward(first_step: int, device: torch.device) -> None:
    """From its first step on the relaxed gradient, before it the ordinary one, to the bit."""
    inputs = sample_inputs(97, 11, device)
    targets, hyper = torch.rand(11, 3, device=device), torch.ones(N_HYPER, device=device)
    scale, state = torch.tensor([0.25], device=device), torch.tensor([7, 11, 0, 0], device=device)
    count = torch.tensor([90], dtype=torch.int32, device=device)
    d_rgb, d_raw = marked(97, 3, device=device), marked(97, device=device)
    records, ends = [inputs[name] for name in ORDER[:8]], [inputs[name] for name in ORDER[8:]]
    rule = (scale, state, first_step, LOSSES["Huber"], count, hyper, 0.3)
    torch.ops.nerfleet.relaxed_backward(*records, targets, *ends, *rule, d_rgb, d_raw)
    plain_rgb, plain_raw = marked(97, 3, device=device), marked(97, device=device)
    torch.ops.nerfleet.composite_backward(*records, *ends, count, hyper, 0.3, plain_rgb, plain_raw)
    assert untouched(d_rgb[90:])
    assert untouched(d_raw[90:])
    if first_step == 8:
        assert torch.equal(d_rgb[:90], plain_rgb[:90])
        assert torch.equal(d_raw[:90], plain_raw[:90])
        return
    host = {name: value.cpu() if name == "ray_indices" else value.cpu().double() for name, value in inputs.items()}
    rays, names = host["ray_indices"].long(), ("rgb", "raw", "dt", "weight", "after", "prefix")
    expected, _ = reference.relaxed_backward(*(host[name] for name in names), targets.cpu().double()[rays], host["final"][rays], LOSSES["Huber"])
    assert_close(d_rgb[:90], 0.25 * expected[:90], torch.float32, 64)
    assert not torch.equal(d_raw[:90], plain_raw[:90])


def test_schema_and_fake(device: torch.device) -> None:
    inputs = loss_inputs(8, 8, device)
    buffers = (torch.zeros(8, 3, device=device), torch.zeros(8, 3, device=device), torch.zeros(1, device=device))
    counters = torch.zeros(N_COUNTERS, dtype=torch.int32, device=device)
    order = tuple(inputs[name] for name in ("rgb", "transmittance", "targets", "backgrounds", "starts", "state"))
    check_op(torch.ops.nerfleet.ray_loss.default, (*order, 0, 128.0, *buffers, counters))
    samples = sample_inputs(9, 3, device)
    count, outputs = torch.tensor([9], dtype=torch.int32, device=device), (torch.zeros(9, 3, device=device), torch.zeros(9, device=device))
    check_op(torch.ops.nerfleet.composite_backward.default, (*(samples[n] for n in ORDER), count, torch.zeros(N_HYPER, device=device), 0.1, *outputs))
    rule = (torch.ones(1, device=device), torch.zeros(N_STATE, dtype=torch.int64, device=device), 0, 0, count, torch.zeros(N_HYPER, device=device), 0.1)
    records, ends = [samples[n] for n in ORDER[:8]], [samples[n] for n in ORDER[8:]]
    check_op(torch.ops.nerfleet.relaxed_backward.default, (*records, samples["final"], *ends, *rule, *outputs))
