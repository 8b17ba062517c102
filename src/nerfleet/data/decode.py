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

from nerfleet.data.images import Array, ImageError, decode_depth, decode_mask, decode_rgba
from nerfleet.data.plan import PlannedFrame, ScenePlan
from nerfleet.data.reduce import is_masked, reduce_depth, reduce_rgba
from nerfleet.data.scene import MASKED_PIXEL
from nerfleet.errors import NerfleetError

Progress = Callable[[int, int], None]
"""Called with (photographs done, photographs in all) from the calling thread."""

_MAX_WORKERS = 32
_MAX_HALF_FLOAT = 65504.0


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
    sizes = [(f.header.height // downscale) * (f.header.width // downscale) for f in plan.frames]
    starts = [0, *accumulate(sizes)]
    pixels = _allocate((starts[-1], 4), torch.uint8)
    has_depth = any(f.side_files.depth for f in plan.frames)
    depth = _allocate((starts[-1],), torch.float16).zero_() if has_depth else None

    def decode(i: int) -> tuple[bool, int]:
        frame, span = plan.frames[i], slice(starts[i], starts[i + 1])
        out = pixels[span].numpy().reshape(frame.header.height // downscale, frame.header.width // downscale, 4)
        result = _decode_frame(frame, plan.settings.transparent, downscale, out)
        if depth is not None and frame.side_files.depth:
            depth[span] = _decode_depth(frame, plan.settings.depth_unit, downscale)
        return result

    results: dict[int, tuple[bool, int]] = {}
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
        has_alpha=any(has_alpha for has_alpha, _ in results.values()),
        n_masked=[results[i][1] for i in kept],
    )


def ignored_pixels(frame: PlannedFrame) -> Array | None:
    """[h, w] bool at the file's size: what the photograph's masks take out of training; None without masks.

    Raises:
        NerfleetError: a mask that cannot be decoded.
    """
    ignored: Array | None = None
    for mask in frame.side_files.masks:
        try:
            marked = decode_mask(mask.path, mask.header)
        except ImageError as error:
            raise NerfleetError(str(mask.path), str(error), "replace or remove the mask") from error
        marked = ~marked if mask.ignores_zero else marked
        ignored = marked if ignored is None else ignored | marked
    return ignored


def _decode_frame(frame: PlannedFrame, transparent: int | None, downscale: int, out: Array) -> tuple[bool, int]:
    """Fills ``out`` [h, w, 4]; returns (has alpha, number of masked pixels). Raises ImageError, NerfleetError."""
    header = frame.header
    full = out if downscale == 1 else np.empty((header.height, header.width, 4), np.uint8)
    decode_rgba(frame.image, header, full)
    if frame.side_files.alpha:
        path, alpha_header = frame.side_files.alpha
        alpha = np.empty_like(full)
        try:
            decode_rgba(path, alpha_header, alpha)
        except ImageError as error:
            raise NerfleetError(str(path), str(error), "replace or remove it") from error
        full[..., 3] = alpha[..., 0]
    if transparent is not None:
        full[(full[..., :3] == transparent).all(-1), 3] = 0
    ignored = ignored_pixels(frame)
    if ignored is not None:
        full[ignored] = MASKED_PIXEL
    if downscale > 1:
        out[...] = reduce_rgba(full, downscale)
    if int(out[..., 3].min()) == 255:
        return False, 0
    masked = is_masked(out)
    return bool(((out[..., 3] < 255) & ~masked).any()), int(masked.sum())


def _decode_depth(frame: PlannedFrame, unit: float, downscale: int) -> Tensor:
    """[h * w] float16, multiples of the unnormalised camera ray in internal units, 0 = unknown. Raises NerfleetError."""
    assert frame.side_files.depth is not None
    try:
        steps = decode_depth(frame.side_files.depth)
    except ImageError as error:
        raise NerfleetError(str(frame.side_files.depth), str(error), "replace it or set integer_depth_scale to -1") from error
    values = (reduce_depth(steps, downscale).astype(np.float32) * unit).clip(max=_MAX_HALF_FLOAT)
    return torch.from_numpy(values.astype(np.float16).reshape(-1))


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
    available = _available_bytes()
    remedy = "use --downscale 2 or more, or fewer photographs (n_frames)"
    if available is not None and n_bytes > available:
        raise NerfleetError("memory", f"the photographs need {n_bytes / 1e9:.1f} GB, {available / 1e9:.1f} GB are free", remedy)
    try:
        return torch.empty(shape, dtype=dtype)
    except RuntimeError as error:
        raise NerfleetError("memory", f"the photographs need {n_bytes / 1e9:.1f} GB, which cannot be had", remedy) from error


def _available_bytes() -> int | None:
    """Memory that can be had without swapping, as Linux estimates it; None elsewhere."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
