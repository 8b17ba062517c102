"""How long the collectives of a training step take between these ranks: what the planner's predictions rest on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from nerfleet.parallel.sharding import all_gather, reduce_scatter

if TYPE_CHECKING:
    from nerfleet.parallel.ranks import Ranks

SIZES = {"cpu": (1 << 12, 1 << 16, 1 << 20, 1 << 23), "cuda": (1 << 12, 1 << 16, 1 << 20, 1 << 23, 1 << 25, 1 << 27)}
"""Bytes that a rank holds of the whole tensor."""
REPEATS = {"cpu": 5, "cuda": 20}
WARM_UP = 2


def measure(ranks: Ranks) -> list[dict[str, Any]]:
    """One row for each operation and size: median ms of the slowest rank, and bus bandwidth.

    Bus bandwidth is bytes * factor / time with the factors that NCCL's own tests use: 2 (n - 1) / n for all_reduce and
    (n - 1) / n for the others, so that it can be compared with the link's speed.
    """
    rows = []
    n = ranks.world_size
    for size in SIZES[ranks.device.type]:
        count = size // 4 // n * n
        whole, other = (torch.zeros(count, device=ranks.device) for _ in range(2))
        part = torch.zeros(count // n, device=ranks.device)
        for name, (action, factor) in _operations(whole, other, part, n).items():
            ranks.heartbeat.alive(f"measuring {name}")
            seconds = max(ranks.exchange(_median_seconds(action, ranks)))
            rows.append({"operation": name, "bytes": count * 4, "ms": 1e3 * seconds, "bus_bytes_per_s": count * 4 * factor / seconds})
    return rows


def _operations(whole: Tensor, other: Tensor, part: Tensor, n: int) -> dict[str, tuple[Callable[[], object], float]]:
    share = (n - 1) / n
    return {
        "all_reduce": (lambda: dist.all_reduce(whole), 2 * share),
        "reduce_scatter": (lambda: reduce_scatter(part, whole), share),
        "all_gather": (lambda: all_gather(whole, part), share),
        "all_to_all": (lambda: dist.all_to_all_single(other, whole), share),
    }


def _median_seconds(action: Callable[[], object], ranks: Ranks) -> float:
    times = []
    for _ in range(WARM_UP + REPEATS[ranks.device.type]):
        _settle(ranks)
        begin = time.perf_counter()
        action()
        _settle(ranks)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[WARM_UP:])


def _settle(ranks: Ranks) -> None:
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)
