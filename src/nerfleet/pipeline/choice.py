"""How a scene's photographs come to the training's device: all before it begins, while it runs, or a part of them at a time."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from nerfleet.errors import NerfleetError
from nerfleet.pipeline.messages import Layout

PATHS = ("all", "progressive", "pool")
DEVICE_SHARE = 0.5
"""Of the device's memory that photographs may take unless said otherwise; the rest is for the field and its training."""
PROGRESSIVE_BYTES = 1_000_000_000
"""Photographs of more than this are worth a start before all are read. Below, a run that reads them all first is reproducible and as fast."""
MAX_WORKERS = 16
WORKER_BYTES = 60_000_000
"""Of a decoding process without its pictures, measured on Linux with Python 3.11."""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


@dataclass(frozen=True)
class ImagePath:
    """Attributes:
    name: "all", "progressive" or "pool".
    why: in words, for the log.
    pool_pixels: for "pool".
    device_bytes: that the photographs take on the device.
    host_bytes: that they take in the host's memory beside it (pixels, decoding processes, their rings).
    """

    name: str
    why: str
    pool_pixels: int
    device_bytes: int
    host_bytes: int


@dataclass(frozen=True)
class Memory:
    """What there is, in bytes; None: not known.

    Attributes:
        device: of the training's device. host: of the host (the same, if it trains on the CPU).
        on_host: whether the device is the host's CPU.
    """

    device: int | None
    host: int | None
    on_host: bool


def choose(wanted: str, n_pixels: int, largest: int, memory: Memory, budget: int, n_workers: int, *, with_depth: bool = False) -> ImagePath:
    """The path for a scene's photographs on one device.

    Args:
        wanted: "auto" or one of PATHS.
        n_pixels: of the scene, or of this rank's part. largest: of the largest photograph.
        budget: bytes that photographs may take on the device; 0: DEVICE_SHARE of it.
    """
    size = 4 * n_pixels
    limit = budget or (int(DEVICE_SHARE * memory.device) if memory.device is not None else None)
    said = f"--image-memory {in_words(budget)}" if budget else f"{DEVICE_SHARE:.0%} of the device's memory"
    pool_pixels = min(n_pixels, (limit if limit is not None else size) // Layout(True, with_depth).pixel_bytes)
    name, why = wanted, f"--images {wanted}"
    if wanted == "auto":
        name, why = "all", f"{in_words(size)} of photographs"
        if limit is not None and size > limit:
            name, why = "pool", f"{in_words(size)} of photographs pass {said}" + (f" ({in_words(limit)})" if not budget else "")
        elif not memory.on_host and memory.host is not None and size > memory.host:
            name, why = "progressive", f"{in_words(size)} of photographs fit the GPU, but not the host's memory ({in_words(memory.host)})"
        elif size > PROGRESSIVE_BYTES:
            name, why = "progressive", f"{in_words(size)} of photographs: training begins while they are read"
    device_bytes = pool_pixels * Layout(True, with_depth).pixel_bytes if name == "pool" else n_pixels * Layout(False, with_depth).pixel_bytes
    return ImagePath(name, why, pool_pixels if name == "pool" else 0, device_bytes, host_bytes(name, size, device_bytes, largest, memory.on_host, n_workers))


def host_bytes(name: str, size: int, device_bytes: int, largest: int, on_host: bool, n_workers: int) -> int:
    """Host memory for photographs: the decoded ones, or the processes that decode with a picture and its file each, and their rings."""
    if name == "all":
        return size
    ring = min(n_workers * 3 * 4 * largest, 1 << 30)
    return n_workers * (WORKER_BYTES + 5 * largest) + ring + device_bytes * on_host


def default_workers(largest: int, memory: Memory, n_processes: int = 1) -> int:
    """One a core, fewer where many pictures in flight would take a quarter of the memory; shared by the training processes of this machine."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    each = WORKER_BYTES + 17 * largest
    fitting = MAX_WORKERS if memory.host is None else memory.host // 4 // each
    return max(min(n_cores, MAX_WORKERS, fitting) // n_processes, 1)


def parse_bytes(text: str, flag: str) -> int:
    """ "4GB", "500M", "1.5GiB" -> bytes; empty: 0.

    Raises:
        NerfleetError: something else.
    """
    if not text.strip():
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?)?B?", text.strip().upper())
    if not match or float(match[1]) == 0:
        raise NerfleetError(f"--{flag} {text}", "is no size", "write for example 4GB or 500MB")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def in_words(n_bytes: int) -> str:
    for size, text in ((1e9, f"{n_bytes / 1e9:.1f} GB"), (1e6, f"{n_bytes / 1e6:.0f} MB")):
        if n_bytes >= size:
            return text
    return f"{n_bytes / 1e3:.0f} KB"
