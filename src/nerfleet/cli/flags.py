"""Flags that several verbs share, with one meaning everywhere, and how verbs answer."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any, Literal

from nerfleet.errors import NerfleetError

Device = Literal["auto", "cpu", "cuda"]
Split = Literal["train", "val", "test"]
COLORS = {"black": (0.0, 0.0, 0.0), "white": (1.0, 1.0, 1.0)}


def parse_color(text: str) -> tuple[float, float, float]:
    """``black``, ``white`` or ``#rrggbb`` -> sRGB, 0 to 1."""
    if text in COLORS:
        return COLORS[text]
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        raise NerfleetError(f"--background {text}", "is no colour", "use black, white or #rrggbb")
    red, green, blue = (int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def parse_views(text: str, n_views: int, flag: str = "views") -> list[int]:
    """``0,3-5`` -> [0, 3, 4, 5]; empty: all.

    Raises:
        NerfleetError: not of this form, or a view that there is not; names ``--flag``.
    """
    if not text:
        return list(range(n_views))
    chosen: list[int] = []
    what = "views" if flag == "views" else "pictures"
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None:
            raise NerfleetError(f"--{flag} {text}", f"{part.strip()!r} is neither a number nor a range", "write for example 0,3-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= n_views:
            wrong = f"there are {n_views} {what}, 0 to {n_views - 1}" if last >= n_views else f"{part.strip()} runs backwards"
            raise NerfleetError(f"--{flag} {text}", wrong, "write for example 0,3-5")
        chosen += [i for i in range(first, last + 1) if i not in chosen]
    return chosen


def parse_box(text: str) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """``x0,y0,z0,x1,y1,z1`` -> its two corners.

    Raises:
        NerfleetError: not six finite numbers, or a maximum that is not above its minimum.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 6 or not all(map(math.isfinite, numbers)):
        raise NerfleetError(f"--crop {text}", "is not a box", "write x0,y0,z0,x1,y1,z1, for example --crop=-1,-1,0,1,1,2")
    low, high = (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5])
    if not all(a < b for a, b in zip(low, high)):
        raise NerfleetError(f"--crop {text}", "has a maximum that is not above its minimum", "write the minimum first")
    return low, high


def print_json(answer: dict[str, Any]) -> None:
    """The one object of ``--json``; what JSON has no number for (infinite, not a number) becomes null."""
    sys.stdout.write(json.dumps(_finite(answer), allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(*messages: str) -> None:
    """Lines for people, on standard error."""
    for message in messages:
        sys.stderr.write(message + "\n")
