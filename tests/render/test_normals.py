"""Normals of densities whose slope is known."""

from __future__ import annotations

import pytest
import torch
from tests.support.models import front_camera, uniform_model

from nerfleet.render.normals import surface_normals
from nerfleet.render.renderer import Rendered


def test_the_face_of_a_dense_box_looks_at_the_camera(monkeypatch: pytest.MonkeyPatch) -> None:
    """Density exp(raw) with raw falling along z: the normal of every pixel is the direction in which it falls."""
    model, camera = uniform_model(0.0), front_camera(8, 6)

    def sloped(positions: torch.Tensor, *_: object) -> torch.Tensor:
        return 10 * (positions[:, 2] + 0.5 * positions[:, 0] - 0.5)

    monkeypatch.setattr("nerfleet.render.normals.field_density", sloped)
    alpha = torch.ones(6, 8)
    alpha[0] = 0.2
    found = surface_normals(model, camera, Rendered(torch.zeros(6, 8, 3), alpha, torch.full((6, 8), 1.4)))
    expected = torch.nn.functional.normalize(torch.tensor([-0.5, 0.0, -1.0]), dim=0)
    assert not found[0].any(), "too transparent"
    assert (found[1:] @ expected).min() > 0.98
    assert torch.allclose(found[1:].norm(dim=-1), torch.ones(5, 8), atol=1e-5)


def test_no_density_no_normals() -> None:
    found = surface_normals(uniform_model(0.0), front_camera(4, 3), Rendered(torch.zeros(3, 4, 3), torch.ones(3, 4), torch.ones(3, 4)))
    assert found.isfinite().all()
