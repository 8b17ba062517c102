"""Marching cubes: the table, surfaces of known solids, slabs that leave no trace, boxes, and bad requests."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.shapes import LEVEL, ball, block, cropped, solid_model

from nerfleet.errors import NerfleetError
from nerfleet.mesh import cube_cases
from nerfleet.mesh.clean import edges, pieces
from nerfleet.mesh.surface import BYTES_PER_SAMPLE, Mesh, extract
from nerfleet.nn.model import Model

THRESHOLD = math.exp(LEVEL)


@pytest.fixture(scope="module")
def ball_model() -> Model:
    return solid_model(ball())


def is_closed(mesh: Mesh) -> bool:
    """Every directed edge has its opposite exactly once: no holes, one orientation."""
    directed = mesh.faces.long()[:, [0, 1, 1, 2, 2, 0]].view(-1, 2)
    keys = directed[:, 0] * len(mesh.vertices) + directed[:, 1]
    opposite = directed[:, 1] * len(mesh.vertices) + directed[:, 0]
    return len(torch.unique(keys)) == len(keys) and torch.equal(keys.sort()[0], opposite.sort()[0])


def test_no_case_has_more_triangles_than_the_table() -> None:
    table = cube_cases.triangle_table()
    assert table.shape == (256, cube_cases.MAX_TRIANGLES, 3)
    assert (table[0] == -1).all()
    assert (table[255] == -1).all()
    assert int((table[:, -1, 0] >= 0).sum()) > 0  # some case needs them all


def test_triangles_use_exactly_the_crossed_edges() -> None:
    table = cube_cases.triangle_table()
    for case in range(256):
        crossed = {i for i, (a, b) in enumerate(cube_cases.EDGES) if (case >> a & 1) != (case >> b & 1)}
        assert set(table[case][table[case] >= 0].tolist()) == crossed


@given(st.integers(0, 2**27 - 1))
def test_any_pattern_of_27_samples_is_closed(bits: int) -> None:
    """All cells around 27 samples, wherever they are inside: every edge of the surface has two sides."""
    inside = torch.zeros(5, 5, 5, dtype=torch.bool)
    inside[1:4, 1:4, 1:4] = torch.tensor([bool(bits >> i & 1) for i in range(27)]).view(3, 3, 3)
    table, directed = cube_cases.triangle_table(), []
    for cell in torch.cartesian_prod(*[torch.arange(4)] * 3).tolist():
        case = sum(int(inside[tuple(c + o for c, o in zip(cell, corner))]) << i for i, corner in enumerate(cube_cases.CORNERS))
        for triangle in table[case].tolist():
            if triangle[0] >= 0:
                named = [(cube_cases.EDGE_AXES[e], *(c + o for c, o in zip(cell, cube_cases.CORNERS[cube_cases.EDGES[e][0]]))) for e in triangle]
                directed += list(zip(named, named[1:] + named[:1]))
    assert len(set(directed)) == len(directed)
    assert {(b, a) for a, b in directed} == set(directed)


def test_a_ball(ball_model: Model) -> None:
    mesh = extract(ball_model, 64, THRESHOLD)
    radius = (mesh.vertices - 0.5).norm(dim=-1)
    assert float((radius - 0.25).abs().max()) < 0.002  # the field itself is trilinear between nodes 1/63 apart
    assert is_closed(mesh)
    parts = pieces(mesh)
    assert len(parts) == 1
    assert float(parts.volume[0]) == pytest.approx(4 / 3 * math.pi * 0.25**3, rel=0.01)
    assert float(parts.area[0]) == pytest.approx(4 * math.pi * 0.25**2, rel=0.01)
    assert len(mesh.vertices) - len(edges(mesh.faces)[0]) + len(mesh.faces) == 2  # Euler's formula


@pytest.mark.parametrize("resolution", [5, 18])
def test_slabs_leave_no_trace(ball_model: Model, resolution: int) -> None:
    whole = extract(ball_model, resolution, THRESHOLD)
    plane = (resolution + 3) ** 2 * BYTES_PER_SAMPLE
    for planes in (2, 3):
        cut = extract(ball_model, resolution, THRESHOLD, budget_bytes=planes * plane)
        assert is_closed(cut)
        order = [torch.from_numpy(part.vertices.numpy().round(6)).unique(dim=0) for part in (whole, cut)]
        assert torch.equal(*order)
        assert len(cut.faces) == len(whole.faces)
        assert len(cut.vertices) == len(whole.vertices)


def test_a_finer_lattice_is_not_coarser_than_the_budget(ball_model: Model) -> None:
    with pytest.raises(NerfleetError, match="is too little for resolution 1024: allow"):
        extract(ball_model, 1024, THRESHOLD, budget_bytes=1 << 20)


def test_the_surface_is_refined_on_its_edges() -> None:
    """Density is exp(raw): with raw linear, false position in raw is exact; a coarse lattice still finds the block's faces."""
    model = solid_model(block((0.21, 0.33, 0.4), (0.7, 0.8, 0.77)))
    coarse = extract(model, 16, THRESHOLD)
    for axis, (low, high) in enumerate(((0.21, 0.7), (0.33, 0.8), (0.4, 0.77))):
        assert float(coarse.vertices[:, axis].min()) == pytest.approx(low, abs=0.002)
        assert float(coarse.vertices[:, axis].max()) == pytest.approx(high, abs=0.002)


def test_a_crop_box_cuts_and_closes(ball_model: Model) -> None:
    mesh = extract(cropped(ball_model, (0.1, 0.5, 0.0), (0.9, 1.0, 1.0)), 64, THRESHOLD)
    assert is_closed(mesh)
    assert float(mesh.vertices[:, 1].min()) == pytest.approx(0.5, abs=1e-6)
    assert float(pieces(mesh).volume[0]) == pytest.approx(2 / 3 * math.pi * 0.25**3, rel=0.05)


def test_nothing_is_an_empty_mesh(ball_model: Model) -> None:
    assert len(extract(ball_model, 32, 1e37).faces) == 0
    assert len(extract(cropped(ball_model, (0.0, 0.0, 0.0), (0.1, 0.1, 0.1)), 32, THRESHOLD).faces) == 0


@pytest.mark.parametrize(("resolution", "threshold"), [(1, 1.0), (5000, 1.0), (32, 0.0), (32, -1.0), (32, float("nan")), (32, float("inf"))])
def test_requests_that_make_no_sense(ball_model: Model, resolution: int, threshold: float) -> None:
    with pytest.raises(NerfleetError, match="resolution|threshold"):
        extract(ball_model, resolution, threshold)
