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
    if (image[..., 3] == 255).all():
        return ((block_sum(image, factor) + n // 2) // n).astype(np.uint8)
    masked = is_masked(image)
    alpha = np.where(masked, 0, image[..., 3])
    alpha_sum = block_sum(alpha[..., None], factor)
    colour_sum = block_sum(image[..., :3] * alpha[..., None].astype(np.uint16), factor)
    divisor = np.maximum(alpha_sum, 1)
    colour = (colour_sum + divisor // 2) // divisor
    reduced: Array = np.concatenate([colour, (alpha_sum + n // 2) // n], axis=-1).astype(np.uint8)
    reduced[block_sum(masked[..., None], factor)[..., 0] > 0] = MASKED_PIXEL
    return reduced


def reduce_depth(depth: Array, factor: int) -> Array:
    """The centre pixel of each block (an average would invent surfaces between near and far), [h // factor, w // factor]."""
    height, width = depth.shape[0] // factor, depth.shape[1] // factor
    return depth[factor // 2 :: factor, factor // 2 :: factor][:height, :width]


def is_masked(image: Array) -> Array:
    """[h, w] bool: pixels equal to ``MASKED_PIXEL``."""
    return image.view(np.uint32)[..., 0] == np.array(MASKED_PIXEL, np.uint8).view(np.uint32)[0]


def block_sum(values: Array, factor: int) -> Array:
    """[h, w, c] of at most 16 bits -> [h // factor, w // factor, c] sums.

    Rows are added first, so that most additions are contiguous.
    """
    dtype = np.uint32 if factor <= 256 else np.uint64
    height, width = values.shape[0] // factor, values.shape[1] // factor
    rows = np.zeros((height, width * factor, values.shape[2]), dtype)
    for row in range(factor):
        rows += values[row::factor][:height, : width * factor]
    total = np.zeros((height, width, values.shape[2]), dtype)
    for column in range(factor):
        total += rows[:, column::factor]
    return total
