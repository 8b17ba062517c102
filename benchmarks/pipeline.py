"""How photographs reach the device: decode rate, start, streaming, scenes larger than memory; the table of docs/performance.md.

    PYTHONPATH=src python benchmarks/pipeline.py --rows decode,start,stream,large --device cuda --fox data/fox --work /tmp/pipeline --out pipeline.json
    PYTHONPATH=src python benchmarks/pipeline.py --rows quality,decode,large --device cpu --fox data/fox --work /tmp/pipeline --out pipeline_cpu.json

``--work`` takes generated photographs of 3840x2160: eight distinct files under many names. Every row runs in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nerfleet.cli.train import CPU_BATCH
from nerfleet.config import REFERENCE_BATCH, TrainConfig
from nerfleet.data.on_demand import OnDemandScene, open_scene
from nerfleet.data.plan import plan_scene
from nerfleet.data.transforms import load_plan
from nerfleet.pipeline.choice import MAX_WORKERS
from nerfleet.pipeline.feed import Feed, FeedOptions, job_for
from nerfleet.pipeline.loader import Arrived, Loader, ring_size
from nerfleet.pipeline.messages import Layout
from nerfleet.pipeline.pixel_pool import PixelPool
from nerfleet.pipeline.progressive import ProgressivePhotographs
from nerfleet.render.evaluate import evaluate
from nerfleet.train.graph import GraphedStep
from nerfleet.train.step import SingleDevice, TrainStep
from nerfleet.train.trainer import train

WIDTH, HEIGHT, N_DISTINCT = 3840, 2160, 8
WARM_UP, TIMED, SEGMENT = 1500, 1500, 100
QUALITY_STEPS = 400


def make_scene(folder: Path, n_views: int) -> Path:
    """Photographs of noisy gradients on a circle of cameras; ``n_views`` names, N_DISTINCT different files."""
    from PIL import Image

    path = folder / f"{n_views}" / "transforms.json"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for k in range(N_DISTINCT):
        coarse = Image.fromarray(rng.integers(30, 220, (34, 60, 3), dtype=np.uint8)).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        grain = rng.normal(0, 5, (HEIGHT, WIDTH, 1)).astype(np.float32)
        Image.fromarray((np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8)).save(path.parent / f"distinct{k}.jpg", quality=92)
    frames = []
    for i in range(n_views):
        name = f"{i:05d}.jpg"
        os.link(path.parent / f"distinct{i % N_DISTINCT}.jpg", path.parent / name)
        frames.append({"file_path": name, "transform_matrix": circle_pose(2 * np.pi * i / n_views)})
    path.write_text(json.dumps({"fl_x": 3000.0, "aabb_scale": 1, "frames": frames}))
    return path


def circle_pose(angle: float) -> list[list[float]]:
    position = np.array([4 * np.cos(angle), 4 * np.sin(angle), 1.5])
    back = position / np.linalg.norm(position)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3] = np.column_stack([right, np.cross(back, right), back, position])
    return pose.tolist()


def opened(path: Path) -> OnDemandScene:
    return open_scene(plan_scene(path))


def cpu_seconds(pids: list[int]) -> float:
    """User and system time that processes have taken so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# decode: photographs a second, by the decoder alone, by one worker and by two


def decode(options: argparse.Namespace) -> dict[str, Any]:
    scene, n = opened(make_scene(options.work, 200)), 48
    rows = {"decoder_alone": decoder_alone(scene, n)}
    for n_workers in (1, 2, 4, 8, MAX_WORKERS):
        if n_workers <= 2 or n_workers <= len(os.sched_getaffinity(0)):
            rows[f"workers_{n_workers}"] = loader_rate(scene, n_workers, max(n, 8 * n_workers))
    one, two, alone = rows["workers_1"], rows["workers_2"], rows["decoder_alone"]
    ratios = {
        "two_workers_over_one": two["photographs_per_s"] / one["photographs_per_s"],
        "one_worker_over_decoder": one["photographs_per_s"] / alone["photographs_per_s"],
        "decoder_cpu_over_worker_cpu": alone["cpu_seconds_each"] / one["cpu_seconds_each"],
    }
    return {"decoder": "simplejpeg" if has_simplejpeg() else "Pillow", "megabytes_each": files_megabytes(scene), **rows, **ratios}


def has_simplejpeg() -> bool:
    try:
        import simplejpeg  # noqa: F401
    except ImportError:
        return False
    return True


def files_megabytes(scene: OnDemandScene) -> float:
    return scene.plan.frames[0].image.stat().st_size / 1e6


def decoder_alone(scene: OnDemandScene, n: int) -> dict[str, float]:
    """One loop around the decoder, into one buffer, as fast as it goes."""
    buffer = np.empty((HEIGHT, WIDTH, 4), np.uint8)
    files = [frame.image for frame in scene.plan.frames[:n]]

    def once(path: Path) -> None:
        if has_simplejpeg():
            import simplejpeg

            simplejpeg.decode_jpeg(path.read_bytes(), "RGBA", buffer=buffer)
        else:
            from PIL import Image

            with Image.open(path) as picture:
                buffer[...] = np.asarray(picture.convert("RGBA"))

    once(files[0])
    began, cpu = time.perf_counter(), time.process_time()
    for path in files:
        once(path)
    return {"photographs_per_s": n / (time.perf_counter() - began), "cpu_seconds_each": (time.process_time() - cpu) / n}


def loader_rate(scene: OnDemandScene, n_workers: int, n: int) -> dict[str, float]:
    """After the workers have started and decoded one photograph each."""
    loader = Loader(n_workers, scene.plan.decoding(1), Layout(), ring_size(n_workers, 4 * WIDTH * HEIGHT), print)
    jobs = iter([job_for(scene, scene.shares[i % len(scene.shares)]) for i in range(n + n_workers)])
    done, began, cpu = 0, 0.0, 0.0
    try:
        while done < n + n_workers:
            loader.give(lambda: next(jobs, None))
            for message in loader.poll(1.0):
                if isinstance(message, Arrived):
                    loader.release(message)
                    continue
                done += 1
                if done == n_workers:
                    began, cpu = time.perf_counter(), cpu_seconds(loader.workers)
        return {"photographs_per_s": n / (time.perf_counter() - began), "cpu_seconds_each": (cpu_seconds(loader.workers) - cpu) / n}
    finally:
        loader.close()


# start: 200 photographs of 4K; from "train" to the first step, against reading all of them


def start(options: argparse.Namespace) -> dict[str, Any]:
    path, device = make_scene(options.work, 200), torch.device(options.device)
    began = time.perf_counter()
    whole = load_plan(plan_scene(path))
    all_threads = time.perf_counter() - began
    step = TrainStep(whole, config(device), device, SingleDevice())
    step.compile()
    wait(device)
    all_first_step = time.perf_counter() - began
    del step, whole
    began = time.perf_counter()
    scene = opened(path)
    planned = time.perf_counter() - began
    feed = ProgressivePhotographs(scene, device, FeedOptions(workers()))
    step = TrainStep(scene, config(device), device, SingleDevice(), photographs=feed)
    step.compile()
    wait(device)
    built = time.perf_counter() - began
    feed.wait()
    feed.before_step(0)
    step(0)
    wait(device)
    first_step = time.perf_counter() - began
    number = 1
    while not feed._closed:
        feed.before_step(0)
        step(number)
        number += 1
    wait(device)
    report = feed.report()
    one_worker = loader_rate(scene, 1, 16)["photographs_per_s"]
    seconds = {"decode_all_threads": all_threads, "first_step_all_first": all_first_step, "planned": planned, "built": built, "first_step": first_step}
    decode_one = len(scene) / one_worker
    return {
        "seconds": seconds | {"first_share": report["first_share_seconds"], "all_views": report["all_views_seconds"], "decode_all_by_one": decode_one},
        "steps_before_all_views": number,
        "first_step_over_decode_all_threads": first_step / all_threads,
        "first_step_over_decode_all_by_one": first_step / decode_one,
        "report": report,
    }


# stream: milliseconds a step with the pool streaming against all photographs resident, and how busy the GPU is


def stream(options: argparse.Namespace) -> dict[str, Any]:
    device, plan = torch.device(options.device), plan_scene(options.fox)
    resident = timed_steps(TrainStep(load_plan(plan), config(device), device, SingleDevice()), None)
    scene = open_scene(plan)
    rows: dict[str, Any] = {"resident": resident}
    for share in (0.1, 0.3):
        feed = PixelPool(scene, device, int(share * scene.n_held_pixels), FeedOptions(workers()))
        try:
            feed.wait()
            rows[f"pool_{share}"] = timed_steps(TrainStep(scene, config(device), device, SingleDevice(), photographs=feed), feed)
        finally:
            feed.close()
        rows[f"pool_{share}"]["over_resident"] = rows[f"pool_{share}"]["ms_per_step"] / resident["ms_per_step"]
    return rows


def timed_steps(step: TrainStep, feed: Feed | None) -> dict[str, Any]:
    """Median over segments; ``busy``: time of the same steps with a full queue, over the time that they took."""
    advance: Callable[[int], None] = GraphedStep(step) if step.device.type == "cuda" else step
    segments, rays = [], 0
    for number in range(WARM_UP + TIMED):
        if number % SEGMENT == 0:
            wait(step.device)
            segments.append(time.perf_counter())
            rays = int(step.control.state[1])
        if feed is not None:
            feed.before_step(rays)
        advance(number)
    wait(step.device)
    segments.append(time.perf_counter())
    times = [1e3 * (b - a) / SEGMENT for a, b in zip(segments, segments[1:])][WARM_UP // SEGMENT :]
    row: dict[str, Any] = {"ms_per_step": float(np.median(times)), "ms_min": min(times), "ms_max": max(times), "rays_per_step": rays}
    if feed is not None:
        row["report"] = feed.report()
    if step.device.type == "cuda":
        row["device_ms"] = queued_ms(advance, WARM_UP + TIMED)
        row["busy"] = min(row["device_ms"] / row["ms_per_step"], 1.0)
    return row


def queued_ms(advance: Callable[[int], None], first: int) -> float:
    """Of a step when the GPU finds the next one waiting: all are queued behind a long sleep."""
    torch.cuda.synchronize()
    torch.cuda._sleep(400_000_000)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for number in range(first, first + SEGMENT):
        advance(number)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / SEGMENT


# large: 2,000 photographs of 4K in 4 GB of host memory and 1 GB for images


def large(options: argparse.Namespace) -> dict[str, Any]:
    path, run = make_scene(options.work, 2000), options.work / "run"
    words = ["train", str(path), "--out", str(run), "--device", options.device, "--image-memory", "1GB", "--steps", "1000000", "--json"]
    words += ["--max-seconds", str(options.large_seconds), "--pixels", "200", "--train-on-all", "--checkpoint-every", "1h"]
    if options.device == "cpu":
        words += ["--batch-size", "16384", "--image-workers", "2"]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "nerfleet", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with sampled_memory(process.pid) as peaks:
        out, err = process.communicate()
    if process.returncode:
        return {"failed": err[-2000:]}
    answer = json.loads(out)
    images = answer["images"]
    return {
        "seconds": time.perf_counter() - began, "steps": answer["steps"], "peak_host_bytes": peaks["host"], "peak_pss_of_trainer": peaks["trainer"],
        "bytes_on_device": images["image_bytes_on_device"], "photographs": images["views"], "said": err.splitlines()[:6], "images": images,
    }  # fmt: skip


@contextlib.contextmanager
def sampled_memory(pid: int) -> Iterator[dict[str, int]]:
    """Largest proportional set size (shared pages count once in all) of a process and its children, looked at five times a second."""
    peaks, stop = {"host": 0, "trainer": 0}, threading.Event()

    def look() -> None:
        while not stop.wait(0.2):
            sizes = [pss(p) for p in [pid, *children(pid)]]
            peaks["host"], peaks["trainer"] = max(peaks["host"], sum(sizes)), max(peaks["trainer"], sizes[0])

    thread = threading.Thread(target=look)
    thread.start()
    yield peaks
    stop.set()
    thread.join()


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def pss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


# quality: fox, all photographs in memory against a pool of a tenth of the pixels, the same number of steps


def quality(options: argparse.Namespace) -> dict[str, Any]:
    plan, device = plan_scene(options.fox), torch.device(options.device)
    held_out = open_scene(plan_scene(options.fox, "test"))
    knobs = TrainConfig(steps=options.steps or QUALITY_STEPS, batch_size=REFERENCE_BATCH if device.type == "cuda" else CPU_BATCH // 2)
    rows: dict[str, Any] = {"steps": knobs.steps, "batch_size": knobs.batch_size}
    for name in ("all", "pool"):
        scene = load_plan(plan) if name == "all" else open_scene(plan)
        feed = PixelPool(scene, device, scene.n_held_pixels // 10, FeedOptions(workers())) if isinstance(scene, OnDemandScene) else None
        result = train(scene, knobs, device=options.device, photographs=feed)
        scores = evaluate(result.model, held_out, n_pixels=4000)
        rows[name] = {"psnr": scores.psnr_mean, "trained_samples": result.trained_samples, "seconds": result.train_seconds, "images": result.images}
    rows["pool_minus_all_db"] = rows["pool"]["psnr"] - rows["all"]["psnr"]
    return rows


def config(device: torch.device) -> TrainConfig:
    return TrainConfig(batch_size=REFERENCE_BATCH if device.type == "cuda" else CPU_BATCH)


def workers() -> int:
    return min(len(os.sched_getaffinity(0)), MAX_WORKERS)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


ROWS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {"decode": decode, "start": start, "stream": stream, "large": large, "quality": quality}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="decode,start,stream,large")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--fox", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--large-seconds", type=float, default=30.0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = options.rows.split(",")
    if len(names) == 1:
        answer = ROWS[names[0]](options)
        sys.stdout.write(json.dumps(answer) + "\n")
    else:
        answer = {name: in_own_process(name, sys.argv[1:]) for name in names}
    if options.out is not None:
        options.out.write_text(json.dumps(answer, indent=1) + "\n")


def in_own_process(name: str, words: list[str]) -> dict[str, Any]:
    ended = subprocess.run([sys.executable, __file__, *words, "--rows", name, "--out", os.devnull], capture_output=True, text=True, check=False)
    sys.stderr.write(f"{name}: exit code {ended.returncode}\n")
    return json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else {"failed": ended.stderr[-2000:]}


if __name__ == "__main__":
    main()
