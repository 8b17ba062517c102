"""What the tests share: where the real scenes are, and which marked tests this machine can run."""

from __future__ import annotations

import ast
import importlib.util
import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

try:
    from hypothesis import settings
except ImportError:  # a GPU machine may lack it; tests that need it skip themselves
    pass
else:
    # Compilation at the first example would trip the deadline; a failure must come back at the next run.
    settings.register_profile("nerfleet", deadline=None, derandomize=True, max_examples=50)
    settings.load_profile("nerfleet")


SELDOM_MISSING = ("tyro", "trimesh", "scipy", "hypothesis", "av", "simplejpeg", "OpenEXR", "yaml", "xatlas", "fast_simplification")
"""Packages that a GPU machine may lack; ``nerfleet.cli`` needs the first."""
MISSING = tuple(name for name in SELDOM_MISSING if importlib.util.find_spec(name) is None)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Test files that begin by importing what is not installed are left out; the header says so."""
    if not MISSING or collection_path.suffix != ".py":
        return None
    roots: set[str] = set()
    for node in ast.parse(collection_path.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        roots |= {"tyro" if name.startswith("nerfleet.cli") else name.split(".")[0] for name in names}
    return True if roots & set(MISSING) else None


def pytest_report_header() -> str | None:
    return f"not installed, and test files that need them are left out: {', '.join(MISSING)}" if MISSING else None


def real_data() -> Path | None:
    """Folder with the real scenes: NERFLEET_DATA, else ../shared/data beside the repository, else None."""
    folder = Path(os.environ.get("NERFLEET_DATA") or REPOSITORY.parent / "shared" / "data")
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder that holds ``fox`` and ``lego``; skips the test where there is none."""
    folder = real_data()
    if folder is None:
        pytest.skip("no real scenes: set NERFLEET_DATA to the folder that holds fox and lego")
    return folder


@pytest.fixture(scope="session")
def peer_dir(data_dir: Path) -> Path:
    """Folder of models that instant-ngp wrote, ``peer`` beside the data; skips the test where there is none."""
    folder = data_dir.parent / "peer"
    if not folder.is_dir():
        pytest.skip(f"no peer models: {folder.name} is not beside the real scenes")
    return folder


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are named by their length: compressed data holds the time, and two workers must collect the same names."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what the machine cannot run, and say why."""
    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            for item in items:
                if item.get_closest_marker("gpu"):
                    item.add_marker(pytest.mark.skip(reason="no CUDA device"))
    if real_data() is None:
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(pytest.mark.skip(reason="no real scenes: NERFLEET_DATA is not set, ../shared/data is missing"))
