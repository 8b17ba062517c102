"""Trains each scene twice from one seed and compares the bits; and what a step takes.

    PYTHONPATH=src python benchmarks/determinism.py --lego data/lego --fox data/fox --steps 20000 --out determinism.json

Runs that differ are followed step by step first, so that the answer names the step and the tensor where they part.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerfleet.config import TrainConfig
from nerfleet.data import load_scene
from nerfleet.data.scene import Scene
from nerfleet.data.synthetic import synthetic_scene
from nerfleet.kernels.control.op import COUNT_ORDERED, RING, STAT_KEPT, STATE_RAYS
from nerfleet.render.evaluate import evaluate
from nerfleet.train.graph import GraphedStep
from nerfleet.train.stage_times import stage_times
from nerfleet.train.step import SingleDevice, TrainStep, is_refresh

WATCHED_STEPS = 100
"""Steps that are compared tensor by tensor, outside of any graph."""
STAGE_STEPS = 20
PIXELS = 4096


def digest(tensor: Tensor) -> int:
    """Sum of a tensor's 32-bit words, weighted by their places: integers, so that the same bits always give the same number."""
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    words = torch.nn.functional.pad(flat, (0, -len(flat) % 4)).view(torch.int32).long()
    return int((words * (torch.arange(len(words), device=words.device) * 2654435761 + 1)).sum())


def step_digests(step: TrainStep, number: int) -> dict[str, int]:
    """Run one step -> digests of what it computes, in the order of computation."""
    if is_refresh(number, step.config.reference_step_ratio):
        step.refresh_occupancy(number)
    found = {"bitfield": digest(step.occupancy.bitfield)}
    step.forward_backward()
    n_rays, n = int(step.control.state[STATE_RAYS]), int(step.control.counters[COUNT_ORDERED])
    rays, samples = step.rays, step.samples
    slots = samples.order[:n].long()
    found |= {f"rays.{name}": digest(getattr(rays, name)[:n_rays]) for name in ("origins", "starts", "targets", "kept", "rgb", "transmittance", "gradient")}
    found |= {f"samples.{name}": digest(getattr(samples, name)[slots]) for name in ("positions", "features", "raw", "prefix", "d_rgb", "d_raw")}
    found |= {"samples.d_features": digest(samples.d_features[:n])}
    found |= {"mlp.gradient": digest(step.mlp.gradient), "table.gradient": digest(step.table.gradient)}
    step.update()
    return found | {name: digest(tensor) for name, tensor in step.state_tensors().items()}


def first_difference(scene: Scene, config: TrainConfig, device: torch.device) -> dict[str, Any] | None:
    """The first of WATCHED_STEPS in which two runs differ, and in which tensors; None: they do not."""
    first, second = (TrainStep(scene, config, device, SingleDevice()) for _ in range(2))
    for number in range(WATCHED_STEPS):
        ours, theirs = step_digests(first, number), step_digests(second, number)
        if different := [name for name, value in ours.items() if theirs[name] != value]:
            return {"step": number, "tensors": different, "kept": int(first.control.stats[number % RING, STAT_KEPT]), "capacity": first.capacity}
    return None


def run(scene: Scene, held_out: Scene | None, config: TrainConfig, device: torch.device) -> dict[str, Any]:
    """One run: digests of its weights, time a step over its second half, score, steps with more samples than slots."""
    step = TrainStep(scene, config, device, SingleDevice())
    step.compile()
    advance = GraphedStep(step) if device.type == "cuda" else step
    most, begin = 0, time.perf_counter()
    for number in range(config.steps):
        if number == config.steps // 2:
            wait(device)
            begin = time.perf_counter()
        advance(number)
        if number < config.steps // 2 and (number + 1) % RING == 0:
            most = max(most, int(step.control.stats[:, STAT_KEPT].max()))
    wait(device)
    seconds = time.perf_counter() - begin
    most = max(most, int(step.control.stats[:, STAT_KEPT].max()))
    found: dict[str, Any] = {"weights": {name: digest(tensor) for name, tensor in step.state_tensors().items()}}
    found |= {"ms_per_step": 1e3 * seconds / (config.steps - config.steps // 2), "most_kept": most, "capacity": step.capacity}
    if held_out is not None:
        found["psnr"] = evaluate(step.model(), held_out, n_pixels=PIXELS).psnr_mean
    found["stages_ms"] = stage_times(step, config.steps, STAGE_STEPS)
    return found


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lego", type=Path)
    parser.add_argument("--fox", type=Path)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=TrainConfig().batch_size)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("determinism.json"))
    arguments = parser.parse_args()
    device = torch.device("cuda", torch.cuda.current_device()) if arguments.device == "cuda" else torch.device("cpu")
    config = dataclasses.replace(TrainConfig(), steps=arguments.steps, batch_size=arguments.batch, seed=arguments.seed)
    scenes: dict[str, tuple[Scene, Scene | None]] = {"built-in": (synthetic_scene("train"), synthetic_scene("test"))}
    for name in ("lego", "fox"):
        if (path := getattr(arguments, name)) is not None:
            scenes[name] = (load_scene(path, split="train"), load_scene(path, split="test"))
    result: dict[str, Any] = {"steps": arguments.steps, "seed": arguments.seed, "device": str(device)}
    for name, (scene, held_out) in scenes.items():
        difference = first_difference(scene, config, device)
        runs = [run(scene, held_out, config, device) for _ in range(2)]
        same = runs[0]["weights"] == runs[1]["weights"]
        result[name] = {"same_bits": same, "first_difference": difference, "runs": runs}
        arguments.out.write_text(json.dumps(result, indent=1))
        print(name, "same bits" if same else "DIFFERENT", difference, [{k: r.get(k) for k in ("psnr", "ms_per_step", "most_kept")} for r in runs], flush=True)


if __name__ == "__main__":
    main()
