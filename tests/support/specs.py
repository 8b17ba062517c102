"""Sizes of grids and fields that the kernels' tests go through, and their random parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.kernels.hash_grid import fixed_point
from nerfleet.kernels.hash_grid.spec import GridSpec, derived_growth

GRIDS = {
    "small_preset": GridSpec(8, 4, 15, 16, derived_growth(8, 16, 1)),
    "defaults_aabb_4": GridSpec(16, 2, 13, 16, derived_growth(16, 16, 4)),
    "one_level": GridSpec(1, 1, 12, 8, 1.0),
    "smoothstep": GridSpec(4, 8, 10, 4, 2.0, interpolation="Smoothstep"),
    "nearest": GridSpec(6, 4, 12, 16, derived_growth(6, 16, 4), interpolation="Nearest"),
    "dense": GridSpec(5, 2, 19, 4, 1.5, kind="DenseGrid"),
    "tiled": GridSpec(7, 1, 19, 6, 1.7, kind="TiledGrid"),
}
FIELDS = {
    "small_preset": FieldSpec(GRIDS["small_preset"]),
    "padded_input": FieldSpec(GridSpec(3, 2, 10, 8, 2.0), 32, 2, 16, 1),
    "wide": FieldSpec(GRIDS["smoothstep"], 128, 1, 128, 3),
}


def working_dtype(device: torch.device) -> torch.dtype:
    """Precision of weights and features on a device."""
    return torch.float32 if device.type == "cpu" else torch.float16


def random_positions(n: int, device: torch.device, seed: int = 0) -> Tensor:
    """[n, 3] float32 in [0, 1], the corners and centre of the cube among them when there is room."""
    positions = torch.rand(n, 3, generator=torch.Generator().manual_seed(seed))
    special = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.5], [1.0, 0.0, 1.0], [0.5, 0.5, 0.5]])
    if n >= len(special):
        positions[: len(special)] = special
    return positions.to(device)


def random_directions(n: int, device: torch.device, seed: int = 1) -> Tensor:
    """[n, 3] float32 unit vectors, those along the axes among them when there is room."""
    directions = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))
    axes = torch.cat([torch.eye(3), -torch.eye(3)])
    if n >= len(axes):
        directions[: len(axes)] = axes
    return torch.nn.functional.normalize(directions, dim=-1).to(device)


def random_table(spec: GridSpec, device: torch.device, seed: int = 2) -> Tensor:
    """[n_params] in +-1, values that float16 holds exactly enough for the reference to start from the same numbers."""
    values = torch.rand(spec.n_params, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return values.half().to(device, working_dtype(device))


def random_mlp(spec: FieldSpec, device: torch.device, seed: int = 3) -> Tensor:
    """[n_mlp_params], small enough for densities and colours in a useful range; exact in float16."""
    values = torch.randn(spec.n_mlp_params, generator=torch.Generator().manual_seed(seed)) * 0.25
    return values.half().to(device, working_dtype(device))


def gradient_values(gradient: Tensor) -> Tensor:
    """[n] float32 of a table's gradient, which is in fixed point on CUDA."""
    return gradient if gradient.dtype == torch.float32 else fixed_point.unpack(gradient)
