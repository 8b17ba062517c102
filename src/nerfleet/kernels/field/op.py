"""Ops of the field: ``nerfleet::field`` (for users, differentiable), ``field_density`` and ``field_backward`` (the trainer's)."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.kernels.field.spec import FieldSpec

GRID = "int n_features, float[] scales, int[] levels, int interpolation"
DIMS = "int[] density_dims, int[] rgb_dims"

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define(f"field(Tensor positions, Tensor directions, Tensor table, Tensor mlp, {GRID}, {DIMS}) -> (Tensor rgb, Tensor raw_density, Tensor features)")
library.define(f"field_density(Tensor positions, Tensor table, Tensor mlp, {GRID}, {DIMS}) -> Tensor")
library.define(
    f"field_backward(Tensor features, Tensor ray_indices, Tensor directions, Tensor mlp, {DIMS}, Tensor d_rgb, Tensor d_raw, Tensor count, Tensor order, "
    "Tensor(a!) grad_mlp, Tensor(b!) grad_features) -> ()"
)


def field(positions: Tensor, directions: Tensor, table: Tensor, mlp: Tensor, spec: FieldSpec) -> tuple[Tensor, Tensor]:
    """Colour and density of points; differentiable in ``table`` and ``mlp``.

    Args:
        positions: [n, 3] float32 in the unit cube.
        directions: [n, 3] float32, unit length.
        table, mlp: parameters (:class:`FieldSpec`), float32 on the CPU, float16 on CUDA.

    Returns:
        rgb [n, 3] float32 in 0..1 and raw density [n] float32 (density = exp(raw)).
    """
    rgb, raw, _ = torch.ops.nerfleet.field(positions, directions, table, mlp, *spec.arguments)
    return rgb, raw


def field_density(positions: Tensor, table: Tensor, mlp: Tensor, spec: FieldSpec) -> Tensor:
    """Raw density [n] float32 of points [n, 3] in the unit cube."""
    return torch.ops.nerfleet.field_density(positions, table.detach(), mlp.detach(), *spec.arguments)


@torch.library.impl(library, "field", "CPU")
def _field_cpu(positions, directions, table, mlp, n_features, scales, levels, interpolation, density_dims, rgb_dims):
    from nerfleet.kernels.field import cpu

    features = torch.ops.nerfleet.hash_grid(positions, table, n_features, scales, levels, interpolation)
    outputs = cpu.density_outputs(features, mlp, density_dims)
    return cpu.colour(outputs, directions, mlp, density_dims, rgb_dims), outputs[:, 0].clone(), features


@torch.library.impl(library, "field", "CUDA")
def _field_cuda(*arguments):
    from nerfleet.kernels.field import cuda

    return cuda.field(*arguments)


@torch.library.register_fake("nerfleet::field")
def _field_fake(positions, directions, table, mlp, n_features, scales, levels, interpolation, density_dims, rgb_dims):
    n = positions.shape[0]
    return positions.new_empty((n, 3)), positions.new_empty(n), positions.new_empty((n, len(scales) * n_features), dtype=table.dtype)


@torch.library.impl(library, "field_density", "CPU")
def _field_density_cpu(positions, table, mlp, n_features, scales, levels, interpolation, density_dims, rgb_dims):
    from nerfleet.kernels.field import cpu

    features = torch.ops.nerfleet.hash_grid(positions, table, n_features, scales, levels, interpolation)
    return cpu.density_outputs(features, mlp, density_dims)[:, 0].clone()


@torch.library.impl(library, "field_density", "CUDA")
def _field_density_cuda(*arguments):
    from nerfleet.kernels.field import cuda

    return cuda.field_density(*arguments)


@torch.library.register_fake("nerfleet::field_density")
def _field_density_fake(positions, *_):
    return positions.new_empty(positions.shape[0])


@torch.library.impl(library, "field_backward", "CPU")
def _field_backward_cpu(features, ray_indices, directions, mlp, density_dims, rgb_dims, d_rgb, d_raw, count, order, grad_mlp, grad_features):
    """Gradients of the first ``count`` samples of a sequence.

    Args:
        features, ray_indices, d_rgb, d_raw [S, ...]: of each record; it looks along directions[ray_indices].
        order [S] int32: which record is the i-th of the sequence.
        grad_mlp: added to. grad_features [S, L * F]: written: of the i-th sample of the sequence.
    """
    from nerfleet.kernels.field import cpu

    n = min(int(count), len(features))
    slots = order[:n].long()
    along = directions[ray_indices[slots].long()]
    cpu.field_backward(features[slots], along, mlp, density_dims, rgb_dims, d_rgb[slots], d_raw[slots], grad_mlp, grad_features[:n])


@torch.library.impl(library, "field_backward", "CUDA")
def _field_backward_cuda(*arguments):
    from nerfleet.kernels.field import cuda

    cuda.field_backward(*arguments)


@torch.library.register_fake("nerfleet::field_backward")
def _field_backward_fake(*_):
    return None


def _setup_context(ctx, inputs, output):
    positions, directions, table, mlp, *rest = inputs
    ctx.save_for_backward(positions, directions, mlp, output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.rest, ctx.table_size = rest, table.numel()


def _autograd(ctx, d_rgb, d_raw, _):
    positions, directions, mlp, features = ctx.saved_tensors
    *grid, density_dims, rgb_dims = ctx.rest
    n = len(positions)
    indices = torch.arange(n, dtype=torch.int32, device=positions.device)
    count = torch.full((1,), n, dtype=torch.int32, device=positions.device)
    grad_mlp = torch.zeros(mlp.numel(), device=mlp.device)
    grad_features = torch.empty_like(features)
    backward = torch.ops.nerfleet.field_backward
    backward(features, indices, directions, mlp, density_dims, rgb_dims, d_rgb.contiguous(), d_raw.contiguous(), count, indices, grad_mlp, grad_features)
    grad_table = torch.ops.nerfleet.hash_grid_gradient(positions, grad_features, *grid, ctx.table_size)
    return None, None, grad_table, grad_mlp.to(mlp.dtype), None, None, None, None, None, None


torch.library.register_autograd("nerfleet::field", _autograd, setup_context=_setup_context)
