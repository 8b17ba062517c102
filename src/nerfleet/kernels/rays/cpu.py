"""Training rays on the CPU: which pixel each ray looks through, its jitter and background; lenses by geometry."""

from __future__ import annotations

import numba
import numpy as np

from nerfleet.kernels.rays.philox import STREAM_BACKGROUND, STREAM_RAYS, philox, uniform


@numba.njit(cache=True, nogil=True)
def choose(first_ray, n_rays, n_global, step, key_0, key_1, n_pixels, pixels, jitter, backgrounds):
    """Pixel index [n] int64, start jitter [n] in steps and random background [n, 3] of the rays first_ray .. first_ray + n_rays.

    Ray i of n_global draws from the i-th of n_global equal strata of all pixels: every pixel is equally likely.
    """
    high, low = np.uint64(n_pixels) >> np.uint64(32), np.uint64(n_pixels) & np.uint64(0xFFFFFFFF)
    for j in range(n_rays):
        i = first_ray + j
        word_0, word_1, _, _ = philox(i, step, STREAM_RAYS, 0, key_0, key_1)
        offset = np.uint64(word_0) * high + ((np.uint64(word_0) * low) >> np.uint64(32))
        pixels[j] = np.int64((np.uint64(i) * np.uint64(n_pixels) + offset) // np.uint64(n_global))
        jitter[j] = uniform(word_1)
        red, green, blue, _ = philox(i, step, STREAM_BACKGROUND, 0, key_0, key_1)
        backgrounds[j, 0], backgrounds[j, 1], backgrounds[j, 2] = uniform(red), uniform(green), uniform(blue)
