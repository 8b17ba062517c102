"""Small models: one with random weights whose ball is occupied, one that is the same everywhere; and a camera."""

from __future__ import annotations

import torch

from nerfleet.config import EncodingConfig, MLPConfig, NetworkConfig, default_cone_angle
from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras
from nerfleet.kernels.march.reference import GRID_SIZE, N_CELLS, morton
from nerfleet.kernels.mlp.reference import split_weights
from nerfleet.nn.field import field_spec
from nerfleet.nn.model import Model
from nerfleet.nn.occupancy_grid import OccupancyGrid, n_cascades

NETWORK = NetworkConfig(encoding=EncodingConfig(n_levels=2, log2_hashmap_size=8), density=MLPConfig(16, 1), rgb=MLPConfig(16, 1))


def ball_model(aabb_scale: int = 1, radius: float = 0.25, network: NetworkConfig = NETWORK, seed: int = 0) -> Model:
    """Cells of cascade 0 within ``radius`` of the centre are occupied; weights are exact in half precision."""
    spec = field_spec(network, aabb_scale)
    generator = torch.Generator().manual_seed(seed)
    mlp = (torch.randn(spec.n_mlp_params, generator=generator) * 0.5).half().float()
    table = torch.rand(spec.grid.n_params, generator=generator).half().float()
    axis = torch.arange(GRID_SIZE)
    cells = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)
    inside = ((cells + 0.5) / GRID_SIZE - 0.5).norm(dim=-1) < radius
    values = torch.zeros(n_cascades(aabb_scale) * N_CELLS)
    values[morton(cells)] = torch.where(inside, 0.5, 0.0)
    occupancy = OccupancyGrid.from_values(values)
    return Model(network, aabb_scale, default_cone_angle(aabb_scale), mlp, table, occupancy)


def uniform_model(raw: float, aabb_scale: int = 1) -> Model:
    """Density exp(raw) and colour 0.5 everywhere in the scene box."""
    spec = field_spec(NETWORK, aabb_scale)
    mlp, table = torch.zeros(spec.n_mlp_params), torch.ones(spec.grid.n_params)
    n_in, n_hidden, n_out = spec.density_dims
    layers = split_weights(mlp[: n_in * n_hidden + n_hidden * n_out], spec.density_dims)
    layers[0][0, 0], layers[1][0, 0] = 1.0, raw  # the first feature, through one neuron, to the first output
    occupancy = OccupancyGrid.from_values(torch.ones(n_cascades(aabb_scale) * N_CELLS))
    return Model(NETWORK, aabb_scale, default_cone_angle(aabb_scale), mlp, table, occupancy)


def front_camera(width: int = 16, height: int = 12, distance: float = 1.5) -> Cameras:
    """Looks along +z at the centre of the scene box, from ``distance`` in front of it."""
    pose = torch.eye(3, 4)
    pose[:, 3] = torch.tensor([0.5, 0.5, 0.5 - distance])
    return Cameras(
        camera_to_world=pose[None],
        focal=torch.full((1, 2), 1.2 * width),
        principal=torch.tensor([[width / 2, height / 2]]),
        resolution=torch.tensor([[width, height]], dtype=torch.int32),
        lens=torch.zeros(1, dtype=torch.int32),
        lens_params=torch.zeros(1, N_LENS_PARAMS),
    )
