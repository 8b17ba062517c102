"""Small scenes on disk for the pipeline's tests, and their feeds run to a given point."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.support.scenes import write_cube_scene

from nerfleet.data.on_demand import OnDemandScene, open_scene
from nerfleet.data.part import Part
from nerfleet.data.plan import plan_scene
from nerfleet.pipeline.feed import Feed, FeedOptions

CPU = torch.device("cpu")
PATIENCE_SECONDS = 60.0
"""Of a test on a machine that many share."""


def cube_scene(folder: Path, n: int = 12, **how: Any) -> Path:
    """A transforms file that lists ``n`` photographs of a cube, 32x24."""
    return write_cube_scene(folder, n, **how)


def on_demand(path: Path, part: Part | None = None, train_on_all: bool = True) -> OnDemandScene:
    return open_scene(plan_scene(path, train_on_all=train_on_all), 1, part)


def options(n_workers: int = 1, **more: Any) -> FeedOptions:
    return FeedOptions(n_workers, **more)


def until(feed: Feed, reached: Callable[[], bool], rays: int = 0) -> None:
    """Steps without training, until something has happened."""
    feed.wait()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < deadline, feed.report()
        feed.before_step(rays)
        time.sleep(0.002)
