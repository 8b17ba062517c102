"""What a snapshot tells about its scene: written and read back; parts that are missing or damaged count as not told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support.models import ball_model

from nerfleet.data.scene import Scene
from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras, Lens
from nerfleet.geometry.poses import SceneTransform
from nerfleet.snapshot.placement import read_placement
from nerfleet.snapshot.write import snapshot_document

TRANSFORM = SceneTransform(0.16, (0.0, 0.4, 0.0), True)


def document() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    params = torch.zeros(3, N_LENS_PARAMS)
    params[1, :4], params[2, :4] = torch.tensor([0.1, -0.05, 0.001, 0.002]), torch.tensor([0.1, 0.05, 0.01, 0.02])
    lens = torch.tensor([Lens.PERSPECTIVE, Lens.OPENCV, Lens.OPENCV_FISHEYE], dtype=torch.int32)
    poses = torch.linalg.qr(torch.randn(3, 3, 3, generator=generator))[0]
    cameras = Cameras(
        torch.cat([poses, torch.rand(3, 3, 1, generator=generator)], -1), torch.tensor([[50.0, 51], [60, 61], [70, 71]]),
        torch.tensor([[15.0, 11], [16, 12], [17, 13]]), torch.tensor([[32, 24]] * 3, dtype=torch.int32), lens, params,
    )  # fmt: skip
    pixels, offsets = torch.zeros(3 * 32 * 24, 4, dtype=torch.uint8), torch.arange(4) * 32 * 24
    scene = Scene("three", None, "train", ("a", "b", "c"), cameras, pixels, offsets, 1, TRANSFORM, up=(0.0, 1.0, 0.0))
    return snapshot_document(ball_model(), scene=scene) | {"cameras": cameras}


def test_what_is_written_is_told() -> None:
    whole = document()
    cameras = whole.pop("cameras")
    found = read_placement(whole)
    assert found.transform is not None
    assert found.cameras is not None
    assert found.transform.scale == pytest.approx(0.16)
    assert found.transform.offset == pytest.approx((0.0, 0.4, 0.0))
    assert found.transform.from_mitsuba
    assert found.up == pytest.approx((0.0, 1.0, 0.0))  # of internal axes: this kind of scene is not cycled
    for name in ("camera_to_world", "focal", "principal", "resolution", "lens", "lens_params"):
        assert torch.allclose(getattr(found.cameras, name).double(), getattr(cameras, name).double(), atol=1e-5), name


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("xforms"), lambda d: d["xforms"].pop(), lambda d: d["metadata"].pop(), lambda d: d["metadata"][0].update(focal_length=[0, 5]),
        lambda d: d["metadata"][1].update(lens={"k1": "x"}), lambda d: d["metadata"][1].update(lens={"k1": float("nan")}),
        lambda d: d["metadata"][0].update(resolution=[0, 24]), lambda d: d["metadata"][0].update(principal_point="middle"),
        lambda d: d["xforms"][0].update(start=[[1, 0], [0, 1]]), lambda d: d["xforms"].__setitem__(0, 5), lambda d: d["metadata"].__setitem__(0, None),
    ],
)  # fmt: skip
def test_damaged_cameras_are_not_told(change: Change) -> None:
    whole = document()
    change(whole["snapshot"]["nerf"]["dataset"])
    found = read_placement(whole)
    assert found.cameras is None
    assert found.transform is not None


@pytest.mark.parametrize(
    "change", [lambda d: d.pop("scale"), lambda d: d.update(scale=0.0), lambda d: d.update(scale="big"), lambda d: d.update(offset=[1, 2])]
)
def test_damaged_places_are_not_told(change: Change) -> None:
    whole = document()
    change(whole["snapshot"]["nerf"]["dataset"])
    found = read_placement(whole)
    assert found.transform is None
    assert found.cameras is not None


def test_a_snapshot_without_a_scene_tells_nothing() -> None:
    for whole in ({}, {"snapshot": 5}, {"snapshot": {"nerf": {}}}, snapshot_document(ball_model())):
        found = read_placement(whole)
        assert (found.transform, found.cameras, found.up) == (None, None, (0.0, 1.0, 0.0))
