"""A finished mesh, in the units and axes that it is written in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerfleet.geometry.poses import SceneTransform


@dataclass(frozen=True)
class Asset:
    """Attributes:
    vertices: [n, 3] float32. faces: [m, 3] int32, counter-clockwise seen from outside. normals: [n, 3], unit length.
    colours: [n, 3] sRGB 0..1, or None.
    uv: [n, 2], origin at the top left of the texture, or None. Vertices on seams occur once for each side.
    texture: [h, w, 3] uint8 sRGB, or None.
    """

    vertices: Tensor
    faces: Tensor
    normals: Tensor
    colours: Tensor | None = None
    uv: Tensor | None = None
    texture: Tensor | None = None


def to_file_space(asset: Asset, transform: SceneTransform) -> Asset:
    """Internal space -> the scene file's units and axes."""
    vertices = transform.points_to_file(asset.vertices.double()).float()
    return replace(asset, vertices=vertices, normals=transform.directions_to_file(asset.normals))


def turned(asset: Asset, rotation: Tensor) -> Asset:
    """[3, 3] rotation applied to places and normals."""
    return replace(asset, vertices=asset.vertices @ rotation.T, normals=asset.normals @ rotation.T)


def y_up(up: tuple[float, float, float]) -> Tensor:
    """[3, 3] the shortest turn that brings ``up`` to +y (for z: x stays, y becomes -z, as glTF importers undo it)."""
    a = torch.nn.functional.normalize(torch.tensor(up, dtype=torch.float64), dim=0)
    b = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    cosine = float(a @ b)
    if cosine < -1 + 1e-9:
        return torch.diag(torch.tensor([1.0, -1.0, -1.0]))
    x, y, z = torch.linalg.cross(a, b).tolist()
    skew = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    return (torch.eye(3, dtype=torch.float64) + skew + skew @ skew / (1 + cosine)).float()


def sample_surface(asset: Asset, n: int, seed: int = 0) -> Asset:
    """n points spread evenly over the surface, with normals and colours: an asset without faces."""
    generator = torch.Generator().manual_seed(seed)
    corners = asset.faces.long()
    a, b, c = asset.vertices.double()[corners].unbind(1)
    area = torch.linalg.cross(b - a, c - a).norm(dim=-1).cumsum(0)
    at = torch.rand(n, generator=generator, dtype=torch.float64) * (area[-1] if len(area) else 0)
    chosen = corners[torch.searchsorted(area, at).clamp(max=len(corners) - 1)] if len(corners) else corners[:0]
    share = torch.rand(len(chosen), 2, generator=generator)
    share = torch.where(share.sum(-1, keepdim=True) > 1, 1 - share, share)
    weights = torch.stack([1 - share.sum(-1), share[:, 0], share[:, 1]], -1)[..., None]

    def mix(values: Tensor) -> Tensor:
        return (values[chosen] * weights).sum(1)

    return Asset(
        mix(asset.vertices),
        asset.faces[:0],
        torch.nn.functional.normalize(mix(asset.normals), dim=-1),
        None if asset.colours is None else mix(asset.colours),
    )
