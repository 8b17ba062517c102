"""What the tests share: where the real scenes are, and which marked tests this machine can run."""

from __future__ import annotations

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


HAS_COMMAND_LINE = importlib.util.find_spec("tyro") is not None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """A GPU machine may lack the command line's packages: then its tests are left out, and the header says so."""
    if HAS_COMMAND_LINE or collection_path.suffix != ".py":
        return None
    return True if "nerfleet.cli" in collection_path.read_text() else None


def pytest_report_header() -> str | None:
    return None if HAS_COMMAND_LINE else "tyro is not installed: tests of the command line are left out"


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
