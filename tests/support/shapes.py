"""A model that is a solid ball: its density falls off across the surface as exp(raw), raw linear in a level of the grid."""

from __future__ import annotations

import dataclasses

import torch

from nerfleet.config import EncodingConfig, MLPConfig, NetworkConfig
from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.kernels.march.reference import GRID_SIZE, N_CELLS, morton
from nerfleet.kernels.mlp.reference import n_weights, split_weights
from nerfleet.nn.field import field_spec
from nerfleet.nn.model import Model
from nerfleet.nn.occupancy_grid import OccupancyGrid

RESOLUTION = 64
STEEPNESS = 300.0
"""Change of the raw density per internal unit across a surface, unless told otherwise."""
LEVEL = 3.0
"""Raw density on the surface."""
NETWORK = NetworkConfig(
    encoding=EncodingConfig(otype="DenseGrid", n_levels=1, n_features_per_level=4, base_resolution=RESOLUTION), density=MLPConfig(16, 1), rgb=MLPConfig(16, 1)
)


def solid_model(distance: torch.Tensor, coloured: bool = False, steepness: float = STEEPNESS) -> Model:
    """A model whose raw density is LEVEL - steepness * distance, trilinear between the nodes of a grid.

    Args:
        distance: [64, 64, 64] signed distance at the nodes of :func:`nodes`, x first.
        coloured: all channels are the logistic of 8 (x - 0.5), from any direction; else they are 0.5.
    """
    spec = field_spec(NETWORK, 1)
    table, mlp = torch.zeros(spec.grid.n_params), torch.zeros(spec.n_mlp_params)
    raw = LEVEL - steepness * distance
    n = RESOLUTION**3
    features = table.view(-1, 4)
    flat = raw.permute(2, 1, 0).reshape(-1)  # x + y R + z R^2
    features[:n, 0], features[:n, 1] = flat.clamp(min=0), (-flat).clamp(min=0)
    layers = split_weights(mlp[: n_weights(spec.density_dims)], spec.density_dims)
    layers[0][0, 0], layers[0][1, 1] = 1.0, 1.0
    layers[1][0, 0], layers[1][0, 1] = 1.0, -1.0
    if coloured:
        _colour_by_x(features, mlp, spec)
    axis = torch.arange(GRID_SIZE)
    cells = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)
    values = torch.zeros(N_CELLS)
    coarse = torch.nn.functional.interpolate(raw[None, None], size=[GRID_SIZE] * 3, mode="trilinear")[0, 0]
    values[morton(cells)] = torch.where(coarse > LEVEL - 0.03 * steepness, 1.0, 0.0).view(-1)
    return Model(NETWORK, 1, 0.0, mlp, table, OccupancyGrid.from_values(values))


def _colour_by_x(features: torch.Tensor, mlp: torch.Tensor, spec: FieldSpec) -> None:
    """Features 2 and 3 are x and 1; they pass through one neuron of each layer each."""
    features[: RESOLUTION**3, 2] = nodes()[..., 0].permute(2, 1, 0).reshape(-1).clamp(min=0)
    features[:, 3] = 1.0
    n_density = n_weights(spec.density_dims)
    density, rgb = split_weights(mlp[:n_density], spec.density_dims), split_weights(mlp[n_density:], spec.rgb_dims)
    density[0][2, 2] = density[0][3, 3] = 1.0
    density[1][1, 2] = density[1][2, 3] = 1.0
    rgb[0][0, 1] = rgb[0][1, 2] = 1.0
    rgb[1][:3, 0], rgb[1][:3, 1] = 8.0, -4.0


def nodes() -> torch.Tensor:
    """[64, 64, 64, 3] internal places of the grid's nodes: node i of a level of scale s lies at (i - 0.5) / s."""
    scale = float(field_spec(NETWORK, 1).grid.scales[0])
    axis = (torch.arange(RESOLUTION) - 0.5) / scale
    return torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)


def ball(centre: tuple[float, float, float] = (0.5, 0.5, 0.5), radius: float = 0.25) -> torch.Tensor:
    """Signed distance at the nodes."""
    return (nodes() - torch.tensor(centre)).norm(dim=-1) - radius


def block(low: tuple[float, float, float], high: tuple[float, float, float]) -> torch.Tensor:
    """Signed distance of a box (largest coordinate's: exact on its faces) at the nodes."""
    places = nodes()
    return torch.maximum(torch.tensor(low) - places, places - torch.tensor(high)).amax(-1)


def cropped(model: Model, low: tuple[float, float, float], high: tuple[float, float, float]) -> Model:
    """The model with a crop box, internal space."""
    return dataclasses.replace(model, render_aabb=torch.tensor([low, high]))
