"""From the ring to the device: on a GPU, and the same logic with streams and events that finish when the test says so."""

from __future__ import annotations

import contextlib
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pipeline.scenes import CPU, cube_scene, on_demand, options, until

from nerfleet.data import load_scene
from nerfleet.pipeline import uploads
from nerfleet.pipeline.messages import Piece
from nerfleet.pipeline.pixel_pool import PixelPool
from nerfleet.pipeline.progressive import ProgressivePhotographs
from nerfleet.pipeline.uploads import N_STAGES, Copy, CudaUploads

GPU = torch.device("cuda")


class LateEvent:
    """Reached when ``reached`` is set."""

    made: list[LateEvent] = []

    def __init__(self) -> None:
        self.reached = False
        LateEvent.made.append(self)

    def record(self, stream: object = None) -> None:
        self.reached = False

    def query(self) -> bool:
        return self.reached


class Stream:
    """Remembers what it was told to wait for."""

    def __init__(self, device: object = None) -> None:
        self.waited: list[LateEvent] = []

    def wait_event(self, event: LateEvent) -> None:
        self.waited.append(event)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[LateEvent]:
    """Events that the test lets happen; copies happen at once."""
    monkeypatch.setattr(LateEvent, "made", [])
    cuda = types.SimpleNamespace(Event=LateEvent, Stream=Stream, stream=lambda _: contextlib.nullcontext())
    monkeypatch.setattr(uploads, "torch", types.SimpleNamespace(cuda=cuda, empty=torch.empty, uint8=torch.uint8, frombuffer=torch.frombuffer))
    return LateEvent.made


def piece(number: int) -> Any:
    return types.SimpleNamespace(piece=Piece(number, 0, 0, 2))


def copies(value: int, colours: torch.Tensor, places: torch.Tensor) -> list[Copy]:
    return [Copy(memoryview(bytearray([value] * 8)), colours), Copy(memoryview(bytearray([value] * 8)), places)]


def test_colour_and_place_change_together_once_both_are_there(late: list[LateEvent]) -> None:
    one = CudaUploads(CPU, 64, staged=True)
    colours, places = torch.zeros(2, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int32)
    first = piece(1)
    one.put(first, copies(7, colours, places))
    assert one.finished() == []
    assert int(colours.sum()) == int(places.sum()) == 0
    late[0].reached = True
    assert one.finished() == [first]
    assert bool((colours == 7).all())
    assert bool((places.view(torch.uint8) == 7).all())
    assert one.finished() == []


def test_stages_are_used_again_only_after_their_move(late: list[LateEvent]) -> None:
    one = CudaUploads(CPU, 64, staged=True)
    colours, places = torch.zeros(2, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int32)
    for number in range(N_STAGES):
        assert one.ready()
        one.put(piece(number), copies(number + 1, colours, places))
    assert not one.ready()
    late[0].reached = True
    assert [arrived.piece.view for arrived in one.finished()] == [0]
    moved = late[-1]
    assert one.ready()
    one.put(piece(9), copies(9, colours, places))
    assert one._stream.waited == [moved]
    assert int(colours[0, 0]) == 1
    for event in late:
        event.reached = True
    assert [arrived.piece.view for arrived in one.finished()] == [1, 2, 3, 9]
    assert int(colours[0, 0]) == 9


def test_whole_photographs_need_no_stage(late: list[LateEvent]) -> None:
    one = CudaUploads(CPU, 64, staged=False)
    colours = torch.zeros(2, 4, dtype=torch.uint8)
    for number in range(3 * N_STAGES):
        assert one.ready()
        one.put(piece(number), [Copy(memoryview(bytearray([5] * 8)), colours)])
    assert bool((colours == 5).all())
    assert one.finished() == []
    late[0].reached = True
    assert len(one.finished()) == 1


@pytest.mark.gpu
def test_progressive_on_a_gpu(tmp_path: Path) -> None:
    path = cube_scene(tmp_path, rgba=True)
    expected = load_scene(path, train_on_all=True)
    feed = ProgressivePhotographs(on_demand(path), GPU, options(2))
    try:
        until(feed, lambda: feed._closed)
    finally:
        feed.close()
    assert torch.equal(feed.pixels.cpu(), expected.pixels)
    assert torch.equal(feed.drawable.cpu(), expected.pixel_offsets)


@pytest.mark.gpu
def test_pool_on_a_gpu(tmp_path: Path) -> None:
    """Colours fit their places at every step, not only in the end."""
    path = cube_scene(tmp_path, rgba=True)
    every, scene = load_scene(path, train_on_all=True), on_demand(path)
    pixels, offsets = every.pixels.cuda(), every.pixel_offsets.cuda()
    feed = PixelPool(scene, GPU, 1200, options(2))
    view = torch.searchsorted(feed.offsets, torch.arange(len(feed.pixels), device=GPU), right=True) - 1
    wrong = torch.zeros((), dtype=torch.int64, device=GPU)

    def seen() -> bool:
        drawn = feed.drawable.diff()[view] > 0
        wrong.add_(((pixels[offsets[view] + feed.places] != feed.pixels).any(-1) & drawn).sum())
        return feed.report()["decoded_photographs"] > 5 * len(scene)

    try:
        until(feed, seen, rays=400)
    finally:
        feed.close()
    assert int(wrong) == 0


@pytest.mark.gpu
def test_taking_over_waits_for_nothing(tmp_path: Path) -> None:
    feed = PixelPool(on_demand(cube_scene(tmp_path)), GPU, 1200, options())
    try:
        until(feed, lambda: len(feed.ready) == 12)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mode announces itself as a prototype
            torch.cuda.set_sync_debug_mode("error")
            try:
                for _ in range(200):
                    feed.before_step(100)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    finally:
        feed.close()


@pytest.mark.gpu
def test_writer_on_a_gpu(tmp_path: Path) -> None:
    """What is handed over is of that moment, though the training's stream goes on."""
    import numpy as np

    from nerfleet.pipeline.writer import Writer

    tensor = torch.arange(3_000_000, device=GPU, dtype=torch.float32)
    writer = Writer(print, uploads.pin)
    try:
        done = writer.submit(np.savez, {"a": tensor}, str(tmp_path / "a.npz"))
        tensor.zero_()
        done.result(120)
    finally:
        writer.close()
    with np.load(tmp_path / "a.npz") as kept:
        assert np.array_equal(kept["a"], np.arange(3_000_000, dtype=np.float32))
