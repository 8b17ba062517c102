"""The trainer's ops after compositing: ``nerfleet::ray_loss`` and ``nerfleet::composite_backward``."""

from __future__ import annotations

import torch

from nerfleet.kernels.composite import reference
from nerfleet.kernels.control.op import COUNT_NONFINITE, HYPER_MEAN_DENSITY, STATE_RAYS, STATE_STEP

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define(
    "ray_loss(Tensor rgb, Tensor transmittance, Tensor targets, Tensor backgrounds, Tensor starts, Tensor state, int loss, float loss_scale, "
    "Tensor(a!) gradient, Tensor(b!) final, Tensor(c!) loss_sum, Tensor(d!) counters) -> ()"
)
library.define(
    "composite_backward(Tensor ray_indices, Tensor rgb, Tensor raw, Tensor t, Tensor dt, Tensor weight, Tensor after, Tensor prefix, Tensor gradient, "
    "Tensor final, Tensor count, Tensor hyper, float near_distance, Tensor(a!) d_rgb, Tensor(b!) d_raw) -> ()"
)
library.define(
    "relaxed_backward(Tensor ray_indices, Tensor rgb, Tensor raw, Tensor t, Tensor dt, Tensor weight, Tensor after, Tensor prefix, Tensor targets, "
    "Tensor gradient, Tensor final, Tensor scale, Tensor state, int first_step, int loss, Tensor count, Tensor hyper, float near_distance, "
    "Tensor(a!) d_rgb, Tensor(b!) d_raw) -> ()"
)
MEAN_DENSITY_FLOOR = 0.01
"""While the mean of the occupancy grid is below this, negative raw densities are pushed up."""
PUSH = 1e-4
"""Size of the two regularisers' gradients, added after loss scaling."""
EMPTY_RAW = -10.0


@torch.library.impl(library, "ray_loss", "CPU")
def _ray_loss_cpu(rgb, transmittance, targets, backgrounds, starts, state, loss, loss_scale, gradient, final, loss_sum, counters):
    """Loss of each ray and its gradient with respect to the ray's colour.

    Args:
        rgb [N, 3], transmittance [N]: traced colour without background; transmittance 0 where the ray was cut, exactly 1 without samples.
        targets, backgrounds [N, 3]: sRGB.
        gradient [N, 3]: written: d loss/d colour * loss_scale / requested rays; 0 for rays without samples.
        final [N, 3]: written: colour with background.
        loss_sum [1]: sum over rays of the mean over channels is added.
    """
    n = int(state[STATE_RAYS])
    rows = slice(0, n)
    final[rows] = rgb[rows] + transmittance[rows, None] * backgrounds[rows]
    value, derivative = reference.loss_and_gradient(final[rows], targets[rows], loss)
    counted = ((starts[rows] >= 0) & (transmittance[rows] != 1))[:, None]  # a NaN counts, so that it is noticed
    gradient[rows] = torch.where(counted, derivative * (loss_scale / n), 0)
    value = torch.where(counted, value, 0)
    counters[COUNT_NONFINITE] += int((~torch.isfinite(value)).any())
    loss_sum += value.sum() / 3


@torch.library.impl(library, "ray_loss", "CUDA")
def _ray_loss_cuda(*arguments):
    from nerfleet.kernels.composite import cuda

    cuda.ray_loss(*arguments)


@torch.library.impl(library, "composite_backward", "CPU")
def _composite_backward_cpu(ray_indices, rgb, raw, t, dt, weight, after, prefix, gradient, final, count, hyper, near_distance, d_rgb, d_raw):
    """Gradients of the first ``count`` samples (arguments: :class:`nerfleet.train.buffers.SampleBatch`)."""
    n = min(int(count), len(raw))
    rays = ray_indices[:n].long()
    samples = (rgb[:n], raw[:n], dt[:n], weight[:n], after[:n], prefix[:n])
    d_rgb[:n], d_raw[:n] = reference.composite_backward(*samples, gradient[rays], final[rays])
    _push(raw[:n], t[:n], hyper, near_distance, d_raw[:n])


def _push(raw, t, hyper, near_distance, d_raw):
    """The two regularisers, added to d_raw [n]."""
    if float(hyper[HYPER_MEAN_DENSITY]) < MEAN_DENSITY_FLOOR:
        d_raw -= PUSH * (raw < 0)
    d_raw += PUSH * ((raw > EMPTY_RAW) & (t < near_distance))


@torch.library.impl(library, "composite_backward", "CUDA")
def _composite_backward_cuda(*arguments):
    from nerfleet.kernels.composite import cuda

    cuda.composite_backward(*arguments)


@torch.library.impl(library, "relaxed_backward", "CPU")
def _relaxed_backward_cpu(
    ray_indices, rgb, raw, t, dt, weight, after, prefix, targets, gradient, final, scale, state, first_step, loss, count, hyper, near_distance, d_rgb, d_raw
):  # fmt: skip
    """As composite_backward, with gradients that favour surfaces (reference.relaxed_backward) from a step on.

    Args:
        targets [N, 3]: pixels of the rays. scale [1]: what turns d loss/d colour into ``gradient``.
        state, first_step: up to and without this step the ordinary gradient is taken.
    """
    n = min(int(count), len(raw))
    rays = ray_indices[:n].long()
    samples = (rgb[:n], raw[:n], dt[:n], weight[:n], after[:n], prefix[:n])
    if int(state[STATE_STEP]) < first_step:
        d_rgb[:n], d_raw[:n] = reference.composite_backward(*samples, gradient[rays], final[rays])
    else:
        found = reference.relaxed_backward(*samples, targets[rays], final[rays], loss)
        d_rgb[:n], d_raw[:n] = found[0] * scale, found[1] * scale
    _push(raw[:n], t[:n], hyper, near_distance, d_raw[:n])


@torch.library.impl(library, "relaxed_backward", "CUDA")
def _relaxed_backward_cuda(*arguments):
    from nerfleet.kernels.composite import cuda

    cuda.relaxed_backward(*arguments)


@torch.library.register_fake("nerfleet::relaxed_backward")
def _relaxed_backward_fake(*_):
    return None


@torch.library.register_fake("nerfleet::ray_loss")
def _ray_loss_fake(*_):
    return None


@torch.library.register_fake("nerfleet::composite_backward")
def _composite_backward_fake(*_):
    return None
