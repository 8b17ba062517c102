"""Frames to an MP4 that every browser and video editor plays: H.264, yuv420p."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nerfleet.errors import NerfleetError


def write_video(path: Path, frames: Iterable[NDArray[np.uint8]], fps: float = 30.0, crf: int = 18) -> int:
    """Encode frames as they come; the file appears under its name only when it is complete.

    Args:
        path: the .mp4 to write; an existing one is replaced.
        frames: uint8 [h, w, 3] sRGB, all of one size. An odd edge gains one repeated row or column (yuv420p needs even ones).
        fps: frames a second.
        crf: 0 (lossless) to 51; 18 looks like the original.

    Returns:
        The number of frames written.

    Raises:
        NerfleetError: no frames, frames of different sizes or types, PyAV not installed, or the encoder refuses.
    """
    try:
        import av
    except ImportError as error:
        raise NerfleetError(str(path), "video needs PyAV", "pip install av, or write pictures instead") from error
    if fps <= 0:
        raise NerfleetError(str(path), f"{fps} frames a second", "give a positive number")
    temporary = path.with_name(path.name + ".part")
    try:
        with av.open(str(temporary), "w", format="mp4", options={"movflags": "faststart"}) as container:
            n_frames = _encode(container, path, frames, fps, crf)
        if n_frames == 0:
            raise NerfleetError(str(path), "there are no frames", "render at least one")
        os.replace(temporary, path)
    except av.error.FFmpegError as error:
        raise NerfleetError(str(path), f"cannot be encoded ({error})", "check the folder, the size and free space") from error
    finally:
        temporary.unlink(missing_ok=True)
    return n_frames


def _encode(container: Any, path: Path, frames: Iterable[NDArray[np.uint8]], fps: float, crf: int) -> int:
    """Feed all frames to a new stream of ``container``."""
    import av

    stream, shape, n_frames = None, (0, 0, 0), 0
    for frame in frames:
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise NerfleetError(f"{path}, frame {n_frames}", f"is {frame.dtype} {frame.shape}", "give uint8 [h, w, 3]")
        if stream is None:
            shape = frame.shape
            stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001))
            stream.width, stream.height = shape[1] + shape[1] % 2, shape[0] + shape[0] % 2
            stream.pix_fmt = "yuv420p"
            stream.options = {"crf": str(crf), "preset": "medium"}
        if frame.shape != shape:
            raise NerfleetError(f"{path}, frame {n_frames}", f"is {frame.shape}, the first was {shape}", "render all in one size")
        even = np.pad(frame, ((0, shape[0] % 2), (0, shape[1] % 2), (0, 0)), mode="edge")
        container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")))
        n_frames += 1
    if stream is not None:
        container.mux(stream.encode())
    return n_frames
