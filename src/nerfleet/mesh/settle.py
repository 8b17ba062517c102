"""Moves a surface of equal density to where light ends: along each vertex's normal to the mean depth of what comes in there.

A threshold low enough to leave no holes lies outside of what pictures show, by an amount that changes from place to place. The
weights of volume rendering (Max 1995) along a short line against the normal say where a pixel's colour comes from.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nerfleet.mesh.clean import edges, vertex_normals
from nerfleet.mesh.density import POINTS_AT_ONCE, raw_density
from nerfleet.mesh.surface import Mesh
from nerfleet.nn.model import Model
from nerfleet.render.renderer import render_box

REACH_CELLS, MAX_CELLS = 1.0, 0.6
"""How far outside of a vertex its line begins and inside it ends, and how far the vertex may move, in cells of the extraction.

Longer lines run through thin parts and into the unseen insides: they gain on flat ground and lose on thin things (docs/log.md)."""
N_SAMPLES = 16
OPAQUE = 0.3
EVEN_ROUNDS = 2


def settle(model: Model, mesh: Mesh, resolution: int, progress: Callable[[float], None] | None = None) -> Mesh:
    """The mesh with its vertices moved; on the model's device, internal space.

    Args:
        resolution: of the extraction, cells along the longest side of the cropped scene box.
    """
    if len(mesh.faces) == 0:
        return mesh
    box = render_box(model)
    cell = float((box[1] - box[0]).max()) / resolution
    normals = vertex_normals(mesh)
    shift, valid = torch.zeros(len(normals), device=normals.device), torch.zeros(len(normals), device=normals.device)
    at_once = POINTS_AT_ONCE[model.device.type] // N_SAMPLES
    for first in range(0, len(normals), at_once):
        rows = slice(first, first + at_once)
        shift[rows], valid[rows] = _mean_depth(model, mesh.vertices[rows], normals[rows], cell)
        if progress is not None:
            progress(min(1.0, (first + at_once) / len(normals)))
    return Mesh(mesh.vertices - normals * _evened(mesh, shift * valid, valid)[:, None], mesh.faces)


def _mean_depth(model: Model, places: Tensor, normals: Tensor, cell: float) -> tuple[Tensor, Tensor]:
    """Mean depth below each place [n] (negative: outside of it) and whether the line is opaque [n] float32."""
    length = 2 * REACH_CELLS * cell
    depths = ((torch.arange(N_SAMPLES, device=places.device) + 0.5) / N_SAMPLES - 0.5) * length
    points = places[:, None] - depths[:, None] * normals[:, None]
    optical = raw_density(model, points.view(-1, 3)).view(-1, N_SAMPLES).exp() * (length / N_SAMPLES)
    before = torch.exp(-(optical.cumsum(-1) - optical))
    weights = before * (1 - torch.exp(-optical))
    alpha = weights.sum(-1)
    mean = (weights * depths).sum(-1) / alpha.clamp_min(1e-9)
    return mean.clamp(-MAX_CELLS * cell, MAX_CELLS * cell), (alpha > OPAQUE).float()


def _evened(mesh: Mesh, values: Tensor, valid: Tensor) -> Tensor:
    """Means over neighbours, as often as ``EVEN_ROUNDS`` says; vertices without a value take their neighbours'."""
    lines, _ = edges(mesh.faces)
    ends, others = torch.cat([lines[:, 0], lines[:, 1]]), torch.cat([lines[:, 1], lines[:, 0]])
    for _ in range(EVEN_ROUNDS):
        total = values.index_add(0, ends, values[others])
        count = valid.index_add(0, ends, valid[others])
        values, valid = total / count.clamp_min(1e-9), (count > 0).float()
    return values
