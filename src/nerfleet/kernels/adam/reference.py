"""Adam with skipped zero gradients, per-parameter step counts and an averaged copy, in plain torch.

Kingma & Ba 2015, algorithm 1, with the bias corrections folded into the step size; epsilon is not scaled.
"""

from __future__ import annotations

import torch
from torch import Tensor


def adam(
    master: Tensor, ema: Tensor, gradient: Tensor, first_moment: Tensor, second_moment: Tensor, steps: Tensor,
    learning_rate: float, ema_old: float, ema_new: float, beta1: float, beta2: float, epsilon: float, l2_reg: float, skip_zero: bool,
) -> None:  # fmt: skip
    """One update in place; all [n], ``gradient`` already divided by the loss scale.

    A parameter whose gradient is exactly zero (``skip_zero``) or not finite keeps its value, moments and step count;
    the average moves all the same: ema = ema * ema_old + master * ema_new.
    """
    active = torch.isfinite(gradient)
    if skip_zero:
        active &= gradient != 0
    g = torch.where(active, gradient + l2_reg * master, 0)
    steps += active.to(steps.dtype)
    t = steps.to(master.dtype)
    m = beta1 * first_moment + (1 - beta1) * g
    v = beta2 * second_moment + (1 - beta2) * g * g
    size = learning_rate * torch.sqrt(1 - beta2**t) / (1 - beta1**t)
    first_moment.copy_(torch.where(active, m, first_moment))
    second_moment.copy_(torch.where(active, v, second_moment))
    master.copy_(torch.where(active, master - size * m / (v.sqrt() + epsilon), master))
    ema.copy_(ema * ema_old + master * ema_new)
