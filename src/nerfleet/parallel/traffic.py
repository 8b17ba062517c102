"""Gradients to their owners and weights back, in pieces and beside the computation.

All collectives are asynchronous: on gloo its threads carry them out, on NCCL its stream, which the current stream waits for
only where the result is used. That holds inside a captured graph too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from nerfleet.kernels.control.op import N_COUNTERS
from nerfleet.kernels.hash_grid.spec import LEVEL_INTS
from nerfleet.parallel.sharding import Piece, Sharding, all_gather, reduce_scatter

if TYPE_CHECKING:
    from nerfleet.nn.field import ParameterGroup
    from nerfleet.parallel.data_parallel import DataParallel
    from nerfleet.train.buffers import Control

N_STATE_TENSORS = 7
"""Of the arguments of ``nerfleet::adam``, the first so many are a group's own tensors."""


class Traffic:
    """What is under way between the ranks of one training.

    Args:
        replicated: the networks, which all ranks update alike. whole, owned: as :meth:`Sharding.shard` returns them.
    """

    def __init__(self, sharding: Sharding, replicated: ParameterGroup, whole: ParameterGroup, owned: ParameterGroup, control: Control) -> None:
        self.sharding, self.replicated, self.whole, self.owned, self._control = sharding, replicated, whole, owned, control
        n = len(replicated.gradient)
        self._sums = torch.zeros(n + N_COUNTERS + 1, dtype=torch.float64, device=replicated.gradient.device)  # exact for counters as well
        self._summing: dist.Work | None = None
        self._gradients: dict[Piece, dist.Work] = {}
        self._weights: dict[Piece, dist.Work] = {}

    def send_networks(self) -> None:
        """The networks' gradient, counters and loss are complete on this rank."""
        n = len(self.replicated.gradient)
        self._sums[:n].copy_(self.replicated.gradient)
        self._sums[n:-1].copy_(self._control.counters)
        self._sums[-1:].copy_(self._control.loss_sum)
        self._summing = dist.all_reduce(self._sums, async_op=True)

    def send_gradients(self, first: int) -> None:
        """Parameters from ``first`` on of the table's gradient are complete on this rank."""
        if self.sharding.alone:
            return
        for piece in self.sharding.pieces[::-1]:
            if piece.begin >= first and piece not in self._gradients:
                own = part(self.owned.gradient, self.owned.master, piece.own_begin, piece.own_end)
                self._gradients[piece] = reduce_scatter(own, self._gradient(piece), group=self.sharding.data_group, async_op=True)

    def _gradient(self, piece: Piece) -> Tensor:
        """Of this rank's samples."""
        return part(self.sharding.padded(self.whole.gradient), self.sharding.padded(self.whole.weights), piece.begin, piece.end)

    def finish_gradients(self) -> None:
        """Sums of all ranks where they belong; what has not been sent yet is."""
        if self._summing is None:
            self.send_networks()
        self.send_gradients(0)
        assert self._summing is not None
        self._summing.wait()
        n = len(self.replicated.gradient)
        self.replicated.gradient.copy_(self._sums[:n])
        self._control.counters.copy_(self._sums[n:-1])
        self._control.loss_sum.copy_(self._sums[-1:])
        for piece, work in self._gradients.items():
            work.wait()
            self._gradient(piece).zero_()
        self._summing, self._gradients = None, {}

    def send_weights(self, up_to: int | None = None) -> None:
        """New weights of this rank's slice, its parameters up to ``up_to`` (None: all), are there."""
        if self.sharding.alone:
            return
        for piece in self.sharding.pieces:
            if (up_to is None or piece.own_end <= up_to) and piece not in self._weights:
                self._weights[piece] = _gather(self.sharding, piece, self.whole, self.owned)

    def finish_weights(self) -> None:
        """Before the table is read."""
        for work in self._weights.values():
            work.wait()
        self._weights = {}


def part(tensor: Tensor, parameters: Tensor, begin: int, end: int) -> Tensor:
    """What ``tensor`` holds of some ``parameters``: half as many elements where it has pairs (a table's gradient on CUDA)."""
    return tensor[begin * len(tensor) // len(parameters) : end * len(tensor) // len(parameters)]


def send_weights(sharding: Sharding, whole: ParameterGroup, owned: ParameterGroup) -> None:
    """All weights to all ranks, waited for."""
    if not sharding.alone:
        for work in [_gather(sharding, piece, whole, owned) for piece in sharding.pieces]:
            work.wait()


def _gather(sharding: Sharding, piece: Piece, whole: ParameterGroup, owned: ParameterGroup) -> dist.Work:
    target = sharding.padded(whole.weights)[piece.begin : piece.end]
    work: dist.Work = all_gather(target, owned.weights[piece.own_begin : piece.own_end], group=sharding.data_group, async_op=True)
    return work


class OverlappedOps:
    """``torch.ops.nerfleet``, with gradients and weights of a :class:`DataParallel` under way between them."""

    def __init__(self, parallel: DataParallel, ops: Any) -> None:
        self._parallel, self._ops = parallel, ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def trace(self, *arguments: Any) -> None:
        self._parallel.settle()
        self._ops.trace(*arguments)

    def field_density(self, *arguments: Any) -> Tensor:
        self._parallel.settle()
        found: Tensor = self._ops.field_density(*arguments)
        return found

    def hash_grid_backward(
        self, positions: Tensor, grad_features: Tensor, n_features: int, scales: list[float], levels: list[int], interpolation: int,
        grad_table: Tensor, count: Tensor, order: Tensor,
    ) -> None:  # fmt: skip
        traffic, groups = self._parallel.early()
        if traffic is None:
            self._ops.hash_grid_backward(positions, grad_features, n_features, scales, levels, interpolation, grad_table, count, order)
            return
        traffic.send_networks()
        for group in groups:
            columns = grad_features[:, group.start * n_features : group.stop * n_features]
            layout = levels[LEVEL_INTS * group.start : LEVEL_INTS * group.stop]
            self._ops.hash_grid_backward(positions, columns, n_features, scales[group.start : group.stop], layout, interpolation, grad_table, count, order)
            traffic.send_gradients(layout[2] * n_features)

    def adam(self, *arguments: Any) -> None:
        traffic, _ = self._parallel.early()
        if traffic is None or arguments[0] is not traffic.owned.master:
            self._ops.adam(*arguments)
            return
        tensors, constants = arguments[:N_STATE_TENSORS], arguments[N_STATE_TENSORS:]
        for piece in traffic.sharding.pieces:
            self._ops.adam(*(part(tensor, tensors[0], piece.own_begin, piece.own_end) for tensor in tensors), *constants)
            traffic.send_weights(piece.own_end)
