"""Where a CUDA kernel can run in a test: on a GPU, or emulated on the CPU. Both are called alike, with tensors on the CPU."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
import torch
from tests.support import emulator

FOLDERS = {
    "hash_grid": "hash_grid", "hash_grid_backward": "hash_grid", "hash_grid_gradient": "hash_grid", "field": "field", "field_density": "field",
    "field_backward": "field", "trace": "trace", "render_rays": "trace", "sample_order": "order", "sample_rays": "rays", "camera_rays": "rays",
    "ray_loss": "composite", "composite_backward": "composite", "relaxed_backward": "composite", "begin": "control", "advance": "control", "adam": "adam",
    "occupancy_sample": "occupancy", "occupancy_splat": "occupancy", "occupancy_update": "occupancy",
}  # fmt: skip
"""Folder of each op."""
EMULATED = pytest.param("emulated", marks=pytest.mark.skipif(emulator.COMPILER is None or sys.platform != "linux", reason="needs g++ on Linux"))
GPU = pytest.param("cuda", marks=pytest.mark.gpu)


class Backend:
    """Calls the CUDA implementation of an op."""

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind = kind
        if kind == "emulated":
            self.emulator = emulator.Emulator(monkeypatch)

    def __call__(self, op: str, *arguments: Any) -> Any:
        """Result on the CPU; tensors that the op writes are written in place."""
        importlib.import_module(f"nerfleet.kernels.{FOLDERS[op]}.op")
        if self.kind == "emulated":
            return getattr(importlib.import_module(f"nerfleet.kernels.{FOLDERS[op]}.cuda"), op)(*arguments)
        moved = [a.cuda() if isinstance(a, torch.Tensor) else a for a in arguments]
        result = getattr(torch.ops.nerfleet, op)(*moved)
        torch.cuda.synchronize()
        for before, after in zip(arguments, moved):
            if isinstance(before, torch.Tensor):
                before.copy_(after.cpu())
        if isinstance(result, torch.Tensor):
            return result.cpu()
        return None if result is None else tuple(r.cpu() for r in result)


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a.double().flatten(), b.double().flatten(), dim=0))


def assert_same_direction(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> None:
    """Gradients as vectors: direction and length."""
    assert cosine(a, b) > 1 - tolerance
    assert abs(float(a.double().norm() / b.double().norm()) - 1) < 10 * tolerance
