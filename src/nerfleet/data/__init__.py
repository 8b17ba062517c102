"""Files to an immutable :class:`Scene`. Each part is imported when it is first used: processes that only decode need no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerfleet.data.plan import available_splits
    from nerfleet.data.scene import MASKED_PIXEL, Scene, SkippedFrame
    from nerfleet.data.transforms import load_scene

_MODULES = {"available_splits": "plan", "MASKED_PIXEL": "scene", "Scene": "scene", "SkippedFrame": "scene", "load_scene": "transforms"}
__all__ = ["MASKED_PIXEL", "Scene", "SkippedFrame", "available_splits", "load_scene"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"nerfleet.data.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'nerfleet.data' has no attribute {name!r}")
