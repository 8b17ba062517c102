"""Scenes from transforms.json files and folders of transforms_train/val/test.json."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from nerfleet.data.decode import DecodedPhotographs, Progress, decode_photographs
from nerfleet.data.part import Part, pixel_range
from nerfleet.data.plan import ScenePlan, plan_scene, planned_cameras
from nerfleet.data.scene import Scene
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Cameras


def load_scene(
    path: Path | str,
    split: str = "train",
    *,
    downscale: int = 1,
    train_on_all: bool = False,
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    part: Part | None = None,
) -> Scene:
    """Reads the photographs of one split with their cameras.

    Held-out views: the test split; else the val split (said in ``warnings``); else every 8th image by plain string
    order of ``file_path`` (none below 8 images).

    Frames that cannot be used (missing or damaged image, NaN pose, ...) are left out and listed in ``skipped``. EXIF
    orientations are not applied: poses and intrinsics belong to the pixels as stored.

    Args:
        path: a transforms.json, or a folder that holds one or transforms_train/val/test.json.
        split: "train", "val" or "test"; "train" leaves out the held-out views.
        downscale: box filter; sizes are rounded down.
        train_on_all: "train" holds every view.
        strict: skipped frames and warnings become an error.
        workers: decoding threads; None for one per core.
        progress: called with (photographs done, photographs in all).
        part: decode and keep only these pixels (data/part.py); the scene still has all cameras.

    Raises:
        NerfleetError: no scene there, a value that cannot be, nothing usable, or not enough memory.
    """
    if downscale < 1:
        raise NerfleetError(f"downscale {downscale}", "is not a whole number from 1 on", "use 1 for full size")
    plan = plan_scene(Path(path), split, train_on_all=train_on_all)
    if strict:
        plan.findings.raise_if_strict(str(path))
    return load_plan(plan, downscale, strict=strict, workers=workers, progress=progress, part=part)


def load_plan(
    plan: ScenePlan, downscale: int = 1, *, strict: bool = False, workers: int | None = None, progress: Progress | None = None, part: Part | None = None
) -> Scene:
    """Decodes the photographs of a planned scene. Arguments and errors as in :func:`load_scene`."""
    cameras = planned_cameras(plan, downscale)
    if part is not None:
        return _load_part(plan, cameras, downscale, workers, progress, part)
    decoded = decode_photographs(plan, downscale, workers, progress)
    _report_decoding(plan, decoded)
    if strict:
        plan.findings.raise_if_strict(str(plan.path))
    return _assemble(plan, decoded, cameras[decoded.kept])


def _load_part(plan: ScenePlan, cameras: Cameras, downscale: int, workers: int | None, progress: Progress | None, part: Part) -> Scene:
    """The scene with the pixels of one part; views that another part could not decode are left out here too."""
    sizes = cameras.resolution.long().prod(-1)
    chosen = pixel_range(part, sizes.tolist())
    own = dataclasses.replace(plan, frames=plan.frames[chosen.first : chosen.last])
    decoded = decode_photographs(own, downscale, workers, progress)
    failed = part.gather({own.frames[position].name: reason for position, reason in decoded.failed.items()})
    kept = [i for i, frame in enumerate(plan.frames) if frame.name not in failed]
    for name, reason in failed.items():
        plan.findings.skip(name, reason)
    if not kept:
        raise NerfleetError(str(plan.path), "no frame can be used", f"last reason: {next(reversed(failed.items()))}")
    begins = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    skipped = chosen.begin - int(begins[chosen.first])
    if decoded.kept and decoded.kept[0] > 0:  # the view that the part begins in is not there
        skipped = 0
    over = int(begins[chosen.last]) - chosen.end
    if not decoded.kept or decoded.kept[-1] < chosen.last - chosen.first - 1:
        over = 0
    held = {chosen.first + i for i in decoded.kept}
    lengths = torch.tensor([int(sizes[i]) if i in held else 0 for i in kept], dtype=torch.int64)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]) - skipped
    span = slice(skipped, len(decoded.pixels) - over)
    depth = decoded.depth[span] if decoded.depth is not None else None
    everything = dataclasses.replace(decoded, kept=kept, pixels=decoded.pixels[span], depth=depth, offsets=offsets)
    return _assemble(plan, everything, cameras[kept])


def _report_decoding(plan: ScenePlan, decoded: DecodedPhotographs) -> None:
    """Adds what decoding brought to light to the plan's findings. Raises NerfleetError if nothing is left."""
    findings = plan.findings
    for position, reason in decoded.failed.items():
        findings.skip(plan.frames[position].name, reason)
    if not decoded.kept:
        last = findings.skipped[-1]
        raise NerfleetError(str(plan.path), "no frame can be used", f"last reason: {last.frame}: {last.reason}")
    n_masks = sum(len(plan.frames[i].side_files.masks) for i in decoded.kept)
    if n_masks:
        findings.note(f"{n_masks} masks applied, {sum(decoded.n_masked) / len(decoded.pixels):.1%} of the pixels ignored")
    sizes = decoded.offsets.diff().tolist()
    empty = [plan.frames[i].name for i, n, size in zip(decoded.kept, decoded.n_masked, sizes) if n == size]
    findings.warn_counted(empty, len(decoded.kept), "images are masked completely and train nothing")


def _assemble(plan: ScenePlan, decoded: DecodedPhotographs, cameras: Cameras) -> Scene:
    settings = plan.settings
    return Scene(
        name=plan.name,
        path=plan.path,
        split=plan.split,
        names=tuple(plan.frames[i].name for i in decoded.kept),
        cameras=cameras,
        pixels=decoded.pixels,
        pixel_offsets=decoded.offsets,
        aabb_scale=settings.aabb_scale,
        transform=settings.transform,
        depth=decoded.depth,
        render_aabb=torch.tensor(settings.render_aabb) if settings.render_aabb else None,
        has_alpha=decoded.has_alpha,
        background=settings.background,
        up=settings.up,
        skipped=tuple(plan.findings.skipped),
        warnings=tuple(plan.findings.warnings),
        notes=tuple(plan.findings.notes),
    )
