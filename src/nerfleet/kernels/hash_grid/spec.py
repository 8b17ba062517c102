"""Layout of a multiresolution grid: which entries each level has and how a cell finds them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from nerfleet.errors import NerfleetError

MAX_DENSE_RESOLUTION = 1625
"""Largest resolution whose cube fits 32 bits; finer levels always hash."""
LEVEL_INTS = 6
"""Integers that describe a level in ``GridSpec.levels``."""


@dataclass(frozen=True)
class GridSpec:
    """One grid encoding (Mueller et al. 2022, section 3; details: docs/conventions.md).

    Attributes:
        kind: "HashGrid", "DenseGrid" or "TiledGrid".
        growth: factor between the resolutions of neighbouring levels.
    """

    n_levels: int
    n_features: int
    log2_hashmap_size: int
    base_resolution: int
    growth: float
    kind: str = "HashGrid"
    interpolation: str = "Linear"

    @property
    def n_output(self) -> int:
        """Features of a point: n_levels * n_features."""
        return self.n_levels * self.n_features

    @functools.cached_property
    def scales(self) -> tuple[float, ...]:
        """Cells per unit of each level; the grid position of x in [0, 1] is x * scale + 0.5."""
        log2_growth = np.log2(np.float32(self.growth))
        exponents = np.arange(self.n_levels, dtype=np.float32) * log2_growth
        return tuple(float(s) for s in np.exp2(exponents) * np.float32(self.base_resolution) - np.float32(1))

    @functools.cached_property
    def levels(self) -> tuple[int, ...]:
        """Flat [n_levels * 6]: resolution, entries, first entry, hashed (0 or 1), stride of y, stride of z.

        A dense index is x + y * stride_y + z * stride_z, modulo the entries.
        """
        flat: list[int] = []
        first = 0
        for scale in self.scales:
            resolution = math.ceil(scale) + 1
            dense = -(-(resolution**3) // 8) * 8
            cap = {"HashGrid": 1 << self.log2_hashmap_size, "DenseGrid": dense, "TiledGrid": self.base_resolution**3}[self.kind]
            if self.kind == "DenseGrid" and resolution > MAX_DENSE_RESOLUTION:
                raise NerfleetError("encoding.otype", f"a DenseGrid level of resolution {resolution} does not fit memory", "use HashGrid")
            entries = min(dense, cap)
            hashed = self.kind == "HashGrid" and (resolution > MAX_DENSE_RESOLUTION or resolution**3 > entries)
            stride_y = resolution if resolution <= entries else 0
            stride_z = resolution**2 if resolution**2 <= entries else 0
            flat += [resolution, entries, first, int(hashed), stride_y, stride_z]
            first += entries
        return tuple(flat)

    @functools.cached_property
    def level_offsets(self) -> tuple[int, ...]:
        """First parameter of each level, and the number of parameters at the end: [n_levels + 1]."""
        firsts = [self.levels[LEVEL_INTS * level + 2] * self.n_features for level in range(self.n_levels)]
        last = self.levels[-LEVEL_INTS:]
        return (*firsts, (last[2] + last[1]) * self.n_features)

    @property
    def n_params(self) -> int:
        return self.level_offsets[-1]


def derived_growth(n_levels: int, base_resolution: int, aabb_scale: int) -> float:
    """Growth that gives the finest level 2048 cells per unit of internal space (instant-ngp's rule)."""
    if n_levels < 2:
        return 1.0
    return float(np.float32(math.exp(math.log(2048.0 * aabb_scale / base_resolution) / (n_levels - 1))))
