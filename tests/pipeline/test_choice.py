"""Which path photographs take, and sizes as people write them."""

from __future__ import annotations

import pytest

from nerfleet.errors import NerfleetError
from nerfleet.pipeline.choice import ImagePath, Memory, choose, default_workers, parse_bytes

GB = 10**9
FOUR_K = 3840 * 2160


def path(n_views: int, memory: Memory, wanted: str = "auto", budget: int = 0) -> ImagePath:
    return choose(wanted, n_views * FOUR_K, FOUR_K, memory, budget, 4)


GPU, LAPTOP = Memory(24 * GB, 64 * GB, False), Memory(16 * GB, 16 * GB, True)


@pytest.mark.parametrize(
    "n_views, memory, budget, expected",
    [(20, GPU, 0, "all"), (200, GPU, 0, "progressive"), (2000, GPU, 0, "pool"), (200, GPU, GB, "pool"), (200, LAPTOP, 0, "progressive"),
     (400, LAPTOP, 0, "pool"), (20, Memory(24 * GB, GB // 2, False), 0, "progressive"), (2000, Memory(None, None, True), 0, "progressive")],
)  # fmt: skip
def test_path(n_views: int, memory: Memory, budget: int, expected: str) -> None:
    chosen = path(n_views, memory, budget=budget)
    assert chosen.name == expected
    limit = budget or (memory.device or 10**15) // 2
    assert chosen.device_bytes <= limit
    assert (chosen.pool_pixels > 0) == (expected == "pool")
    assert ("--image-memory" in chosen.why) == (budget > 0)


def test_host_memory_of_the_paths() -> None:
    """Reading everything first takes the photographs; feeding them takes workers and rings, however many photographs there are."""
    everything = path(2000, GPU, "all").host_bytes
    assert everything == 2000 * FOUR_K * 4
    fed = path(2000, GPU, "pool").host_bytes
    assert fed == path(200, GPU, "progressive").host_bytes < 2 * GB
    assert path(2000, LAPTOP, "pool").host_bytes > path(2000, LAPTOP, "pool").device_bytes


@pytest.mark.parametrize("wanted", ["all", "progressive", "pool"])
def test_wishes_are_followed(wanted: str) -> None:
    assert path(2, GPU, wanted).name == wanted
    assert path(2, GPU, wanted).why == f"--images {wanted}"
    if wanted == "pool":
        assert path(2, GPU, wanted).pool_pixels == 2 * FOUR_K


def test_workers_fit_into_memory() -> None:
    assert default_workers(FOUR_K, Memory(None, 2 * GB, False)) <= 2
    assert default_workers(170_000_000, Memory(None, GB, False)) == 1
    assert default_workers(1000, Memory(None, None, False), n_processes=1000) == 1


@pytest.mark.parametrize("text, n_bytes", [("", 0), ("4GB", 4 * GB), ("4 g", 4 * GB), ("1.5GiB", 3 << 29), ("500MB", 5 * 10**8), ("123", 123)])
def test_sizes(text: str, n_bytes: int) -> None:
    assert parse_bytes(text, "image-memory") == n_bytes


@pytest.mark.parametrize("text", ["much", "-1GB", "4TB", "0", "1e9"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(NerfleetError, match=f"--image-memory {text}: is no size: write for example"):
        parse_bytes(text, "image-memory")
