"""Scene-wide keys of a transforms.json: box, scale, transparency, depth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nerfleet.config import MAX_AABB_SCALE
from nerfleet.data.findings import Findings
from nerfleet.data.json_file import read_number, read_vector
from nerfleet.errors import NerfleetError
from nerfleet.geometry.poses import SceneTransform

_IGNORED_KEYS = ("sharpen", "fix_premult", "n_extra_learnable_dims")


@dataclass(frozen=True)
class SceneSettings:
    """Attributes:
    aabb_scale: edge of the scene box, a power of two.
    render_aabb: [min, max] in internal space, or None.
    up: in the file's axes.
    transparent: 8-bit level of r, g and b that means transparency (255 white, 0 black), or None.
    background: RGBA sRGB, if the file says what the photographs were taken in front of.
    depth_unit: internal units per step of a 16-bit depth map; 0 if depth maps are not to be read.
    """

    aabb_scale: int
    transform: SceneTransform
    render_aabb: tuple[tuple[float, ...], tuple[float, ...]] | None
    up: tuple[float, float, float]
    transparent: int | None
    background: tuple[float, float, float, float] | None
    depth_unit: float


def read_settings(root: Mapping[str, Any], where: str, findings: Findings) -> SceneSettings:
    """Raises NerfleetError where a value cannot be; warns about keys that have no effect yet."""
    for key in _IGNORED_KEYS:
        if root.get(key):
            findings.warn(f"{key} has no effect yet")
    if root.get("enable_ray_loading"):
        raise NerfleetError(f"{where}, enable_ray_loading", "per-pixel rays are not supported yet", "remove the key")
    transform = _transform(root, where)
    transparent = 255 if root.get("white_transparent") else 0 if root.get("black_transparent") else None
    level = None if transparent is None else transparent / 255
    render_aabb = root.get("render_aabb")
    depth_scale = read_number(root.get("integer_depth_scale", -1.0), where, "integer_depth_scale")
    reads_depth = depth_scale > 0 and root.get("enable_depth_loading", True)
    up = read_vector(root.get("up", [0.0, 0.0, 1.0]), 3, where, "up")
    return SceneSettings(
        aabb_scale=read_aabb_scale(root.get("aabb_scale", 1), where),
        transform=transform,
        render_aabb=None if render_aabb is None else _corners(render_aabb, where, "render_aabb"),
        up=(up[0], up[1], up[2]),
        transparent=transparent,
        background=None if level is None else (level, level, level, 1.0),
        depth_unit=depth_scale * transform.scale if reads_depth else 0.0,
    )


def read_aabb_scale(value: object, where: str) -> int:
    """A power of two from 1 to 128 (``16.0`` counts as 16).

    Raises:
        NerfleetError: anything else, naming the nearest legal value.
    """
    number = read_number(value, where, "aabb_scale")
    exponent = round(math.log2(number)) if number > 0 else 0
    nearest = 2 ** min(max(exponent, 0), MAX_AABB_SCALE.bit_length() - 1)
    if number != nearest:
        raise NerfleetError(
            f"{where}, aabb_scale", f"{number:g} is not a power of two from 1 to {MAX_AABB_SCALE}", f"use {nearest}"
        )
    return nearest


def _transform(root: Mapping[str, Any], where: str) -> SceneTransform:
    """Scale and offset; ``aabb`` overrides both: its longest side becomes 1 and its centre 0.5."""
    mitsuba = bool(root.get("from_mitsuba")) or "normal_mts_args" in root
    default = SceneTransform(0.66, (0.165, 0.165, 0.165), True) if mitsuba else SceneTransform()
    scale = read_number(root.get("scale", default.scale), where, "scale")
    offset: tuple[float, ...] = default.offset
    given = root.get("offset")
    if given is not None:
        offset = read_vector(given, 3, where, "offset") if isinstance(given, list) else (read_number(given, where, "offset"),) * 3
    if "aabb" in root:
        low, high = _corners(root["aabb"], where, "aabb")
        scale = 1 / max(b - a for a, b in zip(low, high, strict=True))
        offset = tuple(0.5 - 0.5 * (a + b) * scale for a, b in zip(low, high, strict=True))
    if scale <= 0:
        raise NerfleetError(f"{where}, scale", f"{scale:g} is not above 0", "leave it out for 0.33")
    return SceneTransform(scale, (offset[0], offset[1], offset[2]), mitsuba)


def _corners(value: object, where: str, key: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if not isinstance(value, list) or len(value) != 2:
        raise NerfleetError(f"{where}, {key}", "is not a pair of corners", "write [[x, y, z], [x, y, z]], minimum and maximum")
    low, high = (read_vector(corner, 3, where, key) for corner in value)
    if not all(a < b for a, b in zip(low, high, strict=True)):
        raise NerfleetError(f"{where}, {key}", "has a maximum that is not above its minimum", "write the minimum first")
    return low, high
