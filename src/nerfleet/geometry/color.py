"""sRGB and linear light, and photographs with alpha in front of a background.

Source of the transfer function: IEC 61966-2-1. Photographs are sRGB with straight alpha.
"""

from __future__ import annotations

import torch
from torch import Tensor


def srgb_to_linear(srgb: Tensor) -> Tensor:
    """Piecewise sRGB decoding of any float tensor; values below 0 continue the straight piece, above 1 the curve."""
    curve = ((srgb.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4
    return torch.where(srgb <= 0.04045, srgb / 12.92, curve)


def linear_to_srgb(linear: Tensor) -> Tensor:
    """Inverse of :func:`srgb_to_linear`."""
    curve = 1.055 * linear.clamp(min=0.0031308) ** (1 / 2.4) - 0.055
    return torch.where(linear <= 0.0031308, linear * 12.92, curve)


def composite(rgba: Tensor, background: Tensor, *, in_srgb: bool = False) -> Tensor:
    """Photographs in front of a background.

    Args:
        rgba: [..., 4] uint8, sRGB, straight alpha; or [..., 4] float in [0, 1] of the same meaning.
        background: [..., 3] float sRGB, broadcast against the colours; its dtype is the result's.
        in_srgb: blend the sRGB values themselves (instant-ngp's ``nerf_compatibility``) instead of linear light.

    Returns:
        [..., 3] sRGB float.
    """
    colour = rgba.to(background.dtype)
    if not rgba.is_floating_point():
        colour = colour / 255
    rgb, alpha = colour[..., :3], colour[..., 3:]
    if in_srgb:
        return rgb * alpha + (1 - alpha) * background
    return linear_to_srgb(srgb_to_linear(rgb) * alpha + (1 - alpha) * srgb_to_linear(background))
