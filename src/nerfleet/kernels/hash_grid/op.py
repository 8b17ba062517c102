"""The op ``nerfleet::hash_grid`` and its gradient; the tensors' device picks the implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerfleet.kernels.hash_grid.spec import LEVEL_INTS, GridSpec

INTERPOLATIONS = {"Linear": 0, "Smoothstep": 1, "Nearest": 2}

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define("hash_grid(Tensor positions, Tensor table, int n_features, float[] scales, int[] levels, int interpolation) -> Tensor")
library.define(
    "hash_grid_backward(Tensor positions, Tensor grad_features, int n_features, float[] scales, int[] levels, int interpolation, "
    "Tensor(a!) grad_table, Tensor? count, Tensor? order) -> ()"
)
library.define(
    "hash_grid_gradient(Tensor positions, Tensor grad_features, int n_features, float[] scales, int[] levels, int interpolation, int n_params) -> Tensor"
)


def hash_grid(positions: Tensor, table: Tensor, spec: GridSpec) -> Tensor:
    """Encode points; differentiable in ``table``.

    Args:
        positions: [n, 3] float32 in [0, 1].
        table: [spec.n_params] float32 (CPU) or float16 (CUDA).

    Returns:
        [n, spec.n_output] of the table's dtype.
    """
    return torch.ops.nerfleet.hash_grid(positions, table, *grid_arguments(spec))


def grid_arguments(spec: GridSpec) -> tuple[int, list[float], list[int], int]:
    """(n_features, scales, levels, interpolation) as every op that reads the grid takes them."""
    return spec.n_features, list(spec.scales), list(spec.levels), INTERPOLATIONS[spec.interpolation]


def numpy_levels(scales: Sequence[float], levels: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(scales, np.float32), np.asarray(levels, np.uint32).reshape(-1, LEVEL_INTS)


def _check(positions: Tensor, table: Tensor, n_features: int) -> None:
    torch._check(positions.dim() == 2 and positions.shape[1] == 3, lambda: f"positions must be [n, 3], not {tuple(positions.shape)}")
    torch._check(positions.dtype == torch.float32, lambda: f"positions must be float32, not {positions.dtype}")
    torch._check(table.dim() == 1 and table.numel() % n_features == 0, lambda: "table must be flat, whole entries")


@torch.library.impl(library, "hash_grid", "CPU")
def _hash_grid_cpu(positions: Tensor, table: Tensor, n_features: int, scales: list[float], levels: list[int], interpolation: int) -> Tensor:
    from nerfleet.kernels.hash_grid import cpu
    from nerfleet.kernels.threads import over_blocks

    _check(positions, table, n_features)
    out = torch.empty(len(positions), len(scales) * n_features, dtype=torch.float32)
    forward, _ = cpu.kernels(n_features)
    points, values, written = positions.detach().contiguous().numpy(), table.detach().float().contiguous().numpy(), out.numpy()
    grid = (*numpy_levels(scales, levels), interpolation)
    over_blocks(len(points), cpu.ROWS, lambda rows: forward(points[rows], values, *grid, written[rows]))
    return out.to(table.dtype)


@torch.library.impl(library, "hash_grid", "CUDA")
def _hash_grid_cuda(positions: Tensor, table: Tensor, n_features: int, scales: list[float], levels: list[int], interpolation: int) -> Tensor:
    from nerfleet.kernels.hash_grid import cuda

    _check(positions, table, n_features)
    return cuda.hash_grid(positions, table, n_features, scales, levels, interpolation)


@torch.library.register_fake("nerfleet::hash_grid")
def _hash_grid_fake(positions: Tensor, table: Tensor, n_features: int, scales: list[float], levels: list[int], interpolation: int) -> Tensor:
    return positions.new_empty((positions.shape[0], len(scales) * n_features), dtype=table.dtype)


@torch.library.impl(library, "hash_grid_backward", "CPU")
def _hash_grid_backward_cpu(
    positions: Tensor,
    grad_features: Tensor,
    n_features: int,
    scales: list[float],
    levels: list[int],
    interpolation: int,
    grad_table: Tensor,
    count: Tensor | None,
    order: Tensor | None,
) -> None:
    """Adds the gradient of the first ``count`` samples (a [1] int32 tensor; None: all) of a sequence to ``grad_table``.

    Args:
        positions: [n, 3] in the unit cube. order: [n] int32 which of them is the i-th of the sequence; None: the i-th.
        grad_features: [n, L * F] of the i-th sample of the sequence.
        grad_table: float32 [n_params]; on CUDA int64 [n_params / 2], pairs in fixed point (hash_grid/fixed_point.py), where an
            addend that is not finite counts as zero.
    """
    import numba

    from nerfleet.kernels.hash_grid import cpu

    n = len(positions) if count is None else min(int(count), len(positions))
    positions = positions[:n] if order is None else positions[order[:n].long()]
    _, backward = cpu.kernels(n_features)
    arguments = (*numpy_levels(scales, levels), interpolation)
    backward(positions.contiguous().numpy(), grad_features[:n].contiguous().numpy(), *arguments, grad_table.numpy(), numba.get_num_threads())


@torch.library.impl(library, "hash_grid_backward", "CUDA")
def _hash_grid_backward_cuda(
    positions: Tensor,
    grad_features: Tensor,
    n_features: int,
    scales: list[float],
    levels: list[int],
    interpolation: int,
    grad_table: Tensor,
    count: Tensor | None,
    order: Tensor | None,
) -> None:
    from nerfleet.kernels.hash_grid import cuda

    cuda.hash_grid_backward(positions, grad_features, n_features, scales, levels, interpolation, grad_table, count, order)


@torch.library.register_fake("nerfleet::hash_grid_backward")
def _hash_grid_backward_fake(*_: object) -> None:
    return None


@torch.library.impl(library, "hash_grid_gradient", "CPU")
def _hash_grid_gradient_cpu(positions: Tensor, grad_features: Tensor, *rest: Any) -> Tensor:
    """Gradient of the whole table, [n_params] of the dtype of ``grad_features``: for autograd; a training step adds up in place."""
    *grid, n_params = rest
    grad_table = torch.zeros(n_params)
    torch.ops.nerfleet.hash_grid_backward(positions, grad_features.float(), *grid, grad_table, None, None)
    return grad_table.to(grad_features.dtype)


@torch.library.impl(library, "hash_grid_gradient", "CUDA")
def _hash_grid_gradient_cuda(*arguments: Any) -> Tensor:
    from nerfleet.kernels.hash_grid import cuda

    return cuda.hash_grid_gradient(*arguments)


@torch.library.register_fake("nerfleet::hash_grid_gradient")
def _hash_grid_gradient_fake(positions: Tensor, grad_features: Tensor, *rest: Any) -> Tensor:
    return grad_features.new_empty(rest[-1])


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    positions, table, *rest = inputs
    ctx.save_for_backward(positions)
    ctx.rest, ctx.table_size = rest, table.numel()


def _autograd(ctx: Any, grad: Tensor) -> tuple:
    (positions,) = ctx.saved_tensors
    grad_table = torch.ops.nerfleet.hash_grid_gradient(positions, grad.contiguous(), *ctx.rest, ctx.table_size)
    return None, grad_table, None, None, None, None


torch.library.register_autograd("nerfleet::hash_grid", _autograd, setup_context=_setup_context)
