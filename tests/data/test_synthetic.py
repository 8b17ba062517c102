"""The built-in scene: exact depth and surface, alpha, masks, files, and that its views really differ."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nerfleet.data import load_scene
from nerfleet.data.scene import Scene
from nerfleet.data.synthetic import (
    object_masks,
    signed_distance,
    synthetic_scene,
    trace_surface,
    write_scene,
)
from nerfleet.data.synthetic_still_life import N_GROUND_PRIMITIVES, still_life
from nerfleet.errors import NerfleetError


@pytest.fixture(scope="module")
def train() -> Scene:
    return synthetic_scene("train", 60, 128, 128)


@pytest.fixture(scope="module")
def test_views() -> Scene:
    return synthetic_scene("test", 12, 128, 128)


def hit_points(scene: Scene) -> tuple[torch.Tensor, torch.Tensor]:
    """Surface points [m, 3] in internal space and the primitive of each."""
    depth, primitive = trace_surface(scene.cameras)
    n, h, w = depth.shape
    v, u = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
    pose, focal, principal = (x.double() for x in (scene.cameras.camera_to_world, scene.cameras.focal, scene.cameras.principal))
    x = (u[None] - principal[:, 0, None, None]) / focal[:, 0, None, None]
    y = (v[None] - principal[:, 1, None, None]) / focal[:, 1, None, None]
    ray = torch.stack([x, y, torch.ones_like(x)], dim=-1)
    world = torch.einsum("nij,nhwj->nhwi", pose[:, :, :3], ray) * depth[..., None] + pose[:, None, None, :, 3]
    return world[primitive >= 0], primitive[primitive >= 0]


def on_black(scene: Scene) -> torch.Tensor:
    """[n, pixels, 3] sRGB over black, alpha applied in linear light."""
    pixels = scene.pixels.reshape(len(scene), -1, 4).double() / 255
    rgb = pixels[..., :3]
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) * pixels[..., 3:]
    return torch.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear.clamp_min(1e-12) ** (1 / 2.4) - 0.055)


def test_shapes_and_names(test_views: Scene) -> None:
    assert test_views.names[:2] == ("test/view_000", "test/view_001")
    assert len(test_views) == 12
    assert test_views.pixels.shape == (12 * 128 * 128, 4)
    assert test_views.pixels.dtype == torch.uint8
    assert test_views.depth is not None
    assert test_views.depth.dtype == torch.float16
    assert test_views.pixel_offsets.tolist() == [i * 128 * 128 for i in range(13)]
    assert test_views.image(3).shape == (128, 128, 4)
    assert test_views.aabb_scale == 1
    assert test_views.has_alpha


def test_cameras_are_rotations_above_the_table_outside_the_cube(train: Scene) -> None:
    pose = train.cameras.camera_to_world
    rotation, position = pose[:, :, :3], pose[:, :, 3]
    assert torch.allclose(rotation @ rotation.transpose(1, 2), torch.eye(3).expand(60, 3, 3), atol=1e-5)
    assert torch.allclose(torch.linalg.det(rotation), torch.ones(60), atol=1e-5)
    assert (rotation[:, 1, 1] < 0).all(), "the image's y axis must point down"
    assert (position[:, 1] > still_life().table_height).all()
    assert ((position - 0.5).abs().amax(1) > 0.5).all()


def test_depth_lies_on_the_exact_surface(train: Scene) -> None:
    points, primitive = hit_points(train)
    assert len(points) > 200_000
    assert len(primitive.unique()) == still_life().n_primitives, "every solid is seen"
    assert signed_distance(points).abs().max() < 1e-5
    ground = primitive < N_GROUND_PRIMITIVES
    assert signed_distance(points[ground], "ground").abs().max() < 1e-5
    assert signed_distance(points[~ground], "object").abs().max() < 1e-5
    assert ((points > 0.02) & (points < 0.98)).all(), "all of it lies inside the unit cube"


def test_stored_depth_is_the_rounded_exact_depth(test_views: Scene) -> None:
    exact, _ = trace_surface(test_views.cameras)
    assert test_views.depth is not None
    torch.testing.assert_close(test_views.depth.double(), exact.reshape(-1), rtol=2**-11, atol=0)


def test_signed_distance_is_a_distance() -> None:
    points = torch.rand(4000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_(False)
    step = 1e-4 * torch.nn.functional.normalize(torch.randn(4000, 3, generator=torch.Generator().manual_seed(1)).double(), dim=1)
    slope = (signed_distance(points + step) - signed_distance(points)).abs() / 1e-4
    assert slope.max() <= 1 + 1e-6
    both = torch.minimum(signed_distance(points, "object"), signed_distance(points, "ground"))
    assert torch.equal(both, signed_distance(points))
    assert signed_distance(torch.tensor([[0.5, 0.27, 0.5], [0.5, 0.9, 0.5]])).sign().tolist() == [-1, 1]


def test_signed_distance_by_hand() -> None:
    """Above the table's middle of the top face, and a point on the axis under it (thickness 0.04, top at 0.28)."""
    values = signed_distance(torch.tensor([[0.5, 0.19, 0.5], [0.5, 0.27, 0.5]], dtype=torch.float64), "ground")
    assert values.tolist() == pytest.approx([0.05, -0.01], abs=1e-12)


def test_alpha_is_zero_where_nothing_is_hit_and_fractional_at_edges(test_views: Scene) -> None:
    alpha = test_views.pixels[:, 3]
    assert test_views.depth is not None
    assert (test_views.depth[alpha == 0] == 0).all()
    assert (test_views.pixels[alpha == 0] == 0).all()
    assert (test_views.depth[alpha == 255] > 0).all()
    fractional = ((alpha > 0) & (alpha < 255)).float().mean()
    assert 0.01 < fractional < 0.1
    assert 0.25 < (alpha > 0).float().mean() < 0.7


def test_object_masks_separate_objects_from_the_table(test_views: Scene) -> None:
    masks = object_masks(test_views)
    assert masks.shape == (12, 128, 128)
    assert masks.dtype == torch.bool
    assert 0.08 < masks.float().mean() < 0.4
    alpha = test_views.pixels[:, 3].reshape(12, 128, 128)
    assert (alpha[masks] > 0).all()
    table = (alpha == 255) & ~masks
    assert table.flatten(1).any(1).all()
    assert masks.flatten(1).any(1).all()


def test_nearest_training_photograph_is_a_poor_rendering(train: Scene, test_views: Scene) -> None:
    """Even the best of all training photographs must not pass for a rendering (issue: <= 18 dB)."""
    photographs, held_out = on_black(train).float(), on_black(test_views).float()
    error = torch.stack([((photographs - view) ** 2).mean((1, 2)) for view in held_out])
    psnr = -10 * torch.log10(error)
    assert psnr.amax(1).mean() <= 17
    assert psnr.amax(1).min() > 5


def test_splits_and_seeds_differ_and_repeat() -> None:
    kwargs = {"n_views": 4, "width": 24, "height": 16, "supersample": 2}
    first, again = synthetic_scene("train", **kwargs), synthetic_scene("train", **kwargs)
    assert torch.equal(first.pixels, again.pixels)
    for other in (synthetic_scene("val", **kwargs), synthetic_scene("train", seed=1, **kwargs)):
        assert not torch.equal(first.cameras.camera_to_world, other.cameras.camera_to_world)
        assert not torch.equal(first.pixels, other.pixels)


def test_more_samples_converge_to_the_same_picture() -> None:
    coarse, fine = (synthetic_scene("val", 2, 64, 64, supersample=s).pixels.double() / 255 for s in (3, 8))
    error = ((coarse[:, :3] * coarse[:, 3:] - fine[:, :3] * fine[:, 3:]) ** 2).mean()
    assert 0 < error < 10**-3.0


@pytest.mark.parametrize("bad", [{"split": "tets"}, {"n_views": 0}, {"width": -3}, {"supersample": 0}])
def test_bad_requests_are_named(bad: dict[str, object]) -> None:
    with pytest.raises(NerfleetError, match="built-in scene"):
        synthetic_scene(**bad)  # type: ignore[arg-type]


def test_written_files_hold_the_scene(tmp_path: Path) -> None:
    from PIL import Image

    write_scene(tmp_path, n_train=3, n_val=0, n_test=2, width=40, height=30)
    scene = synthetic_scene("train", 3, 40, 30)
    document = json.loads((tmp_path / "transforms_train.json").read_text())
    assert [frame["file_path"] for frame in document["frames"]] == [f"./{name}" for name in scene.names]
    assert not (tmp_path / "transforms_val.json").exists()
    assert not list(tmp_path.rglob("*.part"))
    stored = np.asarray(Image.open(tmp_path / "train/view_001.png"))
    assert np.array_equal(stored, scene.image(1).numpy())
    pose = np.array(document["frames"][0]["transform_matrix"])
    internal = scene.cameras.camera_to_world[0].numpy()
    x, y, z = pose[:3, 3] * 0.33 + 0.5
    assert np.allclose(internal[:, 3], (y, z, x), atol=1e-6)
    assert np.allclose(internal[:, 2], -pose[[1, 2, 0], 2], atol=1e-6), "the camera looks along -z in the file"


def test_written_scene_reads_back(tmp_path: Path) -> None:
    write_scene(tmp_path, n_train=3, n_val=0, n_test=2, width=40, height=30)
    for split, n_views in (("train", 3), ("test", 2)):
        scene, read = synthetic_scene(split, n_views, 40, 30), load_scene(tmp_path, split=split)
        assert torch.equal(read.pixels, scene.pixels)
        assert read.aabb_scale == 1
        for name in ("camera_to_world", "focal", "principal"):
            torch.testing.assert_close(getattr(read.cameras, name), getattr(scene.cameras, name), rtol=1e-5, atol=1e-5)
        assert torch.equal(read.cameras.resolution, scene.cameras.resolution)
