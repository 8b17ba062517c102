"""``nerfleet::adam``: master weights, moments, working copy, average and the clearing of the gradient in one pass."""

from __future__ import annotations

import functools

import numpy as np
import torch

from nerfleet.kernels.control.op import COUNT_NONFINITE, HYPER_EMA_NEW, HYPER_EMA_OLD, HYPER_LEARNING_RATE

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define(
    "adam(Tensor(a!) master, Tensor(b!) weights, Tensor(c!) ema, Tensor(d!) gradient, Tensor(e!) first_moment, Tensor(f!) second_moment, Tensor(g!) steps, "
    "Tensor hyper, Tensor counters, float beta1, float beta2, float epsilon, float l2_reg, float loss_scale, bool skip_zero) -> ()"
)
N_CORRECTIONS = 1 << 15
"""More than any step count: they are int16 and saturate."""


@functools.cache
def bias_corrections(beta1: float, beta2: float) -> np.ndarray:
    """[N_CORRECTIONS] float32: sqrt(1 - beta2^t) / (1 - beta1^t); entry 0 is unused."""
    t = np.arange(N_CORRECTIONS, dtype=np.float64)
    t[0] = 1
    return (np.sqrt(1 - beta2**t) / (1 - beta1**t)).astype(np.float32)


@torch.library.impl(library, "adam", "CPU")
def _adam_cpu(master, weights, ema, gradient, first_moment, second_moment, steps, hyper, counters, beta1, beta2, epsilon, l2_reg, loss_scale, skip_zero):
    """One update in place (kernels/adam/reference.py).

    Args:
        master [n] float32; weights [n]: the copy that the field reads (CUDA float16; on the CPU the same tensor as master).
        ema [n]: average of the weights, float16 on CUDA, float32 on the CPU.
        gradient [n] float32, on CUDA also [n / 2] int64, pairs in fixed point (hash_grid/fixed_point.py): scaled by loss_scale; set to zero.
        first_moment, second_moment [n] float32; steps [n] int16, saturating.
        hyper: learning rate and EMA factors. counters: with COUNT_NONFINITE > 0 the step is skipped (gradient cleared, average moved).
        skip_zero: leave parameters alone whose gradient is exactly zero (grids).
    """
    from nerfleet.kernels.adam import cpu

    f32 = np.float32
    rate, ema_old, ema_new = (f32(hyper[i]) for i in (HYPER_LEARNING_RATE, HYPER_EMA_OLD, HYPER_EMA_NEW))
    corrections = bias_corrections(beta1, beta2) * rate
    arrays = [x.numpy() for x in (master, ema, gradient, first_moment, second_moment, steps)]
    constants = (ema_old, ema_new, f32(beta1), f32(beta2), f32(epsilon), f32(l2_reg), f32(1 / loss_scale))
    cpu.adam(*arrays, corrections, *constants, skip_zero, int(counters[COUNT_NONFINITE]) > 0)
    if weights.data_ptr() != master.data_ptr():
        weights.copy_(master)


@torch.library.impl(library, "adam", "CUDA")
def _adam_cuda(*arguments):
    from nerfleet.kernels.adam import cuda

    cuda.adam(*arguments)


@torch.library.register_fake("nerfleet::adam")
def _adam_fake(*_):
    return None
