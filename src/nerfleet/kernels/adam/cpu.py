"""Adam on the CPU: one pass over the parameters, parallel over blocks."""

from __future__ import annotations

import numba
import numpy as np

BLOCK = 1 << 14
MAX_STEPS = 32767


@numba.njit(parallel=True, cache=True, nogil=True, error_model="numpy")
def adam(master, ema, gradient, m, v, steps, corrections, ema_old, ema_new, beta1, beta2, epsilon, l2_reg, inverse_scale, skip_zero, skip_all):
    """All [n] float32 (steps int16); corrections [t]: step size after t updates. The gradient is cleared."""
    one = np.float32(1)
    n = master.shape[0]
    for block in numba.prange((n + BLOCK - 1) // BLOCK):
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
            g = gradient[i]
            if g != 0 or not skip_zero:
                gradient[i] = np.float32(0)
                if np.isfinite(g) and not skip_all:
                    g = g * inverse_scale + l2_reg * master[i]
                    t = min(steps[i] + 1, MAX_STEPS)
                    steps[i] = t
                    m[i] = beta1 * m[i] + (one - beta1) * g
                    v[i] = beta2 * v[i] + (one - beta2) * g * g
                    master[i] -= corrections[t] * m[i] / (np.sqrt(v[i]) + epsilon)
            ema[i] = ema[i] * ema_old + master[i] * ema_new
