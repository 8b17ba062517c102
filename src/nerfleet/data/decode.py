"""Decoding all photographs of a plan, in threads, straight into one block of memory.

Threads, because the decoders release the interpreter's lock and results need no copy between processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from nerfleet.data.images import ImageError
from nerfleet.data.memory import available_bytes
from nerfleet.data.photograph import Alpha, decode_depth_map, decode_photograph
from nerfleet.data.plan import ScenePlan, photograph_files
from nerfleet.errors import NerfleetError

Progress = Callable[[int, int], None]
"""Called with (photographs done, photographs in all) from the calling thread."""

_MAX_WORKERS = 32


@dataclass(frozen=True)
class DecodedPhotographs:
    """Attributes:
    kept: positions in the plan of the photographs that could be decoded.
    failed: position -> why a photograph could not.
    pixels: [total, 4] uint8 of the kept ones.
    offsets: [n_kept + 1] int64.
    depth: [total] float16 or None.
    has_alpha: whether any pixel that is not masked is transparent.
    n_masked: masked pixels of each kept photograph.
    """

    kept: list[int]
    failed: dict[int, str]
    pixels: Tensor
    offsets: Tensor
    depth: Tensor | None
    has_alpha: bool
    n_masked: list[int]


def decode_photographs(plan: ScenePlan, downscale: int, workers: int | None, progress: Progress | None) -> DecodedPhotographs:
    """Decodes, masks and reduces every photograph of the plan.

    Raises:
        NerfleetError: not enough memory, or a mask or depth map that cannot be decoded.
    """
    how = plan.decoding(downscale)
    shapes = [how.size(frame.header) for frame in plan.frames]
    sizes = [height * width for height, width in shapes]
    starts = [0, *accumulate(sizes)]
    pixels = _allocate((starts[-1], 4), torch.uint8)
    has_depth = any(f.side_files.depth for f in plan.frames)
    depth = _allocate((starts[-1],), torch.float16).zero_() if has_depth else None

    def decode(i: int) -> Alpha:
        files, span = photograph_files(plan.frames[i]), slice(starts[i], starts[i + 1])
        alpha = decode_photograph(files, how, pixels[span].numpy().reshape(*shapes[i], 4))
        if depth is not None and files.side_files.depth:
            depth[span] = torch.from_numpy(decode_depth_map(files, how).reshape(-1))
        return alpha

    results: dict[int, Alpha] = {}
    failed: dict[int, str] = {}
    with ThreadPoolExecutor(_n_workers(plan, workers), thread_name_prefix="decode") as pool:
        futures = {pool.submit(decode, i): i for i in range(len(sizes))}
        try:
            for n_done, future in enumerate(as_completed(futures), 1):
                try:
                    results[futures[future]] = future.result()
                except ImageError as error:
                    failed[futures[future]] = str(error)
                if progress:
                    progress(n_done, len(sizes))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    kept = sorted(results)
    kept_sizes = [sizes[i] for i in kept]
    if failed:
        pixels = _close_gaps(pixels, starts, kept)
        depth = _close_gaps(depth, starts, kept) if depth is not None else None
    return DecodedPhotographs(
        kept=kept,
        failed=dict(sorted(failed.items())),
        pixels=pixels,
        offsets=torch.tensor([0, *accumulate(kept_sizes)], dtype=torch.int64),
        depth=depth,
        has_alpha=any(alpha.has_alpha for alpha in results.values()),
        n_masked=[results[i].n_masked for i in kept],
    )


def _close_gaps(values: Tensor, starts: list[int], kept: list[int]) -> Tensor:
    """Moves the kept photographs together, in place; the rest of the block is cut off."""
    end = 0
    block = values.numpy()
    for i in kept:
        size = starts[i + 1] - starts[i]
        if end != starts[i]:
            block[end : end + size] = block[starts[i] : starts[i + 1]]
        end += size
    return values[:end]


def _n_workers(plan: ScenePlan, workers: int | None) -> int:
    """As many as there are cores, fewer where whole photographs in flight would take more than a gigabyte."""
    if workers is not None:
        return max(workers, 1)
    largest = max((f.header.width * f.header.height for f in plan.frames), default=1) * 4
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(n_cores, _MAX_WORKERS, 2**30 // largest), 1)


def _allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    available = available_bytes()
    remedy = "use --downscale 2 or more, or fewer photographs (n_frames)"
    if available is not None and n_bytes > available:
        raise NerfleetError("memory", f"the photographs need {n_bytes / 1e9:.1f} GB, {available / 1e9:.1f} GB are free", remedy)
    try:
        return torch.empty(shape, dtype=dtype)
    except RuntimeError as error:
        raise NerfleetError("memory", f"the photographs need {n_bytes / 1e9:.1f} GB, which cannot be had", remedy) from error
