"""Who may import whom (docs/design.md, section 2), read from the sources; and what stays out of the training path."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "nerfleet"
ROOMS = {
    "": {"data", "train", "render", "cli"},  # the package itself: the Python API, exported lazily
    "errors": set(),
    "config": set(),
    "presets": {"config"},
    "geometry": set(),
    "data": {"config", "geometry"},
    "kernels/rtc": set(),
    "kernels": {"kernels/rtc", "geometry"},
    "nn": {"kernels", "geometry", "config"},
    "train": {"nn", "kernels", "data", "render", "geometry", "config", "telemetry"},
    "parallel": {"train", "nn", "kernels", "planner", "config"},
    "pipeline": {"data", "geometry", "config"},
    "planner": {"config"},
    "snapshot": {"nn", "data", "config", "presets", "geometry"},
    "render": {"nn", "data", "geometry", "kernels", "config"},
    "mesh": {"render", "nn", "data", "geometry", "kernels", "config"},
    "viewer": {"render", "data", "geometry", "telemetry", "config"},
    "telemetry": {"config"},
    "prepare": {"data", "geometry"},
    "deploy": {"telemetry"},
}
SEES_EVERYTHING = {"cli", "doctor", "__main__"}
NOT_FOR_TRAINING = ["tyro", "PIL", "av", "rich", "simplejpeg", "torchmetrics"]


def room_of(module: str) -> str:
    """``nerfleet.kernels.rtc.cache`` -> ``kernels/rtc``; ``nerfleet.data.scene`` -> ``data``."""
    parts = module.split(".")[1:]
    return "kernels/rtc" if parts[:2] == ["kernels", "rtc"] else parts[0] if parts else ""


def imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything of nerfleet that the file imports, wherever in the file it does so."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            is_package = base == "nerfleet" or (SOURCE.parent / base.replace(".", "/")).is_dir()
            names = [f"{base}.{alias.name}" if is_package else base for alias in node.names]
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "nerfleet")


def forbidden_arrows() -> list[str]:
    """One line for every import that the table does not allow."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        room = room_of(module)
        if room in SEES_EVERYTHING:
            continue
        allowed = ROOMS.get(room, set()) | {room, "errors"}
        for line, name in imports(path, module):
            if room_of(name) not in allowed:
                found.append(f"{path.relative_to(SOURCE.parent)}:{line}: {room or 'nerfleet'} may not import {name}")
    return found


def test_every_room_is_in_the_table() -> None:
    rooms = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p.is_dir() and any(p.rglob("*.py")))}
    assert rooms - {"__init__"} <= set(ROOMS) | SEES_EVERYTHING


def test_every_arrow_is_in_the_table() -> None:
    assert forbidden_arrows() == []


def test_a_forbidden_arrow_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROOMS, "data", set())
    assert any("data may not import nerfleet.geometry.cameras" in line for line in forbidden_arrows())


@pytest.mark.parametrize("module", ["nerfleet", "nerfleet.train.trainer"])
def test_training_needs_few_libraries(module: str) -> None:
    script = f"import sys, {module}; print(*sorted(set({NOT_FOR_TRAINING}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
