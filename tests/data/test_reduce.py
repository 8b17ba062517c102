from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from nerfleet.data import MASKED_PIXEL
from nerfleet.data.reduce import block_sum, is_masked, reduce_depth, reduce_rgba


def noise(height: int, width: int, opaque: bool = False) -> np.ndarray:
    image = np.random.default_rng(0).integers(0, 256, (height, width, 4), dtype=np.uint8)
    image[..., 3] = 255 if opaque else np.where(image[..., 3] < 100, 0, image[..., 3])
    return image


def scalar_reduce(image: np.ndarray, factor: int) -> np.ndarray:
    """The definition, one block after the other, in double precision."""
    out = np.zeros((image.shape[0] // factor, image.shape[1] // factor, 4), np.uint8)
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            block = image[y * factor : (y + 1) * factor, x * factor : (x + 1) * factor].reshape(-1, 4).astype(float) / 255
            premultiplied, alpha = (block[:, :3] * block[:, 3:]).mean(0), block[:, 3].mean()
            if alpha > 0:
                out[y, x] = np.floor(np.append(premultiplied / alpha, alpha) * 255 + 0.5 + 1e-9)
    return out


@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize("opaque", [True, False])
def test_against_a_scalar_loop(factor: int, opaque: bool) -> None:
    image = noise(23, 17, opaque)
    assert (reduce_rgba(image, factor) == scalar_reduce(image, factor)).all()


def test_alpha_by_hand() -> None:
    """Half-transparent red and opaque blue: weights 128 and 255, not 1 and 1."""
    image = np.array([[[200, 0, 0, 128], [0, 0, 100, 255]], [[9, 9, 9, 0], [9, 9, 9, 0]]], np.uint8)
    red, blue, alpha = 200 * 128 / 383, 100 * 255 / 383, 383 / 4
    assert reduce_rgba(image, 2)[0, 0].tolist() == [round(red), 0, round(blue), round(alpha)]


def test_close_to_pillow() -> None:
    """Pillow's own reduction of opaque photographs is the same box average."""
    image = noise(48, 64, opaque=True)
    pillow = np.asarray(Image.fromarray(image).convert("RGB").reduce(4)).astype(int)
    assert np.abs(reduce_rgba(image, 4)[..., :3] - pillow).max() <= 1


def test_masked_pixels_spread_over_their_block_only() -> None:
    image = noise(8, 8, opaque=True)
    clean = reduce_rgba(image, 4)
    image[5, 1] = MASKED_PIXEL
    reduced = reduce_rgba(image, 4)
    assert is_masked(reduced).tolist() == [[False, False], [True, False]]
    assert (reduced[0] == clean[0]).all()


def test_large_blocks_do_not_overflow() -> None:
    image = np.full((300, 300, 4), 255, np.uint8)
    image[0, 0, 3] = 254
    assert reduce_rgba(image, 300).tolist() == [[[255, 255, 255, 255]]]
    assert block_sum(image[..., 0], 300)[0, 0] == 255 * 300 * 300


def test_depth_takes_the_centre() -> None:
    depth = np.arange(35).reshape(5, 7)
    assert reduce_depth(depth, 3).tolist() == [[8, 11]]
    assert reduce_depth(depth, 2).tolist() == [[8, 10, 12], [22, 24, 26]]
