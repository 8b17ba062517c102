"""The list of frames of one transforms file: order, duplicates, files that exist, and poses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nerfleet.data.findings import MISSING, Findings
from nerfleet.data.image_paths import find_image, natural_key
from nerfleet.data.images import Array
from nerfleet.data.json_file import read_json_object, read_number
from nerfleet.errors import NerfleetError

SHARPNESS_NEIGHBOURS = 3
"""Frames on either side whose mean sharpness a frame is compared with."""


@dataclass(frozen=True)
class ListedFrame:
    """One entry of ``frames``.

    Attributes:
        name: ``file_path`` as written ("frame 3" if there is none).
        root, keys: the file's and the frame's own JSON objects.
        folder: of the transforms file.
        image: the photograph, or None if it does not exist.
        blurred: below the file's ``sharpness_discard_threshold``.
    """

    name: str
    root: Mapping[str, Any]
    keys: Mapping[str, Any]
    folder: Path
    image: Path | None = None
    blurred: bool = False


def read_transforms_file(path: Path) -> dict[str, Any]:
    """The JSON object, with ``frames`` checked to be a list of objects that is not empty. Raises NerfleetError."""
    root = read_json_object(path)
    frames = root.get("frames")
    if frames is None:
        raise NerfleetError(str(path), "has no key frames", "name a transforms.json that lists photographs with their poses")
    if not isinstance(frames, list) or not all(isinstance(frame, dict) for frame in frames):
        raise NerfleetError(f"{path}, frames", "is not a list of objects", "each frame is {file_path, transform_matrix}")
    if not frames:
        raise NerfleetError(f"{path}, frames", "is empty", "list at least one photograph with its pose")
    return root


def list_frames(path: Path, root: Mapping[str, Any], findings: Findings) -> tuple[list[ListedFrame], int]:
    """Existing frames of a transforms file, in natural order of ``file_path``, and how many the file lists.

    ``n_frames`` truncates. What is listed twice is kept once. Frames without a file are reported as skipped, with one
    warning for all of them.
    """
    listed = [_named(i, keys, root, path.parent) for i, keys in enumerate(root["frames"])]
    listed.sort(key=lambda frame: natural_key(frame.name))
    if root.get("n_frames"):
        limit = int(read_number(root["n_frames"], str(path), "n_frames"))
        listed = listed[: max(limit, 0)] or listed
    listed = _mark_blurred(listed, root, path)
    return _existing(listed, findings), len(listed)


def read_pose(keys: Mapping[str, Any]) -> Array | str:
    """[3, 4] float64 camera-to-world of a frame, or why there is none."""
    matrix = keys.get("transform_matrix")
    if matrix is None:
        if "transform_matrix_start" in keys:
            return "transform_matrix_start is not supported yet: give transform_matrix"
        return "has no transform_matrix"
    try:
        pose = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        return "transform_matrix is not a matrix of numbers"
    if pose.shape not in ((3, 4), (4, 4)):
        return f"transform_matrix has shape {pose.shape}, not 4 x 4 or 3 x 4"
    if not np.isfinite(pose).all():
        return "transform_matrix holds NaN or infinity"
    if abs(np.linalg.det(pose[:3, :3])) < 1e-12:
        return "transform_matrix has a rotation that cannot be inverted"
    return pose[:3]


def _named(index: int, keys: Mapping[str, Any], root: Mapping[str, Any], folder: Path) -> ListedFrame:
    file_path = keys.get("file_path")
    name = file_path if isinstance(file_path, str) and file_path else f"frame {index}"
    own = keys if isinstance(file_path, str) and file_path else {k: v for k, v in keys.items() if k != "file_path"}
    return ListedFrame(name, root, own, folder)


def _existing(listed: list[ListedFrame], findings: Findings) -> list[ListedFrame]:
    """Frames whose photograph exists, the first of each; tells what was assumed and what is missing."""
    kept: list[ListedFrame] = []
    owners: dict[str, ListedFrame] = {}
    missing, moved, ambiguous = [], [], []
    for frame in listed:
        if "file_path" not in frame.keys:
            findings.skip(frame.name, "has no file_path")
            continue
        found = find_image(frame.folder, frame.name)
        if found is None:
            missing.append(frame.name)
            findings.skip(frame.name, MISSING)
            continue
        if found.moved:
            moved.append(f"{frame.name} read as {found.path}")
        if found.others:
            ambiguous.append(f"{found.path.name}, also {', '.join(found.others)}")
        file = str(found.path.absolute())
        owner = owners.setdefault(file, frame)
        if owner is not frame:
            same = owner.keys.get("transform_matrix") == frame.keys.get("transform_matrix")
            findings.skip(frame.name, "listed twice" if same else "listed twice, with different poses: the first is used")
            continue
        kept.append(replace(frame, image=found.path))
    findings.warn_counted(missing, len(listed), "listed images are missing")
    findings.warn_counted(moved, len(listed), "absolute paths do not exist here and were looked up beside the transforms file")
    findings.warn_counted(ambiguous, len(listed), "paths without extension match several files, the first is used")
    return kept


def _mark_blurred(listed: list[ListedFrame], root: Mapping[str, Any], path: Path) -> list[ListedFrame]:
    """Marks frames whose sharpness is below ``sharpness_discard_threshold`` (default 0: none) times their neighbours' mean.

    Neighbours are up to 3 frames on either side that have a sharpness; a frame without any is kept.
    """
    threshold = read_number(root.get("sharpness_discard_threshold", 0.0), str(path), "sharpness_discard_threshold")
    if threshold <= 0:
        return listed
    sharpness = [_sharpness(frame) for frame in listed]
    marked = []
    for i, frame in enumerate(listed):
        around = sharpness[max(i - SHARPNESS_NEIGHBOURS, 0) : i] + sharpness[i + 1 : i + 1 + SHARPNESS_NEIGHBOURS]
        known = [value for value in around if math.isfinite(value)]
        blurred = bool(known) and sharpness[i] < threshold * sum(known) / len(known)
        marked.append(replace(frame, blurred=blurred))
    return marked


def _sharpness(frame: ListedFrame) -> float:
    value = frame.keys.get("sharpness")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
