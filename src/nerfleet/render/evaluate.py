"""Renderings against photographs: PSNR and SSIM of each view and their means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nerfleet.data.scene import MASKED_PIXEL, Scene
from nerfleet.geometry.color import composite
from nerfleet.nn.model import Model
from nerfleet.render.renderer import render_image, render_pixels

BACKGROUND_COLORS = {"black": (0.0, 0.0, 0.0), "white": (1.0, 1.0, 1.0)}


@dataclass(frozen=True)
class ViewScore:
    name: str
    psnr: float
    ssim: float | None  # None when only some pixels were looked at


@dataclass(frozen=True)
class Evaluation:
    views: tuple[ViewScore, ...]

    @property
    def psnr_mean(self) -> float:
        """Mean of the views' PSNRs."""
        return sum(view.psnr for view in self.views) / len(self.views)

    @property
    def ssim_mean(self) -> float | None:
        scores = [view.ssim for view in self.views if view.ssim is not None]
        return sum(scores) / len(scores) if len(scores) == len(self.views) else None


def psnr(prediction: Tensor, truth: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of values in 0..1; infinite for equal pictures."""
    error = float(((prediction - truth).double() ** 2).mean())
    return -10 * math.log10(error) if error > 0 else math.inf


def ssim(prediction: Tensor, truth: Tensor) -> float:
    """Structural similarity (Wang et al. 2004) of [h, w, 3] pictures in 0..1."""
    from torchmetrics.functional.image import structural_similarity_index_measure

    pictures = (picture.permute(2, 0, 1)[None].float().cpu() for picture in (prediction, truth))
    value = structural_similarity_index_measure(*pictures, data_range=1.0)
    assert isinstance(value, Tensor)
    return float(value)


def evaluate(
    model: Model, scene: Scene, *, background: Sequence[float] = (0.0, 0.0, 0.0), n_pixels: int = 0, seed: int = 0, progress: Callable[[float], None] | None = None
) -> Evaluation:
    """Score a model on every view of a scene, in sRGB clipped to 0..1; masked pixels are left out.

    Args:
        background: sRGB colour behind the model and behind photographs with alpha.
        n_pixels: look at this many random pixels of each view only (0: all; else SSIM is None).
        progress: called with the finished share, 0 to 1.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = []
    for i, name in enumerate(scene.names):
        scores.append(_score_view(model, scene, i, name, torch.tensor(background, dtype=torch.float32), n_pixels, generator))
        if progress is not None:
            progress((i + 1) / len(scene))
    return Evaluation(tuple(scores))


def _score_view(model: Model, scene: Scene, index: int, name: str, background: Tensor, n_pixels: int, generator: torch.Generator) -> ViewScore:
    camera, photograph = scene.cameras[index : index + 1], scene.image(index)
    height, width = photograph.shape[:2]
    if 0 < n_pixels < height * width:
        chosen = torch.randint(height * width, (n_pixels,), generator=generator)
        rgba = photograph.reshape(-1, 4)[chosen]
        centres = torch.stack([chosen % width, chosen // width], -1).float() + 0.5
        rendered = render_pixels(model, camera, centres)
    else:
        rgba, rendered = photograph, render_image(model, camera)
    prediction = rendered.over(background.to(rendered.rgb.device)).clamp(0, 1).cpu()
    truth = composite(rgba, background).clamp(0, 1)
    masked = (rgba == torch.tensor(MASKED_PIXEL, dtype=torch.uint8)).all(-1)
    whole = rgba.dim() == 3
    if masked.any():
        prediction = torch.where(masked[..., None], truth, prediction) if whole else prediction
        score = psnr(prediction[~masked], truth[~masked])
    else:
        score = psnr(prediction, truth)
    return ViewScore(name, score, ssim(prediction, truth) if whole else None)
