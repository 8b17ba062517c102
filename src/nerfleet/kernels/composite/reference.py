"""Volume rendering along rays and its analytic gradient, in plain torch, dense form [n_rays, n_samples].

Max 1995, Mildenhall et al. 2020, equation 3: alpha_i = 1 - exp(-density_i dt_i), C = sum_i T_i alpha_i c_i with
T_i = prod_(j < i) (1 - alpha_j).
"""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError

RAW_LIMIT = 15.0
"""The derivative of the density's exponential is taken at raw density clamped to +-RAW_LIMIT."""
LOSSES = {"Huber": 0, "L2": 1, "RelativeL2": 2, "L1": 3, "MAPE": 4, "SMAPE": 5, "LogL1": 6}
HUBER_DELTA = 0.1
MIN_AFTER = 1e-6
"""What is left behind a sample counts as at least this much when its colour is made whole."""


def composite(rgb: Tensor, raw: Tensor, dt: Tensor, valid: Tensor, min_transmittance: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Colour and transmittance of rays.

    Args:
        rgb [n, s, 3], raw [n, s] log densities, dt [n, s], valid [n, s] bool.
        min_transmittance: a ray ends with the sample that takes its transmittance below this.

    Returns:
        colour [n, 3], transmittance [n] (0 for a ray that was cut), weights [n, s], kept [n, s] bool.
    """
    alpha = torch.where(valid, 1 - torch.exp(-torch.exp(raw) * dt), 0)
    after = torch.cumprod(1 - alpha, -1)
    before = torch.cat([torch.ones_like(after[:, :1]), after[:, :-1]], -1)
    kept = valid & (before >= min_transmittance)
    weights = torch.where(kept, before * alpha, 0)
    end = after[:, -1] if after.shape[1] else rgb.new_ones(len(rgb))
    transmittance = torch.where(end < min_transmittance, 0, end)
    return (weights[..., None] * rgb).sum(1), transmittance, weights, kept


def loss_and_gradient(prediction: Tensor, target: Tensor, loss: int) -> tuple[Tensor, Tensor]:
    """Loss and its derivative by the prediction, element by element, all of one shape; denominators count as constants."""
    difference = prediction - target
    size, sign = difference.abs(), difference.sign()
    if loss == LOSSES["Huber"]:
        inside = size <= HUBER_DELTA
        value = torch.where(inside, difference**2, 2 * HUBER_DELTA * (size - 0.5 * HUBER_DELTA))
        return value, torch.where(inside, 2 * difference, 2 * HUBER_DELTA * sign)
    if loss == LOSSES["L2"]:
        return difference**2, 2 * difference
    if loss == LOSSES["RelativeL2"]:
        scale = 1 / (prediction**2 + 0.01)
        return difference**2 * scale, 2 * difference * scale
    if loss == LOSSES["L1"]:
        return size, sign
    if loss == LOSSES["MAPE"]:
        scale = 1 / (prediction.abs() + 0.01)
        return size * scale, sign * scale
    if loss == LOSSES["SMAPE"]:
        scale = 1 / (0.5 * (prediction.abs() + target.abs()) + 0.01)
        return size * scale, sign * scale
    if loss == LOSSES["LogL1"]:
        return torch.log1p(size), sign / (1 + size)
    raise NerfleetError("loss", f"number {loss} is not a loss", f"use one of {', '.join(LOSSES)}")


def composite_backward(
    rgb: Tensor, raw: Tensor, dt: Tensor, weight: Tensor, after: Tensor, prefix: Tensor, gradient: Tensor, final: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of samples, each on its own.

    d loss/d rgb = weight * g; d loss/d raw = exp(raw) dt g.(T_after rgb - (final - prefix)).

    Args:
        rgb [n, 3], raw [n], dt [n], weight [n]: of each sample.
        after [n], prefix [n, 3]: transmittance and colour of its ray, this sample included.
        gradient [n, 3], final [n, 3]: d loss/d colour and colour (background included) of its ray.

    Returns:
        d_rgb [n, 3], d_raw [n].
    """
    d_rgb = weight[:, None] * gradient
    d_raw = torch.exp(raw.clamp(-RAW_LIMIT, RAW_LIMIT)) * dt * (gradient * (after[:, None] * rgb - (final - prefix))).sum(-1)
    return d_rgb, d_raw


def relaxed_backward(
    rgb: Tensor, raw: Tensor, dt: Tensor, weight: Tensor, after: Tensor, prefix: Tensor, target: Tensor, final: Tensor, loss: int
) -> tuple[Tensor, Tensor]:
    """Gradients that favour surfaces: each sample is asked to explain its ray's pixel alone.

    As :func:`composite_backward`, but d loss/d colour is taken at (1 - alpha) B + alpha rgb, the sample in front of what lies behind
    it, B = (final - prefix) / T_after, and not at the ray's whole colour. Where alpha nears 1 a sample's own colour is compared with
    the pixel; fog that is right only in sum gains nothing. Source: the radiance field loss, relaxed ("Radiance Surfaces", 2025).

    Args:
        target [n, 3]: pixel of each sample's ray. Others as in :func:`composite_backward`.

    Returns:
        d_rgb [n, 3], d_raw [n], unscaled.
    """
    alpha, behind = 1 - torch.exp(-torch.exp(raw) * dt), final - prefix
    mix = (1 - alpha)[:, None] * behind / after.clamp_min(MIN_AFTER)[:, None] + alpha[:, None] * rgb
    _, gradient = loss_and_gradient(mix, target, loss)
    return composite_backward(rgb, raw, dt, weight, after, prefix, gradient, final)
