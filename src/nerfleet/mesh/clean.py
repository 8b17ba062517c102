"""What turns a raw surface into one to work with: loose pieces, holes, smoothing, fewer faces, normals. In any units, any device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nerfleet.mesh.surface import Mesh

TAUBIN_SHRINK, TAUBIN_GROW = 0.5, -0.53


@dataclass(frozen=True)
class Pieces:
    """Connected parts of a mesh.

    Attributes:
        of_vertex: [n_vertices] int64, part of each vertex, 0 .. count - 1.
        area: [count] float64, surface. volume: [count] float64, enclosed; negative where the surface faces inwards (a cavity).
    """

    of_vertex: Tensor
    area: Tensor
    volume: Tensor

    def __len__(self) -> int:
        return len(self.area)


def pieces(mesh: Mesh) -> Pieces:
    """Parts that share no vertex (labels spread to the smallest of each part, by edges and by pointer jumping)."""
    n, faces = len(mesh.vertices), mesh.faces.long()
    labels = torch.arange(n, device=faces.device)
    while True:
        smallest = labels[faces].amin(-1)
        spread = labels.clone()
        for corner in range(3):
            spread.scatter_reduce_(0, faces[:, corner], smallest, "amin")
            spread.scatter_reduce_(0, labels[faces[:, corner]], smallest, "amin")
        spread = spread[spread]
        if torch.equal(spread, labels):
            break
        labels = spread
    _, of_vertex = torch.unique(labels, return_inverse=True)
    count = int(of_vertex.max()) + 1 if n else 0
    corners = mesh.vertices.double()[faces]
    cross = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    middle = mesh.vertices.double().mean(0) if n else 0
    volume = ((corners[:, 0] - middle) * cross).sum(-1) / 6
    part = of_vertex[faces[:, 0]]
    zeros = torch.zeros(count, dtype=torch.float64, device=faces.device)
    return Pieces(of_vertex, zeros.index_add(0, part, cross.norm(dim=-1) / 2), zeros.index_add(0, part, volume))


def keep_faces(mesh: Mesh, keep: Tensor) -> Mesh:
    """Only the faces where ``keep`` [m] is true, and the vertices that they use."""
    faces = mesh.faces[keep].long()
    used = torch.zeros(len(mesh.vertices), dtype=torch.bool, device=faces.device)
    used[faces.flatten()] = True
    number = used.long().cumsum(0) - 1
    return Mesh(mesh.vertices[used], number[faces].int())


def without_floaters(mesh: Mesh, *, min_share: float, seen: Tensor | None = None) -> tuple[Mesh, int, int]:
    """Drop loose pieces whose surface is less than ``min_share`` of the largest, and those that nobody sees.

    Args:
        seen: [n_vertices] bool: seen by a camera. None: unknown; then pieces that face inwards (cavities) count as hidden.

    Returns:
        The mesh, the number of small pieces, the number of hidden ones that were dropped.
    """
    if len(mesh.faces) == 0:
        return mesh, 0, 0
    parts = pieces(mesh)
    small = parts.area < min_share * parts.area.max()
    if seen is None:
        hidden = parts.volume < 0
    else:
        hidden = torch.ones(len(parts), dtype=torch.bool, device=seen.device)
        hidden[parts.of_vertex[seen]] = False
    if bool((small | hidden).all()):  # whatever is there is better than nothing
        return mesh, 0, 0
    gone = small | hidden
    return keep_faces(mesh, ~gone[parts.of_vertex[mesh.faces[:, 0].long()]]), int(small.sum()), int((hidden & ~small).sum())


def edges(faces: Tensor) -> tuple[Tensor, Tensor]:
    """Undirected edges [e, 2] int64 and how many faces have each [e]."""
    both = faces.long()[:, [0, 1, 1, 2, 2, 0]].view(-1, 2)
    low, high = both.amin(-1), both.amax(-1)
    n = int(both.max()) + 1 if len(both) else 1
    keys, counts = torch.unique(low * n + high, return_counts=True)
    return torch.stack([keys // n, keys % n], -1), counts


def n_holes(mesh: Mesh) -> int:
    """Rims: connected loops of edges that only one face has."""
    lines, counts = edges(mesh.faces)
    rim = lines[counts == 1]
    if len(rim) == 0:
        return 0
    used, numbers = torch.unique(rim, return_inverse=True)
    as_faces = torch.cat([numbers, numbers[:, :1]], -1).int()
    return len(pieces(Mesh(torch.zeros(len(used), 3, device=rim.device), as_faces)))


def smooth(mesh: Mesh, iterations: int) -> Mesh:
    """Taubin 1995: a step towards the neighbours' mean and a slightly longer one back, so that nothing shrinks."""
    if iterations == 0 or len(mesh.faces) == 0:
        return mesh
    lines, _ = edges(mesh.faces)
    ones = torch.ones(2 * len(lines), device=lines.device)
    ends, others = torch.cat([lines[:, 0], lines[:, 1]]), torch.cat([lines[:, 1], lines[:, 0]])
    degree = torch.zeros(len(mesh.vertices), device=lines.device).index_add(0, ends, ones).clamp_min(1)
    vertices = mesh.vertices
    for _ in range(iterations):
        for factor in (TAUBIN_SHRINK, TAUBIN_GROW):
            mean = torch.zeros_like(vertices).index_add(0, ends, vertices[others]) / degree[:, None]
            vertices = vertices + factor * (mean - vertices)
    return Mesh(vertices, mesh.faces)


def decimate(mesh: Mesh, n_faces: int) -> Mesh:
    """At most about ``n_faces`` faces, by quadric error (Garland and Heckbert 1997). On the CPU."""
    if n_faces <= 0 or len(mesh.faces) <= n_faces:
        return mesh
    import fast_simplification

    vertices, faces = fast_simplification.simplify(mesh.vertices.cpu().numpy(), mesh.faces.cpu().numpy(), target_count=n_faces)
    simple = Mesh(torch.from_numpy(vertices).float(), torch.from_numpy(faces).int())
    return keep_faces(simple, face_areas(simple) > 0).to(mesh.vertices.device)


def face_areas(mesh: Mesh) -> Tensor:
    """[m] float32."""
    a, b, c = mesh.vertices[mesh.faces.long()].unbind(1)
    return torch.linalg.cross(b - a, c - a).norm(dim=-1) / 2


def vertex_normals(mesh: Mesh) -> Tensor:
    """[n, 3] unit vectors: normals of the faces around a vertex, weighted by their angles there (Thuermer and Wuethrich 1998).

    A vertex of no face, or of faces without area, gets (0, 0, 1)."""
    corners = mesh.vertices[mesh.faces.long()]
    normal = torch.nn.functional.normalize(torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), dim=-1)
    total = torch.zeros_like(mesh.vertices)
    for i in range(3):
        to_next = torch.nn.functional.normalize(corners[:, (i + 1) % 3] - corners[:, i], dim=-1)
        to_last = torch.nn.functional.normalize(corners[:, (i + 2) % 3] - corners[:, i], dim=-1)
        angle = (to_next * to_last).sum(-1).clamp(-1, 1).acos()
        total.index_add_(0, mesh.faces[:, i].long(), angle[:, None] * normal)
    total[(total == 0).all(-1), 2] = 1
    return torch.nn.functional.normalize(total, dim=-1)


def without_unseen(mesh: Mesh, seen: Tensor, *, max_share: float, rings: int = 2) -> tuple[Mesh, int]:
    """Drop regions that no camera sees: insides of solids, backs and undersides, where nothing was ever measured.

    Small ones (cracks, contact lines) stay, and so does a rim around what is seen.

    Args:
        seen: [n_vertices] bool. max_share: of the whole surface; unseen regions up to this size stay. rings: width of the rim in edges.

    Returns:
        The mesh and the number of regions dropped.
    """
    faces = mesh.faces.long()
    near = seen.clone()
    for _ in range(rings):
        touched = near[faces].any(-1)
        near[faces[touched].flatten()] = True
    dark = ~near[faces].any(-1)
    if not bool(dark.any()) or bool(dark.all()):
        return mesh, 0
    numbers = dark.nonzero()[:, 0]
    parts = pieces(keep_faces(mesh, dark))
    used = torch.unique(faces[numbers])
    place = torch.searchsorted(used, faces[numbers, 0])
    large = parts.area > max_share * float(face_areas(mesh).double().sum())
    keep = torch.ones(len(faces), dtype=torch.bool, device=faces.device)
    keep[numbers] = ~large[parts.of_vertex[place]]
    return keep_faces(mesh, keep), int(large.sum())
