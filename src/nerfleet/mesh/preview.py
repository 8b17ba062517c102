"""Pictures of a finished mesh through any camera, without a graphics library: to judge it against photographs."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.geometry.cameras import Cameras
from nerfleet.mesh.asset import Asset
from nerfleet.mesh.surface import Mesh
from nerfleet.mesh.visibility import draw


def picture(asset: Asset, camera: Cameras) -> tuple[Tensor, Tensor]:
    """ONE camera's picture of an asset in internal space: sRGB [h, w, 3] 0..1, black where nothing is, and covered [h, w] bool.

    Texture lookups are bilinear; surfaces are drawn from both sides, unlit.
    """
    face, _, share = draw(Mesh(asset.vertices, asset.faces), camera)
    covered = face >= 0
    corners = asset.faces.long()[face[covered]]
    share = share[covered]
    if asset.uv is not None and asset.texture is not None:
        uv = (asset.uv[corners] * share[..., None]).sum(1)
        texture = asset.texture.permute(2, 0, 1)[None].float() / 255
        found = torch.nn.functional.grid_sample(texture, (uv * 2 - 1)[None, None], align_corners=False, padding_mode="border")[0, :, 0].T
    else:
        assert asset.colours is not None
        found = (asset.colours[corners] * share[..., None]).sum(1)
    rgb = torch.zeros(*face.shape, 3)
    rgb[covered] = found
    return rgb, covered
