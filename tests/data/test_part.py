"""A part of a scene: all cameras, a range of the pixels, the same whether it is cut from memory or decoded alone."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tests.support.scenes import write_cube_scene

from nerfleet.data import load_scene
from nerfleet.data.part import Part, pixel_range, take_part
from nerfleet.data.scene import Scene
from nerfleet.errors import NerfleetError

EDGES = [0.0, 0.1, 0.47, 0.5, 0.93, 1.0]


def view_of(scene: Scene, pixel: int) -> tuple[int, int]:
    """(view, pixel inside it) as the training rays find it."""
    view = int(torch.searchsorted(scene.pixel_offsets, torch.tensor(pixel), right=True)) - 1
    return view, pixel - int(scene.pixel_offsets[view])


def test_decoded_parts_make_the_whole(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "cube")
    whole = load_scene(path, train_on_all=True)
    for cut in (False, True):
        parts = [Part(a, b) for a, b in pairwise(EDGES)]
        scenes = [take_part(whole, part) if cut else load_scene(path, train_on_all=True, part=part) for part in parts]
        assert torch.equal(torch.cat([scene.pixels for scene in scenes]), whole.pixels)
        begin = 0
        for scene in scenes:
            assert scene.names == whole.names
            assert torch.equal(scene.cameras.camera_to_world, whole.cameras.camera_to_world)
            for pixel in (0, len(scene.pixels) // 2, len(scene.pixels) - 1):
                assert view_of(scene, pixel) == view_of(whole, begin + pixel)
            begin += len(scene.pixels)


def test_a_photograph_that_one_part_cannot_decode_is_left_out_of_all(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "cube")
    damaged = tmp_path / "cube" / "images" / "0004.png"
    damaged.write_bytes(damaged.read_bytes()[:120])
    whole = load_scene(path, train_on_all=True)
    failed: dict[str, str] = {}
    for a, b in pairwise(EDGES):
        load_scene(path, train_on_all=True, part=Part(a, b, gather=lambda own: failed.update(own) or own))
    assert list(failed) == ["images/0004.png"]
    parts = [load_scene(path, train_on_all=True, part=Part(a, b, gather=lambda _: failed)) for a, b in pairwise(EDGES)]
    assert torch.equal(torch.cat([part.pixels for part in parts]), whole.pixels)
    begin = 0
    for part in parts:
        assert part.names == whole.names
        assert len(part.skipped) == 1
        for pixel in range(0, len(part.pixels), 50):
            assert view_of(part, pixel) == view_of(whole, begin + pixel)
        begin += len(part.pixels)


def test_too_many_ranks_for_the_pixels() -> None:
    with pytest.raises(NerfleetError, match="too few for so many ranks"):
        pixel_range(Part(0.0, 0.01), [3, 4])
