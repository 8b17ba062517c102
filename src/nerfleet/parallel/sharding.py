"""Optimiser state by owner: the parameters of a grid rank's levels in equal slices, one for each data rank.

Gradients meet at the owner, weights come back from it. With plain data parallelism there is one grid rank, which has all
levels. Slices are whole sectors of SECTOR parameters (the fused optimiser reads them as vectors); the last one is padded.
World rank = data rank * number of grid ranks + grid rank.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from nerfleet.nn.field import ParameterGroup, allocate

SECTOR = 32
Ranges = list[tuple[int, int]]
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""Under their names since torch 2.13, else the older ones, which newer versions warn of."""


class Sharding:
    """Which parameters are this rank's.

    Args:
        ranges: for each grid rank, its parameters in the whole table as (first, end).
        n_data: data ranks. data_group: the ranks that own slices of the same levels; None: all.
    """

    def __init__(self, rank: int, n_data: int, ranges: list[Ranges], data_group: dist.ProcessGroup | None = None) -> None:
        self.rank, self.n_data, self.n_grid, self.data_group = rank, n_data, len(ranges), data_group
        self._ranges = ranges
        self._lengths = [sum(end - first for first, end in own) for own in ranges]
        self._data_rank, self._grid_rank = divmod(rank, self.n_grid)
        self._padded: dict[int, Tensor] = {}  # address of a whole tensor -> the same memory with its padding

    def slice_length(self, grid_rank: int) -> int:
        return -(-self._lengths[grid_rank] // (self.n_data * SECTOR)) * SECTOR

    def pick(self, whole: Tensor) -> Tensor:
        """This rank's slice of a whole table, padded with zeros."""
        length = self.slice_length(self._grid_rank)
        own = self._levels(whole)[self._data_rank * length : (self._data_rank + 1) * length]
        return torch.cat([own, own.new_zeros(length - len(own))])

    def assemble(self, slices: list[Tensor]) -> Tensor:
        """All ranks' slices (longer ones are cut) -> the whole table."""
        whole = slices[0].new_empty(sum(self._lengths))
        for grid_rank, ranges in enumerate(self._ranges):
            length = self.slice_length(grid_rank)
            own = torch.cat([part[:length] for part in slices[grid_rank :: self.n_grid]])
            begin = 0
            for first, end in ranges:
                whole[first:end] = own[begin : begin + end - first]
                begin += end - first
        return whole

    def shard(self, values: Tensor, device: torch.device) -> tuple[ParameterGroup, ParameterGroup]:
        """Initial values of the whole table -> (weights and gradient of this grid rank's levels; this rank's slice)."""
        n, length = self._lengths[self._grid_rank], self.slice_length(self._grid_rank)
        mine = ParameterGroup.from_values(self.pick(values), device, is_table=True)
        weights, gradient = self._pad(mine.weights), self._pad(mine.gradient)
        weights[:n].copy_(self._levels(values))
        own_weights = weights[self._data_rank * length : (self._data_rank + 1) * length]
        mine.master = own_weights if mine.weights is mine.master else mine.master
        mine.weights = own_weights
        none = torch.empty(0, device=device)
        elements = n * len(mine.gradient) // length  # of the gradient: half as many where they are pairs
        return ParameterGroup(none, weights[:n], none, gradient[:elements], none, none, none), mine

    def padded(self, whole: Tensor) -> Tensor:
        """Weights or gradient of :meth:`shard` with the padding: [n_data * slice]."""
        return self._padded[whole.data_ptr()]

    def gather(self, part: Tensor) -> Tensor:
        """Every rank's slice -> the whole table, on every rank."""
        longest = max(self.slice_length(grid_rank) for grid_rank in range(self.n_grid))
        n_ranks = self.n_data * self.n_grid
        found = torch.empty(n_ranks * longest, dtype=part.dtype, device=part.device)
        all_gather(found, torch.cat([part, part.new_zeros(longest - len(part))]))
        return self.assemble(list(found.chunk(n_ranks)))

    def collect(self, tensors: dict[str, Tensor], sharded: dict[str, int]) -> dict[str, Tensor] | None:
        """Whole tensors on rank 0 (CPU copies), None elsewhere."""
        longest = max(self.slice_length(grid_rank) for grid_rank in range(self.n_grid))
        whole = {}
        for name, tensor in tensors.items():
            if name not in sharded:
                whole[name] = tensor.cpu()
                continue
            padded = torch.cat([tensor, tensor.new_zeros(longest - len(tensor))])
            bytes_ = padded.view(torch.uint8)  # not every backend knows every type
            parts = [torch.empty_like(bytes_) for _ in range(self.n_data * self.n_grid)] if self.rank == 0 else None
            dist.gather(bytes_, parts, dst=0)
            if parts is not None:
                whole[name] = self.assemble([part.cpu().view(tensor.dtype) for part in parts])
        return whole if self.rank == 0 else None

    def spread(self, whole: dict[str, Tensor], tensors: dict[str, Tensor], sharded: dict[str, int]) -> None:
        """Rank 0's whole tensors -> every rank's own."""
        for name, tensor in tensors.items():
            n = sharded.get(name, len(tensor))
            values = whole[name].to(tensor.device) if self.rank == 0 else torch.empty(n, dtype=tensor.dtype, device=tensor.device)
            dist.broadcast(values.view(torch.uint8), src=0)
            tensor.copy_(self.pick(values) if name in sharded else values)

    def _levels(self, whole: Tensor) -> Tensor:
        return torch.cat([whole[first:end] for first, end in self._ranges[self._grid_rank]])

    def _pad(self, like: Tensor) -> Tensor:
        out = allocate(self.n_data * len(like), like.dtype, like.device)
        self._padded[out.data_ptr()] = out
        return out
