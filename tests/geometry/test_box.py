from __future__ import annotations

import torch

from nerfleet.geometry.box import from_unit_cube, ray_box, scene_box, to_unit_cube


def test_scene_box_and_unit_cube() -> None:
    torch.testing.assert_close(scene_box(4), torch.tensor([[-1.5] * 3, [2.5] * 3]))
    torch.testing.assert_close(to_unit_cube(scene_box(4), 4), torch.tensor([[0.0] * 3, [1.0] * 3]))
    points = torch.rand(10, 3, generator=torch.Generator().manual_seed(0)) * 3
    torch.testing.assert_close(from_unit_cube(to_unit_cube(points, 8), 8), points)


def test_rays_by_hand() -> None:
    origins = torch.tensor([[-1.0, 0.5, 0.5], [0.5, 0.5, 0.5], [-1.0, 2.0, 0.5], [2.0, 0.5, 0.5], [0.0, 0.0, -1.0]])
    directions = torch.tensor([[2.0, 0, 0], [0, 0, -1], [1, 0, 0], [1, 0, 0], [0, 0, 1]])
    t_near, t_far = ray_box(origins, directions, scene_box(1))
    hit = t_far >= t_near
    assert hit.tolist() == [True, True, False, False, True]  # through, from inside, past, behind, along an edge
    torch.testing.assert_close(t_near[hit], torch.tensor([0.5, 0.0, 1.0]))
    torch.testing.assert_close(t_far[hit], torch.tensor([1.0, 0.5, 2.0]))


def test_entry_and_exit_lie_on_the_box() -> None:
    generator = torch.Generator().manual_seed(3)
    origins = torch.randn(500, 3, generator=generator, dtype=torch.float64) * 2
    directions = torch.rand(500, 3, generator=generator, dtype=torch.float64) - origins
    t_near, t_far = ray_box(origins, directions, scene_box(1))
    assert (t_far > t_near).all()
    for t in (t_near, t_far):
        outside = ((origins + t[:, None] * directions) - 0.5).abs().amax(-1) - 0.5
        assert outside[t > 0].abs().max() < 1e-9
