"""One training step on any cluster with any strategy: who does what, how long it takes, what it needs of memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from nerfleet.planner.calibration import Calibration
from nerfleet.planner.links import Group, collective_seconds, group
from nerfleet.planner.memory import GRID_ROUNDS, ROUND_MARGIN, SAMPLE_MARGIN, USABLE_SHARE, Memory, rank_memory
from nerfleet.planner.placement import Holder, Piece, balanced, level_parts, place
from nerfleet.planner.stages import FIXED, FORWARD_BACKWARD, HALF, Share, moved, whole
from nerfleet.planner.topology import Card, Cluster
from nerfleet.planner.workload import Workload

POSITION_BYTES = 12
COUNTER_BYTES = 72


@dataclass(frozen=True)
class RankPlan:
    """Attributes:
    share: of the step's rays. rays: of a step. capacity: samples that its buffers hold. pieces: of the table, with the grid split.
    busy_seconds: without waiting for others.
    """

    rank: int
    host: str
    gpu: str
    share: float
    rays: int
    capacity: int
    pieces: tuple[Piece, ...]
    memory: Memory
    card_bytes: float
    busy_seconds: float

    @property
    def fills(self) -> float:
        """Part of the card's memory that is used."""
        return self.memory.device / self.card_bytes


@dataclass(frozen=True)
class Simulated:
    """Attributes:
    data, grid: degrees; world size = data * grid. stages: seconds on the critical path, collectives as ``exchange ...``.
    placed: whether the levels of the grid found room at all.
    """

    data: int
    grid: int
    load: Workload
    step_seconds: float
    stages: dict[str, float]
    ranks: tuple[RankPlan, ...] = field(repr=False)
    placed: bool = True

    @property
    def n_gpus(self) -> int:
        return self.data * self.grid

    @property
    def strategy(self) -> str:
        if self.n_gpus == 1:
            return "single"
        return "data" if self.grid == 1 else "grid" if self.data == 1 else "hybrid"

    @property
    def fills(self) -> float:
        """Part of the fullest card's memory."""
        return max(rank.fills for rank in self.ranks)

    @property
    def fits(self) -> bool:
        """In every card, with nothing to spare."""
        return self.placed and self.fills <= 1.0

    @property
    def comfortable(self) -> bool:
        """Under the share of memory that the common rule allows."""
        return self.placed and self.fills <= USABLE_SHARE

    @property
    def exchange_seconds(self) -> float:
        return sum(seconds for name, seconds in self.stages.items() if name.startswith("exchange"))


def simulate(load: Workload, cluster: Cluster, grid: int, calibration: Calibration) -> Simulated:
    """All GPUs of ``cluster`` in groups of ``grid`` that share one table (1: data parallel). Ranks of a group are neighbours."""
    world = len(cluster.cards)
    data = world // grid
    owned = [_placed(load, cluster.cards[first : first + grid], grid, data) for first in range(0, world, grid)]
    placed = all(one is not None for one in owned)
    pieces = [part for one in owned for part in (one or _all_levels(load, grid))]
    parts = [level_parts(own, len(load.levels), load.n_features) if grid > 1 else (1.0,) * len(load.levels) for own in pieces]

    each = [(dataclasses.replace(card, host=0), part) for card, part in zip(cluster.cards, parts)]
    kinds = list(dict.fromkeys(each))
    kind_of = [kinds.index(one) for one in each]

    def busy(kind: int, share: float) -> dict[str, float]:
        card, part = kinds[kind]
        return _busy(load, _share(load, share, sum(part) / len(load.levels), part, grid, data), card, calibration)

    times = [lambda share, kind=kind: sum(busy(kind, share)[stage] for stage in FORWARD_BACKWARD) for kind in range(len(kinds))]
    equal = len({card for card, _ in kinds}) == 1
    by_kind = [1.0 / world] * len(kinds) if equal else balanced(times, [kind_of.count(kind) for kind in range(len(kinds))])
    stages_of = [busy(kind, by_kind[kind]) for kind in range(len(kinds))]
    shares, by_rank = [by_kind[kind] for kind in kind_of], [stages_of[kind] for kind in kind_of]
    slowest = max(range(world), key=lambda rank: sum(by_rank[rank].values()))
    stages = by_rank[slowest] | _exchanges(load, cluster, grid, calibration)
    shown = pieces if grid > 1 else [()] * world
    plans = tuple(_rank_plan(load, cluster, rank, shares[rank], shown[rank], parts[rank], by_rank[rank], calibration, data) for rank in range(world))
    return Simulated(data, grid, load, sum(stages.values()), stages, plans, placed)


def _placed(load: Workload, cards: Sequence[Card], grid: int, data: int) -> tuple[tuple[Piece, ...], ...] | None:
    """Pieces of the table for the ranks of one group."""
    if grid == 1:
        return _all_levels(load, 1)
    holders = []
    for card in cards:
        others = rank_memory(load, grid * data, 0.0, 1.0 / data, 1.0 / (grid * data), 1.0 / (grid * data))
        holders.append(Holder(card.gpu.memory_bytes - others.device, card.speed * card.gpu.issue_rate))
    column = [rank_memory(load, grid * data, level.entries, 1.0 / data, 0, 0).table - rank_memory(load, grid * data, 0, 1, 0, 0).table for level in load.levels]
    return place(column, load.n_features, holders)


def _all_levels(load: Workload, grid: int) -> tuple[tuple[Piece, ...], ...]:
    """Every rank holds everything: the placement of one rank, and what stands in for one that does not fit."""
    return (tuple(Piece(level, 0, load.n_features) for level in range(len(load.levels))),) * grid


def _share(load: Workload, share: float, columns: float, parts: tuple[float, ...], grid: int, data: int) -> Share:
    in_group = 1.0 if grid > 1 else share * data  # of the group's samples, those that pass this rank's levels
    return Share(
        kept=load.batch * share,
        evaluated=load.evaluated * share,
        rays=load.rays * share,
        encoded=load.evaluated * in_group / data,
        scattered=load.batch * in_group / data,
        updates=load.batch,
        densities=load.densities / data if grid > 1 else load.densities * share,
        levels=parts,
        columns=columns,
        own=1.0 / data,
    )


def _busy(load: Workload, share: Share, card: Card, calibration: Calibration) -> dict[str, float]:
    """Seconds of each stage on one rank."""
    base = calibration.step_for(card.gpu, load.scene.name)
    gpu = base.gpu if base.gpu.name == card.gpu.name else card.gpu  # as measured, where it was
    origin, target = (base.load, whole(base.load), base.gpu), (load, share, gpu)
    return {stage: moved(stage, seconds, origin, target) / card.speed for stage, seconds in base.in_graph.items()}


def _exchanges(load: Workload, cluster: Cluster, grid: int, calibration: Calibration) -> dict[str, float]:
    """Seconds of the collectives of a step, one after the other (none is hidden behind work yet)."""
    world = len(cluster.cards)
    data = world // grid
    if world == 1:
        return {}
    everyone = group(cluster, range(world))

    def seconds(operation: str, n_bytes: float, among: Group, rivals: int = 1) -> float:
        return collective_seconds(operation, n_bytes, among, calibration, rivals)

    found = {
        "exchange sums": seconds("all_reduce", 4 * load.n_mlp, everyone) + seconds("all_reduce", COUNTER_BYTES, everyone),
        "exchange occupancy": load.refreshes_per_step * seconds("all_reduce", 4 * load.n_cells, everyone),
    }
    if data > 1:
        n_params = load.n_params / grid
        same_levels = group(cluster, range(0, world, grid))
        found["exchange table gradients"] = seconds("reduce_scatter", FIXED * n_params, same_levels, grid)
        found["exchange table weights"] = seconds("all_gather", HALF * n_params, same_levels, grid)
    if grid > 1:
        among = group(cluster, range(grid))
        rivals = max(data, 1) if len(among.hosts) > 1 else 1
        feature = HALF * load.n_outputs

        def rounds(n: float, operation_bytes: float) -> float:
            gathered = seconds("all_gather", POSITION_BYTES * n, among, rivals)
            return gathered + seconds("all_to_all", operation_bytes * n / grid, among, rivals)

        evaluated, kept = load.evaluated / data, load.batch / data
        found["exchange features"] = GRID_ROUNDS * rounds(ROUND_MARGIN * evaluated / GRID_ROUNDS, feature)
        found["exchange feature gradients"] = rounds(ROUND_MARGIN * kept, feature)
        found["exchange occupancy"] += load.refreshes_per_step * rounds(load.densities / data, feature)
    return found


def _rank_plan(
    load: Workload, cluster: Cluster, rank: int, share: float, pieces: tuple[Piece, ...], parts: tuple[float, ...], busy: dict[str, float],
    calibration: Calibration, data: int,
) -> RankPlan:  # fmt: skip
    card = cluster.cards[rank]
    held = sum(part * level.entries * load.n_features for part, level in zip(parts, load.levels))
    base = calibration.step_for(card.gpu, load.scene.name)
    memory = rank_memory(load, len(cluster.cards), held, 1.0 / data, share, share, base.set_up_bytes)
    capacity = int(SAMPLE_MARGIN * load.batch * share)
    return RankPlan(
        rank, cluster.hosts[card.host].name, card.gpu.name, share, int(load.rays * share), capacity, pieces, memory, card.gpu.memory_bytes, sum(busy.values())
    )
