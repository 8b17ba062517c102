"""Cost against time as an SVG picture that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from nerfleet.planner.cost import Offer

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 76, 210, 44, 56
STYLE = """
svg { background: #fff; font: 13px system-ui, sans-serif; } text { fill: #333; } .title { font-size: 15px; font-weight: 600; } .small { font-size: 11px; }
.grid { stroke: #ddd; } .line { fill: none; stroke: #9bb3cf; } .point { fill: #3b6ea5; } .spot { fill: #fff; stroke: #3b6ea5; stroke-width: 2; }
.best { fill: #c2410c; } .spot.best { fill: #fff; stroke: #c2410c; }
@media (prefers-color-scheme: dark) { svg { background: #17191c; } text { fill: #ddd; } .grid { stroke: #333; } .spot { fill: #17191c; } }
"""


def cost_picture(offers: Sequence[Offer], currency: str, title: str) -> str:
    """An ``<svg>``: a point an offer (hollow: spot), those of one kind of machine joined, the marked ones named. Both axes logarithmic."""
    shown = [offer for offer in offers if math.isfinite(offer.cost) and offer.cost > 0 and offer.total_seconds > 0]
    hours = [offer.total_seconds / 3600 for offer in shown] or [1.0]
    costs = [offer.cost for offer in shown] or [1.0]
    across, up = _range(hours), _range(costs)

    def place(offer: Offer) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * _part(offer.total_seconds / 3600, across)
        return x, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _part(offer.cost, up)

    parts = [f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>', *_axes(across, up, currency)]
    if any(offer.spot for offer in shown):
        parts.append(f'<circle class="point spot" cx="{LEFT + 8}" cy="{HEIGHT - 16}" r="5"/>')
        parts.append(f'<text class="small" x="{LEFT + 18}" y="{HEIGHT - 12}">spot machines</text>')
    for name, spot in dict.fromkeys((offer.name, offer.spot) for offer in shown):
        points = [place(offer) for offer in shown if (offer.name, offer.spot) == (name, spot)]
        if len(points) > 1:
            parts.append(f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
    for offer in shown:
        x, y = place(offer)
        kind = " ".join(["spot" if offer.spot else "point", *(["best"] if offer.marks else [])])
        label = f"{offer.name}{' spot' if offer.spot else ''}, {offer.n_gpus} GPUs: {offer.total_seconds / 3600:.3g} h, {offer.cost:,.2f} {currency}"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(label)}</title></circle>')
        if offer.marks:
            text = f"{offer.name}{' spot' if offer.spot else ''}, {offer.n_gpus} GPU{'s' if offer.n_gpus > 1 else ''}: {', '.join(offer.marks)}"
            parts.append(f'<text x="{x + 9:.1f}" y="{y + 4:.1f}">{escape(text)}</text>')
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><style>{STYLE}</style>{"".join(parts)}</svg>\n'


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    margin = max(0.08 * (high - low), 0.1)
    return low - margin, high + margin


def _part(value: float, limits: tuple[float, float]) -> float:
    return (math.log10(value) - limits[0]) / (limits[1] - limits[0])


def _ticks(limits: tuple[float, float]) -> list[float]:
    """1, 2 and 5 times powers of ten within the limits."""
    decades = range(math.floor(limits[0]), math.ceil(limits[1]) + 1)
    found = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
    return [value for value in found if limits[0] <= math.log10(value) <= limits[1]]


def _time(hours: float) -> str:
    return f"{hours:g} h" if hours >= 1 else f"{60 * hours:.3g} min"


def _axes(across: tuple[float, float], up: tuple[float, float], currency: str) -> list[str]:
    parts = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in _ticks(across):
        x = LEFT + (right - LEFT) * _part(value, across)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="small" text-anchor="middle" x="{x:.1f}" y="{bottom + 18}">{_time(value)}</text>')
    for value in _ticks(up):
        y = bottom - (bottom - TOP) * _part(value, up)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="small" text-anchor="end" x="{LEFT - 8}" y="{y + 4:.1f}">{value:g}</text>')
    parts.append(f'<text x="{right}" y="{HEIGHT - 12}" text-anchor="end">training time (logarithmic)</text>')
    parts.append(f'<text x="{LEFT - 60}" y="{TOP - 6}" class="small">cost, {escape(currency)}</text>')
    return parts
