"""Launcher of rays.cu; arguments as in rays/op.py."""

from __future__ import annotations

import struct
from pathlib import Path

from torch import Tensor

from nerfleet.kernels.march.cuda import march_defines, pack_stepping
from nerfleet.kernels.rtc.launch import Program

SOURCE = Path(__file__).with_name("rays.cu")
BLOCK = 128


def sample_rays(
    pixels: Tensor, pixel_offsets: Tensor, camera_to_world: Tensor, focal: Tensor, principal: Tensor, resolution: Tensor, lens: Tensor,
    lens_params: Tensor, state: Tensor, seed: int, cone_angle: float, aabb_scale: int, background: int, srgb_blend: bool, origins: Tensor,
    directions: Tensor, starts: Tensor, targets: Tensor, backgrounds: Tensor,
) -> None:  # fmt: skip
    cameras = struct.pack("<6Q", *(x.data_ptr() for x in (camera_to_world, focal, principal, resolution, lens, lens_params)))
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    counts = (len(pixels), len(pixel_offsets) - 1)
    written = (origins, directions, starts, targets, backgrounds)
    arguments = (pixels, pixel_offsets, cameras, state, *counts, *key, pack_stepping(cone_angle), 0.5 * aabb_scale, background, int(srgb_blend), *written)
    Program(SOURCE, march_defines(1, cone_angle)).launch("sample_rays", (-(-len(starts) // BLOCK),), BLOCK, *arguments, device=pixels.device)
