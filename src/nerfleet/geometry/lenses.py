"""Lens models between undistorted and distorted image-plane coordinates, in any float dtype.

Image-plane coordinates are ``(pixel - principal) / focal``. Undistorted means: the camera ray is ``(x, y, 1)``.
Formulas: OpenCV's camera calibration documentation (``calib3d`` and its fisheye model).
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_NEWTON_STEPS = 20
WIDE_ANGLE_COSINE = 0.01
"""Fisheye rays at least this far (cosine) in front of the image plane get z = 1; wider ones get unit length."""


def opencv_distort(points: Tensor, params: Tensor) -> Tensor:
    """Undistorted [m, 2] -> distorted [m, 2]; ``params`` [m, >= 4] = k1, k2, p1, p2."""
    x, y = points.unbind(-1)
    k1, k2, p1, p2 = params[:, :4].unbind(-1)
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * k2)
    return torch.stack(
        [
            x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
            y * radial + 2 * p2 * x * y + p1 * (r2 + 2 * y * y),
        ],
        dim=-1,
    )


def opencv_undistort(distorted: Tensor, params: Tensor) -> Tensor:
    """Distorted [m, 2] -> undistorted [m, 2], m > 0, by Newton's method on both coordinates, started at the distorted point.

    Stops as soon as no coordinate moves by more than a few units of its dtype's precision (which reads one value back).
    """
    k1, k2, p1, p2 = params[:, :4].T.contiguous()
    x_distorted, y_distorted = x, y = distorted.T.contiguous()
    tolerance = 4 * torch.finfo(distorted.dtype).eps * (1 + distorted.abs().amax())
    for _ in range(MAX_NEWTON_STEPS):
        r2 = x * x + y * y
        radial = 1 + r2 * (k1 + r2 * k2)
        slope = 2 * (k1 + 2 * k2 * r2)  # d radial / dx = slope * x
        factor = radial + 2 * (p1 * y + p2 * x)
        x_error = x * factor + p2 * r2 - x_distorted
        y_error = y * factor + p1 * r2 - y_distorted
        xx = factor + slope * x * x + 4 * p2 * x
        yy = factor + slope * y * y + 4 * p1 * y
        xy = slope * x * y + 2 * (p1 * x + p2 * y)
        determinant = xx * yy - xy * xy
        determinant = torch.where(determinant.abs() < 1e-9, 1.0, determinant)
        x_step = (yy * x_error - xy * y_error) / determinant
        y_step = (xx * y_error - xy * x_error) / determinant
        x, y = x - x_step, y - y_step
        if max(x_step.abs().amax(), y_step.abs().amax()) <= tolerance:
            break
    return torch.stack([x, y], dim=-1)


def opencv_is_regular(points: Tensor, params: Tensor) -> Tensor:
    """[m] bool: the radial part still grows at these undistorted [m, 2] points (further out the lens folds back)."""
    k1, k2 = params[:, 0], params[:, 1]
    r2 = (points * points).sum(-1)
    return 1 + r2 * (3 * k1 + 5 * k2 * r2) > 0


def fisheye_radius(theta: Tensor, params: Tensor) -> Tensor:
    """Angle from the axis [m], radians -> distance from the centre [m] = theta (1 + k1 theta^2 + ... + k4 theta^8)."""
    k1, k2, k3, k4 = params[:, :4].unbind(-1)
    t2 = theta * theta
    return theta * (1 + t2 * (k1 + t2 * (k2 + t2 * (k3 + t2 * k4))))


def fisheye_radius_slope(theta: Tensor, params: Tensor) -> Tensor:
    """Derivative of :func:`fisheye_radius`, [m]."""
    k1, k2, k3, k4 = params[:, :4].unbind(-1)
    t2 = theta * theta
    return 1 + t2 * (3 * k1 + t2 * (5 * k2 + t2 * (7 * k3 + t2 * 9 * k4)))


def fisheye_rays(distorted: Tensor, params: Tensor) -> Tensor:
    """Distorted [m, 2], m > 0 -> camera-space rays [m, 3]; z = 1, or unit length from 89.4 degrees off the axis on.

    The angle is found by Newton's method started at the distorted radius, kept within [0, pi].
    """
    radius = distorted.norm(dim=-1)
    theta = radius.clamp(max=torch.pi)
    coefficients = params[:, :4].T.contiguous().T
    tolerance = 4 * torch.finfo(distorted.dtype).eps
    for _ in range(MAX_NEWTON_STEPS):
        slope = fisheye_radius_slope(theta, coefficients)
        slope = torch.where(slope.abs() < 1e-6, 1.0, slope)
        moved = (theta - (fisheye_radius(theta, coefficients) - radius) / slope).clamp(0, torch.pi)
        step, theta = (moved - theta).abs().amax(), moved
        if step <= tolerance:
            break
    sine_over_radius = torch.where(radius > 1e-9, theta.sin() / radius.clamp(min=1e-9), torch.ones_like(radius))
    cosine = theta.cos()
    rays = torch.cat([distorted * sine_over_radius[:, None], cosine[:, None]], dim=-1)
    return torch.where(cosine[:, None] > WIDE_ANGLE_COSINE, rays / cosine.clamp(min=WIDE_ANGLE_COSINE)[:, None], rays)


def fisheye_project(points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
    """Camera-space points [m, 3] -> (distorted [m, 2], regular [m] bool: the radius still grows at this angle)."""
    radial = points[:, :2].norm(dim=-1)
    theta = torch.atan2(radial, points[:, 2])
    factor = torch.where(radial > 1e-12, fisheye_radius(theta, params) / radial.clamp(min=1e-12), 1 / points[:, 2])
    return points[:, :2] * factor[:, None], fisheye_radius_slope(theta, params) > 0
