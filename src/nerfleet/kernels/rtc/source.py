"""What a ``.cu`` file says: its text with the headers that it includes, and the signatures of its kernels."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

INCLUDE_FOLDER = Path(__file__).resolve().parent.parent / "include"
_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)
_KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(([^)]*)\)')


@dataclass(frozen=True)
class Parameter:
    """``type`` without qualifiers; every pointer is "*"."""

    type: str
    name: str


@functools.cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def headers(path: Path) -> tuple[Path, ...]:
    """Headers of the include folder that a file reaches, sorted."""
    found: set[Path] = set()
    pending = [path]
    while pending:
        for name in _INCLUDE.findall(read(pending.pop())):
            header = INCLUDE_FOLDER / name
            if header not in found:
                found.add(header)
                pending.append(header)
    return tuple(sorted(found))


@functools.cache
def kernels(path: Path) -> dict[str, tuple[Parameter, ...]]:
    """Signatures of the ``extern "C"`` kernels of a file, by name."""
    return {name: tuple(_parameter(text) for text in arguments.split(",") if text.strip()) for name, arguments in _KERNEL.findall(read(path))}


def _parameter(text: str) -> Parameter:
    words = text.replace("*", " * ").split()
    name = words.pop()
    kind = "*" if "*" in words else " ".join(word for word in words if word != "const")
    return Parameter(kind, name)
