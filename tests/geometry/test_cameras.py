from __future__ import annotations

import math

import pytest
import torch

from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Cameras, Lens, pixel_rays, project

WIDTH, HEIGHT = 1080, 1920
OPENCV = [0.0578421, -0.0805099, -0.000980296, 0.00015575]  # a phone camera
FISHEYE = [0.03, -0.01, 0.002, -0.0005]


def cameras_with(lenses: list[tuple[Lens, list[float], float]]) -> Cameras:
    generator = torch.Generator().manual_seed(1)
    n = len(lenses)
    rotation, _ = torch.linalg.qr(torch.randn(n, 3, 3, generator=generator))
    params = torch.zeros(n, 7)
    for row, (_, values, _) in enumerate(lenses):
        params[row, : len(values)] = torch.tensor(values)
    return Cameras(
        camera_to_world=torch.cat([rotation, torch.rand(n, 3, 1, generator=generator)], dim=-1),
        focal=torch.tensor([[focal, focal * 0.99] for _, _, focal in lenses]),
        principal=torch.tensor([[554.558, 965.268]]).repeat(n, 1),
        resolution=torch.tensor([[WIDTH, HEIGHT]], dtype=torch.int32).repeat(n, 1),
        lens=torch.tensor([int(lens) for lens, _, _ in lenses], dtype=torch.int32),
        lens_params=params,
    )


MIXED = [(Lens.PERSPECTIVE, [], 1375.0), (Lens.OPENCV, OPENCV, 1375.0), (Lens.OPENCV_FISHEYE, FISHEYE, 900.0)]


def pixel_grid(n_cameras: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.meshgrid(torch.linspace(0.5, WIDTH - 0.5, 23), torch.linspace(0.5, HEIGHT - 0.5, 31), indexing="xy")
    pixels = torch.stack([x, y], dim=-1).reshape(-1, 2).to(dtype)
    return torch.arange(n_cameras).repeat_interleave(len(pixels)), pixels.repeat(n_cameras, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lenses", [MIXED, MIXED[:1], MIXED[1:2], MIXED[2:]], ids=["mixed", "perspective", "opencv", "fisheye"])
def test_pixel_to_ray_to_pixel(lenses: list[tuple[Lens, list[float], float]], dtype: torch.dtype) -> None:
    cameras = cameras_with(lenses)
    indices, pixels = pixel_grid(len(lenses), dtype)
    origins, directions = pixel_rays(cameras, indices, pixels)
    assert origins.dtype == directions.dtype == dtype
    back, in_front = project(cameras, indices, origins + 1.7 * directions)
    assert in_front.all()
    assert (back - pixels).abs().max() < 1e-3


def scalar_ray(lens: Lens, params: list[float], x: float, y: float) -> tuple[float, float, float]:
    """The camera-space ray of one image-plane point, by fixed-point iteration or bisection in plain Python."""
    if lens == Lens.OPENCV:
        k1, k2, p1, p2 = params
        u, v = x, y
        for _ in range(200):
            r2 = u * u + v * v
            radial = 1 + k1 * r2 + k2 * r2 * r2
            tangential_u = 2 * p1 * u * v + p2 * (r2 + 2 * u * u)
            tangential_v = 2 * p2 * u * v + p1 * (r2 + 2 * v * v)
            u, v = (x - tangential_u) / radial, (y - tangential_v) / radial
        return u, v, 1.0
    if lens == Lens.OPENCV_FISHEYE:
        radius, low, high = math.hypot(x, y), 0.0, math.pi / 2
        for _ in range(100):
            middle = (low + high) / 2
            theta_d = middle * (1 + sum(k * middle ** (2 * i + 2) for i, k in enumerate(params)))
            low, high = (middle, high) if theta_d < radius else (low, middle)
        return x * math.tan(low) / radius, y * math.tan(low) / radius, 1.0
    return x, y, 1.0


def test_rays_against_a_scalar_loop() -> None:
    cameras = cameras_with(MIXED)
    pixels = torch.tensor([[0.5, 0.5], [700.25, 300.75], [1079.5, 1919.5]], dtype=torch.float64)
    for camera, (lens, params, _) in enumerate(MIXED):
        origins, directions = pixel_rays(cameras, torch.full((3,), camera), pixels)
        fx, fy = cameras.focal[camera].double().tolist()
        cx, cy = cameras.principal[camera].double().tolist()
        params = cameras.lens_params[camera, : len(params)].double().tolist()
        pose = cameras.camera_to_world[camera].double()
        for row, (px, py) in enumerate(pixels.tolist()):
            ray = scalar_ray(lens, params, (px - cx) / fx, (py - cy) / fy)
            expected = pose[:, :3] @ torch.tensor(ray, dtype=torch.float64)
            torch.testing.assert_close(directions[row], expected, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(origins[row], pose[:, 3])


def test_no_rays_at_all() -> None:
    for lenses in (MIXED, MIXED[1:2], MIXED[2:]):
        none = torch.zeros(0, dtype=torch.long)
        origins, directions = pixel_rays(cameras_with(lenses), none, torch.zeros(0, 2))
        assert origins.shape == directions.shape == (0, 3)
        assert project(cameras_with(lenses), none, origins)[0].shape == (0, 2)


def test_strong_distortion() -> None:
    """A wide-angle action camera: the corners move by a third."""
    cameras = cameras_with([(Lens.OPENCV, [-0.16, 0.02, 0.002, -0.001], 900.0)])
    indices, pixels = pixel_grid(1, torch.float32)
    origins, directions = pixel_rays(cameras, indices, pixels)
    back, in_front = project(cameras, indices, origins + directions)
    assert in_front.all()
    assert (back - pixels).abs().max() < 1e-3


def test_direction_has_unit_depth() -> None:
    cameras = cameras_with(MIXED)
    indices, pixels = pixel_grid(3, torch.float64)
    _, directions = pixel_rays(cameras, indices, pixels)
    depth = (directions * cameras.camera_to_world.double()[indices, :, 2]).sum(-1)
    torch.testing.assert_close(depth, torch.ones_like(depth), rtol=1e-6, atol=1e-6)


def test_fisheye_beyond_ninety_degrees() -> None:
    cameras = cameras_with([(Lens.OPENCV_FISHEYE, [0.0] * 4, 500.0)])
    pixels = torch.tensor([[554.558 + 500 * math.radians(120), 965.268]], dtype=torch.float64)
    origins, directions = pixel_rays(cameras, torch.zeros(1, dtype=torch.long), pixels)
    cosine = (directions * cameras.camera_to_world.double()[0, :, 2]).sum() / directions.norm()
    assert abs(math.degrees(math.acos(cosine)) - 120) < 1e-3
    back, in_front = project(cameras, torch.zeros(1, dtype=torch.long), origins + directions)
    assert in_front.all()
    assert (back - pixels).abs().max() < 1e-3


def test_points_behind_or_past_the_fold_are_not_in_front() -> None:
    cameras = cameras_with([(Lens.OPENCV, OPENCV, 1375.0)])
    axis, side, centre = cameras.camera_to_world[0, :, 2], cameras.camera_to_world[0, :, 0], cameras.camera_to_world[0, :, 3]
    points = torch.stack([centre + axis, centre - axis, centre + axis + 3 * side])
    _, in_front = project(cameras, torch.zeros(3, dtype=torch.long), points)
    assert in_front.tolist() == [True, False, False]


def test_lens_of_a_later_issue_is_refused_by_name() -> None:
    cameras = cameras_with([(Lens.LATLONG, [], 1.0)])
    with pytest.raises(NerfleetError, match="LATLONG.*not supported yet"):
        pixel_rays(cameras, torch.zeros(1, dtype=torch.long), torch.zeros(1, 2))
