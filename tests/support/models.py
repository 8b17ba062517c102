"""A small model with random weights whose ball is occupied: enough to save, load and render."""

from __future__ import annotations

import torch

from nerfleet.config import EncodingConfig, MLPConfig, NetworkConfig
from nerfleet.kernels.march.reference import GRID_SIZE, N_CELLS, morton
from nerfleet.nn.field import field_spec
from nerfleet.nn.model import Model
from nerfleet.nn.occupancy_grid import OccupancyGrid, n_cascades
from nerfleet.snapshot.ingp import default_cone_angle

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
