"""Training that begins before the last photograph is decoded; in the end it has all pixels, as if it had waited."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.data.on_demand import OnDemandScene
from nerfleet.pipeline.feed import Feed, FeedOptions, job_for, random_order
from nerfleet.pipeline.messages import Job, Layout


class ProgressivePhotographs(Feed):
    """All pixels of the scene (of its part, if it is one), view by view in random order."""

    path = "progressive"

    def __init__(self, scene: OnDemandScene, device: torch.device, how: FeedOptions) -> None:
        super().__init__(scene, device, [len(share) for share in scene.shares], Layout(has_depth=how.with_depth), how)
        self._order = iter(random_order(scene, how.seed))
        self._begin()

    def _offsets(self, starts: Tensor) -> Tensor:
        """In a part, the view that begins before the part's first pixel has a negative offset (data/part.py)."""
        for share in self.scene.shares[:1]:
            starts = torch.where(torch.arange(len(starts)) <= share.view, starts - share.first, starts)
        return starts

    def _next_job(self) -> Job | None:
        share = next(self._order, None)
        return job_for(self.scene, share) if share is not None else None

    def before_step(self, rays: int) -> None:
        if not self._closed:
            self._pump(0.0)
            if len(self.ready | self.failed.keys()) == len(self._share_of) and self._loader.idle and self._nothing_on_its_way():
                self.close()

    def _nothing_on_its_way(self) -> bool:
        return not self._waiting and not self._decoded and self._loader.n_held == 0
