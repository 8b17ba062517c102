"""Texture coordinates: charts by xatlas, for groups of neighbouring faces on their own, then the groups' rectangles side by side.

xatlas' time grows faster than the number of charts (100,000 faces as one mesh: minutes; in groups: seconds, and in threads).
Groups are halves of halves along the longest side, equal in area; all have the same number of texels per unit of length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nerfleet.kernels.threads import over_blocks
from nerfleet.mesh.clean import face_areas
from nerfleet.mesh.surface import Mesh

FACES_A_GROUP = 1500
PADDING = 2
"""Texels between charts."""
FILL = 0.5
"""Share of the texture that charts cover, as a first guess: rectangles are scaled to fit afterwards."""


@dataclass(frozen=True)
class Atlas:
    """Attributes:
    vertex: [n] int64, which vertex of the mesh each corner of a chart is. faces: [m, 3] int32 of these, in the mesh's order.
    uv: [n, 2] 0..1, origin at the top left.
    """

    vertex: Tensor
    faces: Tensor
    uv: Tensor


def make_atlas(mesh: Mesh, size: int) -> Atlas:
    """Charts for a texture of ``size`` texels squared. The mesh is on the CPU."""
    quarterings = max(0, math.ceil(math.log(max(len(mesh.faces), 1) / FACES_A_GROUP, 4)))  # so many rectangles fill a square
    groups = _halved(mesh, torch.arange(len(mesh.faces)), 2 * quarterings)
    area = float(face_areas(mesh).double().sum())
    texels_per_unit = math.sqrt(FILL * size * size / max(area, 1e-20))
    parts = over_blocks(len(groups), 1, lambda rows: _charts(mesh, groups[rows.start], texels_per_unit))
    places, side = _shelves([part.size for part in parts])
    faces = torch.empty(len(mesh.faces), 3, dtype=torch.int32)
    vertices, uvs, first = [], [], 0
    for group, part, place in zip(groups, parts, places):
        faces[group] = part.faces + first
        first += len(part.vertex)
        vertices.append(part.vertex)
        uvs.append((part.texels + torch.tensor(place)) / side)
    return Atlas(torch.cat(vertices), faces, torch.cat(uvs).float())


def _halved(mesh: Mesh, faces: Tensor, times: int) -> list[Tensor]:
    """Faces cut in two of equal area along their longest side, as often as asked."""
    if times == 0 or len(faces) < 2:
        return [faces]
    part = Mesh(mesh.vertices, mesh.faces[faces])
    middle = mesh.vertices[part.faces.long()].mean(1)
    order = middle[:, int((middle.amax(0) - middle.amin(0)).argmax())].argsort(stable=True)
    area = face_areas(part)[order].double().cumsum(0)
    cut = min(max(int(torch.searchsorted(area, area[-1] / 2)), 1), len(faces) - 1)
    return _halved(mesh, faces[order[:cut]], times - 1) + _halved(mesh, faces[order[cut:]], times - 1)


@dataclass(frozen=True)
class _Charts:
    """Attributes:
    vertex, faces: as in :class:`Atlas`, of one group. texels: [n, 2] in the group's rectangle. size: its width and height in texels.
    """

    vertex: Tensor
    faces: Tensor
    texels: Tensor
    size: tuple[int, int]


def _charts(mesh: Mesh, group: Tensor, texels_per_unit: float) -> _Charts:
    import xatlas

    used, corners = torch.unique(mesh.faces[group].long(), return_inverse=True)
    atlas = xatlas.Atlas()
    atlas.add_mesh(mesh.vertices[used].contiguous().numpy(), corners.numpy().astype(np.uint32))
    charts, packing = xatlas.ChartOptions(), xatlas.PackOptions()
    charts.max_iterations = 1
    packing.texels_per_unit, packing.padding, packing.bilinear = texels_per_unit, PADDING, True
    atlas.generate(charts, packing)
    vertex, faces, uv = atlas[0]
    width, height = atlas.width, atlas.height
    texels = torch.from_numpy(uv.astype(np.float32)) * torch.tensor([float(width), float(height)])
    return _Charts(used[torch.from_numpy(vertex.astype(np.int64))], torch.from_numpy(faces.astype(np.int32)), texels, (width, height))


def _shelves(sizes: list[tuple[int, int]]) -> tuple[list[tuple[float, float]], float]:
    """Rectangles in rows, the highest first -> their corners, and the side of the smallest square found that holds them all."""
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i][1])
    area = sum(width * height for width, height in sizes)
    best: tuple[list[tuple[float, float]], float] | None = None
    for factor in np.linspace(1.0, 1.5, 26):
        limit = max(factor * math.sqrt(area), max(width for width, _ in sizes))
        places = [(0.0, 0.0)] * len(sizes)
        x = y = row = 0
        for i in order:
            width, height = sizes[i]
            if x + width > limit and x:
                x, y, row = 0, y + row, 0
            places[i] = (float(x), float(y))
            x, row = x + width, max(row, height)
        side = max(limit, float(y + row))
        if best is None or side < best[1]:
            best = places, side
    assert best is not None
    return best
