"""Files to an immutable :class:`Scene`."""

from nerfleet.data.plan import available_splits
from nerfleet.data.scene import MASKED_PIXEL, Scene, SkippedFrame
from nerfleet.data.transforms import load_scene

__all__ = ["MASKED_PIXEL", "Scene", "SkippedFrame", "available_splits", "load_scene"]
