"""The random pixels of a photograph: equal chances, one in each part, and no pixel left out for long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nerfleet.data.images import ImageHeader
from nerfleet.data.photograph import PhotographFiles
from nerfleet.data.side_files import SideFiles
from nerfleet.pipeline.messages import Job, Layout, sample_places

FILES = PhotographFiles(Path("a.png"), ImageHeader(10, 10, "PNG", "RGB"), SideFiles())


def places(first: int, last: int, n: int, seed: int = 1, round_: int = 0) -> np.ndarray:
    return sample_places(Job(3, FILES, first, last, n, seed, round_))


@pytest.mark.parametrize("first, last, n", [(0, 100, 7), (20, 95, 30), (5, 6, 1), (0, 10, 25), (0, 8_294_400, 60_000)])
def test_one_in_each_part(first: int, last: int, n: int) -> None:
    found = places(first, last, n)
    assert found.dtype == np.int32
    width = (last - first) / n
    assert bool((found >= first + np.floor(np.arange(n) * width)).all())
    assert bool((found <= np.minimum(first + (np.arange(n) + 1) * width, last - 1)).all())


def test_every_pixel_is_equally_likely() -> None:
    counts = sum(np.bincount(places(0, 50, 12, seed), minlength=50) for seed in range(4000))
    expected = 4000 * 12 / 50
    assert float(np.abs(counts / expected - 1).max()) < 0.12


def test_rounds_cover_all_pixels_soon() -> None:
    """400 pixels, 40 a round: random choices would leave 1 in 100 after 46 rounds and all of a scene's pixels for much longer."""
    seen = np.zeros(400, bool)
    for round_ in range(20):
        seen[places(0, 400, 40, round_=round_)] = True
    assert float(seen.mean()) > 0.97


def test_rounds_and_seeds_differ() -> None:
    first = places(0, 10_000, 100)
    assert not np.array_equal(first, places(0, 10_000, 100, round_=1))
    assert not np.array_equal(first, places(0, 10_000, 100, seed=2))
    assert np.array_equal(first, places(0, 10_000, 100))


@pytest.mark.parametrize("has_places", [False, True])
@pytest.mark.parametrize("has_depth", [False, True])
def test_planes_do_not_overlap(has_places: bool, has_depth: bool) -> None:
    layout, n = Layout(has_places, has_depth), 5
    memory = bytearray(layout.pixel_bytes * n)
    for value, plane in enumerate(layout.planes(memoryview(memory), n), 1):
        if plane is not None:
            plane.view(np.uint8)[:] = value
    assert 0 not in memory
    assert [memory.count(value) for value in (1, 2, 3)] == [20, 20 * has_places, 10 * has_depth]
