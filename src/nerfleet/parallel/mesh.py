"""Degrees of parallelism, checked against the number of ranks; and the mesh of ranks that follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Strategy = Literal["auto", "data", "grid", "hybrid"]
DATA_AXIS, GRID_AXIS = "data", "grid"
MEMORY_SHARE = 0.8
"""Part of a GPU's memory above which ``auto`` splits the grid."""


@dataclass(frozen=True)
class Degrees:
    """``data`` groups of ``grid`` ranks each; a group holds the levels of the hash grid once."""

    data: int
    grid: int

    @property
    def strategy(self) -> str:
        if self.grid == 1:
            return "data"
        return "grid" if self.data == 1 else "hybrid"


def degrees(strategy: Strategy, world_size: int, grid_degree: int, n_columns: int, needed_bytes: int = 0, free_bytes: int = 0) -> Degrees:
    """What a strategy means for so many ranks.

    Args:
        n_columns: features of a sample: no more ranks than that can share a grid.
        grid_degree: ranks that share one grid; 0: all of them for "grid", 2 for "hybrid".
        needed_bytes, free_bytes: of one GPU, for "auto": data, unless one GPU's memory would pass MEMORY_SHARE.

    Raises:
        NerfleetError: the degrees do not divide the world, or there are more grid ranks than feature columns.
    """
    if strategy == "auto":
        fits = not free_bytes or needed_bytes <= MEMORY_SHARE * free_bytes
        strategy = "data" if fits else "grid"
        grid_degree = 1 if fits else 0
    flag = f"--grid-degree {grid_degree}"
    if strategy == "data" and grid_degree not in (0, 1):
        raise NerfleetError(flag, "has no meaning with --parallel data", "use --parallel grid or hybrid")
    grid = 1 if strategy == "data" else grid_degree or (world_size if strategy == "grid" else 2)
    what = flag if grid_degree else f"--parallel {strategy}"
    if grid < 1 or world_size % grid:
        raise NerfleetError(what, f"{world_size} ranks are not a multiple of {grid}", "use a divisor of the number of GPUs")
    if strategy == "grid" and grid != world_size:
        raise NerfleetError(flag, f"leaves {world_size // grid} groups, which is --parallel hybrid", f"use hybrid, or --grid-degree {world_size}")
    if grid > n_columns:
        raise NerfleetError(what, f"the grid has {n_columns} feature columns for {grid} ranks", "use a smaller --grid-degree")
    return Degrees(world_size // grid, grid)


def device_mesh(chosen: Degrees, device_type: str) -> DeviceMesh:
    """Mesh of (data axis, grid axis); ranks of a grid group are neighbours, so that they share a host where possible."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device_type, (chosen.data, chosen.grid), mesh_dim_names=(DATA_AXIS, GRID_AXIS))
