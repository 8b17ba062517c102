"""A thin lens: rays meet in the plane in focus, and only there."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from tests.support.models import ball_model, front_camera

from nerfleet.geometry.box import scene_box
from nerfleet.render.depth_of_field import ThinLens, disk, pixel_noise, through_lens
from nerfleet.render.renderer import render_image


def test_disk_fills_the_unit_circle_evenly() -> None:
    axis = (torch.arange(200) + 0.5) / 200
    points = disk(torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 2))
    radius = points.norm(dim=-1)
    assert radius.max() <= 1
    assert (radius < 0.5).float().mean() == pytest.approx(0.25, abs=0.01)
    assert points.mean(0).abs().max() < 1e-3
    assert (points[:, 0] > 0).float().mean() == pytest.approx(0.5, abs=0.01)
    assert disk(torch.tensor([0.5, 0.5])).tolist() == [0.0, 0.0]


def test_rays_meet_in_the_plane_in_focus() -> None:
    camera, n = front_camera(), 500
    pose = camera.camera_to_world[0]
    origins = pose[:, 3].expand(n, 3)
    directions = torch.nn.functional.normalize(torch.tensor([0.2, -0.1, 1.0]), dim=0).expand(n, 3)
    lens = ThinLens(0.05, 1.5)
    box = scene_box(1)
    moved, aimed, starts = through_lens(origins, directions, pose, lens, pixel_noise(n, torch.device("cpu")), 0, 0.5, box, 0.0)
    offset = (moved - origins).norm(dim=-1)
    assert 0.9 * lens.aperture < offset.max() <= lens.aperture
    assert (moved - origins)[:, 2].abs().max() < 1e-6, "the lens stands across the axis"
    in_focus = moved + aimed * (lens.focus / aimed[:, 2:])
    expected = origins + directions * (lens.focus / directions[:, 2:])
    assert torch.allclose(in_focus, expected, atol=1e-5)
    assert torch.allclose(aimed.norm(dim=-1), torch.ones(n), atol=1e-6)
    assert (starts > 0).all()


def test_rays_to_the_side_pass_the_middle() -> None:
    sideways = torch.tensor([[1.0, 0.0, 0.0]])
    moved, aimed, _ = through_lens(torch.zeros(1, 3), sideways, torch.eye(3, 4), ThinLens(0.1, 1.0), torch.rand(1, 2), 3, 0.5, scene_box(1), 0.0)
    assert torch.equal(aimed, sideways)
    assert not moved.any()


def test_blur_softens_what_is_out_of_focus_only() -> None:
    model, camera = ball_model(radius=0.2), front_camera(24, 18)
    sharp = render_image(model, camera, spp=8).alpha
    focused = render_image(model, camera, spp=8, thin_lens=ThinLens(0.05, 1.5)).alpha
    blurred = render_image(model, camera, spp=8, thin_lens=ThinLens(0.2, 0.7)).alpha
    assert (focused - sharp).abs().mean() < 0.4 * (blurred - sharp).abs().mean()
    soft = [float(((alpha > 0.05) & (alpha < 0.95)).float().sum()) for alpha in (sharp, blurred)]
    assert soft[1] > 1.5 * soft[0]
    assert blurred.mean() == pytest.approx(float(sharp.mean()), rel=0.25)


def test_a_pinhole_changes_nothing() -> None:
    model, camera = ball_model(), front_camera(8, 6)
    without = render_image(model, camera).rgb
    for lens in (ThinLens(), ThinLens(0.0, 2.0), ThinLens(0.1, 0.0)):
        assert torch.equal(render_image(model, camera, thin_lens=lens).rgb, without)


def test_noise_is_the_same_for_every_picture() -> None:
    device = torch.device("cpu")
    assert torch.equal(pixel_noise(50, device), pixel_noise(50, device))
    model, camera = ball_model(), front_camera(8, 6)
    lens = dataclasses.replace(ThinLens(), aperture=0.1, focus=math.sqrt(2))
    assert torch.equal(render_image(model, camera, thin_lens=lens).rgb, render_image(model, camera, thin_lens=lens).rgb)
