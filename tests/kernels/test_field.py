"""The field: networks against float64, harmonics against quadrature, gradients against autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.support.compare import assert_close, assert_same_gradient, check_op, marked, untouched
from tests.support.specs import FIELDS, random_directions, random_mlp, random_positions, random_table, working_dtype
from torch import Tensor

from nerfleet.kernels.field import reference
from nerfleet.kernels.field.op import field, field_density
from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.kernels.hash_grid.spec import GridSpec
from nerfleet.kernels.mlp.reference import mlp, n_weights, split_weights
from nerfleet.kernels.sphere_harmonics.cpu import sphere_harmonics as compiled_harmonics
from nerfleet.kernels.sphere_harmonics.reference import sphere_harmonics

fields = pytest.mark.parametrize("spec", FIELDS.values(), ids=FIELDS.keys())
CPU = torch.device("cpu")


def depth(spec: FieldSpec) -> int:
    """Rounded operations in a row: terms of the sums of all layers, and the rounding of grid positions."""
    return sum(spec.density_dims) + sum(spec.rgb_dims) + int(8 * max(spec.grid.scales))


def oracle(positions: Tensor, directions: Tensor, table: Tensor, weights: Tensor, spec: FieldSpec) -> tuple[Tensor, Tensor]:
    """float64 colours and raw densities on the CPU."""
    parameters = (table.cpu().double(), weights.cpu().double())
    return reference.field(positions.cpu(), directions.cpu().double(), *parameters, *spec.arguments)


def test_harmonics_are_orthonormal() -> None:
    cosines, weights = np.polynomial.legendre.leggauss(12)
    azimuths = (np.arange(24) + 0.5) * 2 * math.pi / 24
    z, phi = (torch.from_numpy(a.ravel()) for a in np.meshgrid(cosines, azimuths, indexing="ij"))
    ring = torch.sqrt(1 - z * z)
    values = sphere_harmonics(torch.stack([ring * torch.cos(phi), ring * torch.sin(phi), z], -1))
    area = torch.from_numpy(np.repeat(weights, 24)) * 2 * math.pi / 24
    assert torch.allclose((values * area[:, None]).T @ values, torch.eye(16, dtype=torch.float64), atol=1e-12)


def test_harmonics_order_and_signs() -> None:
    x, y, z = direction = torch.nn.functional.normalize(torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64), dim=0)
    polynomials = [
        x * 0 + 1, -y, z, -x, x * y, -y * z, 3 * z**2 - 1, -x * z, x**2 - y**2, y * (y**2 - 3 * x**2), x * y * z,
        y * (1 - 5 * z**2), z * (5 * z**2 - 3), x * (1 - 5 * z**2), z * (x**2 - y**2), x * (3 * y**2 - x**2),
    ]  # fmt: skip
    ratios = sphere_harmonics(direction[None])[0] / torch.stack(polynomials)
    assert bool((ratios > 0).all())
    assert float(ratios[0]) == pytest.approx(math.sqrt(1 / (4 * math.pi)))
    assert float(ratios[1]) == pytest.approx(math.sqrt(3 / (4 * math.pi)))


def test_compiled_harmonics_equal_the_reference() -> None:
    directions = random_directions(100, CPU)
    wide = torch.full((100, 20), 7.0)
    compiled_harmonics(directions.numpy(), wide[:, 2:18].numpy())
    assert torch.allclose(wide[:, 2:18], sphere_harmonics(directions.double()).float(), rtol=1e-5, atol=1e-6)
    assert bool((wide[:, [0, 1, 18, 19]] == 7).all())


def test_mlp_equals_scalar_loop() -> None:
    dims = [5, 4, 3, 2]
    generator = torch.Generator().manual_seed(0)
    weights, x = (torch.randn(n, generator=generator, dtype=torch.float64) for n in (n_weights(dims), 5))
    layers = split_weights(weights, dims)
    assert [tuple(layer.shape) for layer in layers] == [(4, 5), (3, 4), (2, 3)]
    flat, values, used = weights.tolist(), x.tolist(), 0
    for i, (n_in, n_out) in enumerate(zip(dims, dims[1:])):
        sums = [sum(flat[used + row * n_in + column] * values[column] for column in range(n_in)) for row in range(n_out)]
        values = sums if i == len(dims) - 2 else [max(0.0, v) for v in sums]
        used += n_in * n_out
    assert used == n_weights(dims)
    assert mlp(x[None], weights, dims)[0].tolist() == pytest.approx(values)


def test_sizes_of_the_default_field() -> None:
    spec = FIELDS["small_preset"]
    assert (n_weights(spec.density_dims), n_weights(spec.rgb_dims)) == (3072, 7168)
    assert spec.n_mlp_params == 3072 + 7168
    assert FIELDS["padded_input"].density_dims[0] == 16  # 6 features


def test_gradient_of_the_reference() -> None:
    spec = FieldSpec(GridSpec(2, 2, 5, 3, 2.0), 16, 1, 16, 2)
    generator = torch.Generator().manual_seed(0)
    positions, directions = random_positions(6, CPU).double(), random_directions(6, CPU).double()
    table = torch.randn(spec.grid.n_params, dtype=torch.float64, generator=generator, requires_grad=True)
    weights = (torch.randn(spec.n_mlp_params, dtype=torch.float64, generator=generator) * 0.4).requires_grad_()

    def outputs(table: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        return reference.field(positions, directions, table, weights, *spec.arguments)

    assert torch.autograd.gradcheck(outputs, (table, weights), fast_mode=True)


def skip_unsupported(spec: FieldSpec, device: torch.device) -> None:
    """The CUDA kernels know one hidden density layer and two hidden colour layers; tests/kernels/test_cuda_field.py has their widths."""
    if device.type == "cuda" and (spec.density_hidden_layers, spec.rgb_hidden_layers) != (1, 2):
        pytest.skip("other numbers of layers than 1 and 2 are refused on CUDA")


@fields
@pytest.mark.parametrize("n", [0, 1, 77, 16_385])
def test_forward(spec: FieldSpec, n: int, device: torch.device) -> None:
    if n > 1000 and spec is not FIELDS["small_preset"]:
        pytest.skip("blocks of rows are the same code for every size")
    skip_unsupported(spec, device)
    positions, directions = random_positions(n, device), random_directions(n, device)
    table, weights = random_table(spec.grid, device), random_mlp(spec, device)
    rgb, raw = field(positions, directions, table, weights, spec)
    assert rgb.dtype == raw.dtype == torch.float32
    expected_rgb, expected_raw = oracle(positions, directions, table, weights, spec)
    assert_close(raw, expected_raw, working_dtype(device), depth(spec))
    assert_close(rgb, expected_rgb, working_dtype(device), depth(spec))
    assert_close(field_density(positions, table, weights, spec), expected_raw, working_dtype(device), depth(spec))


def features_of(positions: Tensor, table: Tensor, spec: FieldSpec) -> Tensor:
    return torch.ops.nerfleet.hash_grid(positions, table, *spec.arguments[:4])


@fields
def test_backward(spec: FieldSpec, device: torch.device) -> None:
    skip_unsupported(spec, device)
    n, count, capacity, n_rays = 301, 301, 320, 7
    dtype, generator = working_dtype(device), torch.Generator().manual_seed(9)
    weights, directions = random_mlp(spec, device), random_directions(n_rays, device)
    rays = torch.randint(0, n_rays, (capacity,), generator=generator, dtype=torch.int32)
    features = features_of(random_positions(capacity, device), random_table(spec.grid, device), spec)
    d_rgb, d_raw = torch.randn(capacity, 3, generator=generator), torch.randn(capacity, generator=generator)
    order = torch.randperm(n, generator=generator)

    oracle_features = features[:n].cpu().double().requires_grad_()
    oracle_weights = weights.cpu().double().requires_grad_()
    along = directions.cpu().double()[rays[:n].long()]
    rgb, raw = reference.field_from_features(oracle_features, along, oracle_weights, spec.density_dims, spec.rgb_dims)
    torch.autograd.backward([rgb, raw], [d_rgb[:n].double(), d_raw[:n].double()])
    assert oracle_features.grad is not None
    assert oracle_weights.grad is not None

    grad_mlp = torch.zeros(spec.n_mlp_params, device=device)
    grad_features = marked(capacity, spec.grid.n_output, dtype=dtype, device=device)
    dims = (spec.density_dims, spec.rgb_dims)
    counter = torch.tensor([count], dtype=torch.int32, device=device)
    gradients = (d_rgb.to(device), d_raw.to(device), counter, order.int().to(device), grad_mlp, grad_features)
    torch.ops.nerfleet.field_backward(features, rays.to(device), directions, weights, *dims, *gradients)
    assert_same_gradient(grad_mlp, oracle_weights.grad, dtype, depth(spec))
    assert_same_gradient(grad_features[:n], oracle_features.grad[order], dtype, depth(spec))
    assert untouched(grad_features[n:])

    torch.ops.nerfleet.field_backward(features, rays.to(device), directions, weights, *dims, *gradients)
    assert_same_gradient(grad_mlp, 2 * oracle_weights.grad, dtype, depth(spec))  # adds


@pytest.mark.parametrize("count, expected", [(0, 0), (9, 5)])
def test_backward_count_out_of_the_ordinary(count: int, expected: int, device: torch.device) -> None:
    spec = FIELDS["small_preset"]
    features = torch.ones(5, spec.grid.n_output, dtype=working_dtype(device), device=device)
    grad_mlp, grad_features = torch.zeros(spec.n_mlp_params, device=device), marked(*features.shape, dtype=features.dtype, device=device)
    rays = torch.zeros(5, dtype=torch.int32, device=device)
    d_rgb, d_raw, counter = torch.ones(5, 3, device=device), torch.ones(5, device=device), torch.tensor([count], dtype=torch.int32, device=device)
    arguments = (random_directions(1, device), random_mlp(spec, device), spec.density_dims, spec.rgb_dims, d_rgb, d_raw, counter)
    order = torch.arange(5, dtype=torch.int32, device=device)
    torch.ops.nerfleet.field_backward(features, rays, *arguments, order, grad_mlp, grad_features)
    assert bool(torch.isfinite(grad_features[:expected]).all())
    assert untouched(grad_features[expected:])
    assert bool(grad_mlp.any()) == (expected > 0)


def test_autograd(device: torch.device) -> None:
    spec = FIELDS["small_preset"]
    positions, directions = random_positions(150, device), random_directions(150, device)
    table, weights = random_table(spec.grid, device).requires_grad_(), random_mlp(spec, device).requires_grad_()
    rgb, raw = field(positions, directions, table, weights, spec)
    ((rgb * torch.linspace(-1, 1, 3, device=device)).sum() + raw.sum()).backward()
    oracle_table, oracle_weights = table.detach().cpu().double().requires_grad_(), weights.detach().cpu().double().requires_grad_()
    rgb, raw = reference.field(positions.cpu(), directions.cpu().double(), oracle_table, oracle_weights, *spec.arguments)
    ((rgb * torch.linspace(-1, 1, 3)).sum() + raw.sum()).backward()
    for actual, expected in ((table.grad, oracle_table.grad), (weights.grad, oracle_weights.grad)):
        assert actual is not None
        assert expected is not None
        assert_same_gradient(actual, expected, working_dtype(device), depth(spec))


def test_schema_and_fake(device: torch.device) -> None:
    spec = FIELDS["padded_input" if device.type == "cpu" else "small_preset"]
    positions, directions = random_positions(6, device), random_directions(6, device)
    table, weights = random_table(spec.grid, device), random_mlp(spec, device)
    ops = torch.ops.nerfleet
    check_op(ops.field.default, (positions, directions, table, weights, *spec.arguments))
    check_op(ops.field_density.default, (positions, table, weights, *spec.arguments))
    features = features_of(positions, table, spec)
    rays, count = torch.arange(6, dtype=torch.int32, device=device), torch.tensor([6], dtype=torch.int32, device=device)
    gradients = (
        torch.ones(6, 3, device=device),
        torch.ones(6, device=device),
        count,
        rays.clone(),
        torch.zeros(spec.n_mlp_params, device=device),
        torch.zeros_like(features),
    )
    check_op(ops.field_backward.default, (features, rays, directions, weights, spec.density_dims, spec.rgb_dims, *gradients))
