"""What cameras see, atlases, textures and whole builds, on solids whose colour depends on the place only."""

from __future__ import annotations

import math

import pytest
import torch
from tests.support.shapes import LEVEL, ball, cropped, solid_model

from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras, Lens
from nerfleet.mesh.appearance import surface_colours, vertex_points, views_of
from nerfleet.mesh.atlas import make_atlas
from nerfleet.mesh.build import MeshOptions, build_mesh, summary
from nerfleet.mesh.clean import face_areas
from nerfleet.mesh.preview import picture
from nerfleet.mesh.surface import Mesh, extract
from nerfleet.mesh.texture import bake
from nerfleet.mesh.threshold import SURFACE_SHARE, surface_density
from nerfleet.mesh.visibility import draw, seen_vertices, usable_cameras
from nerfleet.nn.model import Model

THRESHOLD = math.exp(LEVEL)


@pytest.fixture(scope="module")
def model() -> Model:
    return solid_model(ball((0.493, 0.507, 0.512)), coloured=True)


@pytest.fixture(scope="module")
def sphere(model: Model) -> Mesh:
    return extract(model, 32, THRESHOLD)


def cameras(*directions: tuple[float, float, float], size: int = 64, lens: Lens = Lens.PERSPECTIVE) -> Cameras:
    """Cameras 1.5 away from the centre in these directions, looking at it."""
    poses = []
    for direction in directions:
        back = torch.nn.functional.normalize(torch.tensor(direction), dim=0)
        helper = torch.tensor([0.0, 1.0, 0.0]) if abs(float(back[1])) < 0.9 else torch.tensor([1.0, 0.0, 0.0])
        right = torch.nn.functional.normalize(torch.linalg.cross(-back, helper), dim=0)
        poses.append(torch.stack([right, torch.linalg.cross(-back, right), -back, 0.5 + 1.5 * back], -1))
    n = len(directions)
    params = torch.zeros(n, N_LENS_PARAMS)
    if lens != Lens.PERSPECTIVE:
        params[:, 0] = 0.01
    full = torch.full((n, 2), float(size))
    return Cameras(torch.stack(poses), 1.5 * full, full / 2, full.int(), torch.full((n,), int(lens), dtype=torch.int32), params)


ALL_AROUND = ((1.0, 0, 0), (-1.0, 0, 0), (0, 1.0, 0), (0, -1.0, 0), (0, 0, 1.0), (0, 0, -1.0))


@pytest.mark.parametrize("lens", [Lens.PERSPECTIVE, Lens.OPENCV, Lens.OPENCV_FISHEYE])
def test_a_camera_sees_the_near_side(sphere: Mesh, lens: Lens) -> None:
    seen = seen_vertices(sphere, cameras((1.0, 0, 0), (0, 0, -1.0), lens=lens))
    for i, axis, side in ((0, 0, 1), (1, 2, -1)):
        height = (sphere.vertices[:, axis] - 0.5) * side
        assert bool(seen[i][height > 0.08].all())  # the horizon of a ball of 0.25 from 1.5 away lies at 0.042
        assert not bool(seen[i][height < -0.07].any())


def test_what_stands_in_front_hides(sphere: Mesh) -> None:
    small = Mesh((sphere.vertices - 0.5) * 0.3 + torch.tensor([0.1, 0.5, 0.5]), sphere.faces)
    both = Mesh(torch.cat([sphere.vertices, small.vertices]), torch.cat([sphere.faces, small.faces + len(sphere.vertices)]).int())
    seen = seen_vertices(both, cameras((1.0, 0, 0), (-1.0, 0, 0)))
    assert not bool(seen[0, len(sphere.vertices) :].any())
    assert float(seen[1, len(sphere.vertices) :].float().mean()) > 0.3


def test_cameras_without_a_projection_are_left_out() -> None:
    strange = cameras(*ALL_AROUND)
    strange.lens[2] = int(Lens.LATLONG)
    assert len(usable_cameras(strange, 64)) == 5
    assert usable_cameras(strange, 2).camera_to_world[:, 0, 3].tolist() == pytest.approx([2.0, 0.5])


def test_drawing_is_perspective_correct() -> None:
    """A square seen at a slant: the place of a pixel, put together from its face's corners, lies on the pixel's ray."""
    mesh = Mesh(torch.tensor([[0.0, 0, 0], [1, 0, 0.9], [1, 1, 0.9], [0, 1, 0]]), torch.tensor([[0, 1, 2], [0, 2, 3]], dtype=torch.int32))
    camera = cameras((0.3, 0.2, -1.0))
    face, inverse, share = draw(mesh, camera)
    rows, columns = (face >= 0).nonzero(as_tuple=True)
    assert len(rows) > 200
    places = (mesh.vertices[mesh.faces.long()[face[rows, columns]]] * share[rows, columns][..., None]).sum(1)
    local = (places - camera.camera_to_world[0, :, 3]) @ camera.camera_to_world[0, :, :3]
    pixels = local[:, :2] / local[:, 2:] * camera.focal[0] + camera.principal[0]
    assert float((pixels - torch.stack([columns, rows], -1) - 0.5).abs().max()) < 0.01
    assert torch.allclose(local[:, 2], 1 / inverse[rows, columns], rtol=1e-4)


def test_colours_are_the_fields(model: Model, sphere: Mesh) -> None:
    for known in (cameras(*ALL_AROUND), None):
        views = views_of(sphere, known)
        found, seen = surface_colours(model, sphere, vertex_points(sphere), views)
        expected = torch.sigmoid((sphere.vertices[:, :1] - 0.5) * 8)
        assert float((found - expected).abs().max()) < 0.03
        assert bool(seen.all()) == (known is not None)


def test_an_atlas_covers_every_face_once(sphere: Mesh) -> None:
    atlas = make_atlas(sphere, 512)
    assert torch.equal(atlas.vertex[atlas.faces.long()], sphere.faces.long())
    assert 0 <= float(atlas.uv.min())
    assert float(atlas.uv.max()) <= 1
    corners = atlas.uv[atlas.faces.long()].double()
    on_texture = torch.linalg.det(torch.stack([corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]], -1)).abs() / 2
    assert 0.3 < float(on_texture.sum()) <= 1
    scale = on_texture / face_areas(sphere)
    assert float(scale.quantile(0.9) / scale.quantile(0.1)) < 2  # the same number of texels everywhere


def test_a_texture_shows_what_the_field_shows(model: Model, sphere: Mesh) -> None:
    atlas = make_atlas(sphere, 256)
    texture, seen = bake(model, sphere, atlas, views_of(sphere, cameras(*ALL_AROUND)), 256)
    assert seen == 1
    at = (atlas.uv * 256 - 0.5).round().long().clamp(0, 255)
    expected = torch.sigmoid((sphere.vertices[atlas.vertex][:, 0] - 0.5) * 8)
    error = (texture[at[:, 1], at[:, 0], 0] / 255 - expected).abs()
    assert float(error.quantile(0.99)) < 0.1  # a face without area may lie anywhere
    assert float(error.mean()) < 0.02


def test_a_whole_mesh(model: Model) -> None:
    known = cameras(*ALL_AROUND)
    options = MeshOptions(resolution=32, n_faces=1500, texture=256)
    stages = []
    asset, stats = build_mesh(model, options, known, lambda stage, share: stages.append((stage, share)))
    assert stats.threshold == pytest.approx(surface_density(model, known))
    assert 1000 < stats.faces <= 1510
    assert len(asset.faces) == stats.faces
    assert (stats.holes, stats.unseen_regions, stats.small_pieces) == (0, 0, 0)
    assert {stage for stage, _ in stages} == {"surface", "visibility", "settle", "atlas", "texture"}
    assert set(summary(stats)["seconds"]) == {"threshold", "surface", "clean", "decimate", "settle", "views", "atlas", "texture"}
    rgb, covered = picture(asset, known[4:5])
    assert 0.1 < float(covered.float().mean()) < 0.4
    left, right = (float(rgb[30, column, 0]) for column in (27, 37))
    assert abs(left - right) > 0.2  # red follows x, which runs across the picture
    plain, _ = build_mesh(model, MeshOptions(resolution=32, n_faces=1500, texture=0), known)
    assert float((picture(plain, known[4:5])[0] - rgb)[covered].abs().mean()) < 0.03


def test_cameras_of_unknown_lenses_count_as_none(model: Model) -> None:
    strange = cameras(*ALL_AROUND)
    strange.lens[:] = int(Lens.FTHETA)
    _, stats = build_mesh(model, MeshOptions(resolution=24, texture=0), strange)
    assert (stats.texture_seen, stats.holes) == (0, 0)


def test_what_no_camera_sees_goes_unless_asked(model: Model) -> None:
    known = cameras((0, 0, 1.0), (0.3, 0, 1.0))
    half, stats = build_mesh(model, MeshOptions(resolution=32, texture=0), known)
    assert (stats.unseen_regions, stats.holes) == (1, 1)
    assert float(half.vertices[:, 2].min()) > 0.3
    whole, stats = build_mesh(model, MeshOptions(resolution=32, texture=0, keep_unseen=True), known)
    assert stats.holes == 0
    assert float(whole.vertices[:, 2].min()) < 0.27


def test_the_threshold_follows_the_density(model: Model) -> None:
    """Rays end within 0.01 of the ball's surface, where the density is within e^3 of its own."""
    for known in (None, cameras(*ALL_AROUND)):
        assert abs(math.log(surface_density(model, known) / SURFACE_SHARE) - LEVEL) < 3
    with pytest.raises(NerfleetError, match="has no surface"):
        surface_density(cropped(model, (0.0, 0.0, 0.0), (0.1, 0.1, 0.1)), None)


@pytest.mark.parametrize(
    "wrong",
    [{"resolution": 0}, {"threshold": -1.0}, {"n_faces": -5}, {"smoothing": -1}, {"min_piece": 2.0}, {"texture": 5}, {"texture": 1 << 20}, {"threshold": 1e37}],
)
def test_options_that_make_no_sense(wrong: dict[str, float], model: Model) -> None:
    with pytest.raises(NerfleetError):
        build_mesh(model, MeshOptions(**{"resolution": 8} | wrong))
