"""A thin lens in front of any camera: what lies in the plane of focus stays sharp, the rest blurs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nerfleet.geometry.box import ray_box
from nerfleet.kernels.march.reference import to_lattice
from nerfleet.kernels.rays.camera import START_MARGIN

PLASTIC = 1.324717957244746
"""Root of x^3 = x + 1, on which the R2 sequence rests (Roberts 2018)."""
NOISE_SEED = 1
MIN_FORWARD = 1e-3
"""Rays that look further aside than this (cosine to the axis) pass the middle of the lens."""


@dataclass(frozen=True)
class ThinLens:
    """Attributes:
    aperture: radius of the lens, internal units; 0 is a pinhole.
    focus: distance of the plane in focus along the camera's axis, internal units.
    """

    aperture: float = 0.0
    focus: float = 1.0

    @property
    def is_pinhole(self) -> bool:
        return self.aperture <= 0.0 or self.focus <= 0.0


def pixel_noise(n: int, device: torch.device) -> Tensor:
    """[n, 2] in 0..1: where each pixel's sequence of lens samples begins; the same for every picture of n pixels."""
    generator = torch.Generator(device).manual_seed(NOISE_SEED)
    return torch.rand(n, 2, generator=generator, device=device)


def disk(square: Tensor) -> Tensor:
    """[..., 2] in 0..1 -> [..., 2] in the unit disk, area preserving and continuous (Shirley and Chiu 1997)."""
    a, b = (2 * square - 1).unbind(-1)
    wide = a.abs() > b.abs()
    radius = torch.where(wide, a, b)
    ratio = torch.where(wide, b, a) / torch.where(radius == 0, torch.ones_like(radius), radius)
    angle = torch.where(wide, 0.25 * math.pi * ratio, 0.5 * math.pi - 0.25 * math.pi * ratio)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], -1)


def through_lens(
    origins: Tensor, directions: Tensor, camera_to_world: Tensor, lens: ThinLens, noise: Tensor, sample: int, jitter: float, box: Tensor, cone_angle: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Pinhole rays through a point of the lens each, towards the same point of the plane in focus.

    Args:
        origins, directions: [n, 3] unit directions. camera_to_world: [3, 4], same device.
        noise: [n, 2] of :func:`pixel_noise`. sample: which of a pixel's lens points is taken (R2 sequence, shifted by the noise).
        jitter, box, cone_angle: as in ``nerfleet::camera_rays``.

    Returns:
        origins, directions [n, 3] and starts [n] as ``render_rays`` takes them.
    """
    right, down, forward = camera_to_world[:, :3].unbind(-1)
    shift = torch.tensor([(sample + 0.5) / PLASTIC % 1, (sample + 0.5) / PLASTIC**2 % 1], device=noise.device)
    point = lens.aperture * disk((noise + shift) % 1)
    offset = point[:, :1] * right + point[:, 1:] * down
    cosine = directions @ forward
    ahead = (cosine > MIN_FORWARD)[:, None]
    aim = directions * (lens.focus / cosine.clamp_min(MIN_FORWARD))[:, None] - offset
    origins = torch.where(ahead, origins + offset, origins)
    directions = torch.where(ahead, torch.nn.functional.normalize(aim, dim=-1), directions)
    near, far = ray_box(origins, directions, box)
    starts = torch.where(far > near, to_lattice(near + START_MARGIN, cone_angle) + jitter, -1.0)
    return origins.contiguous(), directions.contiguous(), starts.float()
