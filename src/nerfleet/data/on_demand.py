"""A scene of which only text and image headers have been read: its photographs are decoded when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nerfleet.data.images import ImageError
from nerfleet.data.part import Part, pixel_range
from nerfleet.data.photograph import decode_photograph
from nerfleet.data.plan import ScenePlan, photograph_files, planned_cameras
from nerfleet.data.scene import MASKED_PIXEL, Scene
from nerfleet.errors import NerfleetError


@dataclass(frozen=True)
class ViewShare:
    """Pixels ``first`` to ``last`` (row by row, excluded) of a view."""

    view: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, kw_only=True)
class OnDemandScene(Scene):
    """Like a :class:`Scene`, but ``pixels`` is empty and ``image`` decodes the file each time.

    A photograph that cannot be decoded is a picture of masked pixels, which is neither trained on nor scored; why is told in ``failed``.
    ``has_alpha`` is not known.

    Attributes:
        plan, downscale: what is read, and how.
        shares: what this process's part of the scene is: all pixels of all views, unless a part was asked for.
        failed: name -> reason of photographs that could not be decoded so far.
    """

    plan: ScenePlan
    downscale: int
    shares: tuple[ViewShare, ...]
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def n_held_pixels(self) -> int:
        return sum(len(share) for share in self.shares)

    def image(self, index: int) -> Tensor:
        frame, how = self.plan.frames[index], self.plan.decoding(self.downscale)
        picture = np.empty((*how.size(frame.header), 4), np.uint8)
        try:
            decode_photograph(photograph_files(frame), how, picture)
        except (ImageError, NerfleetError) as error:
            self.failed[frame.name] = str(error)
            picture[...] = MASKED_PIXEL
        return torch.from_numpy(picture)


def open_scene(plan: ScenePlan, downscale: int = 1, part: Part | None = None) -> OnDemandScene:
    """A planned scene, or a part of it, without decoding anything.

    Raises:
        NerfleetError: the part holds no pixel.
    """
    cameras = planned_cameras(plan, downscale)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), cameras.resolution.long().prod(-1).cumsum(0)])
    begin, end = 0, int(offsets[-1])
    if part is not None:
        chosen = pixel_range(part, offsets.diff().tolist())
        begin, end = chosen.begin, chosen.end
    shares = []
    for view, start in enumerate(offsets[:-1].tolist()):
        size = int(offsets[view + 1]) - start
        first, last = min(max(begin - start, 0), size), min(max(end - start, 0), size)
        if last > first:
            shares.append(ViewShare(view, first, last))
    settings, findings = plan.settings, plan.findings
    return OnDemandScene(
        name=plan.name,
        path=plan.path,
        split=plan.split,
        names=tuple(frame.name for frame in plan.frames),
        cameras=cameras,
        pixels=torch.zeros(0, 4, dtype=torch.uint8),
        pixel_offsets=offsets,
        aabb_scale=settings.aabb_scale,
        transform=settings.transform,
        render_aabb=torch.tensor(settings.render_aabb) if settings.render_aabb else None,
        background=settings.background,
        up=settings.up,
        skipped=tuple(findings.skipped),
        warnings=tuple(findings.warnings),
        notes=tuple(findings.notes),
        plan=plan,
        downscale=downscale,
        shares=tuple(shares),
    )
