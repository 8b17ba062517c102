"""What a run asks of the other ranks: the interface that the strategies of ``nerfleet.parallel`` implement, and the answers of one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.nn.field import ParameterGroup
from nerfleet.train.buffers import Control


class Parallel(Protocol):
    """What a run asks of the other ranks; a run on one device is handed :class:`SingleDevice`.

    Attributes:
        max_share: largest share of a step's rays that this rank can be asked for: sizes its buffers.
    """

    rank: int
    world_size: int
    strategy: str
    max_share: float

    def seed(self, seed: int) -> int:
        """Seed of this rank's rays."""

    def rank_state(self, state: Tensor) -> Tensor:
        """Room for this rank's own version of ``state`` (STATE_STEP, STATE_RAYS and, if it has more than N_STATE entries, the range of its rays)."""

    def divide(self, state: Tensor, rank_state: Tensor) -> None:
        """Which of the step's rays are this rank's: fills ``rank_state``."""

    def weigh(self, gradient: Tensor, loss_sum: Tensor, state: Tensor, rank_state: Tensor) -> None:
        """Turn a mean over this rank's rays into its part of the mean over all rays, in place."""

    def ops(self, ops: Any) -> Any:
        """The operators (``torch.ops.nerfleet``) as this strategy runs them."""

    def shard(self, table: Tensor, spec: FieldSpec, device: torch.device) -> tuple[ParameterGroup, ParameterGroup]:
        """Initial values of the table -> (weights that this rank reads and the gradient that it computes; the part that it updates)."""

    def reduce(self, replicated: ParameterGroup, whole: ParameterGroup, owned: ParameterGroup, control: Control) -> None:
        """Sum gradients, counters and loss over ranks: in place, for the sharded group into ``owned.gradient``."""

    def publish(self, whole: ParameterGroup, owned: ParameterGroup) -> None:
        """New weights of all owners -> ``whole.weights``; they may arrive as late as :meth:`settle`, or the op that reads them."""

    def settle(self) -> None:
        """Wait for what is under way (on CUDA the stream does)."""

    def whole(self, part: Tensor, n: int) -> Tensor:
        """[n] of all owners' parts."""

    def part(self, n: int) -> tuple[int, int]:
        """This rank's range of n pieces of work."""

    def maximum(self, values: Tensor) -> None:
        """Element-wise maximum over ranks, in place."""

    def wants_time(self, step: int) -> bool:
        """Whether to measure how long this step's rays take, for :meth:`balance`."""

    def balance(self, rank_state: Tensor, seconds: float) -> None:
        """This rank's rays took so long: share the rays out anew."""

    def remember(self) -> dict[str, Any]:
        """Plain values for a checkpoint: how the work is shared out."""

    def recall(self, values: dict[str, Any]) -> None:
        """What :meth:`remember` gave, perhaps of other ranks, before anything is made. Raises KeyError, TypeError or ValueError if it is neither."""

    def agree(self, step: int, wishes: int) -> int:
        """Bits that any rank wishes for; looked at every few steps, 0 in between."""

    def alive(self, doing: str) -> None:
        """This rank is busy with something that takes long and needs no other rank."""

    def finished(self) -> None:
        """This rank needs the others no more."""

    def exchange(self, value: Any) -> list[Any]:
        """One value of each rank, in order; if one is a NerfleetError, all ranks raise it."""

    def collect(self, tensors: dict[str, Tensor], sharded: dict[str, int]) -> dict[str, Tensor] | None:
        """Whole tensors on the rank that saves, None on the others; ``sharded``: name -> whole length."""

    def spread(self, tensors: dict[str, Tensor], sharded: dict[str, int], load: Callable[[dict[str, Tensor]], None]) -> None:
        """Let the rank that saves ``load`` whole tensors; every rank's ``tensors`` receive their part."""


class SingleDevice:
    """No other ranks."""

    rank = 0
    world_size = 1
    strategy = "single"
    max_share = 1.0

    def seed(self, seed: int) -> int:
        return seed

    def rank_state(self, state: Tensor) -> Tensor:
        return state

    def divide(self, state: Tensor, rank_state: Tensor) -> None:
        return None

    def weigh(self, gradient: Tensor, loss_sum: Tensor, state: Tensor, rank_state: Tensor) -> None:
        return None

    def ops(self, ops: Any) -> Any:
        return ops

    def shard(self, table: Tensor, spec: FieldSpec, device: torch.device) -> tuple[ParameterGroup, ParameterGroup]:
        group = ParameterGroup.from_values(table, device, is_table=True)
        return group, group

    def reduce(self, replicated: ParameterGroup, whole: ParameterGroup, owned: ParameterGroup, control: Control) -> None:
        return None

    def publish(self, whole: ParameterGroup, owned: ParameterGroup) -> None:
        return None

    def settle(self) -> None:
        return None

    def whole(self, part: Tensor, n: int) -> Tensor:
        return part

    def part(self, n: int) -> tuple[int, int]:
        return 0, n

    def maximum(self, values: Tensor) -> None:
        return None

    def wants_time(self, step: int) -> bool:
        return False

    def balance(self, rank_state: Tensor, seconds: float) -> None:
        return None

    def remember(self) -> dict[str, Any]:
        return {}

    def recall(self, values: dict[str, Any]) -> None:
        return None

    def agree(self, step: int, wishes: int) -> int:
        return wishes

    def alive(self, doing: str) -> None:
        return None

    def finished(self) -> None:
        return None

    def exchange(self, value: Any) -> list[Any]:
        return [value]

    def collect(self, tensors: dict[str, Tensor], sharded: dict[str, int]) -> dict[str, Tensor] | None:
        return tensors

    def spread(self, tensors: dict[str, Tensor], sharded: dict[str, int], load: Callable[[dict[str, Tensor]], None]) -> None:
        load(tensors)
