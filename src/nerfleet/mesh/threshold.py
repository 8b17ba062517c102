"""Which density is the surface: a share of the density that rays really end at, so that it follows scale and training."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Cameras, pixel_rays
from nerfleet.mesh.density import occupied_cells, raw_density
from nerfleet.nn.model import Model
from nerfleet.render.renderer import render_box, render_rays

SURFACE_SHARE = 1 / 8
"""Of the median density where rays end. Lower: closed but thick surfaces, fog; higher: exact but torn ones (docs/log.md)."""
N_RAYS = 1 << 13
OPAQUE = 0.9
MIN_HITS = 32


def surface_density(model: Model, cameras: Cameras | None, seed: int = 0) -> float:
    """Density on which to put the surface.

    Args:
        cameras: whose rays are followed; on the CPU. None: rays from all around to random occupied cells.

    Raises:
        NerfleetError: hardly any ray ends in something.
    """
    generator = torch.Generator().manual_seed(seed)
    origins, directions = _rays_around(model, generator) if cameras is None else _camera_rays(cameras, generator)
    origins, directions = origins.to(model.device), directions.to(model.device)
    found = render_rays(model, origins, directions)
    hit = found.alpha > OPAQUE
    if int(hit.sum()) < MIN_HITS:
        raise NerfleetError("model", "has no surface: rays pass through it", "train it longer, widen the crop box, or give a threshold")
    points = origins[hit] + directions[hit] * found.depth[hit, None]
    return float(raw_density(model, points).median().exp()) * SURFACE_SHARE


def _camera_rays(cameras: Cameras, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    views = torch.randint(len(cameras), (N_RAYS,), generator=generator)
    pixels = torch.rand(N_RAYS, 2, generator=generator) * cameras.resolution[views]
    origins, directions = pixel_rays(cameras, views, pixels)
    return origins.contiguous(), torch.nn.functional.normalize(directions, dim=-1).contiguous()


def _rays_around(model: Model, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rays from outside of the box to random points of the finest cascade's occupied cells."""
    cells = occupied_cells(model)[0].cpu()
    occupied = cells.nonzero()
    box = render_box(model)
    targets = box[0] + torch.rand(N_RAYS, 3, generator=generator) * (box[1] - box[0])
    if len(occupied):
        chosen = occupied[torch.randint(len(occupied), (N_RAYS,), generator=generator)]
        targets = (chosen + torch.rand(N_RAYS, 3, generator=generator)) / len(cells)
    directions = torch.nn.functional.normalize(torch.randn(N_RAYS, 3, generator=generator), dim=-1)
    return (targets - 2 * model.aabb_scale * directions).contiguous(), directions.contiguous()
