"""Optimiser state by owner: the parameters of a grid rank's levels in equal slices, one for each data rank.

Gradients meet at the owner, weights come back from it. With plain data parallelism there is one grid rank, which has all
levels. A table travels in pieces, so that the gradients of finished levels are under way while others are computed, and every
rank owns an equal slice of each piece: whole sectors of SECTOR parameters (the fused optimiser reads them as vectors).
World rank = data rank * number of grid ranks + grid rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from nerfleet.nn.field import ParameterGroup, allocate

SECTOR = 32
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""Under their names since torch 2.13, else the older ones, which newer versions warn of."""


@dataclass(frozen=True)
class Block:
    """Parameters ``first`` to ``end`` of a whole table, of each ``row`` of them the ``width`` from ``column`` on."""

    first: int
    end: int
    row: int = 1
    column: int = 0
    width: int = 1

    def __len__(self) -> int:
        return (self.end - self.first) // self.row * self.width

    def of(self, whole: Tensor) -> Tensor:
        """[rows, width], no copy."""
        return whole[self.first : self.end].view(-1, self.row)[:, self.column : self.column + self.width]


@dataclass(frozen=True)
class Piece:
    """A range of a grid rank's parameters that travels on its own, padded: [begin, end) of the whole, [own_begin, own_end) of an owner's slice."""

    begin: int
    end: int
    own_begin: int
    own_end: int


class Sharding:
    """Which parameters are this rank's.

    Args:
        blocks: for each grid rank, its parameters in the whole table.
        n_data: data ranks. data_group: the ranks that own slices of the same levels; None: all.
        cuts: parameters of the whole table before which a new piece may begin, ascending; it begins a little behind, at a whole number of sectors a rank.
    """

    def __init__(self, rank: int, n_data: int, blocks: list[list[Block]], data_group: dist.ProcessGroup | None = None, cuts: Sequence[int] = ()) -> None:
        self.rank, self.n_data, self.n_grid, self.data_group = rank, n_data, len(blocks), data_group
        self._blocks = blocks
        self._lengths = [sum(len(block) for block in own) for own in blocks]
        self._data_rank, self._grid_rank = divmod(rank, self.n_grid)
        self._padded: dict[int, Tensor] = {}  # address of a whole tensor -> the same memory with its padding
        self._pieces = [self._cut(length, cuts) for length in self._lengths]

    def _cut(self, length: int, cuts: Sequence[int]) -> list[Piece]:
        unit = self.n_data * SECTOR
        edges = [0, *sorted({-(-cut // unit) * unit for cut in cuts if 0 < cut < length}), -(-length // unit) * unit]
        return [Piece(a, b, a // self.n_data, b // self.n_data) for a, b in pairwise(edges) if b > a]

    @property
    def alone(self) -> bool:
        """Whether the levels are split so that every one has a single owner and nothing of the table travels."""
        return self.n_grid > 1 and self.n_data == 1

    @property
    def pieces(self) -> list[Piece]:
        """Of this rank's levels, in order."""
        return self._pieces[self._grid_rank]

    def slice_length(self, grid_rank: int) -> int:
        return self._pieces[grid_rank][-1].own_end if self._pieces[grid_rank] else 0

    def pick(self, whole: Tensor) -> Tensor:
        """This rank's slice of a whole table, padded with zeros."""
        own = self._levels(whole)
        own = torch.cat([own, own.new_zeros(self.n_data * self.slice_length(self._grid_rank) - len(own))])
        parts = [own[piece.begin : piece.end].view(self.n_data, -1)[self._data_rank] for piece in self.pieces]
        return torch.cat(parts) if parts else own

    def assemble(self, slices: list[Tensor]) -> Tensor:
        """All ranks' slices (longer ones are cut) -> the whole table."""
        whole = slices[0].new_empty(sum(self._lengths))
        for grid_rank, blocks in enumerate(self._blocks):
            owners = slices[grid_rank :: self.n_grid]
            own = torch.cat([owner[piece.own_begin : piece.own_end] for piece in self._pieces[grid_rank] for owner in owners])
            begin = 0
            for block in blocks:
                block.of(whole).copy_(own[begin : begin + len(block)].view(-1, block.width))
                begin += len(block)
        return whole

    def shard(self, values: Tensor, device: torch.device) -> tuple[ParameterGroup, ParameterGroup]:
        """Initial values of the whole table -> (weights and gradient of this grid rank's levels; this rank's slice).

        They are one where no other rank has these levels.
        """
        n = self._lengths[self._grid_rank]
        mine = ParameterGroup.from_values(self.pick(values), device, is_table=True)
        if self.alone:
            return mine, mine
        weights, gradient = self._pad(mine.weights), self._pad(mine.gradient)
        weights[:n].copy_(self._levels(values))
        none = torch.empty(0, device=device)
        elements = n * len(mine.gradient) // len(mine.master)  # of the gradient: half as many where they are pairs
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
        return torch.cat([block.of(whole).reshape(-1) for block in self._blocks[self._grid_rank]])

    def _pad(self, like: Tensor) -> Tensor:
        out = allocate(self.n_data * len(like), like.dtype, like.device)
        self._padded[out.data_ptr()] = out
        return out
