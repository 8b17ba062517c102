"""Grid parallelism: the levels of the hash grid (or columns of them) live on different ranks, each of which encodes its own for everybody.

Positions are gathered, features and their gradients exchanged by all-to-all; gradients of the table never travel between
grid ranks. With several groups (hybrid) the slices of a level's optimiser state are shared out inside a data group.

Rounds of a trace are in step on all ranks of a group: buffers are padded to the longest rank's samples of the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from nerfleet.parallel.data_parallel import DataParallel
from nerfleet.parallel.mesh import DATA_AXIS, GRID_AXIS, Degrees, device_mesh
from nerfleet.parallel.ownership import Ownership, assign_levels, from_plain, to_plain
from nerfleet.parallel.sharding import Sharding

if TYPE_CHECKING:
    from nerfleet.kernels.field.spec import FieldSpec
    from nerfleet.nn.field import ParameterGroup
    from nerfleet.parallel.ranks import Ranks


class LevelExchange:
    """The hash grid of a group as one op, with the signature of ``nerfleet::hash_grid`` but for the table, which is the rank's own.

    All ranks of the group must call together.
    """

    def __init__(self, ownership: Ownership, rank: int, group: dist.ProcessGroup, ops: Any) -> None:
        self._ownership, self._group, self._ops = ownership, group, ops
        self._n_ranks = len(ownership.units)
        self._widths = [len(units) * ownership.width for units in ownership.units]
        self._own_width = self._widths[rank]
        scales, levels = ownership.arguments(rank)
        self._arguments = (ownership.width, scales, levels)
        self._columns = torch.tensor([column for r in range(self._n_ranks) for column in ownership.columns(r)])
        self._places = self._columns.argsort()

    def most(self, n: int) -> int:
        """The largest n of the group."""
        longest = torch.tensor([n])
        dist.all_reduce(longest, op=dist.ReduceOp.MAX, group=self._group)
        return int(longest)

    def forward(self, positions: Tensor, table: Tensor, interpolation: int) -> Tensor:
        """positions [n, 3] of this rank, n of its own -> features [n, n_output]."""
        capacity = self.most(len(positions))
        features = self._ops.hash_grid(self._gathered(positions, capacity), table, *self._arguments, interpolation)
        received = features.new_empty(capacity * sum(self._widths))
        sizes = [capacity * width for width in self._widths]
        dist.all_to_all_single(received, features.reshape(-1), sizes, [capacity * self._own_width] * self._n_ranks, group=self._group)
        blocks = [block.view(capacity, width) for block, width in zip(received.split(sizes), self._widths)]
        return torch.cat(blocks, dim=1)[: len(positions), self._places].contiguous()

    def backward(self, positions: Tensor, grad_features: Tensor, interpolation: int, grad_table: Tensor) -> None:
        """Adds the whole group's gradient of this rank's levels to ``grad_table``; positions, grad_features: this rank's samples."""
        capacity = self.most(len(positions))
        padded = grad_features.new_zeros(capacity, grad_features.shape[1])
        padded[: len(grad_features)] = grad_features
        by_owner = padded[:, self._columns].split(self._widths, dim=1)
        sent = torch.cat([block.reshape(-1) for block in by_owner])
        received = sent.new_empty(self._n_ranks * capacity * self._own_width)
        sizes = [capacity * width for width in self._widths]
        dist.all_to_all_single(received, sent, [capacity * self._own_width] * self._n_ranks, sizes, group=self._group)
        everyone = received.view(self._n_ranks * capacity, self._own_width)
        self._ops.hash_grid_backward(self._gathered(positions, capacity), everyone, *self._arguments, interpolation, grad_table, None, None)

    def _gathered(self, positions: Tensor, capacity: int) -> Tensor:
        padded = positions.new_zeros(capacity, 3)
        padded[: len(positions)] = positions
        parts = [torch.empty_like(padded) for _ in range(self._n_ranks)]
        dist.all_gather(parts, padded, group=self._group)
        return torch.cat(parts)


class GridOps:
    """``torch.ops.nerfleet``, with the ops of a training step that read the table going through a :class:`LevelExchange`."""

    def __init__(self, exchange: LevelExchange, parallel: GridParallel, ops: Any) -> None:
        self._exchange, self._parallel, self._ranks, self._ops = exchange, parallel, parallel.ranks, ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def trace(self, origins: Tensor, directions: Tensor, starts: Tensor, state: Tensor, *arguments: Any) -> None:
        from nerfleet.kernels.trace import cpu

        table, interpolation = arguments[4], arguments[9]
        self._parallel.settle()

        def encode(positions: Tensor) -> Tensor:
            return self._exchange.forward(positions, table, interpolation)

        with self._ranks.waiting():
            cpu.trace(origins, directions, starts, state, *arguments, encode=encode, most=self._exchange.most)

    def field_density(self, positions: Tensor, table: Tensor, mlp: Tensor, *arguments: Any) -> Tensor:
        from nerfleet.kernels.field import cpu

        self._parallel.settle()
        with self._ranks.waiting():
            features = self._exchange.forward(positions, table, arguments[3])
        return cpu.density_outputs(features, mlp, arguments[4])[:, 0].clone()

    def hash_grid_backward(
        self, positions: Tensor, grad_features: Tensor, n_features: int, scales: list[float], levels: list[int], interpolation: int,
        grad_table: Tensor, count: Tensor, order: Tensor,
    ) -> None:  # fmt: skip
        n = min(int(count), len(positions))
        with self._ranks.waiting():
            self._exchange.backward(positions[order[:n].long()], grad_features[:n], interpolation, grad_table)


class GridParallel(DataParallel):
    """Strategies "grid" (one group) and "hybrid" (several). Arguments as :class:`DataParallel`; shares are not measured."""

    def __init__(self, ranks: Ranks, degrees: Degrees, speeds: Sequence[float], pixel_shares: Sequence[float] | None) -> None:
        super().__init__(ranks, speeds, pixel_shares, measured=False)
        self.strategy = degrees.strategy
        self._degrees = degrees
        self._mesh = device_mesh(degrees, self.device.type)
        self.ownership: Ownership | None = None
        self._recalled: dict[str, Any] = {}

    def shard(self, table: Tensor, spec: FieldSpec, device: torch.device) -> tuple[ParameterGroup, ParameterGroup]:
        grid = self._degrees.grid
        speeds = [sum(self.shares[rank::grid]) for rank in range(grid)]
        self.ownership = self._remembered(spec) or assign_levels(spec.grid, grid, speeds)
        blocks = [self.ownership.blocks(rank) for rank in range(grid)]
        self._sharding = Sharding(self.rank, self._degrees.data, blocks, self._mesh.get_group(DATA_AXIS))
        return self._sharding.shard(table, device)

    def _remembered(self, spec: FieldSpec) -> Ownership | None:
        values = self._recalled.get("ownership")
        return from_plain(spec.grid, self._degrees.grid, values) if values else None

    def remember(self) -> dict[str, Any]:
        assert self.ownership is not None
        return {"ownership": to_plain(self.ownership)}

    def recall(self, values: dict[str, Any]) -> None:
        self._recalled = dict(values)

    def ops(self, ops: Any) -> Any:
        assert self.ownership is not None
        rank = self.rank % self._degrees.grid
        return GridOps(LevelExchange(self.ownership, rank, self._mesh.get_group(GRID_AXIS), ops), self, ops)

    def part(self, n: int) -> tuple[int, int]:
        """Equal parts, which may overlap: every rank of a group must come with the same number of pieces."""
        length = -(-n // self.world_size)
        begin = min(self.rank * length, n - length)
        return begin, begin + length
