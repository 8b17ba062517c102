"""From a rendering to what a file holds, on the rendering's own device: exposure, background, 8-bit sRGB, video planes, EXR layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nerfleet.geometry.color import linear_to_srgb, srgb_to_linear
from nerfleet.render.renderer import Rendered, to_uint8

MAX_DEPTH = 65_535
LUMA = (0.2126, 0.7152, 0.0722)
"""Weights of R', G', B' in Y' (ITU-R BT.709)."""


@dataclass(frozen=True)
class Look:
    """Attributes:
    background: sRGB behind the model; None: pictures are transparent.
    exposure: stops; linear light is multiplied by 2^exposure, background included.
    """

    background: tuple[float, float, float] | None = None
    exposure: float = 0.0


def developed(rendered: Rendered, look: Look) -> Tensor:
    """[h, w, 4] float32 sRGB, straight alpha; opaque where the look has a background."""
    if look.background is not None:
        rgb, alpha = rendered.over(look.background), torch.ones_like(rendered.alpha)
    else:
        rgb, alpha = rendered.rgb / rendered.alpha[..., None].clamp_min(1e-9), rendered.alpha
    if look.exposure:
        rgb = linear_to_srgb(srgb_to_linear(rgb) * 2.0**look.exposure)
    return torch.cat([rgb, alpha[..., None]], -1)


def png_picture(rendered: Rendered, look: Look) -> Tensor:
    """uint8 [h, w, 4] sRGB with straight alpha, or [h, w, 3] where the look has a background."""
    picture = to_uint8(developed(rendered, look))
    return picture if look.background is None else picture[..., :3].contiguous()


def exr_picture(rendered: Rendered, look: Look) -> Tensor:
    """float16 [h, w, 4] linear light, premultiplied (as EXR files are), not clipped."""
    rgba = developed(rendered, look)
    return torch.cat([srgb_to_linear(rgba[..., :3]) * rgba[..., 3:], rgba[..., 3:]], -1).half()


def depth_picture(depth: Tensor, unit: float) -> Tensor:
    """int32 [h, w]: multiples of ``unit`` (internal units of distance along the ray) up to MAX_DEPTH; 0: nothing there."""
    return (depth / unit).round().clamp(0, MAX_DEPTH).to(torch.int32)


def normals_picture(normals: Tensor) -> Tensor:
    """[h, w, 3] in -1..1 -> uint8, 128 + 127 n; 0, 0, 0 where there is no surface."""
    there = (normals != 0).any(-1, keepdim=True)
    return torch.where(there, 128 + 127 * normals, 0).round().clamp(0, 255).to(torch.uint8)


def video_planes(srgb: Tensor) -> Tensor:
    """Frames of an H.264 video: yuv420p, BT.709, limited range.

    Chroma sits on the left of each pair of columns and between the rows, as decoders expect; an odd edge gains a repeated row or column.

    Args:
        srgb: [h, w, 3] float in 0..1 (clipped), or uint8.

    Returns:
        uint8 [1.5 h', w'] with h' and w' even: h' rows of Y, then the planes U and V of [h' / 2, w' / 2] each.
    """
    rgb = srgb.float() / 255 if srgb.dtype == torch.uint8 else srgb.clamp(0, 1)
    planes = rgb.permute(2, 0, 1)[None]
    height, width = rgb.shape[:2]
    planes = torch.nn.functional.pad(planes, (0, width % 2, 0, height % 2), mode="replicate")[0]
    luma = sum(weight * plane for weight, plane in zip(LUMA, planes))
    assert isinstance(luma, Tensor)
    chroma = torch.stack([(planes[2] - luma) / (2 - 2 * LUMA[2]), (planes[0] - luma) / (2 - 2 * LUMA[0])])
    rows = 0.5 * (chroma[:, ::2] + chroma[:, 1::2])
    left = torch.cat([rows[..., :1], rows[..., 1:-1:2]], -1)
    small = 0.5 * rows[..., ::2] + 0.25 * (left + rows[..., 1::2])
    packed = torch.cat([16 + 219 * luma.flatten(), 128 + 224 * small.flatten()])
    return (packed + 0.5).to(torch.uint8).view(-1, luma.shape[1])
