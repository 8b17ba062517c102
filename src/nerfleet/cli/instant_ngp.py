"""``scripts/run.py``: instant-ngp's flags, carried out by nerfleet's own verbs one after the other.

Training first (alone, as one of several ranks, or starting them); then, on the first rank, snapshot, scores, mesh, pictures, video.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nerfleet.cli import render as render_verb
from nerfleet.cli import train as train_verb
from nerfleet.cli.flags import Split, say
from nerfleet.cli.instant_ngp_flags import DEFAULT_SPP, DEFAULT_STEPS, NO_MEANING, Inputs, parse_flags, sort_files
from nerfleet.cli.main import CURE, DEBUG_FLAG, guarded
from nerfleet.errors import NerfleetError
from nerfleet.presets import MODES

if TYPE_CHECKING:
    from nerfleet.data import Scene

VIDEO_SIZE = (1920, 1080)
SMOOTHING_SECONDS = 0.25
DEFAULT_URL = "tcp://127.0.0.1:29500"
START_FOV = 50.625
"""Degrees, vertical: of instant-ngp's window when it opens, 1.5 in front of the centre."""


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    import sys

    given = list(sys.argv[1:] if words is None else words)
    cure = CURE["train"] if {"--train", "--distributed"} & set(given) else ""
    return guarded(lambda: run([word for word in given if word != DEBUG_FLAG]), DEBUG_FLAG in given, cure)


def run(words: Sequence[str]) -> None:
    flags = parse_flags(words)
    inputs = sort_files(flags)
    for name, reason in NO_MEANING.items():
        if getattr(flags, name):
            say(f"--{name}: {reason}")
    model = inputs.snapshot
    if _wants_training(flags, inputs):
        assert inputs.scene is not None
        join(flags)
        arguments = training_arguments(flags, inputs)
        train_verb.run(arguments)
        model = arguments.out
        if int(os.environ.get("RANK", "0")) > 0:
            return
    if model is None:
        raise NerfleetError("nothing to do", "name a scene to train on, or a snapshot", "see `run.py --help`")
    _after(flags, inputs, model)


def _wants_training(flags: argparse.Namespace, inputs: Inputs) -> bool:
    """As in instant-ngp: a scene is trained on; with a snapshot only if a number of steps is given."""
    if inputs.scene is None or flags.n_steps == 0:
        if flags.train and inputs.scene is None:
            raise NerfleetError("--train", "there is no scene to train on", "add --scene")
        return False
    return inputs.snapshot is None or flags.n_steps > 0 or flags.train


def training_arguments(flags: argparse.Namespace, inputs: Inputs) -> train_verb.Arguments:
    """The flags of ``nerfleet train`` that do the same. All frames of a transforms.json are trained on; of split files, those for training."""
    scene = inputs.scene
    assert scene is not None
    own: dict[str, Any] = {
        "scene": scene,
        "steps": flags.n_steps if flags.n_steps > 0 else DEFAULT_STEPS,
        "network": inputs.network or "base",
        "preset": flags.mode if flags.mode in MODES else "none",
        "nerf_compatibility": flags.nerf_compatibility,
        "train_on_all": not _has_split_files(scene),
        "seed": flags.seed,
        "device": flags.device,
        "gpus": world_size(flags),
        "start": inputs.snapshot,
    }
    if flags.near_distance >= 0:
        own["near_distance"] = flags.near_distance
    digest = hashlib.sha256(json.dumps({name: str(value) for name, value in own.items() if name not in ("gpus", "device")}).encode()).hexdigest()[:8]
    folder = scene if scene.is_dir() else scene.parent
    return train_verb.Arguments(**own, out=flags.run_dir or Path("runs") / f"{folder.resolve().name}_{digest}")


def _has_split_files(scene: Path) -> bool:
    from nerfleet.data.scene_files import find_scene_files

    files = find_scene_files(scene)
    return files.test is not None or files.val is not None


def world_size(flags: argparse.Namespace) -> int:
    """Ranks of the training."""
    if not flags.distributed:
        return 1
    given = flags.world_size or os.environ.get("WORLD_SIZE")
    if given is not None:
        if not str(given).isdecimal() or int(given) < 1:
            raise NerfleetError(f"WORLD_SIZE {given}", "is no number of ranks", "set it to 1 or more, or give --world_size")
        return int(given)
    import torch

    return max(torch.cuda.device_count(), 1) if flags.device != "cpu" else 1


def join(flags: argparse.Namespace) -> None:
    """Become the rank that --rank, RANK or the pod's ordinal names; without any of them, nothing. A launcher's own environment is left alone."""
    from nerfleet.parallel.environment import inside

    rank = own_rank(flags) if flags.distributed else None
    if rank is None or inside():
        return
    size = world_size(flags)
    if rank >= size:
        raise NerfleetError(f"rank {rank}", f"there are {size} ranks", "give --world_size")
    host, port = _address(flags.dist_url)
    n_gpus = 0
    if flags.device != "cpu":
        import torch

        n_gpus = torch.cuda.device_count()
    n_local = min(n_gpus, size) or (size if host in ("127.0.0.1", "localhost") else 1)
    values = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank % n_local, "LOCAL_WORLD_SIZE": n_local, "MASTER_ADDR": host, "MASTER_PORT": port}
    for name, value in values.items():
        os.environ.setdefault(name, str(value))


def own_rank(flags: argparse.Namespace) -> int | None:
    """--rank, else RANK, else the index of a pod (of an indexed job, or the number at the end of its name)."""
    for value in (flags.rank, os.environ.get("RANK"), os.environ.get("JOB_COMPLETION_INDEX")):
        if value is not None and str(value).isdecimal():
            return int(value)
    if "KUBERNETES_SERVICE_HOST" in os.environ and (match := re.search(r"-(\d+)$", socket.gethostname().split(".")[0])):
        return int(match[1])
    return None


def _address(url: str | None) -> tuple[str, int]:
    """Host and port of --dist_url; MASTER_ADDR and MASTER_PORT where it is not given or says env://."""
    environment = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if url in (None, "env://"):
        if all(environment):
            return str(environment[0]), int(str(environment[1]))
        if url is not None:
            raise NerfleetError("--dist_url env://", "MASTER_ADDR and MASTER_PORT are not set", "set them, or give tcp://host:port")
    parts = urlsplit(url or DEFAULT_URL)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "tcp" or not parts.hostname or port is None:
        raise NerfleetError(f"--dist_url {url}", "is not understood", "write tcp://host:port or env://")
    return parts.hostname, port


def _after(flags: argparse.Namespace, inputs: Inputs, model: Path) -> None:
    """What is done with a model."""
    if flags.save_snapshot is not None:
        from nerfleet.cli import convert

        convert.run(convert.Arguments(model, flags.save_snapshot))
    if flags.test_transforms is not None:
        _test(flags, model)
    if flags.save_mesh is not None:
        _mesh(flags, model)
    if flags.screenshot_dir is not None:
        _screenshots(flags, model)
    if inputs.camera_path is not None:
        _video(flags, inputs.camera_path, model)


def _test(flags: argparse.Namespace, model: Path) -> None:
    """PSNR and SSIM over black, one sample through each pixel's centre, printed in instant-ngp's form."""
    from nerfleet.cli.eval import print_table
    from nerfleet.render.evaluate import evaluate
    from nerfleet.snapshot.load import load_model
    from nerfleet.train.trainer import choose_device

    scene = load_named(flags.test_transforms)
    found = evaluate(load_model(model).to(choose_device(flags.device)), scene)
    print_table(found)
    scores = [view.psnr for view in found.views]
    ssim = "not known" if found.ssim_mean is None else f"{found.ssim_mean}"
    print(f"PSNR={found.psnr_mean} [min={min(scores)} max={max(scores)}] SSIM={ssim}")


def load_named(path: Path) -> Scene:
    """The photographs that a transforms file lists itself."""
    from nerfleet.data import load_scene

    split = _own_split(path)
    return load_scene(path, split, train_on_all=split == "train")


def _own_split(file: Path) -> Split:
    if file.name in ("transforms_test.json", "transforms_val.json"):
        return "test" if file.name == "transforms_test.json" else "val"
    return "train"


def _mesh(flags: argparse.Namespace, model: Path) -> None:
    from nerfleet.cli import mesh

    wanted: dict[str, Any] = {"model": model, "out": flags.save_mesh, "resolution": flags.marching_cubes_res, "device": flags.device}
    if flags.marching_cubes_density_thresh is not None:
        wanted["threshold"] = math.exp(flags.marching_cubes_density_thresh)
    mesh.run(mesh.Arguments(**wanted))


def _screenshots(flags: argparse.Namespace, model: Path) -> None:
    look = {"background": "black", "exposure": flags.exposure, "spp": _screenshot_spp(flags), "device": flags.device}
    if flags.screenshot_transforms is not None:
        file = flags.screenshot_transforms
        split = _own_split(file)
        views = ",".join(str(i) for i in flags.screenshot_frames or ())
        size = {"width": flags.width, "height": flags.height}
        render_verb.run(
            render_verb.Arguments(model, flags.screenshot_dir, scene=file, split=split, views=views, train_on_all=split == "train", **size, **look)
        )
        _shorten_names(flags.screenshot_dir, file, flags.screenshot_frames)
        return
    from nerfleet.render.camera_path import CameraPath, Keyframe, write_camera_path

    start = Keyframe((1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 2.0), scale=1.5, fov=START_FOV)
    size = {"width": flags.width or VIDEO_SIZE[0], "height": flags.height or VIDEO_SIZE[1]}
    with tempfile.TemporaryDirectory() as folder:
        write_camera_path(Path(folder) / "start.json", CameraPath((start,)))
        render_verb.run(render_verb.Arguments(model, flags.screenshot_dir, camera_path=Path(folder) / "start.json", frames=1, **size, **look))


def _shorten_names(folder: Path, file: Path, chosen: list[int] | None) -> None:
    """``test_r_0.png`` -> ``r_0.png``, as instant-ngp names its pictures, unless two of them would have one name."""
    from nerfleet.cli.eval import picture_name
    from nerfleet.data.plan import plan_scene

    split = _own_split(file)
    frames = plan_scene(file, split, train_on_all=split == "train").frames
    names = {picture_name(frame.name): picture_name(frame.name.replace("\\", "/").rpartition("/")[2]) for frame in frames}
    if len(set(names.values())) < len(frames):
        return
    for i in chosen or range(len(frames)):
        long = picture_name(frames[i].name)
        os.replace(folder / long, folder / names[long])


def _screenshot_spp(flags: argparse.Namespace) -> int:
    if flags.screenshot_spp is not None:
        return int(flags.screenshot_spp)
    return MODES[flags.mode].screenshot_spp if flags.mode in MODES else DEFAULT_SPP


def _video(flags: argparse.Namespace, camera_path: Path, model: Path) -> None:
    out = Path(flags.video_output)
    pattern = out.name if "%" in out.name else ""
    options: dict[str, Any] = {
        "camera_path": camera_path,
        "seconds": flags.video_n_seconds,
        "fps": float(flags.video_fps),
        "width": flags.width or VIDEO_SIZE[0],
        "height": flags.height or VIDEO_SIZE[1],
        "spp": flags.video_spp,
        "exposure": flags.exposure,
        "background": "black",
        "device": flags.device,
        "gpus": world_size(flags),
        "frame_range": "-".join(str(i) for i in flags.video_render_range or ()),
        "smoothing": SMOOTHING_SECONDS if flags.video_camera_smoothing else 0.0,
        "names": pattern,
    }
    render_verb.run(render_verb.Arguments(model, out.parent if pattern else out, **options))
