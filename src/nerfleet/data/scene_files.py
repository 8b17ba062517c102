"""Which files make up a scene, and which views are held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nerfleet.errors import NerfleetError

HOLD_OUT_EVERY = 8
_BASE_NAMES = ("transforms.json", "transforms_train.json")
_COLMAP_MARKS = ("cameras.bin", "cameras.txt", "sparse/0/cameras.bin", "sparse/0/cameras.txt", "sparse/cameras.bin")


@dataclass(frozen=True)
class SceneFiles:
    """The transforms file with the scene's settings and training views, and those of other splits beside it."""

    base: Path
    val: Path | None = None
    test: Path | None = None


def find_scene_files(path: Path) -> SceneFiles:
    """Reads names only.

    A folder: its ``transforms.json``, else ``transforms_train.json``; ``transforms_val.json`` and
    ``transforms_test.json`` beside them are its other splits. One of these files stands for its folder; a file of
    any other name stands for itself.

    Raises:
        NerfleetError: there is no such path or no scene in it, or a kind of scene that is not read yet.
    """
    if path.is_dir():
        base = next((path / name for name in _BASE_NAMES if (path / name).is_file()), None)
        if base is None:
            raise _no_transforms(path)
        return _with_siblings(base)
    if not path.exists():
        raise NerfleetError(str(path), "does not exist", "name a transforms.json or a folder that holds one")
    if not path.is_file():
        raise NerfleetError(str(path), "is not a plain file", "name a transforms.json or a folder that holds one")
    if path.suffix.lower() in (".ingp", ".msgpack"):
        raise NerfleetError(str(path), "is a model, not a scene", "name a transforms.json or a folder that holds one")
    if path.name in _BASE_NAMES:
        return _with_siblings(path)
    if path.name in ("transforms_val.json", "transforms_test.json"):
        base = next((path.with_name(name) for name in reversed(_BASE_NAMES) if path.with_name(name).is_file()), None)
        return _with_siblings(base) if base else SceneFiles(path)
    return SceneFiles(path)


def held_out_positions(file_paths: Sequence[str]) -> list[int]:
    """Positions of every 8th image (0, 8, 16, ...) by plain string order of ``file_path``; none below 8 images.

    Args:
        file_paths: those of the images that exist, without duplicates.
    """
    if len(file_paths) < HOLD_OUT_EVERY:
        return []
    order = sorted(range(len(file_paths)), key=lambda position: file_paths[position])
    return order[::HOLD_OUT_EVERY]


def _with_siblings(base: Path) -> SceneFiles:
    val, test = (base.with_name(f"transforms_{split}.json") for split in ("val", "test"))
    return SceneFiles(base, val if val.is_file() else None, test if test.is_file() else None)


def _no_transforms(folder: Path) -> NerfleetError:
    if any((folder / mark).is_file() for mark in _COLMAP_MARKS):
        return NerfleetError(str(folder), "holds a COLMAP model, which is not read yet", "convert it to a transforms.json")
    if (folder / "poses_bounds.npy").is_file():
        return NerfleetError(str(folder), "is an LLFF scene, which is not read yet", "convert it to a transforms.json")
    others = sorted(p.name for p in folder.glob("*.json"))[:5]
    remedy = f"name the file itself ({', '.join(others)})" if others else "name a folder that holds one"
    return NerfleetError(str(folder), "holds no transforms.json and no transforms_train.json", remedy)
