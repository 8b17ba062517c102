"""Many pictures one after the other, so that rendering, the copy to the host, and writing or encoding go on at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nerfleet.geometry.cameras import Cameras
from nerfleet.geometry.poses import SceneTransform
from nerfleet.nn.model import Model
from nerfleet.render.background import Background
from nerfleet.render.depth_of_field import ThinLens
from nerfleet.render.develop import Look, depth_picture, developed, exr_picture, normals_picture, png_picture, video_planes
from nerfleet.render.normals import surface_normals
from nerfleet.render.pictures import write_exr, write_png
from nerfleet.render.renderer import Rendered, render_box, render_image
from nerfleet.render.video import video_encoder

COVERED_ALPHA = 0.01
WRITER_THREADS = 4
INTERNAL = SceneTransform(1.0, (0.0, 0.0, 0.0), from_mitsuba=True)
"""Internal space as it is: for models that do not say where their scene's own axes are."""
Layers = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Shot:
    """n cameras and the names of their pictures, without extension; and n lenses, or none: all pinholes."""

    cameras: Cameras
    names: tuple[str, ...]
    lenses: tuple[ThinLens, ...] = ()

    def lens(self, index: int) -> ThinLens | None:
        return self.lenses[index] if self.lenses else None


@dataclass(frozen=True)
class Job:
    """What is made of each camera.

    Attributes:
        kind: planes of a video, PNG or EXR files.
        show: what a video shows. Depth is grey, dark at twice the distance of the box's centre; normals as in PNG files.
        spp: samples per pixel.
        depth, normals: also (files only).
        depth_unit: distance that one step of a depth PNG stands for, in the scene's units.
        transform: to the scene's own units and axes, in which depth and normals are given.
    """

    kind: Literal["video", "png", "exr"]
    show: Literal["colour", "depth", "normals"] = "colour"
    look: Look = field(default_factory=Look)
    spp: int = 1
    depth: bool = False
    normals: bool = False
    depth_unit: float = 1.0
    transform: SceneTransform = INTERNAL


class FrameRenderer:
    """Renders the pictures of a shot. ``covered`` tells, once :meth:`frames` has ended, whether anything of the model was in any of them."""

    def __init__(self, model: Model, shot: Shot, job: Job) -> None:
        self.model, self.shot, self.job = model, shot, job
        self._covered = torch.zeros((), dtype=torch.bool, device=model.device)

    @property
    def covered(self) -> bool:
        return bool(self._covered)

    def frames(self, indices: Sequence[int]) -> Iterator[tuple[int, Layers]]:
        """(index, layers on the host) of each picture: on CUDA the next one is already being rendered when one is yielded."""
        waiting: tuple[int, dict[str, Tensor], torch.cuda.Event | None] | None = None
        for index in indices:
            launched = (index, *_to_host(self.layers(index)))
            if waiting is not None:
                yield _arrived(*waiting)
            waiting = launched
        if waiting is not None:
            yield _arrived(*waiting)

    def layers(self, index: int) -> dict[str, Tensor]:
        """Tensors on the model's device: ``planes`` of a video; or ``rgba`` and, if wanted, ``depth`` and ``normals``."""
        job, camera = self.job, self.shot.cameras[index : index + 1]
        rendered = render_image(self.model, camera, spp=job.spp, thin_lens=self.shot.lens(index))
        self._covered |= (rendered.alpha > COVERED_ALPHA).any()
        if job.kind == "video":
            return {"planes": video_planes(self._shown(camera, rendered))}
        is_exr = job.kind == "exr"
        found = {"rgba": exr_picture(rendered, job.look) if is_exr else png_picture(rendered, job.look)}
        if job.depth:
            depth = rendered.depth / job.transform.scale
            found["depth"] = depth if is_exr else depth_picture(depth, job.depth_unit)
        if job.normals:
            normals = self._normals(camera, rendered)
            found["normals"] = normals.half() if is_exr else normals_picture(normals)
        return found

    def _normals(self, camera: Cameras, rendered: Rendered) -> Tensor:
        """[h, w, 3] in the scene's own axes."""
        return self.job.transform.directions_to_file(surface_normals(self.model, camera, rendered))

    def _shown(self, camera: Cameras, rendered: Rendered) -> Tensor:
        """[h, w, 3] of a video's frame."""
        if self.job.show == "normals":
            return normals_picture(self._normals(camera, rendered))
        if self.job.show == "depth":
            reach = 2 * float((camera.camera_to_world[0, :, 3].cpu() - render_box(self.model).mean(0)).norm())
            grey = (1 - rendered.depth / max(reach, 1e-6)).clamp(0, 1) * rendered.alpha
            return grey[..., None].expand(-1, -1, 3)
        return developed(rendered, self.job.look)[..., :3]


def _to_host(layers: dict[str, Tensor]) -> tuple[dict[str, Tensor], torch.cuda.Event | None]:
    """Starts copies into pinned memory (which torch keeps and uses again), and the event that tells that they are there."""
    if not next(iter(layers.values())).is_cuda:
        return layers, None
    copies = {name: torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True) for name, tensor in layers.items()}
    event = torch.cuda.Event(blocking=True)
    event.record()
    return copies, event


def _arrived(index: int, layers: dict[str, Tensor], event: torch.cuda.Event | None) -> tuple[int, Layers]:
    if event is not None:
        event.synchronize()
    return index, {name: tensor.numpy() for name, tensor in layers.items()}


def picture_files(folder: Path, name: str, job: Job) -> list[Path]:
    """The files of one picture, in the order in which they are written: its own, then depth and normals (EXR: all in one)."""
    if job.kind == "exr":
        return [folder / f"{name}.exr"]
    parts = ["", *(["_depth"] if job.depth else []), *(["_normals"] if job.normals else [])]
    return [folder / f"{name}{part}.png" for part in parts]


def write_picture(folder: Path, shot: Shot, job: Job, frame: tuple[int, Layers]) -> None:
    """Write the files of one picture."""
    index, layers = frame
    files = picture_files(folder, shot.names[index], job)
    if job.kind == "exr":
        write_exr(files[0], layers["rgba"], layers.get("depth"), layers.get("normals"))
        return
    pictures = [layers[name].astype(np.uint16) if name == "depth" else layers[name] for name in ("rgba", "depth", "normals") if name in layers]
    for file, picture in zip(files, pictures):
        write_png(file, picture)


def picture_writer(folder: Path, shot: Shot, job: Job) -> Background[tuple[int, Layers]]:
    """Writes pictures in threads; compression does not hold Python up."""
    return Background(partial(write_picture, folder, shot, job), min(WRITER_THREADS, os.cpu_count() or 1))


def render_pictures(model: Model, shot: Shot, job: Job, folder: Path, finished: Callable[[int], object], indices: Sequence[int] | None = None) -> bool:
    """Render to PNG or EXR files. ``finished`` is called with the number of pictures rendered so far.

    Returns:
        Whether anything of the model is in any picture.
    """
    renderer = FrameRenderer(model, shot, job)
    with picture_writer(folder, shot, job) as writer:
        for n_done, frame in enumerate(renderer.frames(range(len(shot.names)) if indices is None else indices), 1):
            writer.put(frame)
            finished(n_done)
    return renderer.covered


def render_video(model: Model, shot: Shot, job: Job, path: Path, finished: Callable[[int], object], fps: float = 30.0, crf: int = 18) -> bool:
    """Render to an MP4 file; frames are encoded in another thread while the next ones are rendered. Else as :func:`render_pictures`."""
    renderer = FrameRenderer(model, shot, job)
    with video_encoder(path, fps, crf) as encoder, Background(encoder.write) as writer:
        for n_done, (_, layers) in enumerate(renderer.frames(range(len(shot.names))), 1):
            writer.put(layers["planes"])
            finished(n_done)
    return renderer.covered
