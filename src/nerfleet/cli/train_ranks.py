"""``nerfleet train`` on several ranks: starting them, and what each of them does."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.cli.train import Arguments
    from nerfleet.config import TrainConfig
    from nerfleet.data.part import Part
    from nerfleet.data.scene import Scene
    from nerfleet.parallel.mesh import Strategy
    from nerfleet.parallel.ranks import Ranks
    from nerfleet.train.ranks import Parallel


def wanted(arguments: Arguments) -> bool:
    """Whether there is more to it than one device: ranks are asked for, or this process is one."""
    from nerfleet.parallel.environment import inside

    return arguments.gpus != 1 or inside()


def run(arguments: Arguments) -> None:
    """Start the ranks, or be one."""
    from nerfleet.parallel.environment import inside
    from nerfleet.parallel.launch import start
    from nerfleet.parallel.shares import parse_speeds
    from nerfleet.train.trainer import choose_device

    if inside():
        run_rank(arguments)
        return
    device_type = choose_device(arguments.device).type
    _check(arguments, device_type, max(arguments.gpus, 1))
    parse_speeds(arguments.rank_speed, max(arguments.gpus, 1))
    code = start(arguments.gpus, ["train", *words(arguments)], device_type, arguments.max_restarts)
    if code:
        sys.exit(code)


def words(arguments: Arguments) -> list[str]:
    """Flags that give these arguments again."""
    defaults = {field.name: field.default for field in dataclasses.fields(arguments)}
    found = [str(arguments.scene)]
    for name, default in defaults.items():
        value = getattr(arguments, name)
        if name == "scene" or value == default:
            continue
        flag = name.replace("_", "-")
        if isinstance(value, tuple):
            found += [f"--{flag}", *map(str, value)]
            continue
        found += ([f"--{flag}"] if value else [f"--no-{flag}"]) if isinstance(value, bool) else [f"--{flag}", str(value)]
    return found


def run_rank(arguments: Arguments) -> None:
    """Be one rank. An error that all ranks share is said by the first; under our launcher it is no reason to start again."""
    from nerfleet.cli.flags import say
    from nerfleet.cli.train import seconds
    from nerfleet.parallel.launch import has_launcher, leave_outcome
    from nerfleet.parallel.ranks import RankLost, SharedError, exit_lost, joined
    from nerfleet.train.trainer import choose_device

    rank = -1
    try:
        timeout = seconds(arguments.collective_timeout, "collective-timeout")
        with joined(choose_device(arguments.device).type, timeout, say) as ranks:
            rank = ranks.rank
            _train(arguments, ranks)
    except RankLost as error:
        exit_lost(error)
    except (NerfleetError, KeyboardInterrupt) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        leave_outcome(max(rank, 0), 130 if interrupted else 2)
        if not has_launcher():
            raise
        if interrupted or (isinstance(error, SharedError) and rank > 0):
            return
        say(f"nerfleet: error: {error}")


def _train(arguments: Arguments, ranks: Ranks) -> None:
    from nerfleet.cli.flags import say
    from nerfleet.cli.train import config_from, finish, load_start, own_folder, train_run
    from nerfleet.parallel.shares import parse_speeds, shares

    first = ranks.rank == 0
    config = ranks.together(lambda: config_from(arguments, ranks.device.type, ranks.world_size))
    parts = shares(ranks.together(lambda: parse_speeds(arguments.rank_speed, ranks.world_size)))
    _check(arguments, ranks.device.type, ranks.world_size)
    scene, held_out = ranks.together(lambda: _load(arguments, ranks, parts, say if first else _silent))
    parallel = _strategy(arguments, ranks, config, parts, scene)
    out = arguments.out or Path("runs") / scene.name
    with contextlib.ExitStack() as held:
        ranks.together(lambda: held.enter_context(own_folder(out)) if first else None)
        start = ranks.together(lambda: load_start(arguments.start))
        result = train_run(scene, held_out, config, out, ranks.device, parallel, start)
    if result.stopped_by == "signal":  # the grace period is short: the checkpoint is written, a report can wait
        if first:
            say("stopped by a signal; run the same command to continue")
        raise KeyboardInterrupt
    if first:
        finish(arguments, scene, held_out, config, out, ranks.device, result)


def _check(arguments: Arguments, device_type: str, world_size: int) -> None:
    """What can be known to be wrong from flags alone."""
    from nerfleet.cli.train import config_from
    from nerfleet.parallel.mesh import degrees

    config = config_from(arguments, device_type, world_size)
    degrees(arguments.parallel, world_size, arguments.grid_degree, config.network.encoding.n_levels)


def _load(arguments: Arguments, ranks: Ranks, parts: list[float], say: Callable[[str], None]) -> tuple[Scene, Scene | None]:
    """This rank's part of the photographs, and of the held-out ones."""
    from nerfleet.data import available_splits, load_scene
    from nerfleet.data.part import Part
    from nerfleet.parallel.shares import edges

    def gather(failed: dict[str, str]) -> dict[str, str]:
        return {name: reason for some in ranks.exchange(failed) for name, reason in some.items()}

    def load(split: str, part: Part | None) -> Scene:
        options: dict[str, Any] = {"downscale": arguments.downscale, "train_on_all": arguments.train_on_all, "strict": arguments.strict}
        return load_scene(arguments.scene, split, part=part, progress=lambda *_: ranks.heartbeat.alive("loading"), **options)

    bounds = edges(parts)
    split = Part(bounds[ranks.rank], bounds[ranks.rank + 1], gather=gather)
    scene = load("train", split if arguments.views == "split" else None)
    for line in (*scene.notes, *scene.warnings):
        say(line)
    if scene.skipped:
        say(f"{len(scene.skipped)} frames skipped, the first: {scene.skipped[0].frame}: {scene.skipped[0].reason}")
    if arguments.train_on_all or not {"test", "val"} & set(available_splits(arguments.scene)):
        say("no held-out views: the result is not scored")
        return scene, None
    equal = Part(ranks.rank / ranks.world_size, (ranks.rank + 1) / ranks.world_size, whole_views=True, gather=gather)
    return scene, load("test", equal)


def _strategy(arguments: Arguments, ranks: Ranks, config: TrainConfig, parts: list[float], scene: Scene) -> Parallel:
    from nerfleet.parallel.data_parallel import DataParallel
    from nerfleet.parallel.grid_parallel import GridParallel
    from nerfleet.parallel.mesh import degrees
    from nerfleet.parallel.ranks import SharedError

    held = ranks.exchange(len(scene.pixels))
    pixel_shares = [n / sum(held) for n in held] if arguments.views == "split" else None
    memory = max(ranks.exchange(_memory(config, scene, ranks)), key=lambda one: one[0] / max(one[1], 1))
    strategy, grid_degree = _planned(arguments, ranks, config, scene, sum(held))
    chosen = degrees(strategy, ranks.world_size, grid_degree, config.network.encoding.n_levels, *memory)
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


def _memory(config: TrainConfig, scene: Scene, ranks: Ranks) -> tuple[int, int]:
    """(bytes that data parallelism needs on this rank, bytes of its GPU; 0 without one)."""
    import torch

    from nerfleet.nn.field import field_spec
    from nerfleet.parallel.memory import training_bytes
    from nerfleet.train.step import SAMPLE_MARGIN

    if ranks.device.type != "cuda":
        return 0, 0
    grid = field_spec(config.network, scene.aabb_scale).grid
    n_samples = int(config.batch_size * SAMPLE_MARGIN) // ranks.world_size
    needed = training_bytes(grid.n_params, grid.n_output, n_samples, config.max_rays, len(scene.pixels), ranks.world_size)
    return needed, torch.cuda.mem_get_info(ranks.device)[1]


def _silent(_: str) -> None:
    """Only the first rank speaks."""
