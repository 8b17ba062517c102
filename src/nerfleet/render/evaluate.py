"""Renderings against photographs: PSNR and SSIM of each view and their means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from nerfleet.data.scene import MASKED_PIXEL, Scene
from nerfleet.geometry.color import composite
from nerfleet.nn.model import Model
from nerfleet.render.renderer import render_pixels, render_range, to_uint8

SSIM_WINDOW = 11


@dataclass(frozen=True)
class ViewScore:
    name: str
    psnr: float  # dB; infinite for equal pictures, NaN where every pixel is masked
    ssim: float | None  # None when only some pixels were looked at, or the picture is smaller than the window
    pictures: tuple[Tensor, Tensor] | None = field(default=None, compare=False, repr=False)  # (photograph, rendering) [h, w, 3] uint8, if asked for


@dataclass(frozen=True)
class Evaluation:
    views: tuple[ViewScore, ...]

    @property
    def psnr_mean(self) -> float:
        """Mean of the views' PSNRs, views without a pixel to compare left out."""
        scores = [view.psnr for view in self.views if not math.isnan(view.psnr)]
        return sum(scores) / len(scores) if scores else math.nan

    @property
    def ssim_mean(self) -> float | None:
        scores = [view.ssim for view in self.views if view.ssim is not None]
        return sum(scores) / len(scores) if scores and len(scores) == len(self.views) else None


class ViewShown(Protocol):
    """Is shown every view that was compared as a whole."""

    def __call__(self, score: ViewScore, prediction: Tensor, truth: Tensor) -> None:
        """prediction, truth: [h, w, 3] sRGB in 0..1 on the CPU."""


def psnr(prediction: Tensor, truth: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of values in 0..1; infinite for equal pictures, NaN for empty ones."""
    error = float(((prediction - truth).double() ** 2).mean())
    return math.inf if error == 0 else math.nan if math.isnan(error) else -10 * math.log10(error)


def ssim(prediction: Tensor, truth: Tensor) -> float | None:
    """Structural similarity (Wang et al. 2004) of [h, w, 3] pictures in 0..1; None for pictures under 11 pixels."""
    if min(truth.shape[:2]) < SSIM_WINDOW:
        return None
    from torchmetrics.functional.image import structural_similarity_index_measure

    first, second = (picture.permute(2, 0, 1)[None].float().cpu() for picture in (prediction, truth))
    value = structural_similarity_index_measure(first, second, data_range=1.0)
    assert isinstance(value, Tensor)
    return float(value)


@dataclass(frozen=True)
class _Piece:
    """Pixels of one view that this process has looked at: prediction [m, 3] sRGB, rgba [m, 4] of the photograph."""

    view: int
    prediction: Tensor
    rgba: Tensor


def evaluate(
    model: Model,
    scene: Scene,
    *,
    background: Sequence[float] = (0.0, 0.0, 0.0),
    n_pixels: int = 0,
    seed: int = 0,
    views: Sequence[int] | None = None,
    pictures_of: Sequence[int] = (),
    exchange: Callable[[Any], list[Any]] = lambda value: [value],
    progress: Callable[[float], None] | None = None,
    show: ViewShown | None = None,
) -> Evaluation:
    """Score a model on the views of a scene, in sRGB clipped to 0..1; masked pixels are left out.

    Several processes may do it together, each with its part of the photographs' pixels: all return the same scores, those of
    one process.

    Args:
        background: sRGB colour behind the model and behind photographs with alpha.
        n_pixels: look at this many random pixels of each view only (0: all; else SSIM is None).
        views: indices of the views to look at (None: all).
        pictures_of: views whose scores come with both pictures, looked at as a whole.
        exchange: gives a value of each process to all, in order; for several processes.
        progress: called with the finished share, 0 to 1.
        show: called with every view as it is finished, unless only some of its pixels were looked at, in the process that has its first pixel.
    """
    colour = torch.tensor(background, dtype=torch.float32)
    chosen = list(range(len(scene)) if views is None else views)
    drawn = _drawn_pixels(scene, chosen, n_pixels, seed)
    scores: dict[int, ViewScore] = {}
    pieces: list[_Piece] = []  # of views that other processes hold pixels of
    for n_done, view in enumerate(chosen, start=1):
        pixels = None if view in pictures_of else drawn.get(view)
        first, end = _held(scene, view)
        if end > first:
            piece = _look(model, scene, view, pixels, colour)
            if end - first < _n_pixels(scene, view):
                pieces.append(piece)
            else:
                scores[view] = _score(scene, piece, drawn.get(view), colour, view in pictures_of, show)
        if progress is not None:
            progress(n_done / len(chosen))
    parts = [piece for some in exchange(pieces) for piece in some]
    for view in [piece.view for piece in pieces if _held(scene, piece.view)[0] == 0]:
        own = [piece for piece in parts if piece.view == view]
        joined = _Piece(view, torch.cat([piece.prediction for piece in own]), torch.cat([piece.rgba for piece in own]))
        scores[view] = _score(scene, joined, drawn.get(view), colour, view in pictures_of, show)
    everyone = {view: score for some in exchange(scores) for view, score in some.items()}
    return Evaluation(tuple(everyone[view] for view in chosen))


def _n_pixels(scene: Scene, view: int) -> int:
    return int(scene.pixel_offsets[view + 1] - scene.pixel_offsets[view])


def _held(scene: Scene, view: int) -> tuple[int, int]:
    """Pixels of a view that this process holds, counted from the view's first one: all of them, except in a part of a scene."""
    first, end = (int(offset) for offset in scene.pixel_offsets[view : view + 2])
    return max(-first, 0), min(end, len(scene.pixels)) - first


def _drawn_pixels(scene: Scene, views: Sequence[int], n_pixels: int, seed: int) -> dict[int, Tensor]:
    """Random pixels of each view that has more than so many, in ascending order: parts of a scene follow one another."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {view: _n_pixels(scene, view) for view in views}
    return {view: torch.randint(size, (n_pixels,), generator=generator).sort().values for view, size in sizes.items() if 0 < n_pixels < size}


def _look(model: Model, scene: Scene, view: int, pixels: Tensor | None, background: Tensor) -> _Piece:
    """Those of the ``pixels`` (None: all) that are held here, rendered."""
    camera, (first, end) = scene.cameras[view : view + 1], _held(scene, view)
    offset = int(scene.pixel_offsets[view])
    if pixels is None:
        rendered, rgba = render_range(model, camera, first, end), scene.pixels[offset + first : offset + end]
    else:
        here, width = pixels[(pixels >= first) & (pixels < end)], int(camera.resolution[0, 0])
        if not len(here):
            return _Piece(view, torch.zeros(0, 3), scene.pixels[:0])
        rendered = render_pixels(model, camera, torch.stack([here % width, here // width], -1).float() + 0.5)
        rgba = scene.pixels[offset + here]
    return _Piece(view, rendered.over(background.to(rendered.rgb.device)).clamp(0, 1).cpu(), rgba)


def _score(scene: Scene, piece: _Piece, drawn: Tensor | None, background: Tensor, keep: bool, show: ViewShown | None) -> ViewScore:
    """Score of a view of which ``piece`` has all pixels, or the ``drawn`` ones; keep: with pictures, all pixels are there."""
    name = scene.names[piece.view]
    truth = composite(piece.rgba, background).clamp(0, 1)
    masked = (piece.rgba == torch.tensor(MASKED_PIXEL, dtype=torch.uint8)).all(-1)
    whole = len(truth) == _n_pixels(scene, piece.view)
    counted = ~masked if drawn is None or not whole else torch.zeros_like(masked).index_fill_(0, drawn, True) & ~masked
    value = psnr(piece.prediction[counted], truth[counted])
    if not whole:
        return ViewScore(name, value, None)
    width, height = scene.cameras.resolution[piece.view].tolist()
    prediction = torch.where(masked[..., None], truth, piece.prediction).view(height, width, 3)
    truth = truth.view(height, width, 3)
    score = ViewScore(name, value, ssim(prediction, truth) if drawn is None else None, (to_uint8(truth), to_uint8(prediction)) if keep else None)
    if show is not None and drawn is None:
        show(score, prediction, truth)
    return score
