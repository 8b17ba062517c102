"""Real spherical harmonics up to degree 4 (16 values) in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

N_COEFFICIENTS = 16


def sphere_harmonics(directions: Tensor) -> Tensor:
    """[n, 3] unit vectors -> [n, 16], in instant-ngp's order and signs: its files hold weights for them."""
    x, y, z = directions.unbind(-1)
    xx, yy, zz = x * x, y * y, z * z
    return torch.stack(
        [
            torch.full_like(x, 0.28209479177387814),
            -0.48860251190291987 * y,
            0.48860251190291987 * z,
            -0.48860251190291987 * x,
            1.0925484305920792 * x * y,
            -1.0925484305920792 * y * z,
            0.94617469575755997 * zz - 0.31539156525251999,
            -1.0925484305920792 * x * z,
            0.54627421529603959 * (xx - yy),
            0.59004358992664352 * y * (yy - 3 * xx),
            2.8906114426405538 * x * y * z,
            0.45704579946446572 * y * (1 - 5 * zz),
            0.3731763325901154 * z * (5 * zz - 3),
            0.45704579946446572 * x * (1 - 5 * zz),
            1.4453057213202769 * z * (xx - yy),
            0.59004358992664352 * x * (3 * yy - xx),
        ],
        -1,
    )
