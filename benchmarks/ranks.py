"""One GPU against several: samples a second, milliseconds a step, seconds to a quality, memory; data parallel.

    PYTHONPATH=src python benchmarks/ranks.py --lego data/lego --fox data/fox --gpus 1 2 --out ranks.json

Per number of GPUs: a run with 2^18 samples a GPU (weak), one with 2^18 in all (strong), and runs to a held-out PSNR for several
batch sizes. ``forced`` is the data strategy on one GPU: what its collectives cost without anybody to talk to. The clock excludes
loading and compiling and is stopped while evaluating; all ranks wait for their GPU before it is read.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nerfleet.config import REFERENCE_BATCH, TrainConfig
from nerfleet.data import load_scene
from nerfleet.data.part import Part
from nerfleet.data.scene import Scene
from nerfleet.kernels.control.op import STAT_KEPT
from nerfleet.parallel.data_parallel import DataParallel
from nerfleet.parallel.launch import start, warm_up
from nerfleet.parallel.ranks import RankLost, Ranks, exit_lost, joined
from nerfleet.render.evaluate import evaluate
from nerfleet.train.graph import GraphedStep
from nerfleet.train.ranks import Parallel, SingleDevice
from nerfleet.train.step import TrainStep

GOALS = {"lego": 34.5, "fox": 30.0}
TIMED_FROM, TIMED_STEPS, WINDOW = 1000, 1000, 200
EVALUATE_EVERY = {"lego": 250, "fox": 100}
PRELOAD = ("nerfleet.train.trainer", "nerfleet.parallel.data_parallel", "nerfleet.parallel.ranks", "nerfleet.data.transforms")


class Run:
    """One training of one scene on these ranks."""

    def __init__(self, scene: Scene, config: TrainConfig, ranks: Ranks, forced: bool) -> None:
        n = ranks.world_size
        pixels = ranks.exchange(len(scene.pixels))
        shares = [count / sum(pixels) for count in pixels]
        self.parallel: Parallel = DataParallel(ranks, [1 / n] * n, shares, measured=False) if n > 1 or forced else SingleDevice()
        self.ranks, self.config = ranks, config
        self.step = TrainStep(scene, config, ranks.device, self.parallel)
        self.step.compile()
        self.advance = GraphedStep(self.step)
        self.done, self.seconds = 0, 0.0

    def go(self, steps: int) -> float:
        """So many steps more -> their seconds, of the slowest rank."""
        self._together()
        began = time.perf_counter()
        for _ in range(steps):
            self.advance(self.done)
            self.done += 1
            self.parallel.agree(self.done, 0)
        self._together()
        seconds = max(self.ranks.exchange(time.perf_counter() - began))
        self.seconds += seconds
        return seconds

    def samples_a_step(self) -> float:
        """Mean of the last steps."""
        return float(self.step.control.stats[:, STAT_KEPT].mean())

    def _together(self) -> None:
        torch.cuda.synchronize()
        self.ranks.exchange(None)


def speed(scene: Scene, config: TrainConfig, ranks: Ranks, forced: bool) -> dict[str, Any]:
    torch.cuda.reset_peak_memory_stats()
    run = Run(scene, config, ranks, forced)
    run.go(TIMED_FROM)
    windows = sorted(run.go(WINDOW) / WINDOW for _ in range(TIMED_STEPS // WINDOW))
    seconds = windows[len(windows) // 2]
    peak = max(ranks.exchange(torch.cuda.max_memory_allocated()))
    return {"ms_per_step": 1e3 * seconds, "samples_per_s": run.samples_a_step() / seconds, "batch_size": config.batch_size, "peak_torch_bytes": peak}


def quality(name: str, scene: Scene, held_out: Scene, config: TrainConfig, ranks: Ranks) -> dict[str, Any]:
    """Until the goal is reached or the samples of 20,000 steps of the reference batch are trained."""
    run, every = Run(scene, config, ranks, False), EVALUATE_EVERY[name]
    curve, reached, most = [], None, int(20_000 * REFERENCE_BATCH / config.batch_size)
    while run.done < most and reached is None:
        run.go(every)
        psnr = evaluate(run.step.model(), held_out, exchange=ranks.exchange).psnr_mean
        curve.append((run.done, run.seconds, psnr))
        reached = run.seconds if psnr >= GOALS[name] else None
    return {"batch_size": config.batch_size, "goal": GOALS[name], "seconds": reached, "curve": curve}


def measure(task: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    n, found = ranks.world_size, {}
    for name, path in task["scenes"].items():
        part = Part(ranks.rank / n, (ranks.rank + 1) / n, gather=lambda failed: {k: v for some in ranks.exchange(failed) for k, v in some.items()})
        scene = load_scene(Path(path), "train", part=part)
        held_out = load_scene(Path(path), "test", part=part)
        base = TrainConfig(steps=20_000)
        rows: dict[str, Any] = {}
        for what, batch, forced in (("weak", REFERENCE_BATCH * n, False), ("strong", REFERENCE_BATCH, False), ("forced", REFERENCE_BATCH, True)):
            if what == "forced" and n > 1 or what == "strong" and n == 1:
                continue
            rows[what] = speed(scene, dataclasses.replace(base, batch_size=batch), ranks, forced)
            say(ranks, f"{name} {n} GPUs {what}: {rows[what]}")
        rows["quality"] = []
        for batch in task["batches"]:
            rows["quality"].append(quality(name, scene, held_out, dataclasses.replace(base, batch_size=batch), ranks))
            say(ranks, f"{name} {n} GPUs: {GOALS[name]} dB with batch {batch} after {rows['quality'][-1]['seconds']} s")
        found[name] = rows
    return found


def say(ranks: Ranks, line: str) -> None:
    if ranks.rank == 0:
        print(line, flush=True)


def rank_main(words: Sequence[str]) -> int:
    """One rank: ``words`` holds the task as JSON."""
    task = json.loads(words[0])
    try:
        with joined("cuda") as ranks:
            found = measure(task, ranks)
            ranks.exchange(None)
            if ranks.rank == 0:
                Path(task["answer"]).write_text(json.dumps(found))
    except RankLost as error:
        exit_lost(error)
    return 0


def table(result: dict[str, Any], scene: str) -> str:
    """Time, speed-up, memory and throughput for each number of GPUs, as Markdown."""
    counts = sorted(result["gpus"], key=int)
    one = result["gpus"][counts[0]][scene]

    def best(n: str) -> float | None:
        return min((row["seconds"] for row in result["gpus"][n][scene]["quality"] if row["seconds"]), default=None)

    lines = [f"| GPUs | seconds to {GOALS[scene]} dB | speed-up | memory a GPU | M samples/s |", "|---|---|---|---|---|"]
    for n in counts:
        weak, first, own = result["gpus"][n][scene]["weak"], best(counts[0]), best(n)
        ratio = f"{first / own:.2f}x" if first and own else "-"
        lines.append(f"| {n} | {own and round(own, 2)} | {ratio} | {weak['peak_torch_bytes'] / 1e9:.2f} GB | {weak['samples_per_s'] / 1e6:.0f} |")
    return "\n".join(lines) + f"\n\n(one GPU: {one['weak']['ms_per_step']:.3f} ms a step)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lego", type=Path)
    parser.add_argument("--fox", type=Path)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batches", type=int, nargs="*", default=[1 << 18, 1 << 19, 1 << 20])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    scenes = {name: str(path) for name, path in (("lego", arguments.lego), ("fox", arguments.fox)) if path}
    result: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "gpus": {}}
    for n in arguments.gpus:
        answer = arguments.out.with_suffix(f".{n}.json")
        task = {"scenes": scenes, "batches": arguments.batches, "answer": str(answer)}
        warm_up(n, PRELOAD)
        code = start(n, rank_main, [json.dumps(task)], "cuda", max_restarts=0)
        if code:
            sys.exit(code)
        result["gpus"][str(n)] = json.loads(answer.read_text())
        arguments.out.write_text(json.dumps(result, indent=1))
    for name in scenes:
        print(f"\n{name}\n{table(result, name)}")


if __name__ == "__main__":
    main()
