"""What a training process and its decoding processes tell each other. The pixels themselves travel in shared memory.

A worker owns a ring of slots. It fills a slot, says so with a :class:`Piece`, and may fill it again once the trainer has said
:class:`Free`. The messages go over a socket, so that a process that ends, in whatever way, is noticed by the other at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nerfleet.data.images import Array
from nerfleet.data.photograph import Decoding, PhotographFiles

_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Layout:
    """How a slot holds n pixels: their colours [n, 4] uint8, then the planes that are wanted, each of n values.

    Attributes:
        has_places: int32 index of each pixel within its photograph.
        has_depth: float16 depth, see :class:`nerfleet.data.scene.Scene`.
    """

    has_places: bool = False
    has_depth: bool = False

    @property
    def pixel_bytes(self) -> int:
        return 4 + 4 * self.has_places + 2 * self.has_depth

    def planes(self, slot: memoryview, n: int) -> tuple[Array, Array | None, Array | None]:
        """Colours [n] uint32, places [n] int32 or None and depths [n] float16 or None in a slot."""
        colours = np.frombuffer(slot, np.uint32, n)
        places = np.frombuffer(slot, np.int32, n, 4 * n) if self.has_places else None
        depth = np.frombuffer(slot, np.float16, n, 4 * n + 4 * n * self.has_places) if self.has_depth else None
        return colours, places, depth


@dataclass(frozen=True)
class Open:
    """To a worker, first: its ring and how to decode."""

    segment: str
    slot_bytes: int
    n_slots: int
    layout: Layout
    how: Decoding


@dataclass(frozen=True)
class Job:
    """To a worker: decode a photograph.

    Attributes:
        view: its number in the scene.
        first, last: pixels of it that are wanted (row by row, ``last`` excluded).
        n_samples: send this many random ones of them; 0: all.
        seed, round: of the random choice; the rounds of a view together cover its pixels evenly.
    """

    view: int
    files: PhotographFiles
    first: int
    last: int
    n_samples: int = 0
    seed: int = 0
    round: int = 0


@dataclass(frozen=True)
class Free:
    """To a worker: the slot has been read."""

    slot: int


@dataclass(frozen=True)
class Opened:
    """From a worker: it has attached to its ring."""


@dataclass(frozen=True)
class Piece:
    """From a worker: ``n`` pixels in a slot, the ``first``-th and following ones of those that the view's job asked for."""

    view: int
    slot: int
    first: int
    n: int


@dataclass(frozen=True)
class Done:
    """From a worker: all pieces of a job are sent.

    Attributes:
        seconds: that reading and decoding took. waited: seconds for a free slot.
    """

    view: int
    n_masked: int
    seconds: float
    waited: float


@dataclass(frozen=True)
class Failed:
    """From a worker: a photograph cannot be used; ``reason`` fits after its name."""

    view: int
    reason: str


def sample_places(job: Job) -> Array:
    """[n_samples] int32, increasing: one random pixel in each of n_samples equal parts of the job's pixels.

    Every pixel is equally likely. From round to round each part is walked through in golden-ratio steps, which leaves no pixel out for long.
    """
    start = np.random.default_rng([job.seed, job.view]).random(job.n_samples)
    within = (start + job.round * _GOLDEN) % 1.0
    n = job.last - job.first
    places = (np.arange(job.n_samples) + within) * (n / job.n_samples)
    return (np.minimum(places, n - 1) + job.first).astype(np.int32)


@dataclass(frozen=True)
class OpenWriter:
    """To a writing process, first: its ring."""

    segment: str
    slot_bytes: int
    n_slots: int


@dataclass(frozen=True)
class Task:
    """To a writing process: call ``function(*arguments, **arrays)``.

    Attributes:
        arrays: name, shape and numpy type of each; their bytes follow in the ring, in this order.
    """

    number: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    arrays: tuple[tuple[str, tuple[int, ...], str], ...]


@dataclass(frozen=True)
class Filled:
    """To a writing process: the next ``n_bytes`` lie in a slot."""

    slot: int
    n_bytes: int


@dataclass(frozen=True)
class Finished:
    """From a writing process: a task's result."""

    number: int
    result: Any


@dataclass(frozen=True)
class Raised:
    """From a writing process: what a task raised."""

    number: int
    error: Exception
