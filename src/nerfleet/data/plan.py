"""What a scene will be once its pixels are decoded: everything that can be known from text and image headers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nerfleet.data.checks import check_box_hits, check_lenses
from nerfleet.data.findings import Findings
from nerfleet.data.frames import ListedFrame, list_frames, read_pose, read_transforms_file
from nerfleet.data.images import Array, ImageError, ImageHeader, read_header
from nerfleet.data.intrinsics import Intrinsics, read_intrinsics, size_disagrees
from nerfleet.data.photograph import Decoding, PhotographFiles
from nerfleet.data.scene_files import HOLD_OUT_EVERY, SceneFiles, find_scene_files, held_out_positions
from nerfleet.data.settings import SceneSettings, read_settings
from nerfleet.data.side_files import FolderListing, SideFiles, find_side_files
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Cameras

SPLITS = ("train", "val", "test")
_HEADER_THREADS = 16


@dataclass(frozen=True)
class PlannedFrame:
    name: str
    image: Path
    header: ImageHeader
    pose: Array  # [3, 4] float64, file space
    intrinsics: Intrinsics
    side_files: SideFiles


@dataclass(frozen=True)
class ScenePlan:
    """Attributes:
    split: the split that ``frames`` really are.
    n_listed: frames that the files list for it, before anything is left out.
    """

    name: str
    path: Path
    split: str
    frames: tuple[PlannedFrame, ...]
    settings: SceneSettings
    n_listed: int
    findings: Findings

    def decoding(self, downscale: int) -> Decoding:
        return Decoding(downscale, self.settings.transparent, self.settings.depth_unit)


def plan_scene(path: Path, split: str = "train", *, train_on_all: bool = False) -> ScenePlan:
    """Reads transforms files and image headers. Arguments and errors as in :func:`nerfleet.data.load_scene`."""
    if split not in SPLITS:
        raise NerfleetError(f"split {split}", "is no split", f"use one of {', '.join(SPLITS)}")
    files = find_scene_files(path)
    findings = Findings()
    root = read_transforms_file(files.base)
    settings = read_settings(root, str(files.base), findings)
    chosen, real_split, n_listed = _choose(files, split, train_on_all, findings)
    headers, listing = _read_headers(chosen), FolderListing()
    planned = [frame for frame in (_plan_frame(f, header, settings, findings, listing) for f, header in zip(chosen, headers)) if frame]
    if not planned:
        first = next(iter(findings.skipped), None)
        raise NerfleetError(
            str(path), "no frame can be used", f"first reason: {first.frame}: {first.reason}" if first else "see above"
        )
    _warn_about_sizes(chosen, planned, findings)
    name = files.base.absolute().parent.name
    plan = ScenePlan(name, path, real_split, tuple(planned), settings, n_listed, findings)
    cameras = planned_cameras(plan)
    check_lenses(cameras, [frame.name for frame in planned], findings)
    check_box_hits(cameras, settings.aabb_scale, findings)
    return plan


def available_splits(path: Path | str) -> tuple[str, ...]:
    """Splits of a scene that can be loaded without standing in for one another, "train" always among them.

    "test" includes the every-8th rule; a scene of fewer than 8 photographs without other splits has "train" only.
    """
    files = find_scene_files(Path(path))
    findings = Findings()
    frames = {split: _existing_frames(file, findings)[0] for split, file in _files_by_split(files).items()}
    splits = tuple(split for split in SPLITS if frames.get(split) or split == "train")
    if splits == ("train",) and held_out_positions([frame.name for frame in frames["train"]]):
        return ("train", "test")
    return splits


def photograph_files(frame: PlannedFrame) -> PhotographFiles:
    """What has to be read of a frame."""
    return PhotographFiles(frame.image, frame.header, frame.side_files)


def planned_cameras(plan: ScenePlan, downscale: int = 1) -> Cameras:
    """Cameras in internal space, for photographs reduced by ``downscale`` (sizes are rounded down).

    Raises:
        NerfleetError: nothing would be left of a photograph.
    """
    frames = plan.frames
    poses = torch.from_numpy(np.stack([frame.pose for frame in frames]))
    resolution = torch.tensor([[f.header.width // downscale, f.header.height // downscale] for f in frames], dtype=torch.int32)
    if (resolution < 1).any():
        name = frames[int((resolution < 1).any(-1).nonzero()[0])].name
        raise NerfleetError(name, f"nothing is left of it at --downscale {downscale}", "use a smaller number")
    return Cameras(
        camera_to_world=plan.settings.transform.poses_to_internal(poses).float(),
        focal=torch.tensor([f.intrinsics.focal for f in frames]) / downscale,
        principal=torch.tensor([f.intrinsics.principal for f in frames]) / downscale,
        resolution=resolution,
        lens=torch.tensor([int(f.intrinsics.lens) for f in frames], dtype=torch.int32),
        lens_params=torch.tensor([f.intrinsics.lens_params for f in frames]),
    )


def _files_by_split(files: SceneFiles) -> dict[str, Path]:
    return {split: file for split, file in zip(SPLITS, (files.base, files.val, files.test), strict=True) if file}


def _existing_frames(file: Path, findings: Findings) -> tuple[list[ListedFrame], int]:
    return list_frames(file, read_transforms_file(file), findings)


def _choose(files: SceneFiles, split: str, train_on_all: bool, findings: Findings) -> tuple[list[ListedFrame], str, int]:
    """(frames, the split that they really are, number listed); the held-out rule of docs/design.md."""
    by_split = _files_by_split(files)
    if split == "train" and train_on_all:
        read = [_existing_frames(file, findings) for file in by_split.values()]
        return _without_repeats([frame for frames, _ in read for frame in frames]), "train", sum(n for _, n in read)
    wanted = ["train"] if split == "train" else [split, "test" if split == "val" else "val"]
    for candidate in wanted:
        if candidate not in by_split:
            continue
        unread = Findings() if candidate != "train" else findings
        frames, n_listed = _existing_frames(by_split[candidate], unread)
        if not frames and candidate != "train":
            findings.warn(f"{by_split[candidate].name} is not used: none of its {n_listed} images exists")
            continue
        if unread is not findings:
            findings.skipped += unread.skipped
            findings.warnings += unread.warnings
        if candidate != split:
            findings.warn(f"there is no {split} split: the {candidate} split is used")
        if candidate == "train" and not _other_split_exists(by_split):
            return _every_eighth(frames, False, findings), "train", n_listed
        return frames, candidate, n_listed
    frames, n_listed = _existing_frames(files.base, findings)
    return _every_eighth(frames, True, findings), "test", n_listed


def _other_split_exists(by_split: dict[str, Path]) -> bool:
    return any(_existing_frames(file, Findings())[0] for split, file in by_split.items() if split != "train")


def _every_eighth(frames: list[ListedFrame], held_out: bool, findings: Findings) -> list[ListedFrame]:
    """The held-out frames, or the others, of a scene that has no test or val split."""
    positions = set(held_out_positions([frame.name for frame in frames]))
    if not positions:
        if held_out:
            remedy = f"evaluate on --split train, or take at least {HOLD_OUT_EVERY} photographs"
            raise NerfleetError("held-out views", f"the scene has no test or val split and only {len(frames)} images", remedy)
        findings.note(f"no held-out views: there is no test or val split and fewer than {HOLD_OUT_EVERY} images")
        return frames
    findings.note(f"no test or val split: every {HOLD_OUT_EVERY}th image is held out ({len(positions)} of {len(frames)})")
    return [frame for i, frame in enumerate(frames) if (i in positions) == held_out]


def _without_repeats(frames: list[ListedFrame]) -> list[ListedFrame]:
    """The first frame of each image: a photograph may stand in several splits' files."""
    return list({str(frame.image): frame for frame in reversed(frames)}.values())[::-1]


def _read_headers(frames: list[ListedFrame]) -> list[ImageHeader | ImageError]:
    """Of each photograph, in threads: disks and networks answer slowly one after the other."""

    def read(frame: ListedFrame) -> ImageHeader | ImageError:
        assert frame.image is not None
        try:
            return read_header(frame.image)
        except ImageError as error:
            return error

    with ThreadPoolExecutor(_HEADER_THREADS, thread_name_prefix="headers") as pool:
        return list(pool.map(read, frames))


def _plan_frame(
    frame: ListedFrame, header: ImageHeader | ImageError, settings: SceneSettings, findings: Findings, listing: FolderListing
) -> PlannedFrame | None:
    """Checks one frame; None if it has to be left out (the reason goes to ``findings``)."""
    assert frame.image is not None
    if frame.blurred:
        findings.skip(frame.name, "is blurred: below sharpness_discard_threshold")
        return None
    pose = read_pose(frame.keys)
    if isinstance(pose, str):
        findings.skip(frame.name, pose)
        return None
    if frame.image.suffix.lower() in (".exr", ".hdr"):
        raise NerfleetError(
            frame.name, f"{frame.image.suffix} photographs are not supported yet", "convert them to 8- or 16-bit PNG"
        )
    if isinstance(header, ImageError):
        findings.skip(frame.name, str(header))
        return None
    where = f"{frame.folder.name}, {frame.name}"
    intrinsics = read_intrinsics(frame.root, frame.keys, header.width, header.height, where, findings)
    if intrinsics is None:
        findings.skip(frame.name, "no focal length: give fl_x, camera_angle_x or x_fov, in the frame or at the top")
        return None
    if np.linalg.det(pose[:, :3]) < 0:
        findings.warn("a transform_matrix mirrors (negative determinant): all its axes are negated")
    side_files = find_side_files(frame.image, header, frame.keys, frame.folder, settings.depth_unit > 0, findings, listing)
    return PlannedFrame(frame.name, frame.image, header, pose, intrinsics, side_files)


def _warn_about_sizes(chosen: list[ListedFrame], planned: list[PlannedFrame], findings: Findings) -> None:
    listed = {frame.name: frame for frame in chosen}
    wrong = [
        frame.name
        for frame in planned
        if size_disagrees(listed[frame.name].root, listed[frame.name].keys, frame.header.width, frame.header.height)
    ]
    text = "images have another size than w, h: focal lengths are taken as pixels of the file itself"
    findings.warn_counted(wrong, len(planned), text)
