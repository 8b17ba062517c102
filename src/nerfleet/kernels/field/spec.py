"""Sizes of a radiance field: the grid encoding, the density network and the colour network."""

from __future__ import annotations

from dataclasses import dataclass

from nerfleet.kernels.hash_grid.op import grid_arguments
from nerfleet.kernels.hash_grid.spec import GridSpec
from nerfleet.kernels.mlp.reference import n_weights
from nerfleet.kernels.sphere_harmonics.reference import N_COEFFICIENTS

N_DENSITY_OUTPUTS = 16
N_RGB_OUTPUTS = 16
"""Rows of the last colour layer: three are used, the rest is padding."""


def padded(size: int) -> int:
    """Next multiple of 16."""
    return -(-size // 16) * 16


@dataclass(frozen=True)
class FieldSpec:
    """Everything that an op must know of a field besides its parameters.

    Parameters are two flat vectors: ``mlp`` (density layers, then colour layers, each [out, in] row-major) and
    ``table`` (the grid's levels).
    """

    grid: GridSpec
    density_neurons: int = 64
    density_hidden_layers: int = 1
    rgb_neurons: int = 64
    rgb_hidden_layers: int = 2

    @property
    def density_dims(self) -> list[int]:
        return [padded(self.grid.n_output)] + [self.density_neurons] * self.density_hidden_layers + [N_DENSITY_OUTPUTS]

    @property
    def rgb_dims(self) -> list[int]:
        n_input = padded(N_DENSITY_OUTPUTS + N_COEFFICIENTS)
        return [n_input] + [self.rgb_neurons] * self.rgb_hidden_layers + [N_RGB_OUTPUTS]

    @property
    def n_mlp_params(self) -> int:
        return n_weights(self.density_dims) + n_weights(self.rgb_dims)

    @property
    def arguments(self) -> tuple[int, list[float], list[int], int, list[int], list[int]]:
        """(n_features, scales, levels, interpolation, density_dims, rgb_dims) as every op takes them."""
        return (*grid_arguments(self.grid), self.density_dims, self.rgb_dims)
