"""Scenes larger than memory: the device holds some random pixels of every photograph, and replaces them all the time.

Every view owns a range of the pool in proportion to its pixels, so every step mixes all photographs and every pixel of the scene is
equally likely to be in the pool. Workers visit the photographs in random order, over and over; each time, a view's range is filled
with new pixels. A pixel is replaced after it has been drawn about once: the pool then teaches as many different pixels as the
scene in memory would, as far as the processors can follow.
"""

from __future__ import annotations

from typing import Any

import torch

from nerfleet.data.on_demand import OnDemandScene, ViewShare
from nerfleet.errors import NerfleetError
from nerfleet.pipeline.feed import Feed, FeedOptions, job_for, random_order
from nerfleet.pipeline.messages import Job, Layout

MIN_PIXELS_EACH = 64
"""Of a view in the pool: with fewer, proportions between views are lost to rounding."""


class PixelPool(Feed):
    """A pool of about ``n_pixels`` pixels."""

    path = "pool"

    def __init__(self, scene: OnDemandScene, device: torch.device, n_pixels: int, how: FeedOptions) -> None:
        """Raises: NerfleetError: the pool is too small for the number of views."""
        counts = pool_counts(scene.shares, n_pixels)
        super().__init__(scene, device, counts, Layout(has_places=True, has_depth=how.with_depth), how)
        self._order = random_order(scene, how.seed)
        self._next = 0
        self._allowance = float(sum(counts))  # pixels that may be replaced: first all of them
        self._largest = max(counts)
        self._drawn = self._delivered = 0
        self._begin()

    def before_step(self, rays: int) -> None:
        self._drawn += rays
        self._allowance = min(self._allowance + rays, max(self._allowance, 4.0 * max(self._largest, rays)))
        self._pump(0.0)

    def _next_job(self) -> Job | None:
        if len(self.failed) == len(self._order):
            return None
        while (share := self._order[self._next % len(self._order)]).view in self.failed:
            self._next += 1
        round_, count = self._next // len(self._order), self._share_of[share.view][1]
        if self._allowance < count:
            return None
        self._next += 1
        self._allowance -= count
        self._delivered += count
        return job_for(self.scene, share, n_samples=count, seed=self._how.seed, round=round_)

    def report(self) -> dict[str, Any]:
        pool = {"pool_pixels": len(self.pixels), "pool_share": len(self.pixels) / self.scene.n_held_pixels}
        return super().report() | pool | {"pool_rounds": self._next / len(self._order), "draws_per_pixel": self._drawn / max(self._delivered, 1)}


def pool_counts(shares: tuple[ViewShare, ...], n_pixels: int) -> list[int]:
    """Pixels of each share in a pool of at most ``n_pixels``, in proportion.

    Raises:
        NerfleetError: not even MIN_PIXELS_EACH of each.
    """
    total = sum(len(share) for share in shares)
    least = MIN_PIXELS_EACH * len(shares)
    if n_pixels < least:
        found = f"{n_pixels} pixels are too few for {len(shares)} photographs"
        raise NerfleetError("--image-memory", found, f"allow at least {least * Layout(has_places=True).pixel_bytes / 1e6:.1f} MB")
    scale = min(n_pixels / total, 1.0)
    edges = torch.tensor([0, *(len(share) for share in shares)], dtype=torch.float64).cumsum(0) * scale
    return [max(int(count), 1) for count in edges.floor().diff()]
