from __future__ import annotations

import torch

from nerfleet.geometry.cameras import Cameras
from nerfleet.geometry.poses import SceneTransform, cameras_to_file, remove_rotation_scale

POSE = torch.tensor([[0.0, -1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 1.0, 3.0]], dtype=torch.float64)


def random_poses(n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    rotation, _ = torch.linalg.qr(torch.randn(n, 3, 3, generator=generator, dtype=torch.float64))
    rotation = rotation * torch.linalg.det(rotation).sign()[:, None, None]
    return torch.cat([rotation, torch.randn(n, 3, 1, generator=generator, dtype=torch.float64)], dim=-1)


def test_pose_to_internal_by_hand() -> None:
    internal = SceneTransform(scale=0.5, offset=(0.1, 0.2, 0.3)).poses_to_internal(POSE[None])[0]
    # columns 2, 3 negated; translation * 0.5 + offset = (0.6, 1.2, 1.8); rows (y, z, x)
    expected = torch.tensor([[1.0, 0, 0, 1.2], [0, 0, -1, 1.8], [0, 1, 0, 0.6]], dtype=torch.float64)
    torch.testing.assert_close(internal, expected)


def test_mitsuba_pose_by_hand() -> None:
    internal = SceneTransform(0.66, (0.165, 0.165, 0.165), from_mitsuba=True).poses_to_internal(POSE[None])[0]
    expected = torch.tensor([[0, 1.0, 0, 0.825], [-1, 0, 0, 1.485], [0, 0, 1, 2.145]], dtype=torch.float64)
    torch.testing.assert_close(internal, expected)


def test_four_row_poses_equal_three_row_poses() -> None:
    four = torch.eye(4, dtype=torch.float64)[None].clone()
    four[:, :3] = POSE
    torch.testing.assert_close(SceneTransform().poses_to_internal(four), SceneTransform().poses_to_internal(POSE[None]))


def test_poses_and_points_round_trip() -> None:
    poses = random_poses(20)
    for transform in (SceneTransform(0.2, (0.3, -1.0, 4.0)), SceneTransform(0.66, (0.165,) * 3, from_mitsuba=True)):
        torch.testing.assert_close(transform.poses_to_file(transform.poses_to_internal(poses)), poses)
        points = poses[:, :, 3]
        torch.testing.assert_close(transform.points_to_file(transform.points_to_internal(points)), points)
        torch.testing.assert_close(transform.directions_to_file(transform.directions_to_internal(points)), points)


def test_camera_axes_agree_with_points() -> None:
    """A point 2 in front of an OpenGL camera (-z) lies along +z of the internal camera."""
    transform = SceneTransform()
    pose = random_poses(1)
    ahead = pose[:, :, 3] - 2 * pose[:, :, 2]
    internal = transform.poses_to_internal(pose)
    torch.testing.assert_close(transform.points_to_internal(ahead), internal[:, :, 3] + 2 * 0.33 * internal[:, :, 2])


def test_rotation_scale_rule() -> None:
    rotation = random_poses(1)[0, :, :3]
    scaled = torch.stack([rotation * 3, rotation * 1.002, -rotation])
    clean = remove_rotation_scale(scaled)
    torch.testing.assert_close(clean[0], rotation)
    torch.testing.assert_close(clean[1], rotation * 1.002)  # |det - 1| = 0.006: left alone
    torch.testing.assert_close(clean[2], rotation)


def test_cameras_to_file() -> None:
    transform = SceneTransform()
    poses = random_poses(3)
    cameras = Cameras(
        transform.poses_to_internal(poses), torch.ones(3, 2), torch.ones(3, 2), torch.ones(3, 2, dtype=torch.int32),
        torch.zeros(3, dtype=torch.int32), torch.zeros(3, 7),
    )  # fmt: skip
    torch.testing.assert_close(cameras_to_file(cameras, transform).camera_to_world, poses)
