"""The planner's predictions beside measurements, on one GPU: calibrated on lego with the base network only.

    PYTHONPATH=src python benchmarks/plan_check.py --lego data/lego --fox data/fox --out plan_check.json

Rows: fox, lego with 2^21 and 2^22 entries a level. Each is predicted before it is looked at, from ``step_lego_19.json`` (beside ``--out``;
``nerfleet plan --calibration`` reads it); ``with_profile`` uses the samples and entries counted in the row's own scene as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import time
from pathlib import Path
from typing import Any

import torch

from nerfleet.cli.calibration_file import save, step_calibration
from nerfleet.config import EncodingConfig, NetworkConfig, TrainConfig
from nerfleet.data import load_scene
from nerfleet.data.scene import Scene
from nerfleet.planner.calibration import Calibration, StepMeasurement, read_calibration
from nerfleet.planner.simulate import Simulated, simulate
from nerfleet.planner.topology import uniform
from nerfleet.planner.workload import adapted, workload
from nerfleet.train.graph import GraphedStep
from nerfleet.train.stage_times import measure_ceilings, stage_times
from nerfleet.train.stage_times import workload as counted
from nerfleet.train.step import SingleDevice, TrainStep

TIMED_STEPS = 9
ROWS = (("lego", 19), ("fox", 19), ("lego", 21), ("lego", 22), ("fox", 22))


def measure(scene: Scene, log2_hashmap_size: int, device: torch.device, warm_up: int, n_steps: int, batch: int) -> dict[str, Any]:
    """What ``nerfleet bench step --save`` keeps."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    network = NetworkConfig(encoding=EncodingConfig(log2_hashmap_size=log2_hashmap_size))
    step = TrainStep(scene, TrainConfig(network=network, batch_size=batch), device, SingleDevice())
    advance = GraphedStep(step) if device.type == "cuda" else step
    for number in range(warm_up):
        advance(number)
    synchronize(device)
    begin = time.perf_counter()
    for number in range(warm_up, warm_up + n_steps):
        advance(number)
    synchronize(device)
    seconds, done = time.perf_counter() - begin, warm_up + n_steps
    load = counted(step, done, n_steps)
    peak = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 1 << 30
    allocated = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 1 << 30
    stages = stage_times(step, done, TIMED_STEPS)
    report = {
        "ms_per_step": 1e3 * seconds / n_steps, "trained_samples_per_step": load.kept, "evaluated_samples_per_step": load.evaluated,
        "rays_per_step": load.rays, "stages_ms": stages, "peak_bytes": peak, "allocated_bytes": allocated,
    }  # fmt: skip
    return report | step_calibration(step, scene, measure_ceilings(device).bytes_per_s)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def predict(calibration: Calibration, measured: StepMeasurement, own_profile: bool) -> Simulated:
    """The row of ``measured`` from ``calibration`` alone; ``own_profile``: with its own counts of samples and entries."""
    scene = measured.load.scene
    known = calibration.profile_for(scene.name) or adapted(calibration.steps[0].load.profile, scene)
    config = TrainConfig(network=measured.load.network, batch_size=measured.load.batch)
    load = workload(scene, config, measured.load.profile if own_profile else known)
    return simulate(load, uniform(measured.gpu, 1, link="none"), 1, calibration)


def row(name: str, size: int, report: dict[str, Any], calibration: Calibration, measured: StepMeasurement) -> dict[str, Any]:
    """Measured and predicted; errors relative to the measurement."""
    found: dict[str, Any] = {"scene": name, "log2_hashmap_size": size, "measured_ms": report["ms_per_step"], "measured_bytes": report["peak_bytes"]}
    for key, own in (("predicted", False), ("with_profile", True)):
        simulated = predict(calibration, measured, own)
        ms, peak = 1e3 * simulated.step_seconds, simulated.ranks[0].memory.peak
        found[key] = {
            "ms": ms,
            "error_ms": ms / report["ms_per_step"] - 1,
            "bytes": peak,
            "error_bytes": peak / report["peak_bytes"] - 1,
            "stages_ms": {stage: 1e3 * seconds for stage, seconds in simulated.stages.items()},
        }
    found["measured_stages_ms"] = {stage: 1e3 * seconds for stage, seconds in measured.in_graph.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lego", type=Path, required=True)
    parser.add_argument("--fox", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--warm-up", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=1 << 18)
    parser.add_argument("--downscale", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    scenes = {name: load_scene(getattr(arguments, name), downscale=arguments.downscale) for name in ("lego", "fox")}
    for scene in scenes.values():  # compiles
        measure(scene, 19, device, 2, 2, arguments.batch_size)
    rows, calibration = [], None
    for name, size in ROWS:
        report = measure(scenes[name], size, device, arguments.warm_up, arguments.steps, arguments.batch_size)
        file = arguments.out.with_name(f"step_{name}_{size}.json")
        save(file, report)
        read = read_calibration([file])
        calibration = calibration or read
        found = row(name, size, report, calibration, read.steps[0])
        rows.append(found)
        print(name, size, json.dumps({key: value for key, value in found.items() if not isinstance(value, dict)}), flush=True)
        for key in ("predicted", "with_profile"):
            print(f"   {key:14s}", json.dumps({k: v for k, v in found[key].items() if k != "stages_ms"}), flush=True)
        arguments.out.write_text(json.dumps({"device": dataclasses.asdict(read.steps[0].gpu), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
