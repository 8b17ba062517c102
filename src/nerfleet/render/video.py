"""Frames to an MP4 that every browser and video editor plays: H.264, yuv420p, BT.709."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nerfleet.errors import NerfleetError
from nerfleet.render.develop import video_planes

PRESET = "veryfast"
"""Of libx264: three times as fast as its default on 1080p, for about a tenth more bytes at the same crf."""
_BT709, _SRGB_CURVE, _LIMITED = 1, 13, 1
"""Codes of ITU-T H.273 that players read."""


class VideoEncoder:
    """One MP4 in the making, by libx264 on all cores. Use :func:`video_encoder`, which names the file when it is complete."""

    def __init__(self, container: Any, path: Path, fps: float, crf: int) -> None:
        self.container, self.path, self.fps, self.crf = container, path, fps, crf
        self.stream: Any = None
        self.n_frames = 0

    def write(self, planes: NDArray[np.uint8]) -> None:
        """Encode the next frame, as :func:`nerfleet.render.develop.video_planes` makes it; all must have one size."""
        import av

        height, width = 2 * planes.shape[0] // 3, planes.shape[1]
        if self.stream is None:
            self.stream = self._new_stream(width, height)
        if (width, height) != (self.stream.width, self.stream.height):
            size = f"is {width} x {height}, the first was {self.stream.width} x {self.stream.height}"
            raise NerfleetError(f"{self.path}, frame {self.n_frames}", size, "render all in one size")
        frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
        frame.pts = self.n_frames
        self.container.mux(self.stream.encode(frame))
        self.n_frames += 1

    def finish(self) -> None:
        """Write the frames that the encoder still holds."""
        if self.stream is not None:
            self.container.mux(self.stream.encode())

    def _new_stream(self, width: int, height: int) -> Any:
        rate = Fraction(self.fps).limit_denominator(1001)
        stream = self.container.add_stream("libx264", rate=rate, options={"crf": str(self.crf), "preset": PRESET})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        context = stream.codec_context
        context.time_base = 1 / rate
        context.thread_count = 0  # as many as there are cores
        context.thread_type = "FRAME"  # slices of one frame would keep few of them busy
        context.colorspace, context.color_primaries, context.color_trc, context.color_range = _BT709, _BT709, _SRGB_CURVE, _LIMITED
        return stream


@contextlib.contextmanager
def video_encoder(path: Path, fps: float = 30.0, crf: int = 18) -> Iterator[VideoEncoder]:
    """An encoder for ``path``; the file appears under its name when the block ends without an error.

    Args:
        path: the .mp4 to write; an existing one is replaced.
        fps: frames a second.
        crf: 0 (lossless) to 51; 18 looks like the original.

    Raises:
        NerfleetError: no frames, PyAV not installed, or the encoder refuses.
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
            encoder = VideoEncoder(container, path, fps, crf)
            yield encoder
            encoder.finish()
        if encoder.n_frames == 0:
            raise NerfleetError(str(path), "there are no frames", "render at least one")
        os.replace(temporary, path)
    except av.error.FFmpegError as error:
        raise NerfleetError(str(path), f"cannot be encoded ({error})", "check the folder, the size and free space") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_video(path: Path, frames: Iterable[NDArray[np.uint8]], fps: float = 30.0, crf: int = 18) -> int:
    """Encode pictures as they come. Arguments and errors as :func:`video_encoder`.

    Args:
        frames: uint8 [h, w, 3] sRGB, all of one size. An odd edge gains one repeated row or column (yuv420p needs even ones).

    Returns:
        The number of frames written.
    """
    shape: tuple[int, ...] | None = None
    with video_encoder(path, fps, crf) as encoder:
        for frame in frames:
            if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
                raise NerfleetError(f"{path}, frame {encoder.n_frames}", f"is {frame.dtype} {frame.shape}", "give uint8 [h, w, 3]")
            shape = shape or frame.shape
            if frame.shape != shape:
                raise NerfleetError(f"{path}, frame {encoder.n_frames}", f"is {frame.shape}, the first was {shape}", "render all in one size")
            encoder.write(video_planes(torch.from_numpy(np.ascontiguousarray(frame))).numpy())
    return encoder.n_frames
