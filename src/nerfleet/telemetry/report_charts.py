"""Line charts as inline SVG, without a library or a script. Colours come from the page's CSS, so they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 520.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 18.0, 14.0, 40.0
MAX_POINTS = 600

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """A mapping from values to pixels between ``start`` and ``end``, and the values that get a tick."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, values: Floats) -> Floats:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        shown = np.log10(values) if self.log else values
        return self.start + (shown - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if not self.log:
            return nice_ticks(self.low, self.high)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5)):
            ticks = [step * 10.0**decade for decade in decades for step in steps]
            ticks = [tick for tick in ticks if self.low <= tick * (1 + 1e-9) and tick <= self.high * (1 + 1e-9)]
            if len(ticks) >= 3:
                return ticks
        return nice_ticks(self.low, self.high)


def line_chart(x: Sequence[float], y: Sequence[float], x_label: str, y_label: str, log: bool = False) -> str:
    """One curve as an ``<svg>``; values that are not finite (or not positive on a log axis) are left out.

    A curve of more than 40 points is drawn faintly, with its running mean on top. Without two usable points: a sentence.
    """
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    usable = np.isfinite(xs) & np.isfinite(ys) & ((ys > 0) | (not log))
    xs, ys = xs[usable], ys[usable]
    if len(xs) < 2 or xs[0] == xs[-1]:
        return f'<p class="empty">{escape(y_label)}: too few values for a curve.</p>'
    across = Axis(float(xs.min()), float(xs.max()), LEFT, WIDTH - RIGHT)
    up = Axis(*_range(ys, log), HEIGHT - BOTTOM, TOP, log)
    smooth = _running_mean(ys, log) if len(ys) > 40 else None
    lines = [_polyline(across.place(xs), up.place(ys), "raw" if smooth is not None else "curve")]
    if smooth is not None:
        lines.append(_polyline(across.place(xs), up.place(smooth), "curve"))
    end = smooth[-1] if smooth is not None else ys[-1]
    end_x, end_y = across.place(xs[-1:])[0], up.place(np.array([end]))[0]
    lines.append(f'<circle class="end" cx="{end_x:.1f}" cy="{end_y:.1f}" r="3.5"/>')
    text_y = end_y + (20 if end_y < TOP + 24 else -12)
    lines.append(f'<text class="end" x="{end_x - 2:.1f}" y="{text_y:.1f}">{escape(number(float(end), 3))}</text>')
    label = f"{y_label} against {x_label}"
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(label, quote=True)}">'
        + _frame(across, up, x_label, y_label)
        + "".join(lines)
        + "</svg>"
    )


def nice_ticks(low: float, high: float, n_ticks: int = 5) -> list[float]:
    """About ``n_ticks`` multiples of 1, 2 or 5 times a power of ten within [low, high]."""
    raw = (high - low) / n_ticks
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def number(value: float, digits: int = 4) -> str:
    """A short decimal form: 12,000; 31.81; 0.0042; 1.2e-07. ``digits`` is for values below 1."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return f"{value:.2g}"
    return f"{value:.{digits if abs(value) < 1 else 4}g}"


def _range(values: Floats, log: bool) -> tuple[float, float]:
    """Limits that hold the values with some air."""
    low, high = float(values.min()), float(values.max())
    if log:
        return low * 0.85, high * 1.15
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _running_mean(values: Floats, log: bool) -> Floats:
    """Mean over a window of a thirtieth of the curve, shortened at both ends (of the logarithm, for a log axis)."""
    half = max(1, len(values) // 60)
    sums = np.concatenate([[0.0], np.cumsum(np.log(values) if log else values)])
    index = np.arange(len(values))
    width = np.minimum(half, np.minimum(index, len(values) - 1 - index))
    mean = (sums[index + width + 1] - sums[index - width]) / (2 * width + 1)
    return np.asarray(np.exp(mean) if log else mean)


def _polyline(x: Floats, y: Floats, css_class: str) -> str:
    """A path through the points; of a long curve the lowest and highest point of each bin."""
    if len(x) > MAX_POINTS:
        edges = np.linspace(0, len(x), MAX_POINTS // 2 + 1).astype(int)
        bins = zip(edges[:-1], edges[1:])
        kept = sorted({i for a, b in bins for i in (a, a + int(y[a:b].argmin()), a + int(y[a:b].argmax()))} | {len(x) - 1})
        x, y = x[kept], y[kept]
    points = " ".join(f"{px:.1f},{py:.1f}" for px, py in zip(x, y))
    return f'<polyline class="{css_class}" points="{points}"/>'


def _frame(across: Axis, up: Axis, x_label: str, y_label: str) -> str:
    """Grid lines, tick labels and the names of the axes."""
    parts = []
    for tick in up.ticks():
        y = float(up.place(np.array([tick]))[0])
        parts.append(f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick y" x="{LEFT - 8:g}" y="{y + 4:.1f}">{escape(number(tick))}</text>')
    for tick in across.ticks():
        x = float(across.place(np.array([tick]))[0])
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM:g}" y2="{HEIGHT - BOTTOM + 4:g}"/>')
        parts.append(f'<text class="tick x" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18:g}">{escape(number(tick))}</text>')
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="base" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{base:g}" y2="{base:g}"/>')
    parts.append(f'<text class="name x" x="{WIDTH - RIGHT:g}" y="{HEIGHT - 6:g}">{escape(x_label)}</text>')
    middle = 0.5 * (TOP + base)
    parts.append(f'<text class="name y" transform="translate(13 {middle:g}) rotate(-90)">{escape(y_label)}</text>')
    return "".join(parts)
