"""Parameters of a radiance field and how they are laid out."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from nerfleet.config import NetworkConfig
from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.kernels.hash_grid.spec import GridSpec, derived_growth
from nerfleet.kernels.mlp.reference import split_weights

TABLE_INIT = 1e-4


def field_spec(network: NetworkConfig, aabb_scale: int) -> FieldSpec:
    """Sizes of the field that a network configuration describes in a scene box of edge ``aabb_scale``."""
    encoding = network.encoding
    growth = encoding.per_level_scale or derived_growth(encoding.n_levels, encoding.base_resolution, aabb_scale)
    grid = GridSpec(
        encoding.n_levels,
        encoding.n_features_per_level,
        encoding.log2_hashmap_size,
        encoding.base_resolution,
        growth,
        encoding.otype,
        encoding.interpolation,
    )
    return FieldSpec(
        grid, network.density.n_neurons, network.density.n_hidden_layers, network.rgb.n_neurons, network.rgb.n_hidden_layers
    )


def allocate(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[n] zeros. Large tensors on the CPU come from numpy, which asks for huge pages: random access is faster."""
    if device.type != "cpu":
        return torch.zeros(n, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(n, torch.empty(0, dtype=dtype).numpy().dtype))


def table_gradient(n: int, device: torch.device) -> Tensor:
    """Zeros for the gradient of n parameters of a table, as ``hash_grid_backward`` adds to it and ``adam`` reads it."""
    return allocate(n, torch.float32, device) if device.type == "cpu" else allocate(-(-n // 2), torch.int64, device)


@dataclass
class ParameterGroup:
    """Parameters that are optimised alike, all [n] but for ``gradient``: the argument list of the op ``adam``.

    Attributes:
        master: float32. weights: what the field reads: float16 on CUDA, the master itself on the CPU.
        ema: running average, same dtype as weights, what is rendered and saved.
        gradient: scaled by the loss scale, float32; of a table on CUDA [n / 2] int64, pairs in fixed point (kernels/hash_grid/fixed_point.py).
        steps: int16, updates of each parameter.
    """

    master: Tensor
    weights: Tensor
    ema: Tensor
    gradient: Tensor
    first_moment: Tensor
    second_moment: Tensor
    steps: Tensor

    @staticmethod
    def from_values(values: Tensor, device: torch.device, is_table: bool) -> ParameterGroup:
        """New group with fresh moments; ``is_table``: many samples add to its gradient at once."""
        n = values.numel()
        master = allocate(n, torch.float32, device)
        master.copy_(values)
        working = torch.float32 if device.type == "cpu" else torch.float16
        weights = master if device.type == "cpu" else master.to(working)
        gradient = table_gradient(n, device) if is_table else allocate(n, torch.float32, device)
        first, second = allocate(n, torch.float32, device), allocate(n, torch.float32, device)
        ema = allocate(n, working, device)
        ema.copy_(values)
        return ParameterGroup(master, weights, ema, gradient, first, second, allocate(n, torch.int16, device))

    def tensors(self) -> list[Tensor]:
        return [getattr(self, f.name) for f in fields(self)]


def initial_mlp(spec: FieldSpec, generator: torch.Generator) -> Tensor:
    """[n_mlp_params] Xavier-uniform with padded sizes: bound sqrt(6 / (in + out))."""
    weights = torch.rand(spec.n_mlp_params, generator=generator) * 2 - 1
    n_density = sum(spec.density_dims[i] * spec.density_dims[i + 1] for i in range(len(spec.density_dims) - 1))
    for part, dims in ((weights[:n_density], spec.density_dims), (weights[n_density:], spec.rgb_dims)):
        for layer in split_weights(part, dims):
            layer *= math.sqrt(6.0 / sum(layer.shape))
    return weights


def initial_table(spec: FieldSpec, generator: torch.Generator) -> Tensor:
    """[n_params] uniform in +-1e-4."""
    return (torch.rand(spec.grid.n_params, generator=generator) * 2 - 1) * TABLE_INIT
