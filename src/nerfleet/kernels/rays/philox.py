"""Philox4x32-10: random numbers as a pure function of (key, counter) (Salmon et al. 2011, "Parallel random numbers")."""

from __future__ import annotations

import numba
import numpy as np

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


@numba.njit(inline="always")
def philox(counter_0, counter_1, counter_2, counter_3, key_0, key_1):
    """Four uint32 words of counter, two of key -> four uint32 words."""
    c0, c1, c2, c3 = np.uint32(counter_0), np.uint32(counter_1), np.uint32(counter_2), np.uint32(counter_3)
    k0, k1 = np.uint32(key_0), np.uint32(key_1)
    for _ in range(10):
        p0, p1 = np.uint64(c0) * _MULTIPLIER_0, np.uint64(c2) * _MULTIPLIER_1
        n0 = np.uint32(p1 >> _32) ^ c1 ^ k0
        n2 = np.uint32(p0 >> _32) ^ c3 ^ k1
        c0, c1, c2, c3 = n0, np.uint32(p1 & _LOW), n2, np.uint32(p0 & _LOW)
        k0, k1 = np.uint32(k0 + _WEYL_0), np.uint32(k1 + _WEYL_1)
    return np.uint32(c0), np.uint32(c1), np.uint32(c2), np.uint32(c3)


@numba.njit(inline="always")
def uniform(word):
    """uint32 -> float32 in [0, 1), 24 bits."""
    return np.float32(word >> np.uint32(8)) * np.float32(1 / 16777216)


@numba.njit(cache=True, nogil=True)
def words(counters, key_0, key_1, out):
    """counters [n, 4] uint32 -> out [n, 4] uint32."""
    for i in range(counters.shape[0]):
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = philox(counters[i, 0], counters[i, 1], counters[i, 2], counters[i, 3], key_0, key_1)


def split_seed(seed: int) -> tuple[int, int]:
    """64-bit seed -> the two key words."""
    return seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF


STREAM_RAYS, STREAM_BACKGROUND, STREAM_OCCUPANCY = range(3)
"""Third counter word: what the numbers are for. Counter = (index, step, stream, attempt)."""
