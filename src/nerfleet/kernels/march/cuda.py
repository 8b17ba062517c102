"""What every marching kernel is told: the structures ``Stepping`` and ``Scene`` of stepping.cuh and march.cuh."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from torch import Tensor

from nerfleet.kernels.march.reference import MAX_STEP, MIN_STEP
from nerfleet.kernels.rtc.compile import Defines

BLOCK_BYTES = 64
"""Of the block field of one cascade: a bit for each block of 16^3 cells."""
EVERYWHERE = (-1e30, -1e30, -1e30, 1e30, 1e30, 1e30)


def march_defines(n_cascades: int, cone_angle: float, step_cascades: bool = True) -> Defines:
    return (("NF_CASCADES", n_cascades), ("NF_CONE", int(cone_angle > 0)), ("NF_STEP_CASCADES", int(step_cascades)))


def pack_stepping(cone_angle: float) -> bytes:
    if cone_angle <= 0:
        return struct.pack("<8f", *[0.0] * 8)
    log = math.log1p(cone_angle)
    t_log, t_linear = MIN_STEP / log, MAX_STEP / log
    n_log = t_log / MIN_STEP
    growth = math.log2(1 + cone_angle)
    return struct.pack("<8f", cone_angle, growth, 1 / growth, t_log, 1 / t_log, n_log, t_linear, n_log + math.log(t_linear / t_log) / log)


def pack_scene(bitfield: Tensor, blocks: Tensor, cone_angle: float, aabb_scale: int, crop: Sequence[float] = EVERYWHERE) -> bytes:
    """``crop``: minimum and maximum corner, internal space."""
    head = struct.pack("<QQff", bitfield.data_ptr(), blocks.data_ptr(), 0.5 * aabb_scale, 1.0 / aabb_scale)
    return head + pack_stepping(cone_angle) + struct.pack("<6f", *crop)
