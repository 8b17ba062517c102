"""What the planner needs to know of a scene, from its text files and image headers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.planner.workload import SceneFacts


def scene_facts(path: Path, downscale: int = 1, train_on_all: bool = False) -> SceneFacts:
    """Raises NerfleetError as :func:`nerfleet.data.load_scene`."""
    from nerfleet.data.plan import plan_scene
    from nerfleet.planner.workload import SceneFacts

    if downscale < 1:
        raise NerfleetError(f"--downscale {downscale}", "is not a whole number from 1 on", "use 1 for full size")
    plan = plan_scene(path, train_on_all=train_on_all)
    n_pixels = sum((frame.header.width // downscale) * (frame.header.height // downscale) for frame in plan.frames)
    if not n_pixels:
        raise NerfleetError(str(path), f"nothing is left at --downscale {downscale}", "use a smaller number")
    return SceneFacts(plan.name, plan.settings.aabb_scale, len(plan.frames), n_pixels)
