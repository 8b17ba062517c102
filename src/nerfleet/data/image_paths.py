"""From a frame's ``file_path``, as some converter on some machine wrote it, to a file that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EXTENSIONS = ("png", "jpg", "jpeg", "bmp", "gif", "tga", "pic", "pnm", "psd", "exr", "webp")
"""Tried in this order, lower case first, where a path is written without its extension."""


@dataclass(frozen=True)
class FoundImage:
    """A file, and what had to be assumed to find it."""

    path: Path
    others: tuple[str, ...] = ()  # names of further files that match a path without extension
    moved: bool = False  # found by the tail of an absolute path from another machine


def find_image(folder: Path, file_path: str) -> FoundImage | None:
    """The image that ``file_path`` means, relative to ``folder``; None if there is none.

    In this order: as written; with backslashes as separators; then, for absolute paths only, every tail of it from the
    longest to the file name. Each first literally, then with the known extensions. ``..`` and links may leave the folder.
    """
    for spelling in dict.fromkeys([file_path, file_path.replace("\\", "/")]):
        found = _with_extension(folder / spelling)
        if found:
            return found
    for tail in _tails(file_path.replace("\\", "/")):
        found = _with_extension(folder / tail)
        if found:
            return FoundImage(found.path, found.others, moved=True)
    return None


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key by which ``r_2`` comes before ``r_10``."""
    parts = re.findall(r"\d+|\D+", text)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _with_extension(path: Path) -> FoundImage | None:
    if _is_file(path):
        return FoundImage(path)
    if path.name in ("", ".."):
        return None
    tried = [path.with_name(f"{path.name}.{spelled}") for ext in EXTENSIONS for spelled in (ext, ext.upper())]
    matches = [candidate for candidate in tried if _is_file(candidate)]
    if not matches:
        return None
    return FoundImage(matches[0], tuple(match.name for match in matches[1:]))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long for the file system, or one with a zero byte
        return False


def _tails(path: str) -> Iterator[str]:
    if not re.match(r"/|[A-Za-z]:/", path):
        return
    parts = [part for part in path.split("/") if part]
    for start in range(1, len(parts)):
        yield "/".join(parts[start:])
