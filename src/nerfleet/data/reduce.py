"""Smaller photographs by a box filter."""

from __future__ import annotations

import numpy as np

from nerfleet.data.images import Array
from nerfleet.data.scene import MASKED_PIXEL


def reduce_rgba(image: Array, factor: int) -> Array:
    """Box average of premultiplied sRGB values, un-premultiplied, rounded to 8 bits.

    A block with any ``MASKED_PIXEL`` becomes one; a fully transparent block becomes (0, 0, 0, 0).

    Args:
        image: [h, w, 4] uint8, straight alpha.
        factor: pixels per block along each axis; trailing pixels that do not fill a block are dropped.

    Returns:
        [h // factor, w // factor, 4] uint8.
    """
    n = factor * factor
    out = np.empty((image.shape[0] // factor, image.shape[1] // factor, 4), np.uint8)
    red, green, blue, alpha = planes = np.ascontiguousarray(np.moveaxis(image, -1, 0))
    if alpha.min() == 255:
        for channel, plane in enumerate(planes):
            out[..., channel] = (block_sum(plane, factor) + n // 2) // n
        return out
    masked = is_masked(image)
    alpha[masked] = 0
    alpha_sum = block_sum(alpha, factor)
    divisor = np.maximum(alpha_sum, 1)
    for channel, plane in enumerate((red, green, blue)):
        premultiplied = np.multiply(plane, alpha, dtype=np.uint16)
        out[..., channel] = (block_sum(premultiplied, factor) + divisor // 2) // divisor
    out[..., 3] = (alpha_sum + n // 2) // n
    if masked.any():
        out[block_sum(masked, factor) > 0] = MASKED_PIXEL
    return out


def reduce_depth(depth: Array, factor: int) -> Array:
    """The centre pixel of each block (an average would invent surfaces between near and far), [h // factor, w // factor]."""
    height, width = depth.shape[0] // factor, depth.shape[1] // factor
    return depth[factor // 2 :: factor, factor // 2 :: factor][:height, :width]


def is_masked(image: Array) -> Array:
    """[h, w] bool: pixels equal to ``MASKED_PIXEL``."""
    return image.view(np.uint32)[..., 0] == np.array(MASKED_PIXEL, np.uint8).view(np.uint32)[0]


def block_sum(values: Array, factor: int) -> Array:
    """[h, w] of at most 16 bits -> [h // factor, w // factor] sums.

    Rows are added first, so that most additions are contiguous.
    """
    dtype = np.uint32 if factor <= 256 else np.uint64
    height, width = values.shape[0] // factor, values.shape[1] // factor
    rows = np.zeros((height, width * factor), dtype)
    for row in range(factor):
        rows += values[row::factor][:height, : width * factor]
    total = np.zeros((height, width), dtype)
    for column in range(factor):
        total += rows[:, column::factor]
    return total
