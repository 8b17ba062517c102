"""Gradients of the table in fixed point on CUDA (include/fixed_point.cuh): two parameters in 64 bits, exact sums in any order."""

from __future__ import annotations

import torch
from torch import Tensor

ONE = float(1 << 24)
"""The smallest step is 2^-24, half precision's own."""
LIMIT = 128.0
"""Sums must stay below; they hold the loss scale (128) and a mean over rays, so that they are far smaller."""


def pack(values: Tensor) -> Tensor:
    """[n] floats, every one of them in +-LIMIT -> [(n + 1) / 2] int64: first + second * 2^32 of each pair, in steps of 1 / ONE."""
    steps = torch.nn.functional.pad(values.double(), (0, values.numel() % 2)).mul(ONE).round().long()
    return steps[0::2] + (steps[1::2] << 32)


def unpack(pairs: Tensor) -> Tensor:
    """[m] int64 -> [2 m] float32; the pair of a sum of pairs is the sums."""
    low = pairs.to(torch.int32)
    high = ((pairs - low) >> 32).to(torch.int32)
    return torch.stack([low, high], -1).flatten() / ONE
