"""Launchers of hash_grid.cu; arguments as in hash_grid/op.py."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.kernels.hash_grid import fixed_point
from nerfleet.kernels.hash_grid.spec import LEVEL_INTS
from nerfleet.kernels.rtc.compile import Defines
from nerfleet.kernels.rtc.launch import Program

SOURCE = Path(__file__).with_name("hash_grid.cu")
FEATURE_COUNTS = (1, 2, 4, 8)
RUN = 16
"""Samples that a team of eight lanes walks along, as in hash_grid.cu."""
BLOCK = 256


def grid_defines(n_features: int, levels: Sequence[int], interpolation: int) -> Defines:
    """Macros that specialise a program for a grid.

    Raises:
        NerfleetError: a number of features, or an order of levels, that the kernels do not know.
    """
    if n_features not in FEATURE_COUNTS:
        raise NerfleetError("encoding.n_features_per_level", f"{n_features} on CUDA", "use 1, 2, 4 or 8")
    rows = [levels[i : i + LEVEL_INTS] for i in range(0, len(levels), LEVEL_INTS)]
    hashed = [bool(row[3]) for row in rows]
    if hashed != sorted(hashed):
        raise NerfleetError("encoding", "a dense level follows a hashed one", "let the resolution grow from level to level")
    tiled = any(not is_hashed and row[0] ** 3 > row[1] for is_hashed, row in zip(hashed, rows))
    return (
        ("NF_LEVELS", len(rows)),
        ("NF_FEATURES", n_features),
        ("NF_DENSE_LEVELS", hashed.count(False)),
        ("NF_TILED", int(tiled)),
        ("NF_INTERPOLATION", interpolation),
    )


def pack_grid(scales: Sequence[float], levels: Sequence[int]) -> bytes:
    """The structure ``Grid`` of hash_grid.cuh."""
    packed = b""
    for i, scale in enumerate(scales):
        _, entries, first, _, stride_y, stride_z = levels[LEVEL_INTS * i : LEVEL_INTS * (i + 1)]
        packed += struct.pack("<fIIII", scale, entries, first, stride_y, stride_z)
    return packed


def require_half(what: str, tensor: Tensor) -> None:
    """Raises: NerfleetError: CUDA kernels read and write half precision here, 16-byte aligned."""
    if tensor.dtype != torch.float16:
        raise NerfleetError(what, f"is {tensor.dtype} on CUDA", "pass float16")
    if tensor.data_ptr() % 16:
        raise NerfleetError(what, "does not start at a multiple of 16 bytes", "pass a tensor of its own, not a slice")


def levels_a_team(n_levels: int, n_features: int) -> int:
    """Levels that eight lanes scatter together, as LEVELS in hash_grid.cu."""
    if n_levels % 4 == 0 and n_features <= 4:
        return 4
    return 2 if n_levels % 2 == 0 else 1


def hash_grid(positions: Tensor, table: Tensor, n_features: int, scales: Sequence[float], levels: Sequence[int], interpolation: int) -> Tensor:
    """[n, n_levels * n_features] float16."""
    require_half("table", table)
    n = len(positions)
    out = torch.empty(n, len(scales) * n_features, dtype=torch.float16, device=positions.device)
    program = Program(SOURCE, grid_defines(n_features, levels, interpolation))
    arguments = (positions.contiguous(), table, pack_grid(scales, levels), n, out)
    program.launch("hash_grid_forward", (-(-n // BLOCK), len(scales)), BLOCK, *arguments, device=positions.device)
    return out


def hash_grid_backward(
    positions: Tensor,
    grad_features: Tensor,
    n_features: int,
    scales: Sequence[float],
    levels: Sequence[int],
    interpolation: int,
    grad_table: Tensor,
    count: Tensor | None,
    order: Tensor | None,
) -> None:
    """Adds to ``grad_table``, pairs in fixed point; nothing is read on the host. ``grad_features`` may be columns of a wider tensor."""
    require_half("grad_features", grad_features)
    if grad_table.dtype != torch.int64:
        raise NerfleetError("grad_table", f"is {grad_table.dtype} on CUDA", "pass int64, pairs in fixed point (hash_grid/fixed_point.py)")
    n, width, row = len(positions), len(scales) * n_features, grad_features.stride(0)
    defines = grid_defines(n_features, levels, interpolation)
    if n and row != width:
        defines = (*defines, ("NF_ROW", row))
        grad_features = grad_features.as_strided(((n - 1) * row + width,), (1,))
    program = Program(SOURCE, defines)
    teams = -(-n // RUN)
    arguments = (positions.contiguous(), grad_features, pack_grid(scales, levels), order, count, n, grad_table)
    blocks = (-(-teams * 8 // BLOCK), len(scales) // levels_a_team(len(scales), n_features))
    program.launch("hash_grid_backward", blocks, BLOCK, *arguments, device=positions.device)


def hash_grid_gradient(
    positions: Tensor, grad_features: Tensor, n_features: int, scales: Sequence[float], levels: Sequence[int], interpolation: int, n_params: int
) -> Tensor:
    """[n_params] float16.

    Gradients of any size: they are scaled, by a power of two, so that no entry's sum can leave the range of fixed point (an
    entry takes at most the whole of each sample). One that is not finite makes all of the result NaN.
    """
    most = grad_features.float().abs().sum(0).amax()
    scale = torch.exp2(torch.floor(torch.log2(0.99 * fixed_point.LIMIT / most))).clamp(max=2.0**64)
    pairs = torch.zeros(n_params // 2, dtype=torch.int64, device=positions.device)
    scaled = (grad_features.float() * scale).half()
    hash_grid_backward(positions, scaled, n_features, scales, levels, interpolation, pairs, None, None)
    return (fixed_point.unpack(pairs) / scale).half()
