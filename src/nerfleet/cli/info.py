"""``nerfleet info``: what was read of a scene, what was skipped and why, and the memory that training will need, without
decoding pixels; or what a model is."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import torch
import tyro

from nerfleet.cli.flags import print_json
from nerfleet.cli.train_images import memory_of
from nerfleet.data.checks import share_of_rays_in_box
from nerfleet.data.images import ImageError, decode_rgba, looks_complete
from nerfleet.data.photograph import ignored_pixels
from nerfleet.data.plan import PlannedFrame, ScenePlan, available_splits, plan_scene, planned_cameras
from nerfleet.errors import NerfleetError
from nerfleet.pipeline.choice import choose, default_workers, parse_bytes
from nerfleet.snapshot.document import SUFFIXES
from nerfleet.snapshot.ingp import read_snapshot
from nerfleet.snapshot.load import RUN_MODEL, model_file
from nerfleet.train.trainer import choose_device

SUMMARY = "what a scene or a model holds"
_PARAMETER_BYTES = 4 + 4 + 4 + 2 + 2 + 4 + 2
_SAMPLE_BYTES = 64 + 64 + 32 + 32
_N_TRAINED, _N_EVALUATED = 2**18, 2**20
_RUNTIME_BYTES = 900_000_000
_HOST_RUNTIME_BYTES = {"cpu": 500_000_000, "cuda": 3_000_000_000}
"""Of a training process without data: Python, torch and numba; on CUDA its libraries and context too."""


@dataclass(frozen=True)
class Arguments:
    """What a scene or a model holds.

    Of a scene: frames, what was skipped and why, cameras, sizes, masks, and the memory that training will need. Of a model:
    its network, boxes, training step and how much of the scene box is occupied.

    Examples:
        nerfleet info data/fox
        nerfleet info data/fox --downscale 2 --strict --json
        nerfleet info runs/fox

    Attributes:
        path: a scene (a transforms.json, or a folder that holds one) or a model (an .ingp or .msgpack file, or a run folder).
        downscale: count photographs as reduced by this factor.
        image_memory: what photographs may take on the device, such as 4GB; empty: half of its memory, as for `train`.
        strict: anything skipped or warned about is an error.
        json: print one JSON object.
    """

    path: Annotated[Path, tyro.conf.Positional]
    downscale: int = 1
    image_memory: str = ""
    strict: bool = False
    json: bool = False


def run(arguments: Arguments) -> None:
    path = arguments.path
    if arguments.downscale < 1:
        raise NerfleetError(f"--downscale {arguments.downscale}", "is not a whole number from 1 on", "use 1 for full size")
    is_model = path.suffix.lower() in SUFFIXES or (path / RUN_MODEL).is_file()
    report = model_info(path) if is_model else info(path, arguments.downscale, arguments.strict, parse_bytes(arguments.image_memory, "image-memory"))
    if arguments.json:
        print_json(report)
    elif is_model:
        _print_rows(_model_rows(report))
    else:
        print_info(report)


def model_info(path: Path) -> dict[str, Any]:
    """Report on a model as plain values (``nerfleet info MODEL --json``).

    Returns:
        ``model`` (the file), ``size_bytes``, ``training_step``, ``loss``, ``network`` (its configuration), ``n_params``,
        ``aabb_scale``, ``aabb``, ``crop`` ({min, max} in internal space, or null), ``cone_angle``, ``n_cascades``, ``occupied``
        (share of the cells of each cascade) and ``n_images`` (of the scene that it carries, or null).
    """
    from nerfleet.config import is_number, to_dict
    from nerfleet.geometry.box import scene_box

    file = model_file(path)
    snapshot = read_snapshot(file)
    model, values = snapshot.model, snapshot.document["snapshot"]
    bits = model.occupancy.bitfield.view(model.occupancy.n_cascades, -1)
    counts = torch.stack([((bits >> k) & 1).sum(-1) for k in range(8)]).sum(0)
    dataset = values["nerf"].get("dataset")

    def number(value: Any) -> Any:
        return value if is_number(value) else None

    def box(corners: Any) -> dict[str, list[float]]:
        return {"min": corners[0].tolist(), "max": corners[1].tolist()}

    return {
        "model": str(file),
        "size_bytes": file.stat().st_size,
        "training_step": number(values.get("training_step")),
        "loss": number(values.get("loss")),
        "network": to_dict(model.network),
        "n_params": model.mlp.numel() + model.table.numel(),
        "aabb_scale": model.aabb_scale,
        "aabb": box(scene_box(model.aabb_scale)),
        "crop": None if model.render_aabb is None else box(model.render_aabb),
        "cone_angle": model.cone_angle,
        "n_cascades": model.occupancy.n_cascades,
        "occupied": [count / (8 * bits.shape[1]) for count in counts.tolist()],
        "n_images": number(dataset.get("n_images")) if isinstance(dataset, dict) else None,
    }


def _model_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    encoding, density, rgb = (report["network"][name] for name in ("encoding", "density", "rgb"))
    size = f"{encoding['n_levels']} levels x {encoding['n_features_per_level']} features"
    grid = f"{encoding['otype']}, {size}, 2^{encoding['log2_hashmap_size']} entries"
    density, rgb = (f"{part['n_hidden_layers']} x {part['n_neurons']}" for part in (density, rgb))

    def corners(box: dict[str, list[float]]) -> str:
        return " to ".join("(" + ", ".join(f"{v:g}" for v in box[key]) + ")" for key in ("min", "max"))

    return [
        ("model", f"{report['model']}, {report['size_bytes'] / 1e6:,.1f} MB"),
        ("training step", str(report["training_step"])),
        ("encoding", grid),
        ("networks", f"density {density}, colour {rgb} neurons"),
        ("parameters", f"{report['n_params']:,}"),
        ("scene box", f"{corners(report['aabb'])}, aabb_scale {report['aabb_scale']}"),
        ("crop", "none" if report["crop"] is None else corners(report["crop"])),
        ("occupied", ", ".join(f"{share:.2%}" for share in report["occupied"]) + " (cascades, finest first)"),
        ("photographs", "not known" if report["n_images"] is None else str(report["n_images"])),
    ]


def info(path: Path | str, downscale: int = 1, strict: bool = False, image_memory: int = 0) -> dict[str, Any]:
    """Report on a scene as plain values (the contract of ``nerfleet info --json``).

    All splits are counted. Sizes come from image headers; only masks, and images that lack their end marker, are decoded.

    Returns:
        ``n_frames`` listed, ``n_used``, ``skipped`` [{frame, reason}], ``n_cameras`` (different intrinsics),
        ``aabb_scale``, ``image_bytes`` (RGBA8 of what is used), ``device_bytes_estimate``, ``warnings``; further ``notes``,
        ``splits`` {name: views}, ``sizes`` {"WxH": images}, ``rays_in_box`` (share of camera rays that meet the scene box),
        ``n_masks`` and ``masked`` (share of all pixels that masks take out), ``n_depth_maps``; and for a training with all views on this
        machine ``images`` {``path``: all, progressive or pool, ``why``, ``device_bytes``, ``host_bytes`` of the photographs} and
        ``host_bytes_estimate``. ``device_bytes_estimate`` follows the path.

    Raises:
        NerfleetError: as :func:`nerfleet.data.load_scene`; with ``strict`` for anything skipped or warned about.
    """
    plan = plan_scene(Path(path), train_on_all=True)
    frames = [frame for frame in plan.frames if not _is_damaged(frame, plan)]
    if not frames:
        raise NerfleetError(str(path), "no frame can be used", f"last reason: {plan.findings.skipped[-1].reason}")
    if strict:
        plan.findings.raise_if_strict(str(path))
    cameras = planned_cameras(plan, downscale)
    sizes = [(f.header.width // downscale, f.header.height // downscale) for f in frames]
    n_pixels = sum(width * height for width, height in sizes)
    n_masks, n_ignored = _mask_counts(frames)
    return {
        "n_frames": plan.n_listed,
        "n_used": len(frames),
        "skipped": [{"frame": s.frame, "reason": s.reason} for s in plan.findings.skipped],
        "n_cameras": len({(f.intrinsics, f.header.width, f.header.height) for f in frames}),
        "aabb_scale": plan.settings.aabb_scale,
        "image_bytes": 4 * n_pixels,
        **_memory(4 * n_pixels, max(f.header.width * f.header.height for f in frames), plan.settings.aabb_scale, image_memory),
        "warnings": list(plan.findings.warnings),
        "notes": list(plan.findings.notes),
        "splits": {split: len(plan_scene(Path(path), split).frames) for split in available_splits(path)},
        "sizes": {f"{w}x{h}": sizes.count((w, h)) for w, h in dict.fromkeys(sizes)},
        "rays_in_box": round(share_of_rays_in_box(cameras, plan.settings.aabb_scale), 4),
        "n_masks": n_masks,
        "masked": n_ignored / sum(f.header.width * f.header.height for f in frames),
        "n_depth_maps": sum(f.side_files.depth is not None for f in frames),
    }


def device_bytes_estimate(image_bytes: int, aabb_scale: int) -> int:
    """Device memory for training with the base network (8 levels x 4 features, 2^19 entries), one GPU.

    - the photographs, RGBA8;
    - 22 bytes for each parameter: fp32 weight and two moments, step count, fp16 weight, gradient (4 bytes) and fp16 average. The grid's
      parameters follow docs/conventions.md: dense levels while resolution^3 fits the table;
    - 6 bytes (fp32 value, bits, scratch) for each of the 128^3 cells of every occupancy cascade;
    - 192 bytes for each sample: encoded features and their gradients, network outputs, position, direction; 2^20
      evaluated and 2^18 trained samples;
    - 0.9 GB for the CUDA context, compiled kernels and the allocator.
    """
    growth = math.exp(math.log(2048 * aabb_scale / 16) / 7)
    grid = sum(4 * min(-(-((math.ceil(16 * growth**level - 1) + 1) ** 3) // 8) * 8, 2**19) for level in range(8))
    cascades = int(math.log2(aabb_scale)) + 1
    samples = (_N_TRAINED + _N_EVALUATED) * _SAMPLE_BYTES
    return image_bytes + (grid + 10_240) * _PARAMETER_BYTES + cascades * 128**3 * 6 + samples + _RUNTIME_BYTES


def _memory(image_bytes: int, largest: int, aabb_scale: int, image_memory: int) -> dict[str, Any]:
    """How a training on this machine would read the photographs, and the memory that it would take."""
    device = choose_device("auto")
    memory = memory_of(device)
    path = choose("auto", image_bytes // 4, largest, memory, image_memory, default_workers(largest, memory))
    on_device = device_bytes_estimate(path.device_bytes, aabb_scale)
    host = _HOST_RUNTIME_BYTES[device.type] + path.host_bytes
    if memory.on_host:
        host += on_device - path.device_bytes - _RUNTIME_BYTES
    images = {"path": path.name, "why": path.why, "device_bytes": path.device_bytes, "host_bytes": path.host_bytes}
    return {"device_bytes_estimate": on_device, "host_bytes_estimate": host, "images": images}


def print_info(report: dict[str, Any], file: TextIO | None = None) -> None:
    """Prints the report of :func:`info` as a table for people."""
    _print_rows(_rows(report), file)


def _print_rows(rows: list[tuple[str, str]], file: TextIO | None = None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, text)
    Console(file=file or sys.stdout, markup=False, highlight=False).print(table)


def _rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    splits = ", ".join(f"{split} {n}" for split, n in report["splits"].items())
    sizes = ", ".join(f"{size} ({n})" for size, n in list(report["sizes"].items())[:6])
    rows = [
        ("frames", f"{report['n_frames']} listed, {report['n_used']} used, {len(report['skipped'])} skipped"),
        ("splits", splits),
        ("cameras", str(report["n_cameras"])),
        ("sizes", sizes + (", ..." if len(report["sizes"]) > 6 else "")),
        ("aabb_scale", str(report["aabb_scale"])),
        ("rays in the box", f"{report['rays_in_box']:.0%}"),
        ("masks", f"{report['n_masks']} applied, {report['masked']:.1%} of the pixels ignored"),
        ("depth maps", str(report["n_depth_maps"])),
        ("photographs", f"{report['image_bytes'] / 1e6:,.1f} MB"),
        ("read in training", f"{report['images']['path']}: {report['images']['why']}"),
        ("GPU memory, about", f"{report['device_bytes_estimate'] / 1e9:.1f} GB (base network)"),
        ("host memory, about", f"{report['host_bytes_estimate'] / 1e9:.1f} GB here"),
    ]
    rows += [("warning", text) for text in report["warnings"]]
    rows += [("note", text) for text in report["notes"]]
    reasons: dict[str, list[str]] = {}
    for skipped in report["skipped"]:
        reasons.setdefault(skipped["reason"], []).append(skipped["frame"])
    rows += [(f"skipped {len(frames)}", f"{reason}: {', '.join(frames)}") for reason, frames in reasons.items()]
    return rows


def _is_damaged(frame: PlannedFrame, plan: ScenePlan) -> bool:
    """Decodes a file that lacks its end marker; records it as skipped if it is really damaged."""
    if looks_complete(frame.image, frame.header):
        return False
    import numpy as np

    try:
        decode_rgba(frame.image, frame.header, np.empty((frame.header.height, frame.header.width, 4), np.uint8))
    except ImageError as error:
        plan.findings.skip(frame.name, str(error))
        return True
    return False


def _mask_counts(frames: list[PlannedFrame]) -> tuple[int, int]:
    """(masks, pixels that they take out)."""
    n_ignored = 0
    for frame in frames:
        ignored = ignored_pixels(frame.side_files)
        n_ignored += 0 if ignored is None else int(ignored.sum())
    return sum(len(frame.side_files.masks) for frame in frames), n_ignored
