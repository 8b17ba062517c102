"""A texture for a mesh: the surface point of every texel of an atlas, its colour, and a margin around charts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from nerfleet.kernels.threads import over_blocks
from nerfleet.mesh.appearance import SurfacePoints, Views, surface_colours
from nerfleet.mesh.atlas import Atlas
from nerfleet.mesh.raster import NOTHING, raster
from nerfleet.mesh.surface import Mesh
from nerfleet.nn.model import Model

MARGIN = 4
"""Texels around each chart that take its border's colour, so that filtering never mixes in the background."""
BAND = 256


def bake(model: Model, mesh: Mesh, atlas: Atlas, views: Views, size: int, progress: Callable[[float], None] | None = None) -> tuple[Tensor, float]:
    """Texture [size, size, 3] uint8 sRGB on the CPU, and the share of its texels that a training camera saw.

    Args:
        mesh, views: on the model's device; atlas on the CPU.
    """
    face, share = _texels(atlas, size)
    used = (face >= 0).nonzero(as_tuple=True)
    corners = atlas.vertex[atlas.faces.long()[face[used]]].to(model.device)
    colours, seen = surface_colours(model, mesh, SurfacePoints(corners, share[used].to(model.device)), views, progress)
    texture = torch.zeros(size, size, 3)
    texture[used] = colours.cpu()
    filled = _grow(texture, face >= 0, colours.mean(0).cpu() if len(colours) else torch.zeros(3))
    return (filled.clamp(0, 1) * 255 + 0.5).to(torch.uint8), float(seen.float().mean()) if len(seen) else 0.0


def _texels(atlas: Atlas, size: int) -> tuple[Tensor, Tensor]:
    """Face of every texel [size, size] int64 (-1: none) and barycentric coordinates [size, size, 3], bands of rows in threads."""
    screen, faces = (atlas.uv * size).numpy(), atlas.faces.numpy()
    depth, valid = np.ones(len(screen), np.float32), np.ones(len(screen), bool)
    face = np.full((size, size), NOTHING, np.int32)
    nearest, weights = np.zeros((size, size), np.float32), np.zeros((size, size, 2), np.float32)

    def band(rows: slice) -> None:
        raster(screen - np.array([0, rows.start], np.float32), depth, valid, faces, face[rows], nearest[rows], weights[rows])

    over_blocks(size, BAND, band)
    index, on_screen = torch.from_numpy(face).long(), torch.from_numpy(weights)
    share = torch.cat([1 - on_screen.sum(-1, keepdim=True), on_screen], -1)
    _mark_slivers(atlas, index, share)
    return index, share


def _mark_slivers(atlas: Atlas, index: Tensor, share: Tensor) -> None:
    """Faces that no texel's centre lies in get the texel of their middle, where it is free: a margin can grow from it."""
    drawn = torch.zeros(len(atlas.faces), dtype=torch.bool)
    drawn[index[index >= 0]] = True
    missed = (~drawn).nonzero()[:, 0]
    middle = (atlas.uv[atlas.faces[missed].long()].mean(1) * len(index)).long().clamp(0, len(index) - 1)
    free = index[middle[:, 1], middle[:, 0]] < 0
    missed, middle = missed[free], middle[free]
    index[middle[:, 1], middle[:, 0]] = missed
    share[middle[:, 1], middle[:, 0]] = 1 / 3


def _grow(texture: Tensor, known: Tensor, rest: Tensor) -> Tensor:
    """Texels beside known ones become their neighbours' mean, ``MARGIN`` times; all others the colour ``rest``."""
    picture, weight = texture.permute(2, 0, 1)[None], known[None, None].float()
    picture = picture * weight
    for _ in range(MARGIN):
        around = torch.nn.functional.avg_pool2d(torch.cat([picture, weight], 1), 3, 1, 1)
        fresh = (weight == 0) & (around[:, 3:] > 0)
        picture = torch.where(fresh, around[:, :3] / around[:, 3:].clamp_min(1e-9), picture)
        weight = torch.where(fresh, 1.0, weight)
    return torch.where(weight > 0, picture, rest[None, :, None, None])[0].permute(1, 2, 0)
