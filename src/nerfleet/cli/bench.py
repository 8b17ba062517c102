"""``nerfleet bench``: how fast a training step and a picture are on this machine."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from nerfleet.cli.flags import Device, print_json
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from nerfleet.config import TrainConfig
    from nerfleet.data.scene import Scene
    from nerfleet.train.step import TrainStep

SUMMARY = "time training steps or pictures"
STAGE_STEPS = 9
"""Steps whose ops are timed one by one."""
PICTURES = 5
DEFAULT_STEPS = {"cpu": (30, 10), "cuda": (2000, 500)}
"""Steps before measuring, and measured ones, where no flag says otherwise."""
SYNTHETIC_SIZE = {"cpu": 128, "cuda": 400}
HASH_GRID_POINTS = 65_536


@dataclass(frozen=True)
class Arguments:
    """Time training steps (with every op beside the least that it could take), or pictures.

    Examples:
        nerfleet bench step --json
        nerfleet bench step --scene data/fox --warm-up 2000 --steps 500
        nerfleet bench render --scene data/lego --model runs/lego
        nerfleet bench collectives --gpus 4 --json
        nerfleet bench step --scene data/lego --save step.json

    Attributes:
        what: step, render, or collectives: what ranks exchange in a step.
        scene: a transforms.json, or a folder that holds one; left out: the built-in scene.
        model: render: an .ingp or .msgpack file, or a run folder; left out: a model trained for warm-up steps.
        warm_up: steps before those that count; -1: 2000, without a GPU 30.
        steps: steps that count, or pictures; 0: 500 steps (without a GPU 10), 5 pictures.
        network: base, small, big, or a network JSON file.
        batch_size: samples with a gradient in a step; 0: 2^18, without a GPU 2^15.
        device: where to run.
        seed: of weights and rays.
        json: print one JSON object.
        gpus: collectives: ranks on this machine.
        save: step and collectives: also write the answer to this file, which nerfleet plan and cost read (--calibration).
    """

    what: tyro.conf.Positional[Literal["step", "render", "collectives"]]
    scene: Path | None = None
    model: Path | None = None
    warm_up: int = -1
    steps: int = 0
    network: str = "base"
    batch_size: int = 0
    device: Device = "auto"
    seed: int = 1337
    json: bool = False
    gpus: int = 2
    save: Path | None = None


def run(arguments: Arguments) -> None:
    if arguments.what == "collectives":
        from nerfleet.cli import bench_ranks

        bench_ranks.run(arguments)
        return
    if arguments.steps < 0:
        raise NerfleetError(f"--steps {arguments.steps}", "is negative", "use 0 for the usual number")
    from nerfleet.train.trainer import choose_device

    if arguments.save is not None and arguments.what == "render":
        raise NerfleetError("--save", "has no meaning for bench render", "use it with step or collectives")
    device = choose_device(arguments.device)
    report = bench_step(arguments, device) if arguments.what == "step" else bench_render(arguments, device)
    if arguments.json:
        print_json(report)
    else:
        _print(report)


def bench_step(arguments: Arguments, device: torch.device) -> dict[str, Any]:
    """The contract of ``nerfleet bench step --json``, and ``floor_ms`` with the same keys as ``stages_ms``."""
    import torch

    from nerfleet.train.stage_times import floors_ms, measure_ceilings, stage_times, workload

    warm_up, n_steps = _lengths(arguments, device.type)
    scene = _scene(arguments, device.type, "train")
    step, advance = _prepare(scene, _config(arguments, device.type), device)
    for number in range(warm_up):
        advance(number)
    _wait(device)
    start = time.perf_counter()
    for number in range(warm_up, warm_up + n_steps):
        advance(number)
    _wait(device)
    seconds = time.perf_counter() - start
    done = warm_up + n_steps
    load = workload(step, done, n_steps)
    peak = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else _resident_bytes()
    stages = stage_times(step, done, STAGE_STEPS)
    ceilings = measure_ceilings(device)
    report: dict[str, Any] = {
        "ms_per_step": 1e3 * seconds / n_steps,
        "trained_samples_per_step": load.kept,
        "evaluated_samples_per_step": load.evaluated,
        "trained_samples_per_s": load.kept * n_steps / seconds,
        "rays_per_step": load.rays,
        "stages_ms": stages,
        "floor_ms": floors_ms(step, load, ceilings),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "world_size": 1,
        "strategy": "single",
        "peak_bytes": peak,
    }
    if arguments.save is not None:
        from nerfleet.cli.calibration_file import save, step_calibration

        save(arguments.save, report | step_calibration(step, scene, ceilings.bytes_per_s))
    return report | {"hash_grid_ms": hash_grid_times(device)}


def hash_grid_times(device: torch.device) -> dict[str, float]:
    """Best of a few: 65,536 points through 8 levels of 4 features, 2^19 entries, forth and back.

    The points are 8 neighbouring samples on each of 8,192 random rays, as a training step has them; ``scattered_*``: all
    random, the worst that can happen to the caches.
    """
    import torch

    from nerfleet.kernels.hash_grid.op import grid_arguments
    from nerfleet.kernels.hash_grid.spec import GridSpec
    from nerfleet.kernels.march.reference import MIN_STEP
    from nerfleet.nn.field import allocate, table_gradient

    grid = GridSpec(8, 4, 19, 16, 2.0)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    scattered = torch.rand(HASH_GRID_POINTS, 3, device=device)
    directions = torch.nn.functional.normalize(torch.randn(HASH_GRID_POINTS // 8, 1, 3, device=device), dim=-1)
    steps = MIN_STEP * torch.arange(8, device=device)[:, None]
    along = (scattered[: HASH_GRID_POINTS // 8, None] + directions * steps).view(-1, 3).clamp(0, 1)
    table, grad_table = allocate(grid.n_params, dtype, device), table_gradient(grid.n_params, device)
    table.uniform_(-1, 1)
    gradient = torch.rand(HASH_GRID_POINTS, grid.n_output, device=device).to(dtype)
    ops = torch.ops.nerfleet

    def best(call: Callable[[], object]) -> float:
        times = []
        for _ in range(6):
            _wait(device)
            start = time.perf_counter()
            call()
            _wait(device)
            times.append(1e3 * (time.perf_counter() - start))
        return min(times)

    times = {}
    for name, points in (("", along), ("scattered_", scattered)):
        times[name + "forward"] = best(functools.partial(ops.hash_grid, points, table, *grid_arguments(grid)))
        times[name + "backward"] = best(functools.partial(ops.hash_grid_backward, points, gradient, *grid_arguments(grid), grad_table, None, None))
    return times


def bench_render(arguments: Arguments, device: torch.device) -> dict[str, Any]:
    """The contract of ``nerfleet bench render --json``; ``ms_per_image`` ends in device memory, ``ms_to_host`` in the host's."""
    from nerfleet.render.renderer import render_image

    scene = _scene(arguments, device.type, "test")
    if arguments.model is not None:
        from nerfleet.snapshot.load import load_model

        model = load_model(arguments.model).to(device)
    else:
        step, advance = _prepare(_scene(arguments, device.type, "train"), _config(arguments, device.type), device)
        for number in range(_lengths(arguments, device.type)[0]):
            advance(number)
        model = step.model()
    on_device, to_host = [], []
    for i in range((arguments.steps or PICTURES) + 1):
        camera = scene.cameras[i % len(scene) : i % len(scene) + 1]
        _wait(device)
        start = time.perf_counter()
        picture = render_image(model, camera)
        _wait(device)
        on_device.append(1e3 * (time.perf_counter() - start))
        picture.rgb.cpu()
        to_host.append(1e3 * (time.perf_counter() - start))
    width, height = (int(v) for v in scene.cameras.resolution[0])
    return {"ms_per_image": _median(on_device[1:]), "ms_to_host": _median(to_host[1:]), "width": width, "height": height}


def _scene(arguments: Arguments, device_type: str, split: str) -> Scene:
    if arguments.scene is not None:
        from nerfleet.data import load_scene

        return load_scene(arguments.scene, split)
    from nerfleet.data.synthetic import synthetic_scene

    size = SYNTHETIC_SIZE[device_type]
    return synthetic_scene(split, n_views=24 if split == "train" else 2, width=size, height=size)


def _config(arguments: Arguments, device_type: str) -> TrainConfig:
    from nerfleet.cli.train import CPU_BATCH
    from nerfleet.config import REFERENCE_BATCH, TrainConfig
    from nerfleet.presets import load_network

    batch = arguments.batch_size or (CPU_BATCH if device_type == "cpu" else REFERENCE_BATCH)
    config = TrainConfig(network=load_network(arguments.network), seed=arguments.seed, batch_size=batch)
    config.validate()
    return config


def _lengths(arguments: Arguments, device_type: str) -> tuple[int, int]:
    warm_up, n_steps = DEFAULT_STEPS[device_type]
    return (warm_up if arguments.warm_up < 0 else arguments.warm_up), (arguments.steps or n_steps)


def _prepare(scene: Scene, config: TrainConfig, device: torch.device) -> tuple[TrainStep, Callable[[int], None]]:
    """A training step, and what runs it as training does."""
    from nerfleet.train.graph import GraphedStep
    from nerfleet.train.step import SingleDevice, TrainStep

    step = TrainStep(scene, config, device, SingleDevice())
    return step, GraphedStep(step) if device.type == "cuda" else step


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _resident_bytes() -> int | None:
    """Largest resident size of this process so far; None where the system does not say (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    import sys

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _print(report: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False)
    for name, value in report.items():
        if not isinstance(value, dict):
            console.print(f"{name:28s} {value:,.3f}" if isinstance(value, float) else f"{name:28s} {value}")
    if "stages_ms" not in report:
        return
    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("stage", "ms", "floor, ms"):
        table.add_column(title, justify="left" if title == "stage" else "right")
    for name, value in report["stages_ms"].items():
        floor = report["floor_ms"].get(name)
        table.add_row(name, f"{value:.4f}", "-" if floor is None else f"{floor:.4f}")
    console.print(table)
    console.print("hash grid, 65,536 points: " + ", ".join(f"{name} {value:.2f} ms" for name, value in report["hash_grid_ms"].items()))
