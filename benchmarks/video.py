"""A video of a model: rendering alone, encoding alone, and both at once as `nerfleet render` does it.

    PYTHONPATH=src python3 benchmarks/video.py --model lego.ingp --out video.json
    PYTHONPATH=src python3 benchmarks/video.py --scene data/lego --steps 5000 --out video.json     trains the model first

Every clock starts when the model is on the device and the kernels are compiled. Also timed: one picture of 1920x1080 by kind, with
depth of field, with normals, and the shot on several GPUs where there are some.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nerfleet.nn.model import Model
from nerfleet.render.camera_path import path_cameras
from nerfleet.render.depth_of_field import ThinLens
from nerfleet.render.develop import Look
from nerfleet.render.orbit import Orbit, orbit_path
from nerfleet.render.renderer import render_image
from nerfleet.render.sequence import FrameRenderer, Job, Shot, render_video
from nerfleet.render.several_gpus import render_video_on
from nerfleet.render.video import PRESET, video_encoder
from nerfleet.snapshot.load import load_model

JOB = Job("video", look=Look((1.0, 1.0, 1.0)))


def orbit_shot(n: int, width: int, height: int) -> Shot:
    """A turn at the distance of lego's photographs."""
    path = orbit_path(Orbit(radius=1.15, height=0.65, fov=39.6))
    return Shot(path_cameras(path, n, width, height), tuple(f"frame_{i:04d}" for i in range(n)))


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(device: torch.device, action: Callable[[], object]) -> float:
    """Seconds."""
    wait(device)
    begin = time.perf_counter()
    action()
    wait(device)
    return time.perf_counter() - begin


def nothing(_: int) -> None:
    """Progress is not shown."""


def video_rows(model: Model, shot: Shot, folder: Path) -> dict[str, Any]:
    """Seconds of each half and of the whole, the whole repeated."""
    device, n = model.device, len(shot.names)
    planes: list[np.ndarray] = []

    def render() -> None:
        for _, layers in FrameRenderer(model, shot, JOB).frames(range(n)):
            planes.append(layers["planes"])

    def encode() -> None:
        with video_encoder(folder / "encoded.mp4") as encoder:
            for frame in planes:
                encoder.write(frame)

    rendering = timed(device, render)
    with video_encoder(folder / "encoded.mp4") as warm_up:
        warm_up.write(planes[0])
    encoding = timed(device, encode)
    planes.clear()
    whole = [timed(device, partial(render_video, model, shot, JOB, folder / "whole.mp4", nothing)) for _ in range(3)]
    best, slower = min(whole), max(rendering, encoding)
    return {
        "n_frames": n, "render_seconds": rendering, "encode_seconds": encoding, "both_seconds": whole, "ratio_to_slower": best / slower,
        "frames_per_s": n / best, "megabytes": (folder / "whole.mp4").stat().st_size / 1e6, "same_file": same(folder), "preset": PRESET,
    }  # fmt: skip


def same(folder: Path) -> bool:
    return (folder / "encoded.mp4").read_bytes() == (folder / "whole.mp4").read_bytes()


def picture_rows(model: Model, shot: Shot, repeats: int) -> dict[str, float]:
    """Milliseconds of one picture on the device, by what is asked for."""
    camera = shot.cameras[:1]
    actions: dict[str, Callable[[], object]] = {
        "colour": lambda: render_image(model, camera),
        "colour_8_spp": lambda: render_image(model, camera, spp=8),
        "depth_of_field_8_spp": lambda: render_image(model, camera, spp=8, thin_lens=ThinLens(0.02, 1.3)),
        "video_planes": lambda: FrameRenderer(model, shot, JOB).layers(0),
        "exr_depth_normals": lambda: FrameRenderer(model, shot, Job("exr", depth=True, normals=True)).layers(0),
    }
    found = {}
    for name, action in actions.items():
        action()
        found[name] = 1000 * min(timed(model.device, action) for _ in range(repeats))
    return found


def trained(scene_path: Path, steps: int, folder: Path) -> Path:
    """A model of a scene, and its file."""
    from nerfleet.config import TrainConfig
    from nerfleet.data import load_scene
    from nerfleet.snapshot.ingp import Snapshot
    from nerfleet.snapshot.write import snapshot_document, write_snapshot
    from nerfleet.train.trainer import train

    scene = load_scene(scene_path)
    model = train(scene, TrainConfig(steps=steps)).model.to("cpu")
    write_snapshot(folder / "model.ingp", Snapshot(model, snapshot_document(model, scene=scene, training_step=steps)))
    return folder / "model.ingp"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=Path, help="an .ingp file or a run folder")
    source.add_argument("--scene", type=Path, help="train a model of this scene")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--size", type=int, nargs=2, default=(1920, 1080), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = flags.model or trained(flags.scene, flags.steps, folder)
        model = load_model(file).to(flags.device)
        shot = orbit_shot(flags.frames, *flags.size)
        render_image(model, shot.cameras[:1])  # compiles
        found: dict[str, Any] = {"device": torch.cuda.get_device_name() if flags.device != "cpu" else "cpu", "size": list(flags.size)}
        found["picture_ms"] = picture_rows(model, shot, 5)
        found["video"] = video_rows(model, shot, folder)
        n_gpus = torch.cuda.device_count() if flags.device != "cpu" else 0
        if n_gpus > 1:
            names = [f"cuda:{i}" for i in range(n_gpus)]
            seconds = timed(model.device, partial(render_video_on, names, partial(load_model, file), shot, JOB, folder / "several.mp4", nothing))
            found["several_gpus"] = {"n_gpus": n_gpus, "seconds_with_start": seconds, "frames_per_s": math.floor(len(shot.names) / seconds)}
        text = json.dumps(found, indent=1)
        print(text)
        if flags.out is not None:
            flags.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
