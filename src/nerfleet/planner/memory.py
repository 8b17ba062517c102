"""What training takes of a GPU's memory, from the buffers that it allocates (train/buffers.py, nn/field.py, train/step.py)."""

from __future__ import annotations

from dataclasses import dataclass

from nerfleet.planner.workload import Workload

READ_BYTES = 2 + 4
"""Of a parameter on every rank that reads it: weights in half precision, gradient in fixed point."""
OWNED_BYTES = 4 + 2 + 4 + 4 + 2
"""Of a parameter at its owner: master weights, average, two moments, step count. A single rank's weights and gradient are read in place."""
SHARDED_BYTES = 4
"""Of a parameter of a slice: where the gradients of all ranks arrive."""
MLP_BYTES = 4 + 2 + 2 + 4 + 4 + 4 + 2
SAMPLE_BYTES = 4 * (3 + 3 + 2 + 3 + 3 + 3 + 3 + 1)
"""A record of a kept sample without its features and their gradients."""
RAY_BYTES = 4 * (7 * 3 + 3) + 8
"""With its place in the queue of the trace."""
CELL_BYTES = 4 + 4 + 1 / 8
REFRESH_POINTS, POINT_BYTES = 1 << 18, 4 + 12 + 32
SAMPLE_MARGIN = 2.0
"""Room for kept samples, in target batches."""
PIXEL_BYTES = 4
GRID_ROUNDS, ROUND_MARGIN = 4, 1.25
EXCHANGED_COPIES = 2
"""Of a round's features: what is sent, what arrives."""
SET_UP_BYTES = 330e6
"""Working space while the cameras' view of the occupancy grid is found: index tensors of 129^3 points, projections of 2^20."""
CONTEXT_BYTES = 600e6
"""CUDA's own context, loaded kernels and graphs, which torch does not count."""
COMMUNICATOR_BYTES = 350e6
"""NCCL's buffers, with more than one rank."""
USABLE_SHARE = 0.8
"""Of a GPU's memory: the rule that users know splits the grid above it."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank.

    Attributes:
        table: of the hash grid, with its optimiser. pixels: photographs. buffers: samples, rays, occupancy, exchange. set_up: at the
            start only. outside: what torch does not count (context, NCCL).
    """

    table: float
    pixels: float
    buffers: float
    set_up: float
    outside: float

    @property
    def peak(self) -> float:
        """torch's peak, as ``nerfleet bench step`` reports it."""
        return self.table + self.pixels + max(self.buffers, self.set_up)

    @property
    def device(self) -> float:
        """All that the card must hold."""
        return self.peak + self.outside


def rank_memory(load: Workload, n_ranks: int, held: float, own: float, share: float, pixel_share: float, set_up_bytes: float = SET_UP_BYTES) -> Memory:
    """Memory of one rank.

    Args:
        held: parameters of the table that it reads. own: of these, the part that it updates. share: of the step's rays.
        pixel_share: of all pixels. set_up_bytes: as calibrated.
    """
    table = held * (READ_BYTES + own * OWNED_BYTES) + (0.0 if n_ranks == 1 else held * own * SHARDED_BYTES)
    features = 2 * load.n_outputs
    samples = SAMPLE_MARGIN * load.batch * share * (SAMPLE_BYTES + 2 * features)
    rays = load.max_rays * (1 if n_ranks == 1 else min(n_ranks * share, 2.0)) * RAY_BYTES
    occupancy = load.n_cells * CELL_BYTES + min(REFRESH_POINTS, load.n_cells) * POINT_BYTES
    exchange = 0.0
    if held < load.n_params:
        exchange = EXCHANGED_COPIES * ROUND_MARGIN * load.evaluated * share / GRID_ROUNDS * (features + 12)
    buffers = samples + rays + occupancy + exchange
    outside = CONTEXT_BYTES + (COMMUNICATOR_BYTES if n_ranks > 1 else 0.0)
    return Memory(table + load.n_mlp * MLP_BYTES, load.scene.n_pixels * pixel_share * PIXEL_BYTES, buffers, set_up_bytes + occupancy, outside)
