"""``nerfleet train``: a scene in; checkpoints, the model and a report out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from nerfleet.cli.flags import Device, print_json, say
from nerfleet.config import REFERENCE_BATCH, NetworkConfig, TrainConfig, to_dict
from nerfleet.errors import NerfleetError
from nerfleet.presets import apply_mode, load_network

if TYPE_CHECKING:
    import torch

    from nerfleet.data.scene import Scene
    from nerfleet.train.checkpoint import Write
    from nerfleet.train.photographs import Photographs
    from nerfleet.train.ranks import Parallel
    from nerfleet.train.step import Start
    from nerfleet.train.trainer import Progress, TrainResult

SUMMARY = "train a radiance field on a scene; resumes by itself"
CPU_BATCH = 1 << 15
"""Samples of a step where there is no GPU: more, smaller steps learn faster there."""
PLAIN_LINE_SECONDS = 5.0


@dataclass(frozen=True)
class Arguments:
    """Train a radiance field. Run the same command again to continue after an interruption.

    Examples:
        nerfleet train data/fox --out runs/fox
        nerfleet train data/lego --downscale 2 --max-seconds 60 --json
        nerfleet train data/fox --gpus 4
        nerfleet train data/fox --gpus 8 --nnodes 1:4 --rdzv-endpoint host1:29400 --rdzv-id fox-7

    Attributes:
        scene: transforms.json, or a folder that holds one (or transforms_train/val/test.json).
        out: run folder (default: runs/<scene>).
        steps: steps to train.
        max_seconds: training time after which to stop in good order; 0: no limit.
        network: base, small, big, or a network JSON file as instant-ngp reads it.
        preset: basic or advanced: the two modes that set several knobs at once.
        batch_size: samples with a gradient in a step, of all ranks together; 0: 2^18 a GPU, without a GPU 2^15 a rank.
        downscale: reduce photographs by this factor with a box filter.
        background: what is behind transparent pixels while training.
        nerf_compatibility: blend in sRGB, black background, constant steps, as the original NeRF.
        near_distance: density nearer to a camera than this is pushed away.
        surface_from: favour surfaces, for meshes, from this step of 2^18 samples on (later than the coarse shape); -1: never.
        images: how photographs come to the device. all: read first, the same run every time; progressive: train while they are read; pool: hold
            some pixels of every photograph and renew them, for scenes larger than memory; auto: what the scene's size asks for.
        image_memory: what photographs may take on the device, such as 4GB; empty: half of its memory.
        image_workers: processes that decode photographs while training runs; 0: one a core.
        train_on_all: also train on held-out views.
        strict: warnings about the scene are errors.
        checkpoint_every: time between checkpoints, such as 30s or 5m.
        eval_every: steps between evaluations on held-out views; 0: only at the end.
        pixels: evaluate on this many random pixels of each held-out view; 0: all.
        json: print one JSON object at the end.
        gpus: ranks on this machine, one a GPU (with --device cpu: processes).
        nnodes: machines that run this same command: a number, or least:most; one that is lost or joins is no end of the run.
        rdzv_endpoint: host:port where the machines meet: one of them, and a free port there.
        rdzv_id: word that tells this run from others, the same on all machines.
        parallel: how ranks work together: data, grid, hybrid; auto: data unless one GPU's memory would pass 80 %.
        grid_degree: ranks that share one hash grid; 0: all (grid) or 2 (hybrid).
        calibration: files of bench step --save and bench collectives --save, by which --parallel auto then decides.
        start: begin with this model's weights (an .ingp or .msgpack file, or a run folder) and go on from its step.
        views: split the photographs' pixels over ranks, or let every rank hold them all.
        rank_speed: relative speed of each rank, such as 3,3,1; empty: measured while training.
        collective_timeout: a rank that does not answer for so long ends the run.
        max_restarts: how often lost ranks are started again.
    """

    scene: tyro.conf.Positional[Path]
    out: Path | None = None
    steps: int = 20_000
    max_seconds: float = 0.0
    network: str = "base"
    preset: Literal["none", "basic", "advanced"] = "none"
    batch_size: int = 0
    downscale: int = 1
    background: Literal["random", "black", "white"] = "random"
    nerf_compatibility: bool = False
    near_distance: float = 0.3
    surface_from: int = -1
    device: Device = "auto"
    seed: int = 1337
    images: Literal["auto", "all", "progressive", "pool"] = "auto"
    image_memory: str = ""
    image_workers: int = 0
    train_on_all: bool = False
    strict: bool = False
    checkpoint_every: str = "30s"
    eval_every: int = 0
    pixels: int = 0
    json: bool = False
    gpus: int = 1
    nnodes: str = "1"
    rdzv_endpoint: str = ""
    rdzv_id: str = ""
    parallel: Literal["auto", "data", "grid", "hybrid"] = "auto"
    grid_degree: int = 0
    calibration: tuple[Path, ...] = ()
    start: Path | None = None
    views: Literal["split", "replicate"] = "split"
    rank_speed: str = ""
    collective_timeout: str = "2m"
    max_restarts: int = 3


def run(arguments: Arguments) -> None:
    from nerfleet.cli import train_ranks

    if train_ranks.wanted(arguments):
        train_ranks.run(arguments)
    else:
        run_alone(arguments)


def run_alone(arguments: Arguments) -> None:
    """On one device, in this process."""
    from nerfleet.cli.train_images import Surroundings, train_images
    from nerfleet.data.progress import progress_bar
    from nerfleet.train.trainer import choose_device

    device = choose_device(arguments.device)
    config = config_from(arguments, device.type)
    with contextlib.ExitStack() as held:
        with progress_bar() as progress:
            images = held.enter_context(train_images(arguments, Surroundings(device, say, say, progress)))
        out = arguments.out or Path("runs") / images.scene.name
        result = train_run(images.scene, images.held_out, config, out, device, photographs=images.feed, start=load_start(arguments.start))
    finish(arguments, images.scene, config, out, device, result)


def finish(arguments: Arguments, scene: Scene, config: TrainConfig, out: Path, device: torch.device, result: TrainResult) -> None:
    """Report and answer of a run that has ended. Raises KeyboardInterrupt if a signal ended it."""
    from nerfleet.cli.run_report import run_report
    from nerfleet.telemetry.report import write_report

    summary = run_summary(result, out)
    write_report(out / "report.html", run_report(scene, config, result, summary, device))
    if arguments.json:
        print_json(summary)
    else:
        score = f", held-out PSNR {summary['psnr_mean']:.2f} dB" if summary["psnr_mean"] is not None else ""
        say(f"{result.steps} steps in {result.train_seconds:.1f} s{score}: {summary['model']}, {out / 'report.html'}")
    if result.stopped_by == "signal":
        say("stopped by a signal; run the same command to continue")
        raise KeyboardInterrupt


def config_from(arguments: Arguments, device_type: str, world_size: int = 1) -> TrainConfig:
    """Flags -> checked configuration."""
    config = TrainConfig(
        network=load_network(arguments.network) if arguments.start is None else start_network(arguments.start, arguments.network),
        seed=arguments.seed,
        steps=arguments.steps,
        max_seconds=arguments.max_seconds,
        batch_size=arguments.batch_size or (CPU_BATCH if device_type == "cpu" else REFERENCE_BATCH) * world_size,
        background="black" if arguments.nerf_compatibility else arguments.background,
        nerf_compatibility=arguments.nerf_compatibility,
        near_distance=arguments.near_distance,
        surface_from=arguments.surface_from,
        checkpoint_every_seconds=seconds(arguments.checkpoint_every),
        eval_every_steps=arguments.eval_every,
        eval_pixels=arguments.pixels,
    )
    if arguments.preset != "none":
        config = apply_mode(config, arguments.preset, world_size)
        if arguments.batch_size:
            config = dataclasses.replace(config, batch_size=arguments.batch_size)
    config.validate()
    return config


def seconds(text: str, flag: str = "checkpoint-every") -> float:
    """ "30s", "5m", "1h" or a plain number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text.strip())
    if not match:
        raise NerfleetError(flag, f"{text!r} is not a time", "write 30s, 5m or 1h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "": 1}[match[2]]


def start_network(model: Path, name: str) -> NetworkConfig:
    """The configuration of a model that training starts from, with the learning rates of ``name``. Raises NerfleetError where another network is asked for."""
    from nerfleet.snapshot.load import load_model

    network, named = load_model(model).network, load_network(name)
    alike = all(getattr(network, part) == getattr(named, part) for part in ("encoding", "density", "rgb"))
    if name != Arguments.network and not alike:
        raise NerfleetError(f"--network {name}", f"is not the network of {model}", "leave it out")
    return dataclasses.replace(network, optimizer=named.optimizer)


def load_start(model: Path | None) -> Start | None:
    """Weights and step that training starts from."""
    if model is None:
        return None
    from nerfleet.snapshot.ingp import read_snapshot, training_step
    from nerfleet.snapshot.load import model_file
    from nerfleet.train.step import Start

    snapshot = read_snapshot(model_file(model))
    return Start(snapshot.model, training_step(snapshot.document))


def train_run(
    scene: Scene, held_out: Scene | None, config: TrainConfig, out: Path, device: torch.device, parallel: Parallel | None = None,
    photographs: Photographs | None = None, start: Start | None = None,
) -> TrainResult:  # fmt: skip
    """Train in a run folder; at the end the configuration and the model are in it. Only the first rank writes and speaks."""
    from nerfleet.train.trainer import train

    first = parallel is None or parallel.rank == 0
    with contextlib.ExitStack() as held:
        if parallel is None:
            held.enter_context(own_folder(out))
        write = held.enter_context(_writing_process()) if first and device.type == "cuda" else None
        on_progress = held.enter_context(_progress_display()) if first else None
        options: dict[str, Any] = {"parallel": parallel, "photographs": photographs, "write": write, "start": start}
        options |= {"on_progress": on_progress, "say": say if first else None}
        result = train(scene, config, device=device.type, out=out, held_out=held_out, **options)
    if first:
        _write_json(out / "config.json", to_dict(config))
        _write_model(out, scene, config, result)
    return result


@contextlib.contextmanager
def _writing_process() -> Iterator[Write]:
    """For a GPU, which must not wait for disks. On the CPU a thread writes as well: there a process would only take memory."""
    from nerfleet.pipeline.uploads import pin
    from nerfleet.pipeline.writer import Writer

    with contextlib.closing(Writer(say, pin)) as writer:
        yield writer.submit


@contextlib.contextmanager
def own_folder(out: Path) -> Iterator[None]:
    """Makes the run folder and holds it against other trainings. Raises NerfleetError."""
    from nerfleet.train.run_lock import run_lock

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NerfleetError(str(out), error.strerror or "cannot be made", "choose another --out") from None
    with run_lock(out):
        yield


def _write_model(out: Path, scene: Scene, config: TrainConfig, result: TrainResult) -> None:
    """The model of a run as instant-ngp reads it."""
    from nerfleet.snapshot.ingp import Snapshot
    from nerfleet.snapshot.load import RUN_MODEL
    from nerfleet.snapshot.write import snapshot_document, write_snapshot

    last = result.last_step
    model = result.model.to("cpu")
    rays, kept, evaluated = (last.rays, last.kept, last.evaluated) if last else (config.initial_rays, 0, 0)
    document = snapshot_document(
        model,
        scene=scene,
        training_step=result.steps,
        loss=last.loss if last else 0.0,
        rays_per_batch=rays,
        measured_batch_size=kept,
        measured_batch_size_before_compaction=evaluated,
    )
    write_snapshot(out / RUN_MODEL, Snapshot(model, document))


def run_summary(result: TrainResult, out: Path) -> dict[str, Any]:
    """The object that ``--json`` prints and ``report.json`` holds."""
    from nerfleet.snapshot.load import RUN_MODEL

    return {
        "steps": result.steps,
        "trained_samples": result.trained_samples,
        "train_seconds": result.train_seconds,
        "samples_per_s": result.trained_samples / result.train_seconds if result.train_seconds else 0.0,
        "skipped_steps": result.skipped_steps,
        "world_size": result.world_size,
        "strategy": result.strategy,
        "stopped_by": result.stopped_by,
        "psnr_mean": result.evaluation.psnr_mean if result.evaluation and math.isfinite(result.evaluation.psnr_mean) else None,
        "images": result.images,
        "ssim_mean": result.evaluation.ssim_mean if result.evaluation else None,
        "model": str(out / RUN_MODEL),
    }


def _write_json(path: Path, values: dict[str, Any]) -> None:
    """Write under a temporary name, then rename."""
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(json.dumps(values, indent=1) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise NerfleetError(str(path), error.strerror or "cannot be written", "make room for it, then run the same command again") from None


@contextlib.contextmanager
def _progress_display() -> Iterator[Callable[[Progress], None]]:
    """One line that is redrawn on a terminal; else a plain line every few seconds. On stderr."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr)
    if console.is_terminal:
        with Live("", console=console, refresh_per_second=4) as live:
            yield lambda progress: live.update(progress_line(progress))
        return
    last = -math.inf

    def show(progress: Progress) -> None:
        nonlocal last
        if progress.seconds - last >= PLAIN_LINE_SECONDS:
            last = progress.seconds
            say(progress_line(progress))

    yield show


def progress_line(progress: Progress) -> str:
    """Step, loss, PSNR estimate, rates and time left in one line."""
    parts = [
        f"step {progress.step:,}/{progress.steps:,}",
        f"loss {progress.loss:.5f}",
        f"PSNR ~{progress.psnr:.1f} dB",
        f"{_si(progress.rays_per_s)} rays/s",
        f"{_si(progress.samples_per_s)} samples/s",
        f"{clock(progress.seconds)} gone",
    ]
    if progress.seconds_left is not None:
        parts.append(f"{clock(progress.seconds_left)} left")
    if progress.skipped_steps:
        parts.append(f"{progress.skipped_steps} steps skipped (not finite)")
    return "  ".join(parts)


def clock(duration: float) -> str:
    minutes, rest = divmod(int(duration + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _si(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.0f}"
