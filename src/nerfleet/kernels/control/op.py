"""The step's own state on the device; ``nerfleet::begin`` and ``nerfleet::advance`` move it on: no host read, no host write.

``state`` int64 [4]: see STATE_*; ``counters`` int32 [8]: see COUNT_*, cleared by ``advance``;
``hyper`` float32 [4]: see HYPER_*; ``stats`` float32 [RING, 8]: one row a step, see STAT_*.
"""

from __future__ import annotations

import torch

STATE_STEP, STATE_RAYS, STATE_SKIPPED, STATE_SKIPPED_IN_A_ROW = range(4)
"""Step now running; rays it asks for; non-finite steps so far; of these the last ones in a row."""
N_STATE = 4
STATE_FIRST_RAY, STATE_ALL_RAYS = 4, 5
"""Only in the state of a rank that draws rays FIRST_RAY .. FIRST_RAY + RAYS of the ALL_RAYS that all ranks draw together."""
N_RANK_STATE = 6
COUNT_KEPT, COUNT_EVALUATED, COUNT_HIT, COUNT_NONFINITE, COUNT_QUEUE, COUNT_QUEUED, COUNT_ORDERED = range(7)
"""Samples with a gradient (not capped by the buffers); samples evaluated; rays with samples; non-finite values seen; next ray of the queue; rays in it;
samples whose gradient is summed (order/op.py)."""
N_COUNTERS = 8
HYPER_LEARNING_RATE, HYPER_EMA_OLD, HYPER_EMA_NEW, HYPER_MEAN_DENSITY = range(4)
N_HYPER = 4
STAT_STEP, STAT_RAYS, STAT_KEPT, STAT_EVALUATED, STAT_HIT, STAT_LOSS, STAT_SKIPPED, STAT_LEARNING_RATE = range(8)
N_STATS = 8
RING = 256
"""Rows of ``stats``; step s is written to row s modulo RING."""

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define(
    "advance(Tensor(a!) state, Tensor(b!) counters, Tensor hyper, Tensor(c!) loss_sum, Tensor(d!) stats, int target_samples, int max_rays) -> ()"
)
library.define(
    "begin(Tensor state, Tensor(a!) hyper, float step_ratio, float learning_rate, int decay_start, int decay_interval, float decay_base, "
    "float ema_decay) -> ()"
)
RAY_MULTIPLE = 16
"""Ray counts are rounded up to this (instant-ngp: 256, too coarse for small batches)."""


@torch.library.impl(library, "begin", "CPU")
def _begin_cpu(state, hyper, step_ratio, learning_rate, decay_start, decay_interval, decay_base, ema_decay):
    """Sets ``hyper`` for the step in ``state``: learning rate and the factors of the debiased EMA.

    e_t = e_(t-1) * d (1 - d^(t-1)) / (1 - d^t) + w_t * (1 - d) / (1 - d^t), t counted from 1.
    """
    step = int(state[STATE_STEP])
    reference_step = step * step_ratio
    decays = 0 if reference_step < decay_start else 1 + int((reference_step - decay_start) // decay_interval)
    bias = 1 - ema_decay ** (step + 1)
    hyper[HYPER_LEARNING_RATE] = learning_rate * decay_base**decays
    hyper[HYPER_EMA_OLD] = ema_decay * (1 - ema_decay**step) / bias
    hyper[HYPER_EMA_NEW] = (1 - ema_decay) / bias


@torch.library.impl(library, "begin", "CUDA")
def _begin_cuda(*arguments):
    from nerfleet.kernels.control import cuda

    cuda.begin(*arguments)


@torch.library.impl(library, "advance", "CPU")
def _advance_cpu(state, counters, hyper, loss_sum, stats, target_samples, max_rays):
    """Ends a step: writes its row of ``stats``, chooses the next ray count, clears the counters, step += 1.

    next rays = trunc(rays * target / kept), up to a multiple of RAY_MULTIPLE, at most max_rays.
    """
    step, rays = int(state[STATE_STEP]), int(state[STATE_RAYS])
    kept, evaluated, hit, nonfinite = (int(c) for c in counters[:4])
    row = torch.tensor([step, rays, kept, evaluated, hit, float(loss_sum) / rays, float(nonfinite > 0), float(hyper[HYPER_LEARNING_RATE])])
    stats[step % RING] = row
    following = rays * target_samples // max(kept, 1)
    state[STATE_RAYS] = min(-(-max(following, 1) // RAY_MULTIPLE) * RAY_MULTIPLE, max_rays)
    state[STATE_SKIPPED] += nonfinite > 0
    state[STATE_SKIPPED_IN_A_ROW] = state[STATE_SKIPPED_IN_A_ROW] + 1 if nonfinite > 0 else 0
    state[STATE_STEP] += 1
    counters.zero_()
    loss_sum.zero_()


@torch.library.impl(library, "advance", "CUDA")
def _advance_cuda(*arguments):
    from nerfleet.kernels.control import cuda

    cuda.advance(*arguments)


@torch.library.register_fake("nerfleet::begin")
def _begin_fake(*_):
    return None


@torch.library.register_fake("nerfleet::advance")
def _advance_fake(*_):
    return None
