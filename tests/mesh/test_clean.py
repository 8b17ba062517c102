"""Loose pieces, unseen regions, holes, smoothing, decimation, normals, and moving the surface to where light ends."""

from __future__ import annotations

import math

import pytest
import torch
from tests.support.shapes import LEVEL, ball, block, solid_model

from nerfleet.mesh.clean import (
    decimate,
    face_areas,
    keep_faces,
    n_holes,
    pieces,
    smooth,
    vertex_normals,
    without_floaters,
    without_unseen,
)
from nerfleet.mesh.settle import settle
from nerfleet.mesh.surface import Mesh, extract

RADIUS = 0.25
CENTRE = (0.493, 0.507, 0.512)


@pytest.fixture(scope="module")
def sphere() -> Mesh:
    return extract(solid_model(ball(CENTRE, RADIUS)), 24, math.exp(LEVEL))


def together(*meshes: Mesh) -> Mesh:
    """One mesh of several."""
    faces, first = [], 0
    for mesh in meshes:
        faces.append(mesh.faces + first)
        first += len(mesh.vertices)
    return Mesh(torch.cat([mesh.vertices for mesh in meshes]), torch.cat(faces).int())


def scaled(mesh: Mesh, factor: float, shift: float = 0.0) -> Mesh:
    return Mesh((mesh.vertices - 0.5) * factor + 0.5 + shift, mesh.faces)


def test_pieces_are_measured(sphere: Mesh) -> None:
    found = pieces(together(sphere, scaled(sphere, 0.5, 2.0), Mesh(sphere.vertices + 5, sphere.faces.flip(-1))))
    assert len(found) == 3
    assert torch.bincount(found.of_vertex).tolist() == [len(sphere.vertices)] * 3
    assert float(found.area[0] / found.area[1]) == pytest.approx(4, rel=1e-4)
    assert float(found.volume[1]) == pytest.approx(float(found.volume[0]) / 8, rel=1e-3)
    assert float(found.volume[2]) == pytest.approx(-float(found.volume[0]), rel=1e-3)  # faces inwards


def test_floaters_and_cavities_go(sphere: Mesh) -> None:
    cavity = Mesh(scaled(sphere, 0.7).vertices, sphere.faces.flip(-1))
    mesh = together(sphere, scaled(sphere, 0.02, 0.4), cavity)
    kept, small, hidden = without_floaters(mesh, min_share=0.01)
    assert (len(kept.faces), small, hidden) == (len(sphere.faces), 1, 1)
    assert torch.equal(kept.vertices, sphere.vertices)


def test_what_cameras_see_stays_even_if_it_faces_inwards(sphere: Mesh) -> None:
    room = Mesh(sphere.vertices, sphere.faces.flip(-1))
    mesh = together(room, scaled(sphere, 0.3))
    seen = torch.ones(len(mesh.vertices), dtype=torch.bool)
    seen[len(room.vertices) :] = False
    kept, small, hidden = without_floaters(mesh, min_share=0.01, seen=seen)
    assert (len(kept.faces), small, hidden) == (len(room.faces), 0, 1)


def test_a_mesh_of_nothing_but_floaters_stays(sphere: Mesh) -> None:
    kept, small, hidden = without_floaters(Mesh(sphere.vertices, sphere.faces.flip(-1)), min_share=0.01)
    assert (len(kept.faces), small, hidden) == (len(sphere.faces), 0, 0)


def test_unseen_regions_go_but_cracks_stay(sphere: Mesh) -> None:
    seen = sphere.vertices[:, 2] > 0.4
    top = (sphere.vertices - torch.tensor([0.5, 0.5, 0.75])).norm(dim=-1).argmin()
    seen[top] = False
    kept, regions = without_unseen(sphere, seen, max_share=0.01, rings=1)
    assert regions == 1
    assert float(kept.vertices[:, 2].max()) == float(sphere.vertices[:, 2].max())
    assert 0.25 < float(kept.vertices[:, 2].min()) < 0.4
    assert n_holes(kept) == 1
    assert without_unseen(sphere, torch.ones_like(seen), max_share=0.01)[1] == 0


def test_holes_are_counted(sphere: Mesh) -> None:
    assert n_holes(sphere) == 0
    middle = sphere.vertices[sphere.faces.long()].mean(1)
    assert n_holes(keep_faces(sphere, (middle[:, 0] < 0.7) & (middle[:, 0] > 0.3))) == 2


def test_smoothing_does_not_shrink(sphere: Mesh) -> None:
    noise = torch.randn(sphere.vertices.shape, generator=torch.Generator().manual_seed(0)) * 0.002
    rough = Mesh(sphere.vertices + noise, sphere.faces)
    smoothed = smooth(rough, 10)
    before, after = ((mesh.vertices - torch.tensor(CENTRE)).norm(dim=-1) for mesh in (rough, smoothed))
    assert float(after.std()) < 0.7 * float(before.std())
    assert float(after.mean()) == pytest.approx(RADIUS, rel=0.01)
    assert smooth(rough, 0) is rough


def test_decimation_keeps_the_shape(sphere: Mesh) -> None:
    light = decimate(sphere, 500)
    assert 300 < len(light.faces) <= 520
    assert float(pieces(light).volume.sum()) == pytest.approx(float(pieces(sphere).volume.sum()), rel=0.02)
    assert float(face_areas(light).min()) > 0
    assert decimate(sphere, 0) is sphere
    assert decimate(sphere, len(sphere.faces)) is sphere


def test_normals_point_outwards(sphere: Mesh) -> None:
    normals = vertex_normals(sphere)
    outwards = torch.nn.functional.normalize(sphere.vertices - torch.tensor(CENTRE), dim=-1)
    assert float((normals * outwards).sum(-1).min()) > 0.97
    lonely = Mesh(torch.zeros(4, 3), torch.tensor([[0, 1, 2]], dtype=torch.int32))
    assert torch.allclose(vertex_normals(lonely).norm(dim=-1), torch.ones(4))  # where no face says anything: any direction


def test_settling_corrects_a_low_threshold() -> None:
    """Raw density rises by 60 a unit: at a threshold e^2 too low the surface is 1/30 too far out."""
    model = solid_model(block((0.3, 0.3, 0.3), (0.7, 0.7, 0.7)), steepness=60)
    fat = extract(model, 24, math.exp(LEVEL - 2))
    thin = settle(model, fat, 24)
    width = [float(mesh.vertices[:, 0].max() - mesh.vertices[:, 0].min()) for mesh in (fat, thin)]
    assert width[0] == pytest.approx(0.4 + 2 / 30, abs=0.005)
    assert width[1] < width[0] - 0.02
