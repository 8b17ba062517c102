"""A written video reads back as what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nerfleet.errors import NerfleetError
from nerfleet.render.video import write_video

av = pytest.importorskip("av", reason="PyAV is not installed")


def ramp(height: int, width: int, n: int) -> list[NDArray[np.uint8]]:
    """Smooth grey frames, a little brighter each time."""
    base = np.linspace(20, 180, width)[None, :, None] + np.zeros((height, 1, 3))
    return [(base + 4 * i).astype(np.uint8) for i in range(n)]


@pytest.mark.parametrize(("height", "width"), [(48, 64), (33, 47)])
def test_reads_back(tmp_path: Path, height: int, width: int) -> None:
    frames = ramp(height, width, 12)
    assert write_video(tmp_path / "a.mp4", iter(frames), fps=24, crf=10) == 12
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        assert (context.name, context.pix_fmt, stream.average_rate) == ("h264", "yuv420p", 24)
        assert (context.width, context.height) == (width + width % 2, height + height % 2)
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(decoded) == 12
    for written, read in zip(frames, decoded):
        assert np.abs(read[:height, :width].astype(int) - written).mean() < 3


def test_fractional_rate(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", ramp(16, 16, 5), fps=29.97)
    with av.open(str(tmp_path / "a.mp4")) as container:
        assert float(container.streams.video[0].average_rate) == pytest.approx(29.97, abs=0.01)


def test_lower_crf_keeps_more(tmp_path: Path) -> None:
    noise = [np.random.default_rng(i).integers(0, 255, (64, 64, 3)).astype(np.uint8) for i in range(3)]
    write_video(tmp_path / "fine.mp4", noise, crf=10)
    write_video(tmp_path / "rough.mp4", noise, crf=40)
    assert (tmp_path / "fine.mp4").stat().st_size > 2 * (tmp_path / "rough.mp4").stat().st_size


def test_failing_frames_leave_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def interrupted() -> Iterator[NDArray[np.uint8]]:
        yield from ramp(16, 16, 2)
        raise RuntimeError("renderer stopped")

    write_video(tmp_path / "a.mp4", ramp(16, 16, 2))
    before = (tmp_path / "a.mp4").read_bytes()
    with pytest.raises(RuntimeError, match="renderer stopped"):
        write_video(tmp_path / "a.mp4", interrupted())
    assert (tmp_path / "a.mp4").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize(
    ("frames", "fps", "message"),
    [
        ([], 30, "no frames"),
        ([np.zeros((16, 16, 3), np.float32)], 30, "float32"),
        ([np.zeros((16, 16, 4), np.uint8)], 30, "frame 0"),
        ([np.zeros((16, 16, 3), np.uint8), np.zeros((16, 18, 3), np.uint8)], 30, "frame 1"),
        ([np.zeros((16, 16, 3), np.uint8)], 0, "frames a second"),
    ],
)
def test_bad_input_is_named_and_writes_nothing(tmp_path: Path, frames: list[np.ndarray], fps: float, message: str) -> None:
    with pytest.raises(NerfleetError, match=message):
        write_video(tmp_path / "a.mp4", frames, fps=fps)
    assert not list(tmp_path.iterdir())


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(NerfleetError, match="nowhere"):
        write_video(tmp_path / "nowhere" / "a.mp4", ramp(16, 16, 1))
