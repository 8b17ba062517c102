"""The run report: one HTML file that holds everything (pictures and video as data URIs, charts as SVG) and needs no network."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nerfleet.errors import NerfleetError
from nerfleet.telemetry.report_charts import line_chart, number
from nerfleet.telemetry.report_style import STYLE

DIFFERENCE_RANGE = 0.25
"""Mean absolute sRGB error (of 1) that the difference picture shows as its brightest colour."""
HEAT = np.array([[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]], np.float64)


@dataclass(frozen=True)
class Headline:
    """One big number: ``Headline("Held-out PSNR", "29.4 dB", "mean of 12 views")``."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """A quantity over a training: ``steps``, ``seconds`` (since the start of training) and ``values`` of equal length."""

    name: str
    steps: tuple[float, ...]
    seconds: tuple[float, ...]
    values: tuple[float, ...]
    log: bool = False


@dataclass(frozen=True)
class HeldOutView:
    """A view that training never saw: two pictures [h, w, 3] uint8 sRGB over the same background, and their scores."""

    name: str
    truth: NDArray[np.uint8]
    rendering: NDArray[np.uint8]
    psnr: float
    ssim: float | None = None


@dataclass(frozen=True)
class Report:
    """Everything that the page shows; empty parts are left out.

    Attributes:
        title, subtitle: the run's name; one line about it.
        headlines: big numbers, most important first.
        curves: each is drawn against steps and against seconds.
        views: held-out pictures.
        mesh_views: the same of a textured mesh in place of the model.
        video: an MP4 file's bytes (the turntable).
        settings: the effective configuration, nested mappings of plain values.
        environment: versions, CPU, GPU, threads.
        stages_ms: milliseconds a step of each stage.
        notes: warnings and remarks, one sentence each.
        summary: what ``report.json`` holds (steps, trained_samples, train_seconds, world_size, strategy, psnr_mean, model).
    """

    title: str
    subtitle: str = ""
    headlines: tuple[Headline, ...] = ()
    curves: tuple[Curve, ...] = ()
    views: tuple[HeldOutView, ...] = ()
    mesh_views: tuple[HeldOutView, ...] = ()
    video: bytes | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    summary: Mapping[str, Any] | None = None


def write_report(path: Path, report: Report) -> None:
    """Write ``path`` (report.html) and, if there is a summary, the .json of the same name beside it; each by rename.

    In the JSON, numbers that are not finite become null (JSON has none).
    """
    _replace_text(path, render_html(report))
    if report.summary is not None:
        _replace_text(path.with_suffix(".json"), json.dumps(_finite(report.summary), indent=1, default=str) + "\n")


def render_html(report: Report) -> str:
    """The page as text."""
    title = escape(report.title)
    subtitle = f"<p>{escape(report.subtitle)}</p>" if report.subtitle else ""
    body = "\n".join(_sections(report))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n<header><h1>{title}</h1>{subtitle}</header>\n{body}\n"
        "<footer>Made by nerfleet.</footer>\n</main>\n</body>\n</html>\n"
    )


def difference_picture(truth: NDArray[np.uint8], rendering: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Mean absolute error over the channels as a heat picture [h, w, 3], black (0) to pale yellow (``DIFFERENCE_RANGE``)."""
    error = np.abs(truth.astype(np.float64) - rendering.astype(np.float64)).mean(axis=2) / 255.0
    position = np.clip(error / DIFFERENCE_RANGE, 0.0, 1.0) * (len(HEAT) - 1)
    stops = np.arange(len(HEAT))
    return np.stack([np.interp(position, stops, HEAT[:, c]) for c in range(3)], axis=2).round().astype(np.uint8)


def _sections(report: Report) -> Iterator[str]:
    """The parts of the page that have something to show, in order."""
    if report.headlines or report.video:
        yield _opening(report)
    if report.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
        yield f'<section><h2>Notes</h2><ul class="notes">{items}</ul></section>'
    if report.views:
        yield _views(report.views, "Held-out views", "Views that training never saw.")
    if report.mesh_views:
        yield _views(report.mesh_views, "Textured mesh", "The exported mesh in views that training never saw, compared where these show something.")
    if report.curves:
        charts = [
            line_chart(x, curve.values, label, curve.name, curve.log)
            for curve in report.curves
            for x, label in ((curve.steps, "steps"), (curve.seconds, "seconds"))
        ]
        yield f'<section><h2>Training</h2><div class="charts">{"".join(charts)}</div></section>'
    pair = [part for part in (_stages(report.stages_ms), _environment(report.environment)) if part]
    if pair:
        yield f'<div class="pair">{"".join(pair)}</div>'
    if report.settings:
        yield _settings(report.settings)


def _opening(report: Report) -> str:
    """Turntable and big numbers."""
    tiles = "".join(
        f'<div class="tile"><div class="label">{escape(tile.label)}</div><div class="value">{escape(tile.value)}</div>'
        + (f'<div class="note">{escape(tile.note)}</div>' if tile.note else "")
        + "</div>"
        for tile in report.headlines
    )
    video = ""
    if report.video:
        video = (
            '<video controls autoplay loop muted playsinline aria-label="Turntable of the trained scene" '
            f'src="{_data_uri("video/mp4", report.video)}"></video>'
        )
    css_class = "opening with-video" if video else "opening"
    return f'<section class="plain"><div class="{css_class}">{video}<div class="tiles">{tiles}</div></div></section>'


def _views(views: tuple[HeldOutView, ...], title: str, about: str) -> str:
    """Photograph, rendering and difference of each held-out view."""
    captions = '<div class="captions"><span>photograph</span><span>rendering</span><span>difference</span></div>'
    figures = []
    for view in views:
        pictures = (view.truth, view.rendering, difference_picture(view.truth, view.rendering))
        labels = ("photograph", "rendering", "difference")
        images = "".join(
            f'<img src="{_png_uri(picture)}" alt="{escape(f"{view.name}: {label}", quote=True)}">'
            for picture, label in zip(pictures, labels)
        )
        score = f"PSNR {view.psnr:.2f} dB" + (f" · SSIM {view.ssim:.3f}" if view.ssim is not None else "")
        figures.append(
            f'<figure>{captions}<div class="triple">{images}</div><figcaption><span class="name">{escape(view.name)}</span>'
            f'<span class="score">{escape(score)}</span></figcaption></figure>'
        )
    scale = f'0 <span class="scale"></span> {DIFFERENCE_RANGE:g} of 1'
    hint = f"{about} Difference: mean absolute sRGB error, {scale}."
    grid = f'<div class="views">{"".join(figures)}</div>'
    return f'<section class="long"><h2>{title}</h2><p class="hint">{hint}</p>{grid}</section>'


def _stages(stages_ms: Mapping[str, float]) -> str:
    """Milliseconds a step, with bars."""
    if not stages_ms:
        return ""
    largest = max(max(stages_ms.values()), 1e-12)
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{escape(number(value))} ms</td>'
        f'<td class="share"><div class="bar" style="width:{100 * max(value, 0.0) / largest:.1f}%"></div></td></tr>'
        for name, value in stages_ms.items()
    )
    total = f'<tr><td><b>sum</b></td><td class="number"><b>{escape(number(sum(stages_ms.values())))} ms</b></td><td></td></tr>'
    return f"<section><h2>Time of one step</h2><table>{rows}{total}</table></section>"


def _environment(environment: Mapping[str, Any]) -> str:
    return f"<section><h2>Environment</h2>{_table(environment)}</section>" if environment else ""


def _settings(settings: Mapping[str, Any]) -> str:
    """Top-level values first, then one table a group; deeper levels as dotted names."""
    loose = {key: value for key, value in settings.items() if not isinstance(value, Mapping)}
    groups = [("general", loose)] if loose else []
    groups += [(key, _flat(value)) for key, value in settings.items() if isinstance(value, Mapping) and value]
    tables = "".join(f"<div><h3>{escape(str(name))}</h3>{_table(values)}</div>" for name, values in groups)
    return f'<section class="long"><h2>Settings</h2><div class="columns">{tables}</div></section>'


def _table(values: Mapping[str, Any]) -> str:
    rows = "".join(f"<tr><th>{escape(str(key))}</th><td>{escape(_text(value))}</td></tr>" for key, value in values.items())
    return f"<table>{rows}</table>"


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _text(value: Any) -> str:
    """How a setting reads."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return str(value)


def _finite(value: Any) -> Any:
    """The same value with NaN and infinities replaced by None, and numpy scalars by plain numbers."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _png_uri(picture: NDArray[np.uint8]) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(buffer, format="PNG", optimize=True)
    return _data_uri("image/png", buffer.getvalue())


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _replace_text(path: Path, text: str) -> None:
    """Write under a temporary name, then rename."""
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise NerfleetError(str(path), error.strerror or "cannot be written", "make room for it, then run the same command again") from None
