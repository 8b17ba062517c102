"""How long each op of a training step takes, and the least that it could take on the same machine."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nerfleet.kernels.control.op import RING, STAT_EVALUATED, STAT_KEPT, STAT_RAYS
from nerfleet.train.step import TrainStep, refresh_period

QUEUE_CYCLES = 20_000_000
"""The GPU waits this long before a timed step, so that the host has enqueued all of it: gaps between launches do not count."""
COPY_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}
MATRIX_SIZE = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True)
class Workload:
    """Means over the measured steps."""

    rays: float
    kept: float
    evaluated: float


@dataclass(frozen=True)
class Ceilings:
    """What the machine can do at best, measured: copying (bytes read and written) and matrix products."""

    bytes_per_s: float
    flops_per_s: float


class OpTimer(TorchDispatchMode):
    """Inside, the time of every nerfleet op is recorded under its name."""

    def __init__(self, cuda: bool) -> None:
        super().__init__()
        self._cuda = cuda
        self._spans: list[tuple[str, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func.name().partition("::")
        if namespace != "nerfleet":
            return func(*args, **(kwargs or {}))
        start = self._now()
        result = func(*args, **(kwargs or {}))
        self._spans.append((name.partition(".")[0], start, self._now()))
        return result

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def totals_ms(self) -> dict[str, float]:
        """Sum of each op; waits for the device."""
        if self._cuda:
            torch.cuda.synchronize()
        totals: dict[str, float] = defaultdict(float)
        for name, start, end in self._spans:
            totals[name] += start.elapsed_time(end) if self._cuda else 1e3 * (end - start)
        return dict(totals)


def stage_times(step: TrainStep, first: int, n_steps: int) -> dict[str, float]:
    """Run steps first .. first + n_steps and give the median milliseconds of each op in a step.

    The refresh of the occupancy grid is timed once and shared out over the steps between two refreshes, as
    ``occupancy_refresh``.
    """
    cuda = step.device.type == "cuda"
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(n_steps):
        for name, value in _timed(cuda, step.forward_backward, step.update).items():
            times[name].append(value)
    stages = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
    refresh = _timed(cuda, lambda: step.refresh_occupancy(first))
    return stages | {"occupancy_refresh": sum(refresh.values()) / refresh_period(first, step.config.reference_step_ratio)}


def _timed(cuda: bool, *calls: Callable[[], None]) -> dict[str, float]:
    timer = OpTimer(cuda)
    if cuda:
        torch.cuda._sleep(QUEUE_CYCLES)
    with timer:
        for call in calls:
            call()
    return timer.totals_ms()


def workload(step: TrainStep, done: int, n_steps: int) -> Workload:
    """Of the last ``n_steps`` steps before step ``done`` (at most the ring's length); waits for the device."""
    rows = step.control.stats.cpu()[[s % RING for s in range(max(done - min(n_steps, RING), 0), done)]]
    rays, kept, evaluated = (float(rows[:, column].mean()) for column in (STAT_RAYS, STAT_KEPT, STAT_EVALUATED))
    return Workload(rays, kept, evaluated)


def measure_ceilings(device: torch.device) -> Ceilings:
    """A large copy and a large matrix product (half precision on CUDA), the best of a few."""
    kind = device.type
    source = torch.empty(COPY_BYTES[kind] // 4, device=device)
    target = torch.empty_like(source)
    dtype = torch.float16 if kind == "cuda" else torch.float32
    matrix = torch.rand(MATRIX_SIZE[kind], MATRIX_SIZE[kind], device=device).to(dtype)
    copy = min(_seconds(lambda: target.copy_(source), kind) for _ in range(5))
    product = min(_seconds(lambda: torch.mm(matrix, matrix), kind) for _ in range(5))
    return Ceilings(2 * COPY_BYTES[kind] / copy, 2 * MATRIX_SIZE[kind] ** 3 / product)


def _seconds(call: Callable[[], object], kind: str) -> float:
    if kind == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if kind == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def floors_ms(step: TrainStep, load: Workload, ceilings: Ceilings) -> dict[str, float]:
    """Least time of each op: bytes that must move over bandwidth, or operations over rate, whichever is longer.

    Inputs are read once and outputs written once; tables and gradients that fit a cache are counted all the same.
    """
    half = 2 if step.device.type == "cuda" else 4
    features = half * step.spec.grid.n_output
    table = half * step.spec.grid.n_params
    n_mlp, n_table = step.spec.n_mlp_params, step.spec.grid.n_params
    parameter = 2 * (4 + 4 + 4 + 2) + 4 + half + 2 * half  # master, moments, count; gradient; weights; average
    sample = features + 4 * 16
    gathered = load.evaluated * 8 * features
    bytes_moved = {
        "sample_rays": load.rays * (4 + 13 * 4),
        "trace": load.rays * 8 * 4 + min(table, gathered) + load.kept * sample,
        "sample_order": load.rays * 2 * 4 + load.kept * 3 * 4,
        "ray_loss": load.rays * 4 * (3 + 1 + 3 + 3 + 1 + 3 + 3),
        "composite_backward": load.kept * 4 * (1 + 3 + 1 + 1 + 1 + 1 + 1 + 3 + 3 + 1),
        "field_backward": load.kept * (2 * features + 4 * 6),
        "hash_grid_backward": load.kept * (features + 16) + 2 * min(4 * n_table, load.kept * 8 * features),
        "adam": (n_table + n_mlp) * parameter,
    }
    operations = {"trace": 2 * n_mlp * load.evaluated, "field_backward": 6 * n_mlp * load.kept}
    return {
        name: 1e3 * max(moved / ceilings.bytes_per_s, operations.get(name, 0.0) / ceilings.flops_per_s) for name, moved in bytes_moved.items()
    }
