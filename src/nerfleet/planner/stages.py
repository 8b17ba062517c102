"""How long each stage of a training step takes on a GPU: a measurement, moved to another scene, size and GPU by what bounds the stage.

A stage's time is launches + instructions + bytes. Bytes are counted (the tables' distinct sectors, what no longer fits the last
cache, what the optimiser streams) and cost the same everywhere in units of the GPU's bandwidth; launches are a constant;
what is left of the measured time is instructions, which follow the samples, the network's size and the GPU's issue rate.
Ops and what bounds them: docs/performance.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from nerfleet.planner.gpus import Gpu
from nerfleet.planner.workload import SECTOR_PARAMS, Level, Workload, touched_share

HALF, FIXED = 2, 4
"""Bytes of a weight, and of a gradient in fixed point."""
SECTOR_BYTES = 32
"""What a random read fetches: gradients of one of the optimiser's sectors, weights of two."""
UNTOUCHED_BYTES, TOUCHED_BYTES = 8, 40
"""Of a parameter that the optimiser passes (kernels/adam)."""
ENCODE_SHARE = 0.5
"""Of an evaluation's instructions, the rest is the networks'; at 8 levels and 10,240 weights."""
REFERENCE_CORNERS, REFERENCE_MLP = 64, 10_240
MARCH_OPERATIONS = 2.2
"""Evaluations that cost as much as following one ray: a fifth of the trace's instructions on lego, whose 51,000 rays evaluate 447,000 samples."""
RAY_BYTES, KEPT_BYTES = 68, 76
CELL_BYTES = 20
"""Of an occupancy cell in a refresh: value and update read and written, bits."""
LAUNCH_SECONDS = {
    "begin": 4e-6, "sample_rays": 5e-6, "trace": 15e-6, "sample_order": 6e-6, "ray_loss": 3e-6, "composite_backward": 3e-6, "field_backward": 10e-6,
    "hash_grid_backward": 8e-6, "adam": 6e-6, "advance": 4e-6, "occupancy_refresh": 2e-6,
}  # fmt: skip
"""Launches and their tails, inside a CUDA graph."""
STAGES = tuple(LAUNCH_SECONDS)
FORWARD_BACKWARD = ("begin", "sample_rays", "trace", "sample_order", "ray_loss", "composite_backward", "field_backward", "hash_grid_backward")
"""Stages of a rank's own rays; ``adam`` and ``advance`` come after the reduction."""


@dataclass(frozen=True)
class Share:
    """A rank's part of a step.

    Attributes:
        kept, evaluated, rays: of its own rays. encoded, scattered: evaluated and kept samples that it encodes and whose gradients it
            adds, on the levels that it holds (grid strategy: those of its whole group).
        updates: kept samples whose gradients meet in the parameters that it updates. densities: of an occupancy refresh.
        columns: of all feature columns, the part that it encodes. levels: part of each level that it holds.
        own: of the parameters that it holds, the part that it updates.
    """

    kept: float
    evaluated: float
    rays: float
    encoded: float
    scattered: float
    updates: float
    densities: float
    levels: tuple[float, ...]
    columns: float = 1.0
    own: float = 1.0


def whole(load: Workload) -> Share:
    """One GPU that does everything."""
    return Share(load.batch, load.evaluated, load.rays, load.evaluated, load.batch, load.batch, load.densities, (1.0,) * len(load.levels))


@dataclass(frozen=True)
class Work:
    """Attributes: operations: in units of which only ratios count. streamed_bytes, random_bytes: that reach memory."""

    operations: float
    streamed_bytes: float = 0.0
    random_bytes: float = 0.0

    def memory_seconds(self, gpu: Gpu) -> float:
        return (self.streamed_bytes + self.random_bytes * gpu.fetched_bytes / SECTOR_BYTES) / gpu.copy_bytes_per_s


def work(stage: str, load: Workload, share: Share, gpu: Gpu) -> Work:
    """What a stage does for one step (the occupancy refresh: its share of a step)."""
    corners = share.columns * 8 * len(load.levels) * max(load.n_features, 2) / 4
    if stage == "sample_rays":
        return Work(share.rays)
    if stage == "trace":
        encode = ENCODE_SHARE * corners / REFERENCE_CORNERS
        networks = (1 - ENCODE_SHARE) * load.n_mlp / REFERENCE_MLP
        exchanged = 4 * HALF * load.n_outputs * share.evaluated if share.columns < 1 else 0.0
        operations = share.evaluated * networks + share.encoded * encode + share.rays * MARCH_OPERATIONS
        return Work(operations, exchanged, _missed_bytes(load, share.encoded, share, gpu, updates=False))
    if stage == "sample_order":
        return Work(share.rays + share.kept, share.rays * 8 + share.kept * 12)
    if stage == "ray_loss":
        return Work(share.rays, share.rays * RAY_BYTES)
    if stage == "composite_backward":
        return Work(0.0, share.kept * KEPT_BYTES)
    if stage == "field_backward":
        return Work(share.kept * load.n_mlp, share.kept * 2 * HALF * load.n_outputs)
    if stage == "hash_grid_backward":
        read = share.scattered * share.columns * HALF * load.n_outputs
        return Work(share.scattered * corners, read, 2 * _missed_bytes(load, share.scattered, share, gpu, updates=True))
    if stage == "adam":
        return Work(0.0, adam_bytes(load, share))
    if stage == "occupancy_refresh":
        return _refresh(load, share, gpu, corners)
    return Work(0.0)


def adam_bytes(load: Workload, share: Share) -> float:
    """Bytes that one update of a rank's parameters moves: all of touched sectors, little of the others."""
    total = 0.0
    for level, part in zip(load.levels, share.levels):
        n_params = level.entries * load.n_features
        touched = touched_share(load.updated_sectors(level, share.updates), n_params / SECTOR_PARAMS)
        total += part * n_params * (UNTOUCHED_BYTES + (TOUCHED_BYTES - UNTOUCHED_BYTES) * touched)
    return total * share.own + load.n_mlp * TOUCHED_BYTES


def _missed_bytes(load: Workload, n: float, share: Share, gpu: Gpu, *, updates: bool) -> float:
    """Bytes of the table that come from memory when n samples read it (or add their gradients).

    The optimiser's stream has swept the cache, so each distinct sector comes once; repeated ones come again as far as
    the step's sectors together do not fit the cache.
    """
    distinct_bytes = repeated_bytes = 0.0
    for level, part in zip(load.levels, share.levels):
        vertices = load.updated_sectors(level, n) if updates else load.read_sectors(level, n)
        sectors = level.entries * load.n_features * (FIXED if updates else HALF) / SECTOR_BYTES
        distinct = sectors * touched_share(vertices, sectors)
        distinct_bytes += part * distinct * SECTOR_BYTES
        repeated_bytes += part * max(vertices - distinct, 0.0) * SECTOR_BYTES
    return distinct_bytes + repeated_bytes * _overflow(distinct_bytes, gpu)


def _refresh(load: Workload, share: Share, gpu: Gpu, corners: float) -> Work:
    """Random points in the whole box read the table: the fine levels without any sharing between points."""
    table_bytes = HALF * load.n_features * sum(part * level.entries for level, part in zip(load.levels, share.levels))
    sectors = share.densities * sum(part * _reads(level) for level, part in zip(load.levels, share.levels))
    together = min(table_bytes, sectors * SECTOR_BYTES) + 8.0 * load.n_cells
    missed = min(table_bytes, sectors * SECTOR_BYTES) + sectors * SECTOR_BYTES * _overflow(together, gpu)
    per_step = load.refreshes_per_step
    return Work(share.densities * corners * per_step, CELL_BYTES * load.n_cells * per_step, missed * per_step)


def _reads(level: Level) -> float:
    """Sectors of the 8 corners of a random point's cell: 4 pairs along x; neighbouring points share those of coarse levels."""
    return 5.0 if level.vertices > level.entries else 0.5


def _overflow(bytes_together: float, gpu: Gpu) -> float:
    """Part of repeated reads that miss a cache of the GPU's size."""
    return max(0.0, 1.0 - gpu.l2_bytes / max(bytes_together, 1.0))


def moved(stage: str, measured_seconds: float, at: tuple[Workload, Share, Gpu], to: tuple[Workload, Share, Gpu]) -> float:
    """A stage measured on one workload and GPU -> its seconds on another."""
    launch = min(LAUNCH_SECONDS[stage], 0.5 * measured_seconds)
    before, after = work(stage, *at), work(stage, *to)
    memory = before.memory_seconds(at[2])
    if before.operations <= 0:
        efficiency = (measured_seconds - launch) / memory if memory > 0 else 0.0
        return launch + efficiency * after.memory_seconds(to[2]) if memory > 0 else measured_seconds
    memory = min(memory, 0.8 * (measured_seconds - launch))  # counted bytes cannot explain more than was measured
    scale = memory / before.memory_seconds(at[2]) if memory > 0 else 1.0
    instructions = (measured_seconds - launch - memory) * after.operations / before.operations * at[2].issue_rate / to[2].issue_rate
    return launch + instructions + scale * after.memory_seconds(to[2])
