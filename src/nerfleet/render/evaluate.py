"""Renderings against photographs: PSNR and SSIM of each view and their means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nerfleet.data.scene import MASKED_PIXEL, Scene
from nerfleet.geometry.color import composite
from nerfleet.nn.model import Model
from nerfleet.render.renderer import render_image, render_pixels

SSIM_WINDOW = 11


@dataclass(frozen=True)
class ViewScore:
    name: str
    psnr: float  # dB; infinite for equal pictures, NaN where every pixel is masked
    ssim: float | None  # None when only some pixels were looked at, or the picture is smaller than the window


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


def evaluate(
    model: Model,
    scene: Scene,
    *,
    background: Sequence[float] = (0.0, 0.0, 0.0),
    n_pixels: int = 0,
    seed: int = 0,
    views: Sequence[int] | None = None,
    progress: Callable[[float], None] | None = None,
    show: ViewShown | None = None,
) -> Evaluation:
    """Score a model on the views of a scene, in sRGB clipped to 0..1; masked pixels are left out.

    Args:
        background: sRGB colour behind the model and behind photographs with alpha.
        n_pixels: look at this many random pixels of each view only (0: all; else SSIM is None).
        views: indices of the views to look at (None: all).
        progress: called with the finished share, 0 to 1.
        show: called with every view as it is finished, unless only some of its pixels were looked at.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = range(len(scene)) if views is None else views
    colour = torch.tensor(background, dtype=torch.float32)
    scores = []
    for n_done, i in enumerate(chosen, start=1):
        scores.append(_score_view(model, scene, i, colour, n_pixels, generator, show))
        if progress is not None:
            progress(n_done / len(chosen))
    return Evaluation(tuple(scores))


def _score_view(
    model: Model, scene: Scene, index: int, background: Tensor, n_pixels: int, generator: torch.Generator, show: ViewShown | None
) -> ViewScore:
    camera, photograph = scene.cameras[index : index + 1], scene.image(index)
    height, width = photograph.shape[:2]
    whole = not 0 < n_pixels < height * width
    if whole:
        rgba, rendered = photograph, render_image(model, camera)
    else:
        chosen = torch.randint(height * width, (n_pixels,), generator=generator)
        rgba = photograph.reshape(-1, 4)[chosen]
        centres = torch.stack([chosen % width, chosen // width], -1).float() + 0.5
        rendered = render_pixels(model, camera, centres)
    prediction = rendered.over(background.to(rendered.rgb.device)).clamp(0, 1).cpu()
    truth = composite(rgba, background).clamp(0, 1)
    masked = (rgba == torch.tensor(MASKED_PIXEL, dtype=torch.uint8)).all(-1)
    value = psnr(prediction[~masked], truth[~masked])
    if not whole:
        return ViewScore(scene.names[index], value, None)
    prediction = torch.where(masked[..., None], truth, prediction)
    score = ViewScore(scene.names[index], value, ssim(prediction, truth))
    if show is not None:
        show(score, prediction, truth)
    return score
