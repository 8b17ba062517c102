"""Speed and quality on real scenes, on one GPU: the table of docs/performance.md.

    PYTHONPATH=src python benchmarks/quality.py --lego data/lego --fox data/fox --out quality.json

The clock excludes loading and compiling, includes graph capture, and is stopped while evaluating. Scores are of the averaged
weights on held-out views, whole pictures, pixel centres, black background, sRGB clipped to 0..1. One configuration for all rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerfleet.config import TrainConfig
from nerfleet.data import load_scene
from nerfleet.data.scene import Scene
from nerfleet.geometry.color import composite
from nerfleet.kernels.control.op import STAT_EVALUATED, STAT_KEPT, STAT_RAYS, STATE_SKIPPED
from nerfleet.nn.model import Model
from nerfleet.presets import load_network
from nerfleet.render.renderer import render_image, to_uint8
from nerfleet.train.graph import GraphedStep
from nerfleet.train.step import SingleDevice, TrainStep

GOALS = {"lego": (34.5,), "fox": (29.0, 30.5)}
EVALUATE_AT = {
    "lego": [*range(1000, 8001, 250), 10_000, 15_000, 20_000],
    "fox": [*range(200, 2001, 100), *range(2250, 6001, 250), 10_000, 15_000, 20_000],
}
STEPS = 20_000
TIMED_FROM, SEGMENT = 1_000, 250
DEVICE = torch.device("cuda")


class HeldOut:
    """Held-out photographs on the GPU."""

    def __init__(self, scene: Scene) -> None:
        self.cameras = scene.cameras.to(DEVICE)
        self.truths = [composite(scene.image(i).to(DEVICE), torch.zeros(3, device=DEVICE)) for i in range(len(scene))]

    def psnr(self, model: Model) -> float:
        scores = [self._score(model, i, truth) for i, truth in enumerate(self.truths)]
        return sum(scores) / len(scores)

    def _score(self, model: Model, index: int, truth: Tensor) -> float:
        rendered = render_image(model, self.cameras[index : index + 1]).rgb.clamp(0, 1)
        return float(-10 * torch.log10(((rendered - truth) ** 2).mean()))


def train_run(scene: Scene, held_out: HeldOut, config: TrainConfig, evaluate_at: list[int]) -> dict[str, Any]:
    """One training with evaluations -> seconds and PSNR at each, milliseconds a step, the trained model's counts."""
    trainer = TrainStep(scene, config, DEVICE, SingleDevice())
    step = GraphedStep(trainer)
    curve, segments = [], []
    seconds, due = 0.0, set(evaluate_at)
    torch.cuda.synchronize()
    began = segment_began = time.perf_counter()
    for number in range(config.steps):
        step(number)
        done = number + 1
        at_segment = done >= TIMED_FROM and done % SEGMENT == 0
        if at_segment or done in due:
            torch.cuda.synchronize()
            now = time.perf_counter()
            seconds += now - began
            if done > TIMED_FROM and at_segment:
                segments.append((now - segment_began) / SEGMENT * 1e3)
            if done in due:
                curve.append((done, seconds, held_out.psnr(trainer.model())))
            began = segment_began = time.perf_counter()
    stats = trainer.control.stats.mean(0).tolist()
    return {
        "curve": curve,
        "ms_per_step": statistics.median(segments) if segments else None,
        "seconds": seconds,
        "mean_of_last_steps": {"rays": stats[STAT_RAYS], "kept": stats[STAT_KEPT], "evaluated": stats[STAT_EVALUATED]},
        "skipped": int(trainer.control.state[STATE_SKIPPED]),
        "model": trainer.model(),
    }


def seconds_to(curve: list[tuple[int, float, float]], goal: float) -> float | None:
    return next((seconds for _, seconds, psnr in curve if psnr >= goal), None)


def render_times(model: Model, scene: Scene) -> dict[str, float]:
    """Median milliseconds of a whole picture over the held-out views: to device memory, and to host memory as 8 bits."""
    cameras = scene.cameras.to(DEVICE)
    times: dict[str, list[float]] = {"to_device": [], "to_host": []}
    for i in [0, *range(len(scene))]:
        for name in times:
            torch.cuda.synchronize()
            began = time.perf_counter()
            picture = render_image(model, cameras[i : i + 1]).rgb
            if name == "to_host":
                to_uint8(picture).cpu()
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - began) * 1e3)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def start_up(path: Path) -> float:
    """Seconds from the start of a process to its first finished training step."""
    program = (
        "import sys, time\nfrom pathlib import Path\nimport torch\nfrom nerfleet.config import TrainConfig\nfrom nerfleet.data import load_scene\n"
        "from nerfleet.train.step import SingleDevice, TrainStep\n"
        "scene = load_scene(Path(sys.argv[1]))\nstep = TrainStep(scene, TrainConfig(), torch.device('cuda'), SingleDevice())\nstep(0)\n"
        "torch.cuda.synchronize()\nprint(time.time() - float(sys.argv[2]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path), str(time.time())], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def scene_table(name: str, path: Path, seeds: list[int], base: TrainConfig) -> dict[str, Any]:
    scene, test = load_scene(path), load_scene(path, split="test")
    held_out = HeldOut(test)
    torch.cuda.reset_peak_memory_stats()
    free_before = torch.cuda.mem_get_info()[0]
    runs = []
    for seed in seeds:
        run = train_run(scene, held_out, dataclasses.replace(base, seed=seed), [at for at in EVALUATE_AT[name] if at <= base.steps])
        model = run.pop("model")
        runs.append({"seed": seed} | run)
        print(name, seed, f"{run['ms_per_step']:.3f} ms/step", [(s, round(t, 2), round(p, 2)) for s, t, p in run["curve"]][::4], flush=True)
    table = {
        "runs": runs,
        "ms_per_step": statistics.median(run["ms_per_step"] for run in runs),
        "psnr_at_end": statistics.median(run["curve"][-1][2] for run in runs),
        "render_ms": render_times(model, test),
        "peak_torch_bytes": torch.cuda.max_memory_allocated(),
        "device_bytes": free_before - torch.cuda.mem_get_info()[0],
        "views": (len(scene), len(test)),
    }
    for goal in GOALS[name]:
        reached = [seconds_to(run["curve"], goal) for run in runs]
        table[f"seconds_to_{goal}"] = statistics.median(reached) if None not in reached else reached
    return table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lego", type=Path)
    parser.add_argument("--fox", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--decay", type=int, nargs=2, metavar=("START", "INTERVAL"), help="steps of the learning rate's decay (instant-ngp: 20000 10000)")
    parser.add_argument("--near-distance", type=float, default=TrainConfig().near_distance)
    parser.add_argument("--start-up", action="store_true", help="also time the start of a process, kernels not cached and cached")
    parser.add_argument("--big", action="store_true", help="also time the big network on lego")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    config = TrainConfig(steps=arguments.steps, near_distance=arguments.near_distance)
    if arguments.decay:
        optimizer = dataclasses.replace(config.network.optimizer, decay_start=arguments.decay[0], decay_interval=arguments.decay[1])
        config = dataclasses.replace(config, network=dataclasses.replace(config.network, optimizer=optimizer))
    result: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    if arguments.start_up:
        result["start_up_seconds"] = [start_up(arguments.lego), start_up(arguments.lego)]
        print("start-up", result["start_up_seconds"], flush=True)
    for path in filter(None, (arguments.lego, arguments.fox)):
        scene = load_scene(path)
        train_run(scene, HeldOut(load_scene(path, split="test")), TrainConfig(steps=300), [300])  # compiles
        if arguments.big and path == arguments.lego:
            big = train_run(scene, HeldOut(scene), TrainConfig(steps=2500, network=load_network("big")), [])
            result["big_ms_per_step"] = big["ms_per_step"]
    for name in ("lego", "fox"):
        if getattr(arguments, name):
            result[name] = scene_table(name, getattr(arguments, name), arguments.seeds, config)
            table = {key: value for key, value in result[name].items() if key != "runs"}
            print(name, json.dumps(table), flush=True)
            arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
