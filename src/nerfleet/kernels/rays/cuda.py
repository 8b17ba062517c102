"""Launchers of rays.cu and camera_rays.cu; arguments as in rays/op.py and rays/camera.py."""

from __future__ import annotations

import struct
from pathlib import Path

import torch
from torch import Tensor

from nerfleet.kernels.march.cuda import march_defines, pack_stepping
from nerfleet.kernels.rtc.launch import Program

SOURCE = Path(__file__).with_name("rays.cu")
CAMERA = Path(__file__).with_name("camera_rays.cu")
BLOCK, CAMERA_BLOCK = 128, 256


def sample_rays(
    pixels: Tensor, pixel_offsets: Tensor, drawable: Tensor, places: Tensor, camera_to_world: Tensor, focal: Tensor, principal: Tensor,
    resolution: Tensor, lens: Tensor, lens_params: Tensor, state: Tensor, seed: int, cone_angle: float, aabb_scale: int, background: int,
    srgb_blend: bool, origins: Tensor, directions: Tensor, starts: Tensor, targets: Tensor, backgrounds: Tensor,
) -> None:  # fmt: skip
    cameras = struct.pack("<6Q", *(x.data_ptr() for x in (camera_to_world, focal, principal, resolution, lens, lens_params)))
    half = 0.5 * aabb_scale
    box = struct.pack("<6f", *[0.5 - half] * 3, *[0.5 + half] * 3)
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    held = (pixels, pixel_offsets, drawable, places if len(places) else None)
    written = (origins, directions, starts, targets, backgrounds)
    arguments = (*held, cameras, state, len(pixel_offsets) - 1, *key, pack_stepping(cone_angle), box, background, int(srgb_blend), *written)
    Program(SOURCE, march_defines(1, cone_angle)).launch("sample_rays", (-(-len(starts) // BLOCK),), BLOCK, *arguments, device=pixels.device)


def camera_rays(
    camera_to_world: Tensor, focal: Tensor, principal: Tensor, resolution: Tensor, lens: Tensor, lens_params: Tensor, width: int, first: int, n: int,
    offset_x: float, offset_y: float, jitter: float, box: Tensor, cone_angle: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """origins [n, 3], directions [n, 3], starts [n]."""
    device = camera_to_world.device
    camera = struct.pack("<6Q", *(x.data_ptr() for x in (camera_to_world, focal, principal, resolution, lens, lens_params)))
    origins, directions, starts = torch.empty(n, 3, device=device), torch.empty(n, 3, device=device), torch.empty(n, device=device)
    corners = struct.pack("<6f", *box.flatten().tolist())
    arguments = (camera, width, first, n, offset_x, offset_y, jitter, corners, pack_stepping(cone_angle), origins, directions, starts)
    Program(CAMERA, march_defines(1, cone_angle)).launch("camera_rays", (-(-n // CAMERA_BLOCK),), CAMERA_BLOCK, *arguments, device=device)
    return origins, directions, starts
