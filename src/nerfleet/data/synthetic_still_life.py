"""The built-in scene's contents: a still life on a round mosaic table, as arrays for synthetic_tracer.py.

Groups: the table (primitives 0 and 1, the "ground"), a pavilion on eight thin rods, an armillary sphere of thin rings, a ring
with a ball on it, blocks, and balls. All lengths in internal units, relative to the table's axis at x = z = 0.5; y is up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from nerfleet.data.synthetic_tracer import (
    BANDS,
    BOX,
    CHECKER,
    FRUSTUM,
    MOSAIC,
    PLAIN,
    SECTORS,
    SPHERE,
    TORUS,
)

TABLE_HEIGHT = 0.28
N_GROUND_PRIMITIVES = 2
Colour = tuple[float, float, float]

IVORY: Colour = (0.68, 0.64, 0.55)
GOLD: Colour = (0.72, 0.46, 0.13)
RED: Colour = (0.62, 0.05, 0.04)
TEAL: Colour = (0.03, 0.36, 0.37)
NAVY: Colour = (0.03, 0.07, 0.24)
ORANGE: Colour = (0.85, 0.30, 0.04)
GREEN: Colour = (0.13, 0.38, 0.08)
PURPLE: Colour = (0.26, 0.07, 0.34)


@dataclass(frozen=True)
class Primitive:
    """One solid.

    ``size``: sphere (radius), frustum (bottom, top radius, half height), torus (ring radius, tube radius), box (half edges).
    """

    kind: int
    centre: tuple[float, float, float]  # x, z relative to the axis; y above the table
    size: tuple[float, ...]
    colour: Colour
    second: Colour = (0.0, 0.0, 0.0)
    pattern: int = PLAIN
    repetitions: float = 0.0
    gloss: float = 0.0
    turn: tuple[float, float] = (0.0, 0.0)  # degrees: yaw about y, then tilt of the local y axis towards the yawed z axis

    @property
    def reach(self) -> float:
        """Radius of the bounding sphere around the centre."""
        if self.kind == SPHERE:
            return self.size[0]
        if self.kind == FRUSTUM:
            return math.hypot(max(self.size[0], self.size[1]), self.size[2])
        if self.kind == TORUS:
            return self.size[0] + self.size[1]
        return math.sqrt(sum(edge * edge for edge in self.size))

    @property
    def frame(self) -> np.ndarray:
        """[3, 3], rows are the local axes in internal space."""
        yaw, tilt = math.radians(self.turn[0]), math.radians(self.turn[1])
        about_y = np.array([[math.cos(yaw), 0, -math.sin(yaw)], [0, 1, 0], [math.sin(yaw), 0, math.cos(yaw)]])
        about_x = np.array([[1, 0, 0], [0, math.cos(tilt), math.sin(tilt)], [0, -math.sin(tilt), math.cos(tilt)]])
        return about_x @ about_y


def _table() -> list[Primitive]:
    return [
        Primitive(FRUSTUM, (0, -0.02, 0), (0.395, 0.42, 0.02), IVORY, pattern=MOSAIC),
        Primitive(TORUS, (0, -0.006, 0), (0.42, 0.013), GOLD, gloss=0.8),
    ]


def _pavilion(x: float, z: float) -> list[Primitive]:
    parts = [
        Primitive(FRUSTUM, (x, 0.0125, z), (0.125, 0.12, 0.0125), IVORY, RED, SECTORS, 10),
        Primitive(FRUSTUM, (x, 0.0325, z), (0.105, 0.10, 0.0075), IVORY),
        Primitive(FRUSTUM, (x, 0.245, z), (0.102, 0.102, 0.011), IVORY, gloss=0.2),
        Primitive(FRUSTUM, (x, 0.306, z), (0.116, 0.008, 0.05), TEAL, ORANGE, SECTORS, 8, gloss=0.3),
        Primitive(SPHERE, (x, 0.368, z), (0.019,), GOLD, gloss=1.0),
        Primitive(SPHERE, (x, 0.092, z), (0.052,), RED, gloss=1.0),
    ]
    for i in range(8):
        angle = 2.0 * math.pi * (i + 0.5) / 8.0
        foot = (x + 0.087 * math.cos(angle), 0.137, z + 0.087 * math.sin(angle))
        parts.append(Primitive(FRUSTUM, foot, (0.0075, 0.0075, 0.1), IVORY, gloss=0.2))
    return parts


def _armillary(x: float, z: float) -> list[Primitive]:
    y = 0.235
    return [
        Primitive(FRUSTUM, (x, 0.018, z), (0.075, 0.045, 0.018), NAVY, GOLD, BANDS, 83, gloss=0.6),
        Primitive(FRUSTUM, (x, 0.074, z), (0.012, 0.012, 0.04), GOLD, gloss=0.8),
        Primitive(TORUS, (x, y, z), (0.125, 0.0095), GOLD, gloss=0.8, turn=(25, 90)),
        Primitive(TORUS, (x, y, z), (0.105, 0.0085), ORANGE, gloss=0.6, turn=(-40, 62)),
        Primitive(TORUS, (x, y, z), (0.087, 0.0085), TEAL, gloss=0.6, turn=(70, 20)),
        Primitive(SPHERE, (x, y, z), (0.047,), NAVY, IVORY, SECTORS, 6, gloss=1.0, turn=(20, 25)),
    ]


def _ring_and_ball(x: float, z: float) -> list[Primitive]:
    rest = 0.032 + math.sqrt((0.068 + 0.032) ** 2 - 0.078**2)  # the ball touches the ring all around
    return [
        Primitive(TORUS, (x, 0.032, z), (0.078, 0.032), TEAL, IVORY, SECTORS, 6, gloss=0.9),
        Primitive(SPHERE, (x, rest, z), (0.068,), ORANGE, IVORY, BANDS, 29.4, gloss=0.9, turn=(30, 35)),
    ]


def _blocks(x: float, z: float) -> list[Primitive]:
    return [
        Primitive(BOX, (x, 0.06, z), (0.06, 0.06, 0.06), IVORY, RED, CHECKER, 50 / 3, turn=(28, 0)),
        Primitive(BOX, (x + 0.01, 0.158, z - 0.005), (0.038, 0.038, 0.038), GREEN, ORANGE, BANDS, 39.5, turn=(-12, 90)),
        Primitive(FRUSTUM, (x + 0.01, 0.231, z - 0.005), (0.035, 0.0, 0.035), PURPLE, IVORY, BANDS, 43, gloss=0.4),
    ]


def _balls() -> list[Primitive]:
    return [
        Primitive(SPHERE, (0.02, 0.055, 0.03), (0.055,), PURPLE, gloss=1.0),
        Primitive(SPHERE, (-0.01, 0.035, 0.27), (0.035,), GREEN, IVORY, SECTORS, 4, gloss=0.8, turn=(10, 50)),
        Primitive(SPHERE, (0.04, 0.027, -0.32), (0.027,), RED, gloss=1.0),
        Primitive(SPHERE, (-0.335, 0.03, 0.0), (0.03,), NAVY, IVORY, BANDS, 40, gloss=0.9, turn=(60, 70)),
        Primitive(SPHERE, (0.325, 0.03, 0.045), (0.03,), GOLD, gloss=1.0),
    ]


@dataclass(frozen=True)
class StillLife:
    """Arrays of the whole scene; ``arrays`` is the tuple that every function of synthetic_tracer takes."""

    arrays: tuple[Any, ...]
    n_primitives: int
    table_height: float


@lru_cache(maxsize=1)
def still_life() -> StillLife:
    """The scene (built once a process)."""
    groups = [_table(), _pavilion(-0.15, -0.14), _armillary(0.19, -0.14), _ring_and_ball(-0.17, 0.18), _blocks(0.17, 0.19)]
    groups += [[ball] for ball in _balls()]
    parts = [part for group in groups for part in group]
    centres = np.array([[p.centre[0] + 0.5, p.centre[1] + TABLE_HEIGHT, p.centre[2] + 0.5] for p in parts])
    sizes = np.array([(*(*p.size, 0.0, 0.0)[:3], p.reach) for p in parts])
    materials = np.array([(*p.colour, *p.second, p.pattern, p.repetitions, p.gloss) for p in parts], np.float64)
    starts = np.cumsum([0, *(len(group) for group in groups)])
    bounds = np.empty((len(groups), 4))
    for i, group in enumerate(groups):
        members = centres[starts[i] : starts[i + 1]]
        reach = np.array([p.reach for p in group])[:, None]
        middle = 0.5 * ((members - reach).min(0) + (members + reach).max(0))
        bounds[i] = *middle, (np.linalg.norm(members - middle, axis=1) + reach[:, 0]).max() + 1e-6
    kinds = np.array([p.kind for p in parts], np.int64)
    frames = np.ascontiguousarray([p.frame for p in parts])
    arrays = (kinds, frames, centres, sizes, materials, bounds, starts.astype(np.int64))
    return StillLife(arrays, len(parts), TABLE_HEIGHT)
