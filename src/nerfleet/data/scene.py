"""What every reader produces and everything else consumes: an immutable set of posed photographs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from nerfleet.geometry.cameras import Cameras
    from nerfleet.geometry.poses import SceneTransform

MASKED_PIXEL = (255, 0, 255, 0)
"""RGBA8 value of a pixel that gives no supervision (instant-ngp's own convention; dynamic masks are stored this way)."""


@dataclass(frozen=True)
class SkippedFrame:
    frame: str  # file_path as the scene file writes it
    reason: str


@dataclass(frozen=True)
class Scene:
    """Photographs of one split with their cameras, on the CPU, in internal space.

    Attributes:
        name: short name (default output folder).
        path: file or folder that it was read from; None for a built-in scene.
        split: the split that was really read ("train", "val", "test").
        names: n strings, ``file_path`` of each view.
        cameras: n cameras.
        pixels: [total_pixels, 4] uint8, all images one after the other, rows first, sRGB, straight alpha.
            A pixel equal to ``MASKED_PIXEL`` is ignored in training.
        pixel_offsets: [n + 1] int64, first pixel of each image in ``pixels``. In a part of a scene (data/part.py) an image may begin
            before or lie behind ``pixels``.
        depth: [total_pixels] float16 or None: multiples of the unnormalised camera ray (0 = unknown).
        aabb_scale: edge of the scene box, a power of two from 1 to 128.
        transform: from the scene file's space to internal space.
        render_aabb: [2, 3] crop box in internal space, or None.
        has_alpha: whether any photograph has transparency.
        background: RGBA sRGB colour that the scene was taken in front of, if the file says so.
        up: in the scene file's axes.
        skipped, warnings, notes: what was left out, what looks wrong, and what is merely worth knowing (which views
            are held out, how many masks were applied), for ``nerfleet info`` and the log.
    """

    name: str
    path: Path | None
    split: str
    names: tuple[str, ...]
    cameras: Cameras
    pixels: Tensor
    pixel_offsets: Tensor
    aabb_scale: int
    transform: SceneTransform
    depth: Tensor | None = None
    render_aabb: Tensor | None = None
    has_alpha: bool = False
    background: tuple[float, float, float, float] | None = None
    up: tuple[float, float, float] = (0.0, 0.0, 1.0)
    skipped: tuple[SkippedFrame, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.names)

    def image(self, index: int) -> Tensor:
        """View of photograph ``index``, [h, w, 4] uint8 (no copy)."""
        width, height = self.cameras.resolution[index].tolist()
        start = int(self.pixel_offsets[index])
        return self.pixels[start : start + width * height].view(height, width, 4)
