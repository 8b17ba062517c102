"""Scenes that decode when they are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.support.scenes import write_cube_scene

from nerfleet.data import MASKED_PIXEL, load_scene
from nerfleet.data.on_demand import open_scene
from nerfleet.data.part import Part
from nerfleet.data.plan import plan_scene


@pytest.mark.parametrize("downscale", [1, 2])
def test_pictures_are_those_of_the_scene(downscale: int, tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path, rgba=True)
    expected, scene = load_scene(path, downscale=downscale), open_scene(plan_scene(path), downscale)
    assert scene.names == expected.names
    assert torch.equal(scene.pixel_offsets, expected.pixel_offsets)
    assert torch.equal(scene.cameras.camera_to_world, expected.cameras.camera_to_world)
    assert scene.notes == expected.notes
    for view in range(len(scene)):
        assert torch.equal(scene.image(view), expected.image(view))
    assert len(scene.pixels) == 0


def test_parts_share_out_all_pixels(tmp_path: Path) -> None:
    plan = plan_scene(write_cube_scene(tmp_path))
    edges = (0.0, 0.13, 0.5, 0.51, 1.0)
    parts = [open_scene(plan, 1, Part(a, b)) for a, b in zip(edges, edges[1:])]
    held = torch.cat([torch.arange(s.first, s.last) + part.pixel_offsets[s.view] for part in parts for s in part.shares])
    assert torch.equal(held, torch.arange(int(parts[0].pixel_offsets[-1])))


def test_a_damaged_photograph_is_masked_and_named(tmp_path: Path) -> None:
    scene = open_scene(plan_scene(write_cube_scene(tmp_path)))
    scene.plan.frames[2].image.write_bytes(b"no image")
    picture = scene.image(2)
    assert bool((picture == torch.tensor(MASKED_PIXEL, dtype=torch.uint8)).all())
    assert list(scene.failed) == [scene.names[2]]
