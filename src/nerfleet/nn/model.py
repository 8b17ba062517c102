"""A trained model as everything that renders, saves or exports it sees it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from nerfleet.config import NetworkConfig
from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.nn.field import field_spec
from nerfleet.nn.occupancy_grid import OccupancyGrid


@dataclass(frozen=True)
class Model:
    """Weights (the running average), occupancy and the box they live in.

    Attributes:
        network: its configuration. aabb_scale: edge of the scene box. cone_angle: growth of the steps with distance.
        mlp, table: flat parameters (:class:`FieldSpec`); float32 on the CPU, float16 on CUDA.
        render_aabb: [2, 3] crop box in internal space, on the CPU; None: the scene box.
    """

    network: NetworkConfig
    aabb_scale: int
    cone_angle: float
    mlp: Tensor
    table: Tensor
    occupancy: OccupancyGrid
    render_aabb: Tensor | None = None

    @property
    def spec(self) -> FieldSpec:
        return field_spec(self.network, self.aabb_scale)

    @property
    def device(self) -> torch.device:
        return self.table.device

    def to(self, device: torch.device | str) -> Model:
        """Copy on another device, in that device's precision."""
        dtype = torch.float32 if torch.device(device).type == "cpu" else torch.float16
        return dataclasses.replace(
            self, mlp=self.mlp.to(device, dtype), table=self.table.to(device, dtype), occupancy=self.occupancy.to(device)
        )
