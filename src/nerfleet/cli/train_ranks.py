"""``nerfleet train`` on several ranks: starting them, and what each of them does."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nerfleet.cli import on_ranks

if TYPE_CHECKING:
    from nerfleet.cli.train import Arguments
    from nerfleet.cli.train_images import Surroundings, TrainImages
    from nerfleet.config import TrainConfig
    from nerfleet.data.scene import Scene
    from nerfleet.parallel.mesh import Strategy
    from nerfleet.parallel.ranks import Ranks
    from nerfleet.train.ranks import Parallel


PRELOAD = (
    *on_ranks.PRELOAD,
    *("nerfleet.cli.train_ranks", "nerfleet.cli.run_report", "nerfleet.telemetry.report", "torch.distributed.checkpoint"),
    *("nerfleet.parallel.data_parallel", "nerfleet.parallel.grid_parallel"),
)


def wanted(arguments: Arguments) -> bool:
    """Whether there is more to it than one device: ranks are asked for, or this process is one."""
    return arguments.nnodes != "1" or on_ranks.wanted(arguments.gpus)


def run(arguments: Arguments) -> None:
    """Start the ranks of this machine, or be one."""
    from nerfleet.parallel.environment import inside

    if inside():
        on_ranks.be_rank(arguments.device, arguments.collective_timeout, lambda ranks: _train(arguments, ranks))
        return
    from nerfleet.parallel.launch import machines
    from nerfleet.parallel.shares import parse_speeds

    together = machines(arguments.nnodes, arguments.rdzv_endpoint, arguments.rdzv_id)
    if together is None:  # else the number of ranks is not known yet
        _check(arguments, arguments.device, max(arguments.gpus, 1))
        parse_speeds(arguments.rank_speed, max(arguments.gpus, 1))
    on_ranks.start("train", arguments, PRELOAD, arguments.max_restarts, together)


def _train(arguments: Arguments, ranks: Ranks) -> None:
    from nerfleet.cli.flags import say
    from nerfleet.cli.train import config_from, finish, load_start, own_folder, train_run
    from nerfleet.cli.train_images import train_images
    from nerfleet.parallel.shares import parse_speeds, shares

    first = ranks.rank == 0
    config = ranks.together(lambda: config_from(arguments, ranks.device.type, ranks.world_size))
    _same_flags(arguments, ranks)
    parts = shares(ranks.together(lambda: parse_speeds(arguments.rank_speed, ranks.world_size)))
    _check(arguments, ranks.device.type, ranks.world_size)
    around = ranks.together(lambda: _surroundings(arguments, ranks, parts, say if first else _silent, say))
    with contextlib.ExitStack() as held:
        images = ranks.together(lambda: held.enter_context(train_images(arguments, around)))
        scene, held_out = images.scene, images.held_out
        parallel = _strategy(arguments, ranks, config, parts, images)
        out = arguments.out or Path("runs") / scene.name
        ranks.together(lambda: held.enter_context(own_folder(out)) if first else None)
        start = ranks.together(lambda: load_start(arguments.start))
        result = train_run(scene, held_out, config, out, ranks.device, parallel, images.feed, start)
    if result.stopped_by == "signal":  # the grace period is short: the checkpoint is written, a report can wait
        if first:
            say("stopped by a signal; run the same command to continue")
        raise KeyboardInterrupt
    if first:
        finish(arguments, scene, config, out, ranks.device, result)


OWN_TO_A_RANK = ("scene", "out", "gpus", "json", "calibration")
"""Flags that may differ between machines."""


def _same_flags(arguments: Arguments, ranks: Ranks) -> None:
    """Machines are started one by one: a flag that differs would end in collectives of different sizes. Raises SharedError."""
    import socket

    from nerfleet.parallel.ranks import SharedError

    values = {name: str(value) for name, value in dataclasses.asdict(arguments).items() if name not in OWN_TO_A_RANK}
    everyone = ranks.exchange((socket.gethostname(), values))
    _, reference = everyone[0]
    for rank, (host, other) in enumerate(everyone):
        for name, value in other.items():
            if value != reference[name]:
                flag = f"--{name.replace('_', '-')}"
                raise SharedError(f"rank {rank} on {host}", f"has {flag} {value}, rank 0 has {reference[name]}", "give every machine the same flags")


def _check(arguments: Arguments, device_type: str, world_size: int) -> None:
    """What can be known to be wrong from flags alone."""
    from nerfleet.cli.train import config_from
    from nerfleet.parallel.mesh import degrees

    config = config_from(arguments, device_type, world_size)
    degrees(arguments.parallel, world_size, arguments.grid_degree, _columns(config))


def _columns(config: TrainConfig) -> int:
    return config.network.encoding.n_levels * config.network.encoding.n_features_per_level


def _surroundings(arguments: Arguments, ranks: Ranks, parts: list[float], say: Callable[[str], None], warn: Callable[[str], None]) -> Surroundings:
    """This rank's part of the photographs, and of the held-out ones."""
    from nerfleet.cli.train_images import Surroundings, local_processes
    from nerfleet.data.part import Part
    from nerfleet.parallel.shares import edges

    def gather(failed: dict[str, str]) -> dict[str, str]:
        return {name: reason for some in ranks.exchange(failed) for name, reason in some.items()}

    def loading(*_: int) -> None:
        ranks.heartbeat.alive("loading")

    bounds = edges(parts)
    split = Part(bounds[ranks.rank], bounds[ranks.rank + 1], gather=gather) if arguments.views == "split" else None
    return Surroundings(ranks.device, say, warn, loading, split, on_ranks.equal_part(ranks), local_processes(), ranks.exchange, loading)


def _strategy(arguments: Arguments, ranks: Ranks, config: TrainConfig, parts: list[float], images: TrainImages) -> Parallel:
    from nerfleet.parallel.data_parallel import DataParallel
    from nerfleet.parallel.grid_parallel import GridParallel
    from nerfleet.parallel.mesh import degrees
    from nerfleet.parallel.ranks import SharedError

    held = ranks.exchange(images.n_pixels)
    pixel_shares = [n / sum(held) for n in held] if arguments.views == "split" else None
    memory = max(ranks.exchange(_memory(config, images, ranks)), key=lambda one: one[0] / max(one[1], 1))
    strategy, grid_degree = _planned(arguments, ranks, config, images.scene, sum(held))
    chosen = degrees(strategy, ranks.world_size, grid_degree, _columns(config), *memory)
    if chosen.grid == 1:
        return DataParallel(ranks, parts, pixel_shares, measured=not arguments.rank_speed)
    if ranks.device.type == "cuda":
        raise SharedError(f"--parallel {chosen.strategy}", "does not run on CUDA yet", "use --parallel data with a smaller log2_hashmap_size, or --device cpu")
    return GridParallel(ranks, chosen, parts, pixel_shares)


def _planned(arguments: Arguments, ranks: Ranks, config: TrainConfig, scene: Scene, n_pixels: int) -> tuple[Strategy, int]:
    """Strategy and grid degree as flags say, or with measurements and ``auto`` as the planner chooses (all ranks alike)."""
    if arguments.parallel != "auto" or not arguments.calibration:
        return arguments.parallel, arguments.grid_degree
    import socket

    from nerfleet.cli.flags import say
    from nerfleet.parallel.auto import GRID_ON_CUDA, Seat, planned
    from nerfleet.planner.calibration import read_calibration
    from nerfleet.planner.workload import SceneFacts

    seats = ranks.exchange(Seat(socket.gethostname(), *_device(ranks)))
    facts = SceneFacts(scene.name, scene.aabb_scale, len(scene), n_pixels)
    can_split = GRID_ON_CUDA or ranks.device.type == "cpu"
    choice = ranks.together(lambda: planned(config, facts, seats, read_calibration(arguments.calibration), can_split))
    if ranks.rank == 0:
        say(*choice.why)
    degree = choice.option.simulated.grid
    return "data" if degree == 1 else "grid" if degree == ranks.world_size else "hybrid", degree


def _device(ranks: Ranks) -> tuple[str, float]:
    """(name, memory)"""
    import os

    import torch

    if ranks.device.type == "cuda":
        properties = torch.cuda.get_device_properties(ranks.device)
        return properties.name, float(properties.total_memory)
    return "cpu", float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _memory(config: TrainConfig, images: TrainImages, ranks: Ranks) -> tuple[int, int]:
    """(bytes that data parallelism needs on this rank, bytes of its GPU; 0 without one)."""
    import torch

    from nerfleet.nn.field import field_spec
    from nerfleet.parallel.memory import training_bytes
    from nerfleet.train.step import SAMPLE_MARGIN

    if ranks.device.type != "cuda":
        return 0, 0
    grid = field_spec(config.network, images.scene.aabb_scale).grid
    n_samples = int(config.batch_size * SAMPLE_MARGIN) // ranks.world_size
    needed = training_bytes(grid.n_params, grid.n_output, n_samples, config.max_rays, images.device_bytes // 4, ranks.world_size)
    return needed, torch.cuda.mem_get_info(ranks.device)[1]


def _silent(_: str) -> None:
    """Only the first rank speaks."""
