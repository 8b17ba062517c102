"""``nerfleet::sample_order``: in which sequence the gradients are summed, so that the same seed gives the same bits."""

from __future__ import annotations

import torch

from nerfleet.kernels.control.op import COUNT_KEPT, COUNT_ORDERED, STATE_RAYS

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define("sample_order(Tensor ray_indices, Tensor ranks, Tensor kept, Tensor state, Tensor(a!) counters, Tensor(b!) order) -> ()")


@torch.library.impl(library, "sample_order", "CPU")
def _sample_order_cpu(ray_indices, ranks, kept, state, counters, order):
    """Ray after ray, and in order along each.

    Args:
        ray_indices, ranks [S] int32: of the stored samples, as nerfleet::trace left them. kept [N] int32: samples of each ray.
        state: rays 0 .. state[STATE_RAYS] are of this step.
        counters: COUNT_KEPT is read; COUNT_ORDERED, the length of the sequence, is written: all that are kept, or 0 if those
            are more than S (on CUDA it is chance which of them found a slot: the step goes without a gradient).
        order [S] int32: written: slot of the i-th sample of the sequence.
    """
    n = int(counters[COUNT_KEPT])
    n = counters[COUNT_ORDERED] = n if n <= len(order) else 0
    own = kept[: int(state[STATE_RAYS])].long()
    offsets = torch.cumsum(own, 0) - own
    order[offsets[ray_indices[:n].long()] + ranks[:n]] = torch.arange(n, dtype=torch.int32)


@torch.library.impl(library, "sample_order", "CUDA")
def _sample_order_cuda(*arguments):
    from nerfleet.kernels.order import cuda

    cuda.sample_order(*arguments)


@torch.library.register_fake("nerfleet::sample_order")
def _sample_order_fake(*_):
    return None
