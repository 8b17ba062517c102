"""Launchers of field.cu and field_backward.cu; arguments as in field/op.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.kernels.hash_grid.cuda import grid_defines, pack_grid, require_half
from nerfleet.kernels.rtc import launch
from nerfleet.kernels.rtc.compile import Defines
from nerfleet.kernels.rtc.launch import Program

FORWARD = Path(__file__).with_name("field.cu")
BACKWARD = Path(__file__).with_name("field_backward.cu")
WIDTHS = (32, 64, 128)
BLOCK = 128
BLOCKS_A_MULTIPROCESSOR = 4
DENSITY_BLOCKS_A_MULTIPROCESSOR = 8
SUM_BLOCK, WEIGHTS_A_SUM = 256, 32
"""Threads of a block that sums the blocks' weight gradients, and weights that it takes, as in field_backward.cu."""
SHARED_LIMIT = {"sm_75": 65536, "sm_80": 166912, "sm_87": 166912, "sm_90": 232448, "sm_100": 232448, "sm_103": 232448}
"""Dynamic shared memory that a block may use, in bytes."""
OTHER_SHARED_LIMIT = 101376


@dataclass(frozen=True)
class Sizes:
    """Shared memory of the kernels, as laid out in field.cuh: rows are padded by 8 halves."""

    n_features: int  # of a sample: levels * features
    hidden: int

    @property
    def _input(self) -> int:
        return -(-self.n_features // 32) * 32

    @property
    def density_weight_bytes(self) -> int:
        return 2 * (self.hidden * (self._input + 8) + 16 * (self.hidden + 8))

    @property
    def weight_bytes(self) -> int:
        return self.density_weight_bytes + 2 * (self.hidden * (32 + 8) + (self.hidden + 16) * (self.hidden + 8))

    @property
    def tile_bytes(self) -> int:
        """Of a warp: features and harmonics of 32 samples."""
        return 2 * 32 * (self._input + 16 + 8)

    def backward_bytes(self, n_warps: int) -> int:
        a_row = 2 * (max(self._input, self.hidden) + 8) + 2 * (self.hidden + 8) + (32 + 8) + (16 + 8)
        return self.weight_bytes + 2 * 16 * n_warps * a_row

    def backward_warps(self, target: str) -> int:
        """Warps of a block of field_backward on an architecture. Raises: NerfleetError: too little shared memory."""
        limit = SHARED_LIMIT.get(target, OTHER_SHARED_LIMIT)
        for n_warps in (8, 4, 2):
            if self.backward_bytes(n_warps) <= limit:
                return n_warps
        raise NerfleetError("network.n_neurons", f"{self.hidden} needs more shared memory than {target} has", "use a narrower network")


def sizes_of(n_features: int, density_dims: Sequence[int], rgb_dims: Sequence[int]) -> Sizes:
    """Raises: NerfleetError: networks that the kernels are not written for."""
    hidden = density_dims[1]
    fits = len(density_dims) == 3 and len(rgb_dims) == 4 and rgb_dims[0] == 32 and rgb_dims[1] == rgb_dims[2] == hidden
    if not fits or hidden not in WIDTHS:
        found = f"density {list(density_dims)} and colour {list(rgb_dims)} on CUDA"
        raise NerfleetError("network", found, "use one hidden density layer and two hidden colour layers of one width, 32, 64 or 128")
    return Sizes(n_features, hidden)


def field_defines(n_features: int, levels: Sequence[int], interpolation: int, sizes: Sizes) -> Defines:
    return (*grid_defines(n_features, levels, interpolation), ("NF_HIDDEN", sizes.hidden))


def backward_defines(sizes: Sizes, target: str) -> Defines:
    """The networks' gradient only sees columns of features: which grid they come from does not matter."""
    width = next(width for width in (4, 2, 1) if sizes.n_features % width == 0)
    grid = (("NF_LEVELS", sizes.n_features // width), ("NF_FEATURES", width), ("NF_DENSE_LEVELS", 0), ("NF_TILED", 0), ("NF_INTERPOLATION", 0))
    return (*grid, ("NF_HIDDEN", sizes.hidden), ("NF_BACKWARD_WARPS", sizes.backward_warps(target)))


def n_blocks(n: int, device: torch.device) -> int:
    """Blocks of warps that take 32 of n items at a time: as many as run at once, or fewer."""
    return min(-(-n // BLOCK), BLOCKS_A_MULTIPROCESSOR * launch.n_multiprocessors(device))


def field(
    positions: Tensor, directions: Tensor, table: Tensor, mlp: Tensor, n_features: int, scales: Sequence[float], levels: Sequence[int],
    interpolation: int, density_dims: Sequence[int], rgb_dims: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """rgb [n, 3] f32, raw [n] f32, features [n, L * F] f16."""
    require_half("table", table)
    require_half("mlp", mlp)
    sizes = sizes_of(len(scales) * n_features, density_dims, rgb_dims)
    n, device = len(positions), positions.device
    rgb, raw = torch.empty(n, 3, device=device), torch.empty(n, device=device)
    features = torch.empty(n, sizes.n_features, dtype=torch.float16, device=device)
    program = Program(FORWARD, field_defines(n_features, levels, interpolation, sizes))
    shared = sizes.weight_bytes + BLOCK // 32 * sizes.tile_bytes
    arguments = (positions.contiguous(), directions.contiguous(), table, mlp, pack_grid(scales, levels), n, rgb, raw, features)
    program.launch("field_forward", (n_blocks(n, device),), BLOCK, *arguments, device=device, shared_bytes=shared)
    return rgb, raw, features


def field_density(
    positions: Tensor, table: Tensor, mlp: Tensor, n_features: int, scales: Sequence[float], levels: Sequence[int], interpolation: int,
    density_dims: Sequence[int], rgb_dims: Sequence[int],
) -> Tensor:  # fmt: skip
    """Raw density [n] f32."""
    require_half("table", table)
    require_half("mlp", mlp)
    sizes = sizes_of(len(scales) * n_features, density_dims, rgb_dims)
    n, device = len(positions), positions.device
    raw = torch.empty(n, device=device)
    program = Program(FORWARD, field_defines(n_features, levels, interpolation, sizes))
    shared = sizes.density_weight_bytes + BLOCK // 32 * sizes.tile_bytes
    arguments = (positions.contiguous(), table, mlp, pack_grid(scales, levels), n, raw)
    blocks = min(-(-n // BLOCK), DENSITY_BLOCKS_A_MULTIPROCESSOR * launch.n_multiprocessors(device))
    program.launch("field_density", (blocks,), BLOCK, *arguments, device=device, shared_bytes=shared)
    return raw


def field_backward(
    features: Tensor, ray_indices: Tensor, directions: Tensor, mlp: Tensor, density_dims: Sequence[int], rgb_dims: Sequence[int], d_rgb: Tensor,
    d_raw: Tensor, count: Tensor, order: Tensor, grad_mlp: Tensor, grad_features: Tensor,
) -> None:  # fmt: skip
    """Adds to ``grad_mlp`` (f32), writes ``grad_features`` (f16) of the first ``count`` samples of the sequence."""
    for name, tensor in (("features", features), ("mlp", mlp), ("grad_features", grad_features)):
        require_half(name, tensor)
    device = features.device
    target = launch.architecture(device)
    sizes = sizes_of(features.shape[1], density_dims, rgb_dims)
    n_warps = sizes.backward_warps(target)
    shared = sizes.backward_bytes(n_warps)
    resident = max(SHARED_LIMIT.get(target, OTHER_SHARED_LIMIT) // (shared + 1024), 1)
    capacity = len(features)
    blocks = min(-(-capacity // (16 * n_warps)), resident * launch.n_multiprocessors(device))
    partials = torch.empty(blocks, len(mlp), device=device)
    arguments = (features, ray_indices, directions, mlp, d_rgb, d_raw, order, count, capacity, partials, grad_features)
    program = Program(BACKWARD, backward_defines(sizes, target))
    program.launch("field_backward", (blocks,), 32 * n_warps, *arguments, device=device, shared_bytes=shared)
    program.launch("sum_partials", (len(mlp) // WEIGHTS_A_SUM,), SUM_BLOCK, partials, count, capacity, blocks, grad_mlp, device=device)
