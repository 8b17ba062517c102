"""Per-step numbers (loss, counts) from the device's ring to the host, without making the device wait."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nerfleet.kernels.control.op import (
    RING,
    STAT_EVALUATED,
    STAT_KEPT,
    STAT_LEARNING_RATE,
    STAT_LOSS,
    STAT_RAYS,
    STAT_SKIPPED,
    STAT_STEP,
)

FETCH_EVERY = 16
"""Steps between two copies of the ring on CUDA."""


@dataclass(frozen=True)
class StepStats:
    """One step: rays asked for, samples with a gradient (not capped by the buffers), samples evaluated, mean loss of a ray."""

    step: int
    rays: int
    kept: int
    evaluated: int
    loss: float
    skipped: bool
    learning_rate: float


class StatsReader:
    """Hands out each step's row of ``stats`` [RING, N_STATS] once, in order; on CUDA up to 2 * FETCH_EVERY steps late."""

    def __init__(self, stats: Tensor, first_step: int) -> None:
        self._stats = stats
        self._next = first_step
        self._copy: Tensor | None = None
        self._copied: torch.cuda.Event | None = None
        if stats.device.type == "cuda":
            self._copy = torch.empty(stats.shape, pin_memory=True)

    def after_step(self, step: int) -> list[StepStats]:
        """Call when ``step`` has been issued -> rows that have arrived."""
        if self._copy is None:
            return self._rows(self._stats, step)
        if (step + 1) % FETCH_EVERY:
            return []
        rows = self._flush(step - FETCH_EVERY) if self._copied is not None else []
        self._copy.copy_(self._stats, non_blocking=True)
        self._copied = torch.cuda.Event()
        self._copied.record()
        return rows

    def _flush(self, step: int) -> list[StepStats]:
        """Rows up to ``step``; waits for the last copy only."""
        if self._copy is None or self._copied is None:
            return []
        self._copied.synchronize()
        return self._rows(self._copy, step)

    def finish(self, step: int) -> list[StepStats]:
        """All rows up to ``step``; waits for the device."""
        return self._rows(self._stats.cpu(), step)

    def _rows(self, stats: Tensor, last: int) -> list[StepStats]:
        rows = []
        for step in range(max(self._next, last - RING + 1), last + 1):
            row = stats[step % RING].tolist()
            if int(row[STAT_STEP]) == step:
                counts = (int(row[STAT_RAYS]), int(row[STAT_KEPT]), int(row[STAT_EVALUATED]))
                rows.append(StepStats(step, *counts, row[STAT_LOSS], row[STAT_SKIPPED] > 0, row[STAT_LEARNING_RATE]))
        self._next = max(self._next, last + 1)
        return rows
