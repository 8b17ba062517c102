"""Spherical harmonics on the CPU: one pass over the directions, into columns of the colour network's input."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def sphere_harmonics(directions, out):
    """directions [n, 3] f32, unit -> out [n, 16] f32, rows at any distance (formulas: reference.py)."""
    f = np.float32
    for i in range(directions.shape[0]):
        x, y, z = directions[i, 0], directions[i, 1], directions[i, 2]
        xx, yy, zz = x * x, y * y, z * z
        row = out[i]
        row[0] = f(0.28209479177387814)
        row[1] = f(-0.48860251190291987) * y
        row[2] = f(0.48860251190291987) * z
        row[3] = f(-0.48860251190291987) * x
        row[4] = f(1.0925484305920792) * x * y
        row[5] = f(-1.0925484305920792) * y * z
        row[6] = f(0.94617469575755997) * zz - f(0.31539156525251999)
        row[7] = f(-1.0925484305920792) * x * z
        row[8] = f(0.54627421529603959) * (xx - yy)
        row[9] = f(0.59004358992664352) * y * (yy - f(3) * xx)
        row[10] = f(2.8906114426405538) * x * y * z
        row[11] = f(0.45704579946446572) * y * (f(1) - f(5) * zz)
        row[12] = f(0.3731763325901154) * z * (f(5) * zz - f(3))
        row[13] = f(0.45704579946446572) * x * (f(1) - f(5) * zz)
        row[14] = f(1.4453057213202769) * z * (xx - yy)
        row[15] = f(0.59004358992664352) * x * (f(3) * yy - xx)
