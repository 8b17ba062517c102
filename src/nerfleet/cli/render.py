"""``nerfleet render``: pictures, depth maps and video of a model."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nerfleet.cli import on_ranks
from nerfleet.cli.eval import picture_name
from nerfleet.cli.flags import Device, Split, parse_color, parse_views, print_json, say
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nerfleet.geometry.cameras import Cameras
    from nerfleet.nn.model import Model
    from nerfleet.parallel.ranks import Ranks
    from nerfleet.render.camera_path import CameraPath
    from nerfleet.render.renderer import Rendered

SUMMARY = "pictures, depth maps or video of a model"
VIDEO_SUFFIX = ".mp4"
DEFAULT_SIZE = (1280, 720)
MAX_EDGE = 16_384
MAX_FRAMES = 100_000
DEPTH_REACH = 4
"""Distance that the largest depth value stands for, in edges of the scene box."""


@dataclass(frozen=True)
class Arguments:
    """Pictures, depth maps or video of a model.

    The cameras are those of a scene's photographs (--scene), a camera path (--camera-path) or one turn around the middle of
    the scene box (--turntable): exactly one of the three.

    Examples:
        nerfleet render runs/fox --scene data/fox --split test --views 0,3-5 --out pictures
        nerfleet render lego.ingp --camera-path path.json --seconds 5 --out lego.mp4
        nerfleet render lego.ingp --turntable 120 --width 800 --height 800 --background white --out turn.mp4

    Attributes:
        model: an .ingp or .msgpack file, or a run folder.
        out: a folder for PNG files, or an .mp4 file.
        scene: a transforms.json, or a folder that holds one.
        split: the scene's photographs whose cameras are used.
        views: only these of the split, for example 0,3-5.
        downscale: pictures smaller than the photographs by this factor.
        camera_path: a camera path of instant-ngp (JSON).
        turntable: pictures in one turn around the model.
        frames: pictures of a camera path; 0: seconds x fps.
        seconds: length of a camera path; 0: as the path says.
        fps: frames a second of a video.
        width: pixels; 0: as the scene, or 1280.
        height: pixels; 0: as the scene, or 720.
        spp: samples per pixel.
        depth: also write the distance along each pixel's ray, as 16-bit PNG.
        background: black, white or #rrggbb; without it PNG files are transparent, and video is black.
        device: where to render.
        gpus: ranks that share the pictures, one a GPU (with --device cpu: processes).
        json: print one JSON object.
    """

    model: Annotated[Path, tyro.conf.Positional]
    out: Path
    scene: Path | None = None
    split: Split = "test"
    views: str = ""
    downscale: int = 1
    camera_path: Path | None = None
    turntable: int = 0
    frames: int = 0
    seconds: float = 0.0
    fps: float = 30.0
    width: int = 0
    height: int = 0
    spp: int = 1
    depth: bool = False
    background: str | None = None
    device: Device = "auto"
    gpus: int = 1
    json: bool = False


@dataclass(frozen=True)
class Shot:
    """What is rendered: n cameras and the names of their pictures, without extension."""

    cameras: Cameras
    names: tuple[str, ...]


def run(arguments: Arguments) -> None:
    _check(arguments)
    if arguments.background is not None:
        parse_color(arguments.background)
    if on_ranks.wanted(arguments.gpus):
        on_ranks.run("render", arguments, lambda ranks: _render(arguments, ranks))
    else:
        _render(arguments)


def _render(arguments: Arguments, ranks: Ranks | None = None) -> None:
    """Alone, or as one of several ranks, each of which renders every so many-th picture; the first one answers."""
    from nerfleet.data.progress import progress_bar
    from nerfleet.snapshot.load import load_model
    from nerfleet.train.trainer import choose_device

    first = ranks is None or ranks.rank == 0
    model = load_model(arguments.model).to(ranks.device if ranks is not None else choose_device(arguments.device))
    shot = _shot(arguments, model, first)
    begin = time.perf_counter()
    pictures = _Pictures(arguments, model, shot, ranks)
    with progress_bar("pictures") if first else contextlib.nullcontext() as bar:
        files = pictures.write(lambda n_done: bar(n_done, len(shot.names)) if bar is not None else None)
    milliseconds = 1000 * (time.perf_counter() - begin) / len(shot.names)
    is_empty = pictures.is_empty if ranks is None else all(ranks.exchange(pictures.is_empty))
    if not first:
        return
    if is_empty:
        say("warning: nothing of the model is in any picture: do the cameras look at it?")
    width, height = (int(v) for v in shot.cameras.resolution[0])
    if arguments.json:
        answer = {"files": [str(file) for file in files], "width": width, "height": height, "ms_per_image": milliseconds}
        print_json(answer | ({"depth_unit": pictures.depth_unit} if arguments.depth else {}))
        return
    what = files[0] if len(files) == 1 else f"{len(files)} files in {arguments.out}"
    say(f"{what}: {len(shot.names)} pictures, {milliseconds:.0f} ms each")
    if arguments.depth:
        say(f"depth: value x {pictures.depth_unit:.6g} is the distance along a pixel's ray in internal units; 0: nothing there")


class _Pictures:
    """Renders a shot and writes it; of several ranks each has every so many-th picture."""

    def __init__(self, arguments: Arguments, model: Model, shot: Shot, ranks: Ranks | None) -> None:
        from nerfleet.render.pictures import MAX_DEPTH

        self.arguments, self.model, self.shot, self.ranks = arguments, model, shot, ranks
        self.background = None if arguments.background is None else parse_color(arguments.background)
        self.depth_unit = DEPTH_REACH * model.aabb_scale / MAX_DEPTH
        self.is_empty = True
        self.rank, self.n_ranks = (ranks.rank, ranks.world_size) if ranks is not None else (0, 1)

    def write(self, finished: Callable[[int], None]) -> list[Path]:
        """The files, in the order of the cameras. All ranks together."""
        from nerfleet.render.video import write_video

        out = self.arguments.out
        if not _is_video(out):
            files = [self._files(i, finished) for i in range(self.rank, len(self.shot.names), self.n_ranks)]
            everyone = [files] if self.ranks is None else self.ranks.exchange(files)
            return [file for i in range(len(self.shot.names)) for file in everyone[i % self.n_ranks][i // self.n_ranks]]
        frames = self._frames(finished)
        if self.rank == 0:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_video(out, frames, self.arguments.fps)
        else:
            for _ in frames:
                pass
        return [out]

    def _files(self, i: int, finished: Callable[[int], None]) -> list[Path]:
        """Picture i as PNG files."""
        from nerfleet.render.pictures import depth_picture, rgb_picture, rgba_picture, write_png

        rendered, out, name = self._rendered(i), self.arguments.out, self.shot.names[i]
        files = [out / f"{name}.png"]
        write_png(files[0], rgba_picture(rendered) if self.background is None else rgb_picture(rendered, self.background))
        if self.arguments.depth:
            files.append(out / f"{name}_depth.png")
            write_png(files[1], depth_picture(rendered.depth, self.depth_unit))
        finished(i + 1)
        return files

    def _frames(self, finished: Callable[[int], None]) -> Iterator[NDArray[np.uint8]]:
        """Frames of a video in order; every round, each rank renders one and all hear of it."""
        from nerfleet.render.pictures import rgb_picture

        background, n = self.background or (0.0, 0.0, 0.0), len(self.shot.names)
        for begin in range(0, n, self.n_ranks):
            i = begin + self.rank
            own = rgb_picture(self._rendered(i), background) if i < n else None
            for frame in [own] if self.ranks is None else self.ranks.exchange(own):
                if frame is not None:
                    yield frame
            finished(min(begin + self.n_ranks, n))

    def _rendered(self, i: int) -> Rendered:
        from nerfleet.render.renderer import render_image

        rendered = render_image(self.model, self.shot.cameras[i : i + 1], spp=self.arguments.spp)
        self.is_empty = self.is_empty and not bool((rendered.alpha > 0.01).any())
        if self.ranks is not None:
            self.ranks.heartbeat.alive("rendering")
        return rendered


def _is_video(out: Path) -> bool:
    return out.suffix.lower() == VIDEO_SUFFIX


def _check(arguments: Arguments) -> None:
    """Raises NerfleetError for flags that contradict one another, before anything is read."""
    out = arguments.out
    sources = [arguments.scene is not None, arguments.camera_path is not None, arguments.turntable != 0]
    if sum(sources) != 1:
        raise NerfleetError("cameras", f"{sum(sources)} sources are named", "give one of --scene, --camera-path and --turntable")
    if _is_video(out) and out.is_dir():
        raise NerfleetError(f"--out {out}", "is a folder", "name an .mp4 file that does not exist yet")
    if _is_video(out) and arguments.depth:
        raise NerfleetError("--depth", "cannot go into a video", "name a folder as --out")
    if not _is_video(out) and (out.is_file() or out.suffix.lower() in (".png", ".jpg", ".jpeg", ".gif", ".mov", ".exr")):
        raise NerfleetError(f"--out {out}", "is not a folder", "name a folder, or an .mp4 file")
    numbers = {"frames": (0, MAX_FRAMES), "turntable": (0, MAX_FRAMES), "spp": (1, 4096), "downscale": (1, 1024)}
    numbers |= {"width": (0, MAX_EDGE), "height": (0, MAX_EDGE)}
    for name, (least, most) in numbers.items():
        if not least <= getattr(arguments, name) <= most:
            raise NerfleetError(f"--{name} {getattr(arguments, name)}", "is out of range", f"use {least} to {most}")
    if not 0 <= arguments.seconds <= 86_400:
        raise NerfleetError(f"--seconds {arguments.seconds:g}", "is out of range", "use 0 to 86,400")
    if not 0.1 <= arguments.fps <= 1000:
        raise NerfleetError(f"--fps {arguments.fps:g}", "is out of range", "use 0.1 to 1000")


def _shot(arguments: Arguments, model: Model, speak: bool) -> Shot:
    import torch

    from nerfleet.render.camera_path import path_cameras, read_camera_path, turntable

    if arguments.scene is not None:
        return _scene_shot(arguments, arguments.scene, speak)
    width, height = _path_size(arguments)
    if arguments.camera_path is not None:
        path = read_camera_path(arguments.camera_path)
        n_frames = arguments.frames or max(round((arguments.seconds or path.duration_seconds) * arguments.fps), 1)
        if n_frames > MAX_FRAMES:
            raise NerfleetError(f"{n_frames:,} pictures", f"are more than {MAX_FRAMES:,}", "lower --fps or --seconds, or give --frames")
        if speak:
            _warn_about_focus(path)
        cameras = path_cameras(path, n_frames, width, height)
    else:
        box = torch.tensor([[0.0] * 3, [1.0] * 3]) if model.render_aabb is None else model.render_aabb
        x, y, z = box.mean(0).tolist()
        edge = min(float((box[1] - box[0]).max()), 1.0)
        cameras = turntable(arguments.turntable, (x, y, z), 1.2 * edge, 0.6 * edge, (width, height))
    digits = len(str(len(cameras) - 1))
    return Shot(cameras, tuple(f"frame_{i:0{max(digits, 4)}d}" for i in range(len(cameras))))


def _warn_about_focus(path: CameraPath) -> None:
    if any(keyframe.aperture_size for keyframe in path.keyframes):
        say("warning: the path's aperture_size is not rendered: everything is in focus")


def _scene_shot(arguments: Arguments, scene: Path, speak: bool) -> Shot:
    from nerfleet.data.plan import plan_scene, planned_cameras

    plan = plan_scene(scene, arguments.split)
    if speak and not arguments.json:
        say(*(f"warning: {text}" for text in plan.findings.warnings))
    chosen = parse_views(arguments.views, len(plan.frames))
    cameras = resized(planned_cameras(plan, arguments.downscale)[chosen], arguments.width, arguments.height)
    names = [picture_name(plan.frames[i].name).removesuffix(".png") for i in chosen]
    if len(set(names)) < len(names):
        names = [f"{i:04d}_{name}" for i, name in zip(chosen, names)]
    if _is_video(arguments.out) and len(cameras.resolution.unique(dim=0)) > 1:
        raise NerfleetError(str(scene), "its views have different sizes", "give --width and --height, or name a folder as --out")
    return Shot(cameras, tuple(names))


def _path_size(arguments: Arguments) -> tuple[int, int]:
    width, height = arguments.width, arguments.height
    if not width and not height:
        return DEFAULT_SIZE
    aspect = DEFAULT_SIZE[0] / DEFAULT_SIZE[1]
    return width or max(round(height * aspect), 1), height or max(round(width / aspect), 1)


def resized(cameras: Cameras, width: int, height: int) -> Cameras:
    """The same views in another size; 0 keeps the aspect, both 0 the size. Focal lengths and centres scale along."""
    if not width and not height:
        return cameras
    import torch

    old = cameras.resolution.double()
    scale_x = width / old[:, 0] if width else height / old[:, 1]
    scale_y = height / old[:, 1] if height else width / old[:, 0]
    new = (old * torch.stack([scale_x, scale_y], -1)).round().clamp_min(1)
    factor = (new / old).float()
    return dataclasses.replace(
        cameras, focal=cameras.focal * factor, principal=cameras.principal * factor, resolution=new.to(cameras.resolution.dtype)
    )
