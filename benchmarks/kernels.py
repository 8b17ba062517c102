"""Every kernel alone, on inputs like those of a training step, beside the time that its bytes would take.

    python benchmarks/kernels.py                 on the GPU if there is one
    python benchmarks/kernels.py --device cpu --samples 16384 --json

Inputs stay in the cache between repetitions where they fit: `nerfleet bench step` times the same ops inside a real step.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

import nerfleet.kernels.adam.op
import nerfleet.kernels.composite.op
import nerfleet.kernels.control.op
import nerfleet.kernels.field.op
import nerfleet.kernels.occupancy.op
import nerfleet.kernels.order.op  # noqa: F401  (registers the ops)
from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.kernels.hash_grid import fixed_point
from nerfleet.kernels.hash_grid.op import grid_arguments
from nerfleet.kernels.hash_grid.spec import GridSpec
from nerfleet.kernels.march.reference import N_CELLS
from nerfleet.nn.field import table_gradient
from nerfleet.train.stage_times import measure_ceilings

SPEC = FieldSpec(GridSpec(8, 4, 19, 16, 2.0))
SAMPLES_A_RAY = 8
REPETITIONS = 20


@dataclass(frozen=True)
class Case:
    """One op on fixed inputs; ``bytes_moved``: inputs read once and outputs written once."""

    name: str
    run: Callable[[], object]
    bytes_moved: float


def ray_points(n: int, device: torch.device) -> torch.Tensor:
    """[n, 3] in the unit cube, SAMPLES_A_RAY neighbours on each of many random lines."""
    n_rays = n // SAMPLES_A_RAY
    starts, directions = torch.rand(n_rays, 1, 3), torch.nn.functional.normalize(torch.randn(n_rays, 1, 3), dim=-1)
    steps = torch.arange(SAMPLES_A_RAY).view(1, -1, 1) * (3**0.5 / 1024)
    return (starts + directions * steps).view(-1, 3).clamp(0, 1).to(device)


def field_cases(n: int, device: torch.device) -> list[Case]:
    ops, half = torch.ops.nerfleet, torch.float16 if device.type == "cuda" else torch.float32
    size = half.itemsize
    grid, spec = grid_arguments(SPEC.grid), SPEC.arguments
    positions = ray_points(n, device)
    directions = torch.nn.functional.normalize(torch.randn(n, 3, device=device), dim=-1)
    table, mlp = torch.randn(SPEC.grid.n_params, device=device).to(half), (torch.randn(SPEC.n_mlp_params, device=device) * 0.2).to(half)
    features = torch.randn(n, SPEC.grid.n_output, device=device).to(half)
    grad_table, grad_features, grad_mlp = table_gradient(SPEC.grid.n_params, device), torch.empty_like(features), torch.zeros(mlp.numel(), device=device)
    d_rgb, d_raw = torch.randn(n, 3, device=device), torch.randn(n, device=device)
    rays = (torch.arange(n, device=device) // SAMPLES_A_RAY).int()
    count = torch.tensor([n], dtype=torch.int32, device=device)
    slots = torch.randperm(n // SAMPLES_A_RAY, device=device)[:, None] * SAMPLES_A_RAY + torch.arange(SAMPLES_A_RAY, device=device)
    order, ranks = slots.flatten().int(), (torch.arange(n, device=device) % SAMPLES_A_RAY).int()
    kept, state = torch.full((1 << 18,), SAMPLES_A_RAY, dtype=torch.int32, device=device), torch.tensor([0, n // SAMPLES_A_RAY, 0, 0], device=device)
    sequence, counters = torch.empty_like(order), torch.tensor([n, 0, 0, 0, 0, 0, 0, 0], dtype=torch.int32, device=device)
    dims = (SPEC.density_dims, SPEC.rgb_dims)
    gathered = min(SPEC.grid.n_params, n * SPEC.grid.n_output * 8) * size
    row = SPEC.grid.n_output * size
    return [
        Case("hash_grid", lambda: ops.hash_grid(positions, table, *grid), n * (12 + row) + gathered),
        Case("hash_grid_backward", lambda: ops.hash_grid_backward(positions, features, *grid, grad_table, count, order), n * (16 + row) + 2 * gathered),
        Case("field", lambda: ops.field(positions, directions, table, mlp, *spec), n * (24 + 16 + row) + gathered),
        Case("field_density", lambda: ops.field_density(positions, table, mlp, *spec), n * 16 + gathered),
        Case(
            "field_backward",
            lambda: ops.field_backward(features, rays, directions, mlp, *dims, d_rgb, d_raw, count, order, grad_mlp, grad_features),
            n * (2 * row + 24),
        ),
        Case("sample_order", lambda: ops.sample_order(rays, ranks, kept, state, counters, sequence), n * 12 + n // SAMPLES_A_RAY * 8),
    ]


def other_cases(n: int, device: torch.device) -> list[Case]:
    ops, half = torch.ops.nerfleet, torch.float16 if device.type == "cuda" else torch.float32
    n_params = SPEC.grid.n_params
    master, first, second = torch.randn(n_params, device=device), torch.zeros(n_params, device=device), torch.ones(n_params, device=device)
    weights = master.to(half) if device.type == "cuda" else master
    average, steps = master.to(half), torch.zeros(n_params, dtype=torch.int16, device=device)
    gradient = table_gradient(n_params, device)
    hyper, counters = torch.tensor([1e-2, 0.95, 0.05, 1.0], device=device), torch.zeros(8, dtype=torch.int32, device=device)
    filled = torch.randn(n_params, device=device)
    if device.type == "cuda":
        filled = fixed_point.pack(filled)
    constants = (hyper, counters, 0.9, 0.99, 1e-15, 0.0, 128.0, True)
    cells, updates = torch.rand(N_CELLS, device=device), torch.zeros(N_CELLS, device=device)
    bits = torch.zeros(N_CELLS // 8, dtype=torch.uint8, device=device)

    def adam() -> None:
        gradient.copy_(filled)
        ops.adam(master, weights, average, gradient, first, second, steps, *constants)

    return [
        Case("adam, and a copy of its gradient", adam, n_params * (40 + 8)),
        Case("occupancy_update", lambda: ops.occupancy_update(updates, cells, bits, hyper), 16 * N_CELLS),
    ]


def milliseconds(case: Case, device: torch.device) -> float:
    """Median of some repetitions; on CUDA of graph replays, without gaps between launches."""
    case.run()
    if device.type != "cuda":
        times = []
        for _ in range(5):
            start = time.perf_counter()
            case.run()
            times.append(1e3 * (time.perf_counter() - start))
        return sorted(times)[len(times) // 2]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPETITIONS + 1)]
    graph.replay()
    for event in events:
        event.record()
        graph.replay()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))[REPETITIONS // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--samples", type=int, default=1 << 18)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    bandwidth = measure_ceilings(device).bytes_per_s
    rows = {}
    for case in field_cases(arguments.samples, device) + other_cases(arguments.samples, device):
        rows[case.name] = {"ms": milliseconds(case, device), "bytes_ms": 1e3 * case.bytes_moved / bandwidth}
    if arguments.json:
        print(json.dumps({"samples": arguments.samples, "device": str(device), "kernels": rows}))
        return
    for name, row in rows.items():
        print(f"{name:36s} {row['ms']:9.4f} ms   {row['bytes_ms']:9.4f} ms for its bytes")


if __name__ == "__main__":
    main()
