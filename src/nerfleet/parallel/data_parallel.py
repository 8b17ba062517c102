"""Data parallelism: every rank has the whole field, rays are shared out, the optimiser's state is sharded by owner.

A step's rays are one global number, held by every rank alike. With replicated views a rank draws a range of the global ray
indices, so that any number of ranks draws the same batch (CPU). With split views it draws from its own pixels, and the mean
over its rays counts as much as its share of all pixels: every pixel stays equally likely, whatever the speeds.

Communication runs beside the computation (on CUDA on NCCL's own stream, inside the captured graph as outside of it): the
networks' gradient is under way while the table's is computed, the table's in pieces as their levels are done; new weights
leave piece by piece behind the optimiser, and only the next op that reads the table waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from nerfleet.kernels.control.op import N_RANK_STATE, STATE_ALL_RAYS, STATE_FIRST_RAY, STATE_RAYS, STATE_STEP
from nerfleet.parallel.ownership import everything, level_groups
from nerfleet.parallel.sharding import Sharding
from nerfleet.parallel.shares import MAX_OVERLOAD, edges, limited, rebalanced
from nerfleet.parallel.traffic import OverlappedOps, Traffic, send_weights

if TYPE_CHECKING:
    from nerfleet.kernels.field.spec import FieldSpec
    from nerfleet.nn.field import ParameterGroup
    from nerfleet.parallel.ranks import Ranks
    from nerfleet.train.buffers import Control

AGREE_EVERY = 8
"""Steps between two looks at what the ranks wish for."""
MEASURE_EVERY = {"cpu": 16, "cuda": 256}
"""Steps between two timed ones (on CUDA these run outside of the graph)."""
FIRST_MEASURED = 3
"""The steps before still compile and allocate."""
SEED_STRIDE = 0x9E3779B97F4A7C15
"""Odd, so that neighbouring seeds of a user and ranks of a run do not meet soon."""


class DataParallel:
    """See :class:`nerfleet.train.step.Parallel`.

    Args:
        speeds: share of each rank's rays, summing to 1.
        pixel_shares: share of all pixels that each rank holds (split views); None: every rank holds all (replicated).
        measured: correct the shares by measured throughput.
    """

    strategy = "data"

    def __init__(self, ranks: Ranks, speeds: Sequence[float], pixel_shares: Sequence[float] | None, measured: bool) -> None:
        self.ranks, self.rank, self.world_size, self.device = ranks, ranks.rank, ranks.world_size, ranks.device
        ranks.heartbeat.rest()
        self.shares = list(speeds)
        self._pixel_share = pixel_shares[self.rank] if pixel_shares is not None else None
        self._measured = measured and self.world_size > 1
        most = max(MAX_OVERLOAD / self.world_size if self._measured else 0.0, self.shares[self.rank])
        self.max_share = min(most, 1.0)
        self._edges = torch.tensor(edges(self.shares), dtype=torch.float64, device=self.device)
        self._sharding = Sharding(self.rank, self.world_size, everything(0))
        self._groups: list[range] = []
        self._held_back = False  # this step is timed: nothing is sent before its rays are done
        self._traffic: Traffic | None = None  # known after the first reduction

    @property
    def same_batch(self) -> bool:
        """Whether any number of ranks draws the same batch."""
        return self._pixel_share is None and self.device.type == "cpu"

    def seed(self, seed: int) -> int:
        if self.same_batch:
            return seed
        return (seed + self.rank * SEED_STRIDE) & ((1 << 63) - 1)

    def rank_state(self, state: Tensor) -> Tensor:
        return torch.zeros(N_RANK_STATE if self.same_batch else len(state), dtype=state.dtype, device=state.device)

    def divide(self, state: Tensor, rank_state: Tensor) -> None:
        bounds = (state[STATE_RAYS] * self._edges[self.rank : self.rank + 2]).round().long()
        rank_state[STATE_STEP] = state[STATE_STEP]
        rank_state[STATE_RAYS] = (bounds[1] - bounds[0]).clamp(min=1)
        if len(rank_state) == N_RANK_STATE:
            rank_state[STATE_FIRST_RAY] = bounds[0]
            rank_state[STATE_ALL_RAYS] = state[STATE_RAYS]

    def weigh(self, gradient: Tensor, loss_sum: Tensor, state: Tensor, rank_state: Tensor) -> None:
        part = rank_state[STATE_RAYS].double() / state[STATE_RAYS]
        if self._pixel_share is None:
            gradient.mul_(part.float())
        else:
            gradient.mul_(self._pixel_share)
            loss_sum.mul_((self._pixel_share / part).float())

    def ops(self, ops: Any) -> Any:
        return OverlappedOps(self, ops)

    def shard(self, table: Tensor, spec: FieldSpec, device: torch.device) -> tuple[ParameterGroup, ParameterGroup]:
        self._groups = level_groups(spec.grid)
        cuts = sorted(spec.grid.level_offsets[group.start] for group in self._groups)
        self._sharding = Sharding(self.rank, self.world_size, everything(len(table)), cuts=cuts)
        return self._sharding.shard(table, device)

    def early(self) -> tuple[Traffic | None, list[range]]:
        """What sends gradients while others are computed (None: not in this step), and the groups of levels to compute one after the other."""
        return (None if self._held_back else self._traffic), self._groups

    def reduce(self, replicated: ParameterGroup, whole: ParameterGroup, owned: ParameterGroup, control: Control) -> None:
        if self._traffic is None:
            self._traffic = Traffic(self._sharding, replicated, whole, owned, control)
        self._held_back = False
        with self.ranks.waiting():
            self._traffic.finish_gradients()

    def publish(self, whole: ParameterGroup, owned: ParameterGroup) -> None:
        if self._traffic is None:  # right after a checkpoint was read
            with self.ranks.waiting():
                send_weights(self._sharding, whole, owned)
        else:
            self._traffic.send_weights()

    def settle(self) -> None:
        if self._traffic is not None:
            with self.ranks.waiting():
                self._traffic.finish_weights()

    def whole(self, part: Tensor, n: int) -> Tensor:
        with self.ranks.waiting():
            return self._sharding.gather(part)[:n]

    def part(self, n: int) -> tuple[int, int]:
        bounds = edges(self.shares)
        return round(bounds[self.rank] * n), round(bounds[self.rank + 1] * n)

    def maximum(self, values: Tensor) -> None:
        with self.ranks.waiting():
            dist.all_reduce(values, op=dist.ReduceOp.MAX)

    def wants_time(self, step: int) -> bool:
        self._held_back = self._measured and step % MEASURE_EVERY[self.device.type] == FIRST_MEASURED
        return self._held_back

    def balance(self, rank_state: Tensor, seconds: float) -> None:
        speeds = self.exchange(int(rank_state[STATE_RAYS]) / max(seconds, 1e-9))
        self.shares = rebalanced(self.shares, speeds)
        self._edges.copy_(torch.tensor(edges(self.shares), dtype=torch.float64))

    def remember(self) -> dict[str, Any]:
        return {"shares": self.shares} if self._measured else {}

    def recall(self, values: dict[str, Any]) -> None:
        known = [float(share) for share in values.get("shares", [])]
        if self._measured and len(known) == self.world_size:
            self.shares = limited(known)
            self._edges.copy_(torch.tensor(edges(self.shares), dtype=torch.float64))

    def agree(self, step: int, wishes: int) -> int:
        self.ranks.heartbeat.at(step)
        if step % AGREE_EVERY:
            return 0
        together = torch.tensor([wishes >> bit & 1 for bit in range(8)], dtype=torch.int32)
        with self.ranks.waiting():
            dist.all_reduce(together, op=dist.ReduceOp.MAX)
        return sum(int(on) << bit for bit, on in enumerate(together))

    def alive(self, doing: str) -> None:
        self.ranks.heartbeat.alive(doing)

    def finished(self) -> None:
        self.settle()
        self.exchange(None)
        self.ranks.heartbeat.close()

    def exchange(self, value: Any) -> list[Any]:
        return self.ranks.exchange(value)

    def collect(self, tensors: dict[str, Tensor], sharded: dict[str, int]) -> dict[str, Tensor] | None:
        with self.ranks.waiting():
            return self._sharding.collect(tensors, sharded)

    def spread(self, tensors: dict[str, Tensor], sharded: dict[str, int], load: Callable[[dict[str, Tensor]], None]) -> None:
        whole: dict[str, Tensor] = {}

        def read() -> None:
            if self.rank == 0:
                whole.update({name: torch.empty(sharded.get(name, len(t)), dtype=t.dtype) for name, t in tensors.items()})
                load(whole)

        self.ranks.together(read)
        with self.ranks.waiting():
            self._sharding.spread(whole, tensors, sharded)
