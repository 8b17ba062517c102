"""``nerfleet train``: how the photographs come to the device, chosen, said and begun."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nerfleet.errors import NerfleetError
from nerfleet.pipeline.choice import PATHS, ImagePath, Memory, choose, default_workers, parse_bytes

if TYPE_CHECKING:
    import torch

    from nerfleet.cli.train import Arguments
    from nerfleet.data.decode import Progress
    from nerfleet.data.part import Part
    from nerfleet.data.plan import ScenePlan
    from nerfleet.data.scene import Scene
    from nerfleet.pipeline.feed import Feed


@dataclass(frozen=True)
class Surroundings:
    """What the photographs' path depends on beside the flags.

    Attributes:
        device: of the training.
        say: for lines to people that are the same on all ranks. warn: for lines of this process alone.
        progress: of decoding everything first.
        part, held_out_part: of the scene and of its held-out views, as one of several ranks.
        n_processes: training processes on this machine.
        agree: what every rank has chosen -> of all of them.
        alive: called while training waits for the first photographs.
    """

    device: torch.device
    say: Callable[[str], None]
    warn: Callable[[str], None]
    progress: Progress | None = None
    part: Part | None = None
    held_out_part: Part | None = None
    n_processes: int = 1
    agree: Callable[[str], list[str]] = lambda name: [name]
    alive: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class TrainImages:
    """Attributes:
    feed: where the photographs come from while training runs; None: they are in ``scene``.
    n_pixels: of the scene that this process trains on.
    device_bytes: that they take.
    """

    scene: Scene
    held_out: Scene | None
    feed: Feed | None
    n_pixels: int
    device_bytes: int


@contextmanager
def train_images(arguments: Arguments, around: Surroundings) -> Iterator[TrainImages]:
    """The scene to train on, its held-out views and its photographs; says what is worth knowing.

    Raises:
        NerfleetError: bad input, or not enough memory.
    """
    from nerfleet.data.plan import plan_scene

    budget = parse_bytes(arguments.image_memory, "image-memory")
    if arguments.image_workers < 0:
        raise NerfleetError(f"--image-workers {arguments.image_workers}", "is negative", "use 0 for one a core")
    if arguments.downscale < 1:
        raise NerfleetError(f"--downscale {arguments.downscale}", "is not a whole number from 1 on", "use 1 for full size")
    plan = plan_scene(arguments.scene, "train", train_on_all=arguments.train_on_all)
    if arguments.strict:
        plan.findings.raise_if_strict(str(arguments.scene))
    memory = memory_of(around.device, around.n_processes)
    n_pixels, largest = _sizes(plan, arguments.downscale, around.part)
    n_workers = arguments.image_workers or default_workers(largest, memory, around.n_processes)
    wanted = choose(arguments.images, n_pixels, largest, memory, budget, n_workers)
    agreed = max(around.agree(wanted.name), key=PATHS.index)
    path = wanted if agreed == wanted.name else choose(agreed, n_pixels, largest, memory, budget, n_workers)
    scene, feed = _begin(arguments, around, plan, path, n_workers)
    try:
        _say_findings(scene, around.say)
        held_out = _held_out(arguments, around, path)
        yield TrainImages(scene, held_out, feed, n_pixels if feed is not None else len(scene.pixels), path.device_bytes)
    finally:
        if feed is not None:
            feed.close()


def memory_of(device: torch.device, n_processes: int = 1) -> Memory:
    """Memory that a training on this device can have; the host's is shared with the other training processes."""
    import torch

    from nerfleet.data.memory import available_bytes

    host = available_bytes()
    host = host // n_processes if host is not None else None
    on_host = device.type == "cpu"
    return Memory(host if on_host else torch.cuda.mem_get_info(device)[1], host, on_host)


def _sizes(plan: ScenePlan, downscale: int, part: Part | None) -> tuple[int, int]:
    """Pixels of the scene (of its part), and of its largest photograph at full size."""
    from nerfleet.data.part import pixel_range

    how = plan.decoding(downscale)
    sizes = [height * width for height, width in (how.size(frame.header) for frame in plan.frames)]
    largest = max(frame.header.width * frame.header.height for frame in plan.frames)
    if part is None:
        return sum(sizes), largest
    chosen = pixel_range(part, sizes)
    return chosen.end - chosen.begin, largest


def _begin(arguments: Arguments, around: Surroundings, plan: ScenePlan, path: ImagePath, n_workers: int) -> tuple[Scene, Feed | None]:
    from nerfleet.data.on_demand import open_scene
    from nerfleet.data.transforms import load_plan
    from nerfleet.pipeline.feed import FeedOptions
    from nerfleet.pipeline.pixel_pool import PixelPool
    from nerfleet.pipeline.progressive import ProgressivePhotographs

    if path.name == "all":
        around.say(f"photographs: all are read first ({path.why})")
        return load_plan(plan, arguments.downscale, strict=arguments.strict, progress=around.progress, part=around.part), None
    scene = open_scene(plan, arguments.downscale, around.part)
    options = FeedOptions(n_workers, arguments.seed, arguments.strict, say=around.warn, alive=around.alive)
    if path.name == "progressive":
        around.say(f"photographs: training begins with the first of them, {n_workers} processes read on ({path.why})")
        return scene, ProgressivePhotographs(scene, around.device, options)
    pool = PixelPool(scene, around.device, path.pool_pixels, options)
    share = len(pool.pixels) / scene.n_held_pixels
    around.say(f"photographs: a pool of {len(pool.pixels) / 1e6:.1f} million pixels, {share:.1%} of all, renewed by {n_workers} processes ({path.why})")
    return scene, pool


def _held_out(arguments: Arguments, around: Surroundings, path: ImagePath) -> Scene | None:
    """Held-out views, decoded one at a time where the scene is not read as a whole either."""
    from nerfleet.data import available_splits, load_scene
    from nerfleet.data.on_demand import open_scene
    from nerfleet.data.plan import plan_scene

    if arguments.train_on_all or not {"test", "val"} & set(available_splits(arguments.scene)):
        around.say("no held-out views: the result is not scored")
        return None
    if path.name == "all":
        return load_scene(arguments.scene, "test", downscale=arguments.downscale, strict=arguments.strict, part=around.held_out_part)
    plan = plan_scene(arguments.scene, "test")
    if arguments.strict:
        plan.findings.raise_if_strict(str(arguments.scene))
    return open_scene(plan, arguments.downscale, around.held_out_part)


def _say_findings(scene: Scene, say: Callable[[str], None]) -> None:
    for line in (*scene.notes, *scene.warnings):
        say(line)
    if scene.skipped:
        say(f"{len(scene.skipped)} frames skipped, the first: {scene.skipped[0].frame}: {scene.skipped[0].reason}")


def local_processes() -> int:
    """Training processes on this machine, as torch elastic says."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
