"""What was read of a scene, what was skipped and why, and the memory that training will need, without decoding pixels."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any, TextIO

from nerfleet.data.checks import share_of_rays_in_box
from nerfleet.data.decode import ignored_pixels
from nerfleet.data.images import ImageError, decode_rgba, looks_complete
from nerfleet.data.plan import PlannedFrame, ScenePlan, available_splits, plan_scene, planned_cameras
from nerfleet.errors import NerfleetError

_PARAMETER_BYTES = 4 + 4 + 4 + 4 + 2 + 2 + 2
_SAMPLE_BYTES = 64 + 64 + 32 + 32
_N_TRAINED, _N_EVALUATED = 2**18, 2**20
_RUNTIME_BYTES = 900_000_000


def info(path: Path | str, downscale: int = 1, strict: bool = False) -> dict[str, Any]:
    """Report on a scene as plain values (the contract of ``nerfleet info --json``).

    All splits are counted. Sizes come from image headers; only masks, and images that lack their end marker, are decoded.

    Returns:
        ``n_frames`` listed, ``n_used``, ``skipped`` [{frame, reason}], ``n_cameras`` (different intrinsics),
        ``aabb_scale``, ``image_bytes`` (RGBA8 of what is used), ``device_bytes_estimate``, ``warnings``; further ``notes``,
        ``splits`` {name: views}, ``sizes`` {"WxH": images}, ``rays_in_box`` (share of camera rays that meet the scene box),
        ``n_masks`` and ``masked`` (share of all pixels that masks take out), ``n_depth_maps``.

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
        "device_bytes_estimate": device_bytes_estimate(4 * n_pixels, plan.settings.aabb_scale),
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
    - 22 bytes for each parameter: fp32 weight, two moments and step count, fp16 weight, gradient and average. The grid's
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


def print_info(report: dict[str, Any], file: TextIO | None = None) -> None:
    """Prints the report of :func:`info` as a table for people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in _rows(report):
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
        ("GPU memory, about", f"{report['device_bytes_estimate'] / 1e9:.1f} GB (base network)"),
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
        ignored = ignored_pixels(frame)
        n_ignored += 0 if ignored is None else int(ignored.sum())
    return sum(len(frame.side_files.masks) for frame in frames), n_ignored
