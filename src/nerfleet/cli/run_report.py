"""The report of a training run, put together from its parts."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from nerfleet.config import TrainConfig, to_dict
from nerfleet.telemetry.report import Curve, Headline, HeldOutView, Report
from nerfleet.train.trainer import TrainResult

if TYPE_CHECKING:
    from nerfleet.data.scene import Scene


def run_report(
    scene: Scene,
    config: TrainConfig,
    result: TrainResult,
    summary: dict[str, Any],
    device: torch.device,
    video: bytes | None = None,
) -> Report:
    """Curves, held-out pictures beside the photographs, settings and environment."""
    history = result.history
    curves = [Curve("Training loss", tuple(history.steps), tuple(history.seconds), tuple(history.losses), log=True)]
    finite = [(s, t, -10 * math.log10(loss)) for s, t, loss in zip(history.steps, history.seconds, history.losses, strict=True) if loss > 0]
    if finite:
        curves.append(_curve("PSNR of the training rays, estimated from the loss (dB)", finite))
    if len(history.evaluations) > 1:
        curves.append(_curve("Held-out PSNR (dB)", history.evaluations))
    return Report(
        title=scene.name,
        subtitle=f"{len(scene)} photographs, {result.steps:,} steps",
        headlines=_headlines(result, summary),
        curves=tuple(curves),
        views=_views(result),
        video=video,
        settings=to_dict(config),
        environment=environment(device),
        notes=(*scene.notes, *scene.warnings),
        summary=summary,
    )


def _curve(name: str, rows: Sequence[tuple[int, float, float]]) -> Curve:
    """Rows of (step, seconds, value)."""
    return Curve(name, tuple(float(row[0]) for row in rows), tuple(row[1] for row in rows), tuple(row[2] for row in rows))


def _headlines(result: TrainResult, summary: dict[str, Any]) -> tuple[Headline, ...]:
    rate = summary["samples_per_s"]
    lines = [
        Headline("Training time", f"{result.train_seconds:.1f} s", f"{result.steps:,} steps"),
        Headline("Trained samples", f"{rate / 1e6:.2f} M/s", f"{result.trained_samples / 1e6:.1f} M in all"),
    ]
    if result.evaluation:
        note = f"mean of {len(result.evaluation.views)} views"
        lines.insert(0, Headline("Held-out PSNR", f"{result.evaluation.psnr_mean:.2f} dB", note))
        if result.evaluation.ssim_mean is not None:
            lines.insert(1, Headline("Held-out SSIM", f"{result.evaluation.ssim_mean:.4f}", note))
    return tuple(lines)


def _views(result: TrainResult) -> tuple[HeldOutView, ...]:
    if result.evaluation is None:
        return ()
    shown = [(score, score.pictures) for score in result.evaluation.views if score.pictures is not None]
    return tuple(HeldOutView(score.name, truth.numpy(), rendering.numpy(), score.psnr, score.ssim) for score, (truth, rendering) in shown)


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and hardware, for reports."""
    import numba
    import numpy

    from nerfleet.cli.main import version

    values: dict[str, Any] = {
        "nerfleet": version(),
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "numba": numba.__version__,
        "NumPy": numpy.__version__,
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "CPU cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
    }
    if device.type == "cuda":
        values |= {"GPU": torch.cuda.get_device_name(device), "CUDA": torch.version.cuda}
    return values
