"""``nerfleet render``: pictures, depth, normals and video of a model."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nerfleet.cli.flags import Device, Split, parse_color, print_json, say
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    import torch

    from nerfleet.render.sequence import Job, Shot
    from nerfleet.snapshot.ingp import Snapshot
    from nerfleet.snapshot.placement import Placement

SUMMARY = "pictures, depth maps or video of a model"
VIDEO_SUFFIX = ".mp4"
OTHER_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".mov", ".mkv", ".webm", ".avi", ".exr")
MAX_EDGE = 16_384
MAX_FRAMES = 100_000
MAX_STOPS = 20.0
DEPTH_REACH = 4
"""Distance that the largest depth value stands for, in edges of the scene box."""
PLAIN_LINE_SECONDS = 5.0


@dataclass(frozen=True)
class Arguments:
    """Pictures, depth, normals or video of a model.

    The cameras are those of a scene's photographs (--scene), a camera path of instant-ngp (--camera-path) or an orbit around
    what the photographs look at (--turntable): exactly one of the three.

    Examples:
        nerfleet render runs/fox --scene data/fox --split test --views 0,3-5 --out pictures
        nerfleet render lego.ingp --camera-path path.json --seconds 5 --fps 60 --spp 8 --out lego.mp4
        nerfleet render lego.ingp --turntable 120 --width 800 --height 800 --background white --out turn.mp4
        nerfleet render lego.ingp --turntable 8 --format exr --depth --normals --out layers
        nerfleet render runs/fox --scene data/fox --split train --flight --seconds 8 --out flight.mp4

    Attributes:
        model: an .ingp or .msgpack file, or a run folder.
        out: a folder for pictures, or an .mp4 file.
        scene: a transforms.json, or a folder that holds one.
        split: the scene's photographs whose cameras are used.
        train_on_all: no views are held out: those of the split train are all.
        views: only these of the split, for example 0,3-5.
        downscale: pictures smaller than the photographs by this factor.
        flight: a smooth flight along the scene's cameras instead of pictures from them.
        camera_path: a camera path of instant-ngp (JSON).
        turntable: pictures in one round of an orbit; to and fro where the photographs show one side only.
        whole_turn: the orbit goes all around, whatever the photographs show.
        elevation: of the orbit above the horizon, degrees; default: as the photographs.
        distance: of the orbit, as a multiple of the photographs' distance.
        fov: of an orbit or a flight, degrees, vertical; 0: as the photographs.
        save_path: also write the orbit or flight as a camera path of instant-ngp.
        frames: pictures of a path; 0: seconds x fps.
        smoothing: seconds that a path's camera takes to follow; 0: it is where the path is.
        frame_range: only these pictures of the path, counted from 0, for example 30-59.
        seconds: length of a path; 0: as the path says.
        fps: frames a second of a video.
        width: pixels; 0: as the scene, or 1280.
        height: pixels; 0: as the scene, or 720.
        spp: samples per pixel.
        aperture: radius of the lens in the scene's units, for depth of field; default: as the path says.
        focus: distance in focus in the scene's units; default: as the path says, else what is in the middle of a picture.
        exposure: stops brighter (or darker, if negative).
        background: black, white or #rrggbb; without it pictures are transparent, and video is black.
        names: of a path's pictures, such as video_%04d.png.
        format: of pictures: png (8-bit sRGB), or exr (linear light, half precision, premultiplied).
        depth: also the distance along each pixel's ray: 16-bit PNG, or channel Z of an EXR in the scene's units.
        normals: also surface normals in the scene's axes: 8-bit PNG, or channels N.X, N.Y, N.Z of an EXR.
        show: what a video shows: colour, depth (bright is near) or normals.
        crf: quality of a video: 0 (lossless) to 51; 18 looks like the original.
        gpus: render on this many GPUs of this machine (with --device cpu: processes).
        device: where to render.
        json: print one JSON object.
    """

    model: Annotated[Path, tyro.conf.Positional]
    out: Path
    scene: Path | None = None
    split: Split = "test"
    train_on_all: bool = False
    views: str = ""
    downscale: int = 1
    flight: bool = False
    camera_path: Path | None = None
    turntable: int = 0
    whole_turn: bool = False
    elevation: float | None = None
    distance: float = 1.0
    fov: float = 0.0
    save_path: Path | None = None
    frames: int = 0
    smoothing: float = 0.0
    frame_range: str = ""
    seconds: float = 0.0
    fps: float = 30.0
    width: int = 0
    height: int = 0
    spp: int = 1
    aperture: float | None = None
    focus: float | None = None
    exposure: float = 0.0
    background: str | None = None
    names: str = ""
    format: Literal["png", "exr"] = "png"
    depth: bool = False
    normals: bool = False
    show: Literal["colour", "depth", "normals"] = "colour"
    crf: int = 18
    gpus: int = 1
    device: Device = "auto"
    json: bool = False


def run(arguments: Arguments) -> None:
    check(arguments)
    background = None if arguments.background is None else parse_color(arguments.background)
    from nerfleet.cli.render_shot import make_shot
    from nerfleet.render.pictures import require_openexr
    from nerfleet.snapshot.ingp import read_snapshot
    from nerfleet.snapshot.load import model_file
    from nerfleet.snapshot.placement import read_placement
    from nerfleet.train.trainer import choose_device

    device = choose_device(arguments.device)
    if arguments.format == "exr":
        require_openexr(arguments.out)
    file = model_file(arguments.model)
    snapshot = read_snapshot(file)
    placement = read_placement(snapshot.document)
    shot = make_shot(arguments, snapshot.model, placement)
    job = _job(arguments, snapshot, placement, background)
    begin = time.perf_counter()
    with frame_progress(len(shot.names)) as finished:
        covered = _render(arguments, snapshot, device, shot, job, finished)
    seconds = time.perf_counter() - begin
    if not covered:
        say("warning: nothing of the model is in any picture: do the cameras look at it?")
    _answer(arguments, shot, job, placement, seconds)


def _job(arguments: Arguments, snapshot: Snapshot, placement: Placement, background: tuple[float, float, float] | None) -> Job:
    from nerfleet.render.develop import MAX_DEPTH, Look
    from nerfleet.render.sequence import INTERNAL, Job

    video = is_video(arguments.out)
    transform = placement.transform or INTERNAL
    look = Look(background or (0.0, 0.0, 0.0) if video else background, arguments.exposure)
    unit = DEPTH_REACH * snapshot.model.aabb_scale / MAX_DEPTH / transform.scale
    layers: dict[str, Any] = {"depth": arguments.depth, "normals": arguments.normals, "depth_unit": unit, "transform": transform}
    return Job("video" if video else arguments.format, arguments.show, look, arguments.spp, **layers)


def _render(arguments: Arguments, snapshot: Snapshot, device: torch.device, shot: Shot, job: Job, finished: Callable[[int], None]) -> bool:
    """Whether anything of the model is in any picture."""
    from nerfleet.render.sequence import render_pictures, render_video
    from nerfleet.render.several_gpus import devices, render_pictures_on, render_video_on
    from nerfleet.snapshot.load import load_model

    out, video = arguments.out, (arguments.fps, arguments.crf)
    if job.kind == "video":
        out.parent.mkdir(parents=True, exist_ok=True)
    if arguments.gpus != 1:
        names, load = devices(device.type, arguments.gpus), partial(load_model, arguments.model)
        if job.kind == "video":
            return render_video_on(names, load, shot, job, out, finished, *video)
        return render_pictures_on(names, load, shot, job, out, finished)
    model = snapshot.model.to(device)
    if job.kind == "video":
        return render_video(model, shot, job, out, finished, *video)
    return render_pictures(model, shot, job, out, finished)


def _answer(arguments: Arguments, shot: Shot, job: Job, placement: Placement, seconds: float) -> None:
    """What was written, as JSON or in words."""
    from nerfleet.render.sequence import picture_files

    files = [arguments.out] if job.kind == "video" else [file for name in shot.names for file in picture_files(arguments.out, name, job)]
    width, height = (int(v) for v in shot.cameras.resolution[0])
    n, units = len(shot.names), "scene" if placement.transform is not None else "internal"
    if arguments.json:
        answer: dict[str, Any] = {"files": [str(file) for file in files], "width": width, "height": height, "ms_per_image": 1000 * seconds / n}
        answer |= {"n_pictures": n, "seconds": seconds}
        print_json(answer | ({"depth_unit": 1.0 if job.kind == "exr" else job.depth_unit, "units": units} if arguments.depth else {}))
        return
    what = files[0] if len(files) == 1 else f"{len(files)} files in {arguments.out}"
    say(f"{what}: {n} pictures, {1000 * seconds / n:.0f} ms each")
    if arguments.depth:
        value = "channel Z" if job.kind == "exr" else f"value x {job.depth_unit:.6g}"
        say(f"depth: {value} is the distance along a pixel's ray in {units} units; 0: nothing there")


@contextlib.contextmanager
def frame_progress(n: int) -> Iterator[Callable[[int], None]]:
    """Called with the number of finished pictures: a bar with the time left on a terminal, else a line every few seconds."""
    from nerfleet.cli.train import clock
    from nerfleet.data.progress import progress_bar

    if sys.stderr.isatty():
        with progress_bar("pictures") as bar:
            yield lambda n_done: bar(n_done, n)
        return
    begin = last = time.monotonic()

    def show(n_done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_LINE_SECONDS and n_done < n:
            last = now
            say(f"{n_done:,}/{n:,} pictures  {clock(now - begin)} gone  {clock((now - begin) / n_done * (n - n_done))} left")

    yield show


def is_video(out: Path) -> bool:
    return out.suffix.lower() == VIDEO_SUFFIX


def check(arguments: Arguments) -> None:
    """Raises NerfleetError for flags that contradict one another, before anything is read."""
    out = arguments.out
    sources = [arguments.scene is not None, arguments.camera_path is not None, arguments.turntable != 0]
    if sum(sources) != 1:
        raise NerfleetError("cameras", f"{sum(sources)} sources are named", "give one of --scene, --camera-path and --turntable")
    _check_use(arguments)
    if is_video(out) and out.is_dir():
        raise NerfleetError(f"--out {out}", "is a folder", "name an .mp4 file that does not exist yet")
    if is_video(out):
        for name in ("depth", "normals"):
            if getattr(arguments, name):
                raise NerfleetError(f"--{name}", "cannot go into a video", "name a folder as --out")
    elif out.is_file() or out.suffix.lower() in OTHER_SUFFIXES:
        raise NerfleetError(f"--out {out}", "is not a folder", "name a folder, or an .mp4 file")
    whole = {"frames": (0, MAX_FRAMES), "turntable": (0, MAX_FRAMES), "spp": (1, 4096), "downscale": (1, 1024), "gpus": (1, 1024)}
    whole |= {"width": (0, MAX_EDGE), "height": (0, MAX_EDGE), "crf": (0, 51)}
    numbers: dict[str, tuple[float, float]] = {"seconds": (0, 86_400), "fps": (0.1, 1000), "exposure": (-MAX_STOPS, MAX_STOPS), "fov": (0, 170)}
    numbers |= {"distance": (0.01, 100), "smoothing": (0, 3600), "elevation": (-89, 89), "aperture": (0, 1e6), "focus": (1e-6, 1e9)}
    for name, (least, most) in {**whole, **numbers}.items():
        value = getattr(arguments, name)
        if value is not None and not least <= value <= most:
            raise NerfleetError(f"--{name} {value:g}" if isinstance(value, float) else f"--{name} {value}", "is out of range", f"use {least} to {most}")


def _check_use(arguments: Arguments) -> None:
    """Flags that have no meaning with the cameras that are named. Raises NerfleetError."""
    orbit, path = arguments.turntable != 0, arguments.camera_path is not None or arguments.flight
    meaningless = {
        "flight": arguments.scene is None,
        "whole_turn": not orbit,
        "elevation": not orbit,
        "distance": not orbit,
        "fov": not (orbit or arguments.flight),
        "save_path": not (orbit or arguments.flight),
        "frames": not path,
        "frame_range": not (path or orbit),
        "smoothing": not (path or orbit),
        "names": not (path or orbit) or is_video(arguments.out),
        "train_on_all": arguments.scene is None,
        "show": not is_video(arguments.out),
        "views": arguments.scene is None,
        "downscale": arguments.scene is None,
    }
    for name, is_meaningless in meaningless.items():
        if is_meaningless and getattr(arguments, name) != getattr(Arguments, name):
            raise NerfleetError(f"--{name.replace('_', '-')}", "has no meaning with these cameras", "see `nerfleet render --help`")
