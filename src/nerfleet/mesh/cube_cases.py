"""The triangles of marching cubes for each of the 256 ways in which a cube's corners can lie inside or outside.

Lorensen and Cline 1987. The table is made, not copied: on every face of the cube each run of inside corners is cut off by one
segment, so two cubes that share a face agree about it and the surface has no cracks (Duerst 1988 describes those of the first
table). Segments of neighbouring faces chain into loops, and loops are cut into triangles.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

CORNERS = ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1))
"""Corner i of a cell, as offsets along the axes; its bit in a case is 1 << i."""
EDGES = tuple((a, b) for a in range(8) for b in range(a + 1, 8) if sum(p != q for p, q in zip(CORNERS[a], CORNERS[b])) == 1)
"""The 12 edges as pairs of corners; the first has the smaller offsets."""
EDGE_AXES = tuple(next(axis for axis in range(3) if CORNERS[a][axis] != CORNERS[b][axis]) for a, b in EDGES)
MAX_TRIANGLES = 5


def _faces() -> list[tuple[int, ...]]:
    """Corners of the six faces, counter-clockwise seen from outside."""
    faces = []
    for axis in range(3):
        u, v = (axis + 1) % 3, (axis + 2) % 3
        for side in (0, 1):
            loop = []
            for du, dv in ((0, 0), (1, 0), (1, 1), (0, 1)) if side else ((0, 0), (0, 1), (1, 1), (1, 0)):
                corner = [0, 0, 0]
                corner[axis], corner[u], corner[v] = side, du, dv
                loop.append(CORNERS.index((corner[0], corner[1], corner[2])))
            faces.append(tuple(loop))
    return faces


def _segments(case: int) -> dict[int, int]:
    """Edge where a face's run of inside corners begins -> edge where it ends, over all faces: directed segments."""
    follows = {}
    for face in _faces():
        inside = [bool(case >> corner & 1) for corner in face]
        for i in range(4):
            if inside[i] or not inside[(i + 1) % 4]:
                continue
            end = next(j for j in range(i + 1, i + 5) if inside[j % 4] and not inside[(j + 1) % 4])
            begin_edge = EDGES.index(_pair(face[i], face[(i + 1) % 4]))
            follows[begin_edge] = EDGES.index(_pair(face[end % 4], face[(end + 1) % 4]))
    return follows


def _pair(a: int, b: int) -> tuple[int, int]:
    return min(a, b), max(a, b)


def _triangles(case: int) -> list[tuple[int, int, int]]:
    """Triangles of edges, counter-clockwise seen from outside."""
    follows, triangles = _segments(case), []
    while follows:
        start, edge = follows.popitem()
        loop = [start]
        while edge != start:
            loop.append(edge)
            edge = follows.pop(edge)
        triangles += _fan(loop)
    return triangles


def _fan(loop: list[int]) -> list[tuple[int, int, int]]:
    """Triangles around the corner of a loop from which no diagonal lies in a face of the cube.

    Such a diagonal could be an edge of the neighbouring cell's triangles too: four faces would meet there.
    """
    n = len(loop)
    turns = [loop[i:] + loop[:i] for i in range(n)]
    best = min(turns, key=lambda turn: sum(_share_face(turn[0], turn[i]) for i in range(2, n - 1)))
    return [(best[0], best[i], best[i + 1]) for i in range(1, n - 1)]


def _share_face(a: int, b: int) -> bool:
    corners = {*EDGES[a], *EDGES[b]}
    return any(corners <= set(face) for face in _faces())


@functools.cache
def triangle_table() -> Tensor:
    """[256, 5, 3] int64 edges of each case's triangles, -1 where there are fewer; normals point out of the inside."""
    table = torch.full((256, MAX_TRIANGLES, 3), -1)
    for case in range(256):
        for i, triangle in enumerate(_triangles(case)):
            table[case, i] = torch.tensor(triangle)
    return table
