"""The flags of instant-ngp's scripted command line and those for several GPUs; which file is what."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from nerfleet.errors import NerfleetError
from nerfleet.presets import MODES, NETWORKS
from nerfleet.snapshot.document import SUFFIXES

DEFAULT_STEPS = 35_000
DEFAULT_SPP, DEFAULT_VIDEO_SPP = 16, 8
OTHER_KINDS = ("sdf", "image", "volume")
NO_MEANING = {
    "gui": "there is no window: ask for pictures or a video",
    "second_window": "there is no window: ask for pictures or a video",
    "vr": "there is no window, so none for a headset",
    "sharpen": "photographs are used as they are",
}
"""Flags that are accepted and say so in a line. What sharpening would do is not built."""


@dataclass(frozen=True)
class Inputs:
    """What the positional files and the flags for files name."""

    scene: Path | None = None
    network: str | None = None
    snapshot: Path | None = None
    camera_path: Path | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NerfleetError(message, "see `run.py --help`")


def parse_flags(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Raises NerfleetError for flags that there are not or that contradict one another."""
    parser = _Parser(prog="run.py", description="Train, judge and render a radiance field with instant-ngp's flags.", allow_abbrev=False)
    _add_files(parser)
    _add_training(parser)
    _add_pictures(parser)
    _add_ranks(parser)
    for name, reason in NO_MEANING.items():
        kind: dict[str, Any] = {"type": float, "default": 0.0} if name == "sharpen" else {"action": "store_true"}
        parser.add_argument(f"--{name}", help=f"accepted, without effect: {reason}", **kind)
    flags = parser.parse_args(words)
    _check(flags)
    return flags


def _add_files(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("files")
    group.add_argument("files", nargs="*", type=Path, help="scenes, snapshots, network files and camera paths, in any order")
    group.add_argument("--scene", "--training_data", type=Path, help="a transforms.json, or a folder that holds one")
    group.add_argument("--network", help=f"{', '.join(NETWORKS)}, or a network JSON file")
    group.add_argument("--load_snapshot", "--snapshot", type=Path, help="an .ingp or .msgpack file, or a run folder, to render or to train on from")
    group.add_argument("--save_snapshot", type=Path, help="write the model to this .ingp or .msgpack file at the end")
    group.add_argument("--run_dir", type=Path, help="folder of checkpoints (default: runs/<scene>_<flags>); the same command continues there")


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument("--train", action="store_true", help="train even if a snapshot is loaded; a scene alone is trained on anyway")
    group.add_argument("--n_steps", type=int, default=-1, help=f"steps to train to (default: {DEFAULT_STEPS:,}; with a snapshot: none)")
    group.add_argument("--mode", default=None, help=f"{' or '.join(MODES)}: several knobs at once (`nerf`, the only kind of model here, is accepted too)")
    group.add_argument("--nerf_compatibility", action="store_true", help="blend in sRGB, constant steps, black background, as the original NeRF")
    group.add_argument("--near_distance", type=float, default=-1.0, help="density nearer to a camera is pushed away; below 0: the default")
    group.add_argument("--test_transforms", type=Path, help="a transforms file: print PSNR and SSIM on its photographs")
    group.add_argument("--seed", type=int, default=1337)
    group.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def _add_pictures(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pictures, video, mesh")
    group.add_argument("--exposure", type=float, default=0.0, help="stops brighter (or darker, if negative)")
    group.add_argument("--width", "--screenshot_w", type=int, default=0, help="pixels of pictures and video; 0: as the cameras (video 1920)")
    group.add_argument("--height", "--screenshot_h", type=int, default=0, help="pixels; 0: as the cameras (video 1080)")
    group.add_argument("--screenshot_transforms", type=Path, help="render the cameras of this transforms file")
    group.add_argument("--screenshot_frames", nargs="*", type=int, help="only these of them, counted from 0")
    group.add_argument("--screenshot_dir", type=Path, help="folder of the pictures; without --screenshot_transforms: one picture from the standard view")
    group.add_argument("--screenshot_spp", type=int, default=None, help=f"samples per pixel of pictures (default: {DEFAULT_SPP}, or as --mode says)")
    group.add_argument("--video_camera_path", type=Path, help="a camera path; renders a video along it")
    group.add_argument("--video_camera_smoothing", action="store_true", help="follow the path smoothly; its end may not be reached")
    group.add_argument("--video_fps", type=int, default=60)
    group.add_argument("--video_n_seconds", type=float, default=1.0)
    group.add_argument("--video_render_range", nargs=2, type=int, metavar=("FIRST", "LAST"), help="only these frames, the last one included")
    group.add_argument("--video_spp", type=int, default=DEFAULT_VIDEO_SPP, help="samples per pixel of a video")
    group.add_argument("--video_output", default="video.mp4", help="an .mp4 file, or pictures, such as frames/video_%%04d.png")
    group.add_argument("--save_mesh", type=Path, help="write a mesh (.glb, .obj, .ply)")
    group.add_argument("--marching_cubes_res", type=int, default=256, help="cells along the longest edge")
    group.add_argument("--marching_cubes_density_thresh", type=float, default=None, help="log density of the surface; default: from the model")


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("several GPUs")
    group.add_argument("--distributed", action="store_true", help="train on several GPUs, or processes on the CPU")
    group.add_argument("--world_size", type=int, default=None, help="ranks in all (default: WORLD_SIZE, else the GPUs of this machine)")
    group.add_argument("--rank", type=int, default=None, help="join the others as this rank (default: RANK, or a pod's ordinal); else all start here")
    group.add_argument("--dist_url", default=None, help="where rank 0 listens: tcp://host:port, or env:// (MASTER_ADDR, MASTER_PORT)")


def _check(flags: argparse.Namespace) -> None:
    if flags.mode in OTHER_KINDS:
        raise NerfleetError(f"--mode {flags.mode}", "only radiance fields are trained here", "leave it out")
    if flags.mode not in (None, "nerf", *MODES):
        raise NerfleetError(f"--mode {flags.mode}", "is no mode", f"use {' or '.join(MODES)}")
    least = {"world_size": 1, "rank": 0, "width": 0, "height": 0, "screenshot_spp": 1, "video_spp": 1, "video_fps": 1, "marching_cubes_res": 8}
    for name, minimum in least.items():
        value = getattr(flags, name)
        if value is not None and value < minimum:
            raise NerfleetError(f"--{name} {value}", "is too small", f"use {minimum} or more")
    if flags.rank is not None and flags.world_size is not None and flags.rank >= flags.world_size:
        raise NerfleetError(f"--rank {flags.rank}", f"there are {flags.world_size} ranks", f"use 0 to {flags.world_size - 1}")
    if not flags.distributed and (flags.rank is not None or (flags.world_size or 1) > 1):
        raise NerfleetError("--world_size and --rank", "have no meaning alone", "add --distributed")
    if flags.save_snapshot is not None and flags.save_snapshot.suffix.lower() not in SUFFIXES:
        raise NerfleetError(f"--save_snapshot {flags.save_snapshot}", "is neither an .ingp nor a .msgpack file", "choose one of these extensions")
    if flags.screenshot_transforms is not None and flags.screenshot_dir is None:
        raise NerfleetError("--screenshot_transforms", "there is no place for the pictures", "add --screenshot_dir")


def sort_files(flags: argparse.Namespace) -> Inputs:
    """The files that are named, by what they are; a flag wins over a positional file."""
    found: dict[str, Any] = {}
    for path in flags.files:
        kind = _kind(path)
        if kind in found:
            raise NerfleetError(str(path), f"is a second {kind.replace('_', ' ')}", f"{found[kind]} is one already")
        found[kind] = str(path) if kind == "network" else path
    flagged = {"scene": flags.scene, "network": flags.network, "snapshot": flags.load_snapshot, "camera_path": flags.video_camera_path}
    return Inputs(**found | {name: value for name, value in flagged.items() if value is not None})


def _kind(path: Path) -> str:
    """``scene``, ``network``, ``snapshot`` or ``camera_path``. Raises NerfleetError."""
    if str(path) in NETWORKS and not path.exists():
        return "network"
    if path.suffix.lower() in SUFFIXES:
        return "snapshot"
    if path.is_dir():
        return "scene"
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise NerfleetError(str(path), error.strerror or "cannot be read", "name a scene, snapshot, network or camera path") from None
    except (ValueError, RecursionError):
        return "scene"  # scene files may hold comments; whatever else it is, reading it as one tells
    if isinstance(values, dict) and "frames" not in values:
        if "path" in values:
            return "camera_path"
        if values.keys() & {"encoding", "network", "rgb_network", "parent"}:
            return "network"
    return "scene"
