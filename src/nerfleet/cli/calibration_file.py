"""What ``nerfleet bench ... --save FILE`` keeps for ``nerfleet plan`` and ``nerfleet cost``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    import torch

    from nerfleet.data.scene import Scene
    from nerfleet.train.step import TrainStep

CPU_CACHE_BYTES = 32 << 20


def step_calibration(step: TrainStep, scene: Scene, copy_bytes_per_s: float) -> dict[str, Any]:
    """What a report of ``bench step`` lacks for predictions: the scene, the configuration, the device, the entries that a step touches."""
    from nerfleet.config import to_dict
    from nerfleet.train.touched import touched

    return {
        "scene": {"name": scene.name, "aabb_scale": scene.aabb_scale, "n_views": len(scene), "n_pixels": len(scene.pixels)},
        "config": to_dict(step.config),
        "touched": [list(dataclasses.astuple(level)) for level in touched(step)],
        "gpu": _device(step.device) | {"copy_bytes_per_s": copy_bytes_per_s},
    }


def _device(device: torch.device) -> dict[str, Any]:
    """Under its name in the catalogue where it has one."""
    import torch

    from nerfleet.planner.gpus import find_gpu

    if device.type != "cuda":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
        return {"name": "cpu", "memory_bytes": memory, "multiprocessors": os.cpu_count() or 1, "clock_hz": 1e9, "l2_bytes": CPU_CACHE_BYTES, "capability": 80}
    properties = torch.cuda.get_device_properties(device)
    name, clock = properties.name, 1e3 * getattr(properties, "clock_rate", 1.5e6)
    with contextlib.suppress(NerfleetError):
        known = find_gpu(name, memory_bytes=properties.total_memory)
        name, clock = known.name, known.clock_hz
    return {
        "name": name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "clock_hz": clock,
        "l2_bytes": properties.L2_cache_size,
        "capability": 10 * properties.major + properties.minor,
    }


def save(path: Path, values: dict[str, Any]) -> None:
    """Raises NerfleetError."""
    write_text(path, json.dumps(values, indent=1) + "\n", "--save")


def write_text(path: Path, text: str, flag: str) -> None:
    """Write under a temporary name, then rename. Raises NerfleetError; ``flag`` chose the path."""
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise NerfleetError(str(path), error.strerror or "cannot be written", f"choose another {flag}") from None
