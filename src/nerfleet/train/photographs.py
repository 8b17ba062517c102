"""The pixels that training draws its rays from."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from nerfleet.data.scene import Scene


class Photographs(Protocol):
    """Pixels on the training's device. What they hold may change between two steps; where they lie does not (a CUDA graph reads them).

    Attributes:
        pixels: [P, 4] uint8.
        offsets: [n_views + 1] int64, first pixel of each view in ``pixels``.
        drawable: [n_views + 1] int64, number of pixels of all views before each that are there: only these are drawn.
        places: [P] int32, index of each pixel within its photograph; [0]: the photographs are there as a whole, in order.
    """

    pixels: Tensor
    offsets: Tensor
    drawable: Tensor
    places: Tensor

    def wait(self) -> None:
        """Until training can begin."""

    def before_step(self, rays: int) -> None:
        """Take over what has arrived; must not wait for it.

        Args:
            rays: that the last known step drew.
        """

    def report(self) -> dict[str, Any]:
        """What became known of the photographs while they were read, as plain values for ``report.json``."""

    def close(self) -> None:
        """End whatever still reads photographs."""


class ResidentPhotographs:
    """All photographs of a scene, read before training began."""

    def __init__(self, scene: Scene, device: torch.device) -> None:
        self.pixels, self.offsets = scene.pixels.to(device), scene.pixel_offsets.to(device)
        self.drawable = self.offsets.clamp(0, len(self.pixels))
        self.places = torch.zeros(0, dtype=torch.int32, device=device)

    def wait(self) -> None:
        return None

    def before_step(self, rays: int) -> None:
        return None

    def report(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        return None
