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
    "Tensor(a!) grad_table, Tensor? count) -> ()"
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
) -> None:
    """Adds the gradient of the first ``count`` samples (a [1] int32 tensor; None: all) to ``grad_table``."""
    import numba

    from nerfleet.kernels.hash_grid import cpu

    n = len(positions) if count is None else min(int(count), len(positions))
    _, backward = cpu.kernels(n_features)
    arguments = (*numpy_levels(scales, levels), interpolation)
    backward(positions[:n].contiguous().numpy(), grad_features[:n].contiguous().numpy(), *arguments, grad_table.numpy(), numba.get_num_threads())


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
) -> None:
    from nerfleet.kernels.hash_grid import cuda

    cuda.hash_grid_backward(positions, grad_features, n_features, scales, levels, interpolation, grad_table, count)


@torch.library.register_fake("nerfleet::hash_grid_backward")
def _hash_grid_backward_fake(*_: object) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    positions, table, *rest = inputs
    ctx.save_for_backward(positions)
    ctx.rest, ctx.table_size, ctx.table_dtype = rest, table.numel(), table.dtype


def _autograd(ctx: Any, grad: Tensor) -> tuple:
    (positions,) = ctx.saved_tensors
    grad_table = torch.zeros(ctx.table_size, dtype=ctx.table_dtype, device=grad.device)
    torch.ops.nerfleet.hash_grid_backward(positions, grad.contiguous(), *ctx.rest, grad_table, None)
    return None, grad_table, None, None, None, None


torch.library.register_autograd("nerfleet::hash_grid", _autograd, setup_context=_setup_context)
