"""Files that accompany a photograph: masks, separate alpha, depth."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nerfleet.data.findings import Findings
from nerfleet.data.image_paths import EXTENSIONS, find_image
from nerfleet.data.images import ImageError, ImageHeader, read_header
from nerfleet.errors import NerfleetError


@dataclass(frozen=True)
class MaskFile:
    """Attributes:
    path: the file.
    header: its size.
    ignores_zero: pixels that are 0 are ignored (nerfstudio's ``mask_path``), instead of those that are not (``dynamic_mask_``).
    """

    path: Path
    header: ImageHeader
    ignores_zero: bool


@dataclass(frozen=True)
class SideFiles:
    masks: tuple[MaskFile, ...] = ()
    alpha: tuple[Path, ImageHeader] | None = None  # its red channel replaces the photograph's alpha
    depth: Path | None = None


class FolderListing:
    """Which files lie beside photographs: every folder is listed once, where asking for each possible name would take most of a plan's time."""

    def __init__(self) -> None:
        self._names: dict[Path, frozenset[str]] = {}

    def has(self, path: Path) -> bool:
        if path.parent not in self._names:
            try:
                self._names[path.parent] = frozenset(os.listdir(path.parent))
            except OSError:
                self._names[path.parent] = frozenset()
        return path.name in self._names[path.parent] and path.is_file()


def find_side_files(
    image: Path, header: ImageHeader, keys: Mapping[str, Any], folder: Path, reads_depth: bool, findings: Findings, listing: FolderListing
) -> SideFiles:
    """Looks beside the photograph (``dynamic_mask_<stem>.png``, ``<name>.alpha.<ext>``) and at ``mask_path``, ``depth_path``.

    Raises:
        NerfleetError: a file that is named but missing, unreadable, or of another size than the photograph.
    """
    masks = []
    dynamic = image.with_name(f"dynamic_mask_{image.stem}.png")
    if listing.has(dynamic):
        masks.append(MaskFile(dynamic, _checked_header(dynamic, image, header), ignores_zero=False))
    else:
        _warn_about_misnamed_mask(image, findings, listing)
    named = _named_file(keys, "mask_path", image, folder)
    if named:
        masks.append(MaskFile(named, _checked_header(named, image, header), ignores_zero=True))
    alpha = _alpha_file(image, listing)
    depth = _named_file(keys, "depth_path", image, folder)
    if depth and not reads_depth:
        findings.warn("depth_path is ignored: integer_depth_scale is not above 0, or enable_depth_loading is off")
    if depth and reads_depth:
        _checked_header(depth, image, header)
    return SideFiles(
        tuple(masks),
        (alpha, _checked_header(alpha, image, header)) if alpha else None,
        depth if reads_depth else None,
    )


def _named_file(keys: Mapping[str, Any], key: str, image: Path, folder: Path) -> Path | None:
    value = keys.get(key)
    if not value:
        return None
    found = find_image(folder, str(value))
    if found is None:
        raise NerfleetError(f"{key} {value}", f"the file that {image.name} names is missing", "restore it or remove the key")
    return found.path


def _alpha_file(image: Path, listing: FolderListing) -> Path | None:
    stems = (image.name, image.stem)
    candidates = (image.with_name(f"{stem}.alpha.{ext}") for stem in stems for ext in (image.suffix[1:], *EXTENSIONS))
    return next((path for path in candidates if listing.has(path)), None)


def _checked_header(path: Path, image: Path, expected: ImageHeader) -> ImageHeader:
    try:
        header = read_header(path)
    except ImageError as error:
        raise NerfleetError(str(path), str(error), "replace or remove it") from error
    if (header.width, header.height) != (expected.width, expected.height):
        raise NerfleetError(
            str(path),
            f"is {header.width}x{header.height}, its photograph {image.name} is {expected.width}x{expected.height}",
            "make both the same size",
        )
    return header


def _warn_about_misnamed_mask(image: Path, findings: Findings, listing: FolderListing) -> None:
    for name in (f"dynamic_mask_{image.stem}.jpg", f"dynamic_mask_{image.stem}.jpeg", f"dynamic_mask_{image.name}.png"):
        if listing.has(image.with_name(name)):
            findings.warn(f"{name} is not used: a mask is a PNG named dynamic_mask_{image.stem}.png")
