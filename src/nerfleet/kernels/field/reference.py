"""The radiance field in plain torch, differentiable, any float dtype: the oracle of the ops.

Mueller et al. 2022, section 5.4: a density network on the encoded position, a colour network on its 16 outputs and the
spherical harmonics of the viewing direction. Density = exp(raw), colour = logistic(output).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nerfleet.kernels.hash_grid.reference import hash_grid
from nerfleet.kernels.mlp.reference import mlp, n_weights
from nerfleet.kernels.sphere_harmonics.reference import sphere_harmonics


def pad_features(features: Tensor, n_input: int) -> Tensor:
    """Zero columns up to the network's input size."""
    missing = n_input - features.shape[-1]
    return features if missing == 0 else torch.nn.functional.pad(features, (0, missing))


def density_outputs(features: Tensor, weights: Tensor, density_dims: Sequence[int]) -> Tensor:
    """[n, L * F] features -> [n, 16]; column 0 is the raw (log) density."""
    return mlp(pad_features(features, density_dims[0]), weights[: n_weights(density_dims)], density_dims)


def field_from_features(
    features: Tensor, directions: Tensor, weights: Tensor, density_dims: Sequence[int], rgb_dims: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """features [n, L * F], unit directions [n, 3] -> (rgb [n, 3] in 0..1, raw density [n])."""
    outputs = density_outputs(features, weights, density_dims)
    colour_input = torch.cat([outputs, sphere_harmonics(directions)], -1)
    colour = mlp(colour_input, weights[n_weights(density_dims) :], rgb_dims)
    return torch.sigmoid(colour[:, :3]), outputs[:, 0]


def field(
    positions: Tensor,
    directions: Tensor,
    table: Tensor,
    weights: Tensor,
    n_features: int,
    scales: Sequence[float],
    levels: Sequence[int],
    interpolation: int,
    density_dims: Sequence[int],
    rgb_dims: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """positions [n, 3] in the unit cube -> (rgb [n, 3], raw density [n])."""
    features = hash_grid(positions, table, n_features, scales, levels, interpolation)
    return field_from_features(features, directions, weights, density_dims, rgb_dims)
