"""Each step's numbers reach the host once and in order."""

from __future__ import annotations

import torch

from nerfleet.kernels.control.op import N_STATS, RING, STAT_KEPT, STAT_LOSS, STAT_RAYS, STAT_SKIPPED, STAT_STEP
from nerfleet.train.stats import StatsReader


def write(stats: torch.Tensor, step: int, skipped: bool = False) -> None:
    row = torch.zeros(N_STATS)
    row[STAT_STEP], row[STAT_RAYS], row[STAT_KEPT], row[STAT_LOSS], row[STAT_SKIPPED] = step, 512, 100 + step, 0.5, float(skipped)
    stats[step % RING] = row


def test_rows_come_once_and_in_order() -> None:
    stats = torch.zeros(RING, N_STATS)
    reader = StatsReader(stats, first_step=3)
    seen = []
    for step in range(3, RING + 50):
        write(stats, step, skipped=step == 5)
        seen += reader.after_step(step)
    assert [row.step for row in seen] == list(range(3, RING + 50))
    assert [row.step for row in seen if row.skipped] == [5]
    assert (seen[-1].rays, seen[-1].kept, seen[-1].loss) == (512, 100 + RING + 49, 0.5)
    assert reader.finish(RING + 49) == []


def test_what_is_left_comes_at_the_end() -> None:
    stats = torch.zeros(RING, N_STATS)
    for step in range(4):
        write(stats, step)
    assert [row.step for row in StatsReader(stats, 0).finish(3)] == [0, 1, 2, 3]
    assert StatsReader(stats, 0).finish(-1) == []


def test_rows_that_were_overwritten_are_left_out() -> None:
    stats = torch.zeros(RING, N_STATS)
    for step in range(RING + 10):
        write(stats, step)
    assert [row.step for row in StatsReader(stats, 0).finish(RING + 9)] == list(range(10, RING + 10))


def test_rows_that_have_not_arrived_are_left_out() -> None:
    stats = torch.zeros(RING, N_STATS)
    write(stats, 1)
    assert [row.step for row in StatsReader(stats, 1).finish(2)] == [1]
