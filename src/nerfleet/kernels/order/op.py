"""``nerfleet::sample_order``: in which sequence the gradients are summed, so that the same seed gives the same bits."""

from __future__ import annotations

import torch

from nerfleet.kernels.control.op import STATE_RAYS

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define("sample_order(Tensor ray_indices, Tensor ranks, Tensor kept, Tensor state, Tensor count, Tensor(a!) order) -> ()")


@torch.library.impl(library, "sample_order", "CPU")
def _sample_order_cpu(ray_indices, ranks, kept, state, count, order):
    """Ray after ray, and in order along each.

    Args:
        ray_indices, ranks [S] int32: of the stored samples, as nerfleet::trace left them. kept [N] int32: samples of each ray.
        state: rays 0 .. state[STATE_RAYS] are of this step. count [1] int32: kept samples, which may be more than S.
        order [S] int32: written: slot of the i-th sample of the sequence, for the first min(count, S). If there are more
            samples than slots it is any sequence of those that are stored.
    """
    n, capacity = int(count), len(order)
    slots = torch.arange(min(n, capacity), dtype=torch.int32)
    if n > capacity:
        order.copy_(slots)
        return
    own = kept[: int(state[STATE_RAYS])].long()
    offsets = torch.cumsum(own, 0) - own
    order[offsets[ray_indices[:n].long()] + ranks[:n]] = slots


@torch.library.impl(library, "sample_order", "CUDA")
def _sample_order_cuda(*arguments):
    from nerfleet.kernels.order import cuda

    cuda.sample_order(*arguments)


@torch.library.register_fake("nerfleet::sample_order")
def _sample_order_fake(*_):
    return None
