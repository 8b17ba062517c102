"""Launchers of composite.cu; arguments as in composite/op.py."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from nerfleet.kernels.rtc.launch import Program

SOURCE = Path(__file__).with_name("composite.cu")
BLOCK = 256


def ray_loss(
    rgb: Tensor, transmittance: Tensor, targets: Tensor, backgrounds: Tensor, starts: Tensor, state: Tensor, loss: int, loss_scale: float,
    gradient: Tensor, final: Tensor, loss_sum: Tensor, counters: Tensor,
) -> None:  # fmt: skip
    rays = (rgb, transmittance, targets, backgrounds, starts, state)
    arguments = (*rays, loss, loss_scale, gradient, final, loss_sum, counters)
    Program(SOURCE).launch("ray_loss", (-(-len(starts) // BLOCK),), BLOCK, *arguments, device=rgb.device)


def composite_backward(
    ray_indices: Tensor, rgb: Tensor, raw: Tensor, t: Tensor, dt: Tensor, weight: Tensor, after: Tensor, prefix: Tensor, gradient: Tensor,
    final: Tensor, count: Tensor, hyper: Tensor, near_distance: float, d_rgb: Tensor, d_raw: Tensor,
) -> None:  # fmt: skip
    samples = (ray_indices, rgb, raw, t, dt, weight, after, prefix)
    arguments = (*samples, gradient, final, count, len(raw), hyper, near_distance, d_rgb, d_raw)
    Program(SOURCE).launch("composite_backward", (-(-len(raw) // BLOCK),), BLOCK, *arguments, device=rgb.device)


def relaxed_backward(
    ray_indices: Tensor, rgb: Tensor, raw: Tensor, t: Tensor, dt: Tensor, weight: Tensor, after: Tensor, prefix: Tensor, targets: Tensor,
    gradient: Tensor, final: Tensor, scale: Tensor, state: Tensor, first_step: int, loss: int, count: Tensor, hyper: Tensor, near_distance: float,
    d_rgb: Tensor, d_raw: Tensor,
) -> None:  # fmt: skip
    samples = (ray_indices, rgb, raw, t, dt, weight, after, prefix)
    arguments = (*samples, targets, gradient, final, scale, state, first_step, loss, count, len(raw), hyper, near_distance, d_rgb, d_raw)
    Program(SOURCE).launch("relaxed_backward", (-(-len(raw) // BLOCK),), BLOCK, *arguments, device=rgb.device)
