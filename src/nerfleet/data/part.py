"""A part of a scene's pixels: every camera, but only one range of all pixels, as one of several ranks holds it.

The range may begin and end inside a photograph, so that parts have any proportion and there may be more parts than views.
``pixel_offsets`` then count from the part's first pixel: negative for a view that begins before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from nerfleet.data.scene import Scene
from nerfleet.errors import NerfleetError

Gather = Callable[[dict[str, str]], dict[str, str]]
"""Photographs (name -> reason) that this part could not decode -> those of all parts."""


@dataclass(frozen=True)
class Part:
    """Pixels from ``begin`` to ``end``, as shares of all pixels (0 to 1).

    Attributes:
        gather: tells the other parts what could not be decoded, and hears what they could not.
    """

    begin: float
    end: float
    gather: Gather = dict


@dataclass(frozen=True)
class PixelRange:
    """Pixels ``begin`` to ``end`` of a scene, and the views ``first`` to ``last`` (exclusive) that they lie in."""

    begin: int
    end: int
    first: int
    last: int


def pixel_range(part: Part, sizes: Sequence[int]) -> PixelRange:
    """The range of a part; sizes: pixels of each view.

    Raises:
        NerfleetError: the part holds no pixel.
    """
    starts = torch.tensor([0, *sizes]).cumsum(0)
    total = int(starts[-1])
    begin, end = round(part.begin * total), round(part.end * total)
    if end <= begin:
        raise NerfleetError("scene", f"{total} pixels are too few for so many ranks", "use fewer GPUs")
    first = int(torch.searchsorted(starts, begin, right=True)) - 1
    last = int(torch.searchsorted(starts, end))
    return PixelRange(begin, end, min(first, last), last)


def take_part(scene: Scene, part: Part) -> Scene:
    """The part of a scene that is already in memory (the pixels are not copied)."""
    chosen = pixel_range(part, scene.pixel_offsets.diff().tolist())
    pixels = scene.pixels[chosen.begin : chosen.end]
    depth = scene.depth[chosen.begin : chosen.end] if scene.depth is not None else None
    return dataclasses.replace(scene, pixels=pixels, depth=depth, pixel_offsets=scene.pixel_offsets - chosen.begin)
