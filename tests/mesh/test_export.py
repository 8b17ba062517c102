"""Files as others read them: trimesh and a reader of the test's own; units, axes, colours."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras
from nerfleet.geometry.poses import SceneTransform
from nerfleet.mesh.asset import Asset, sample_surface, to_file_space, turned, y_up
from nerfleet.mesh.export import write_asset

TEXTURE = torch.zeros(4, 8, 3, dtype=torch.uint8)
TEXTURE[:2, :4], TEXTURE[:2, 4:], TEXTURE[2:, :4], TEXTURE[2:, 4:] = (torch.tensor(c) for c in ([255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]))
COLOURS = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])


def quad(textured: bool) -> Asset:
    """The rectangle [0, 2] x [0, 1] in the plane z = 3; red, green over blue, yellow seen from +z."""
    vertices = torch.tensor([[0.0, 0, 3], [2, 0, 3], [2, 1, 3], [0, 1, 3]])
    faces = torch.tensor([[0, 1, 2], [0, 2, 3]], dtype=torch.int32)
    normals = torch.tensor([[0.0, 0, 1]]).repeat(4, 1)
    uv = torch.tensor([[0.0, 1], [1, 1], [1, 0], [0, 0]])
    return Asset(vertices, faces, normals, None, uv, TEXTURE) if textured else Asset(vertices, faces, normals, COLOURS)


def read_glb(path: Path) -> tuple[dict, bytes]:
    data = path.read_bytes()
    magic, version, length = struct.unpack_from("<4sII", data)
    assert (magic, version, length) == (b"glTF", 2, len(data))
    n_text, kind = struct.unpack_from("<I4s", data, 12)
    assert kind == b"JSON"
    n_binary, kind = struct.unpack_from("<I4s", data, 20 + n_text)
    assert kind == b"BIN\0"
    binary = data[28 + n_text :]
    assert len(binary) == n_binary
    return json.loads(data[20 : 20 + n_text]), binary


def colour_at(mesh: trimesh.Trimesh, place: tuple[float, float]) -> list[int]:
    """Texture colour under a point of the rectangle, by trimesh's own idea of UV coordinates."""
    uv = np.asarray(mesh.visual.uv)
    x, y = place[0] / 2, place[1]
    corner = {tuple(v[:2]): t for v, t in zip(np.asarray(mesh.vertices), uv)}
    u, v = corner[0.0, 0.0] * (1 - x) * (1 - y) + corner[2.0, 0.0] * x * (1 - y) + corner[2.0, 1.0] * x * y + corner[0.0, 1.0] * (1 - x) * y
    material = mesh.visual.material
    picture = material.baseColorTexture if hasattr(material, "baseColorTexture") else material.image
    return list(picture.convert("RGB").getpixel((int(u * picture.width), int((1 - v) * picture.height))))


@pytest.mark.parametrize("name", ["quad.glb", "quad.obj"])
def test_textures_arrive_the_right_way_up(name: str, tmp_path: Path) -> None:
    write_asset(tmp_path / name, quad(True))
    mesh = trimesh.load(tmp_path / name, force="mesh")
    assert np.allclose(sorted(map(tuple, mesh.vertices)), sorted(map(tuple, quad(True).vertices.numpy())))
    assert np.allclose(mesh.face_normals, [0, 0, 1])
    for place, colour in (((0.5, 0.75), [255, 0, 0]), ((1.5, 0.75), [0, 255, 0]), ((0.5, 0.25), [0, 0, 255]), ((1.5, 0.25), [255, 255, 0])):
        assert colour_at(mesh, place) == colour


def test_obj_names_its_material_and_picture(tmp_path: Path) -> None:
    files = write_asset(tmp_path / "a b.obj", quad(True))
    assert sorted(file.name for file in files) == ["a b.mtl", "a b.obj", "a b.png"]
    assert "mtllib a b.mtl" in (tmp_path / "a b.obj").read_text()
    assert "map_Kd a b.png" in (tmp_path / "a b.mtl").read_text()
    with Image.open(tmp_path / "a b.png") as picture:
        assert np.array_equal(np.asarray(picture), TEXTURE.numpy())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a b.mtl", "a b.obj", "a b.png"]


@pytest.mark.parametrize("name", ["quad.ply", "quad.obj"])
def test_vertex_colours(name: str, tmp_path: Path) -> None:
    write_asset(tmp_path / name, quad(False))
    mesh = trimesh.load(tmp_path / name, force="mesh", process=False)
    assert np.abs(mesh.visual.vertex_colors[:, :3].astype(int) - (COLOURS * 255).round().int().numpy()).max() <= 1
    assert len(mesh.faces) == 2


def test_glb_vertex_colours_are_linear(tmp_path: Path) -> None:
    write_asset(tmp_path / "quad.glb", quad(False))
    document, binary = read_glb(tmp_path / "quad.glb")
    primitive = document["meshes"][0]["primitives"][0]
    accessor = document["accessors"][primitive["attributes"]["COLOR_0"]]
    view = document["bufferViews"][accessor["bufferView"]]
    values = np.frombuffer(binary, np.uint16, 16, view["byteOffset"]).reshape(4, 4) / 65535
    assert accessor["normalized"] is True
    assert values[1].tolist() == pytest.approx([0, 0.2140, 0, 1], abs=1e-3)  # sRGB 0.5


def test_glb_entries_point_into_the_file(tmp_path: Path) -> None:
    write_asset(tmp_path / "quad.glb", quad(True))
    document, binary = read_glb(tmp_path / "quad.glb")
    ends = [view["byteOffset"] + view["byteLength"] for view in document["bufferViews"]]
    assert max(ends) <= len(binary) == document["buffers"][0]["byteLength"]
    assert all(view["byteOffset"] % 4 == 0 for view in document["bufferViews"])
    place = document["accessors"][document["meshes"][0]["primitives"][0]["attributes"]["POSITION"]]
    assert (place["min"], place["max"]) == ([0, 0, 3], [2, 1, 3])
    assert document["materials"][0]["extensions"] == {"KHR_materials_unlit": {}}


def test_ply_has_what_its_header_says(tmp_path: Path) -> None:
    write_asset(tmp_path / "quad.ply", quad(False))
    head, _, body = (tmp_path / "quad.ply").read_bytes().partition(b"end_header\n")
    assert b"property uchar red" in head
    assert len(body) == 4 * (6 * 4 + 3) + 2 * (1 + 3 * 4)
    assert struct.unpack_from("<6f3B", body) == (0, 0, 3, 0, 0, 1, 255, 0, 0)


def test_point_clouds(tmp_path: Path) -> None:
    cloud = sample_surface(quad(False), 1000)
    assert bool(((cloud.vertices > -1e-4) & (cloud.vertices < torch.tensor([2.0, 1, 3]) + 1e-4)).all())
    assert 400 < int((cloud.vertices[:, 0] < 1).sum()) < 600
    for name in ("cloud.ply", "cloud.glb"):
        write_asset(tmp_path / name, cloud)
        points = trimesh.load(tmp_path / name)
        points = points if isinstance(points, trimesh.PointCloud) else next(iter(points.geometry.values()))
        assert len(points.vertices) == 1000
    with pytest.raises(NerfleetError, match="no point clouds"):
        write_asset(tmp_path / "cloud.obj", cloud)


def test_cameras_stand_where_the_photographs_were_taken(tmp_path: Path) -> None:
    pose = torch.tensor([[1.0, 0, 0, 5], [0, 0, -1, 6], [0, 1, 0, 7]])
    cameras = Cameras(
        pose[None], torch.full((1, 2), 50.0), torch.full((1, 2), 50.0), torch.full((1, 2), 100, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int32), torch.zeros(1, N_LENS_PARAMS),
    )  # fmt: skip
    write_asset(tmp_path / "quad.glb", quad(True), cameras)
    document, _ = read_glb(tmp_path / "quad.glb")
    (node,) = [node for node in document["nodes"] if "camera" in node]
    assert np.reshape(node["matrix"], (4, 4)).T[:3].tolist() == pose.tolist()
    assert document["cameras"][0]["perspective"]["yfov"] == pytest.approx(np.pi / 2)


@pytest.mark.parametrize("transform", [SceneTransform(), SceneTransform(0.16, (0.0, 0.4, 0.0)), SceneTransform(0.66, (0.165, 0.165, 0.165), True)])
def test_users_get_their_own_units_back(transform: SceneTransform) -> None:
    """A corner at a known place of the photographs' world; handedness stays."""
    there = torch.tensor([[1.0, -2.0, 0.5], [1.5, -2.0, 0.5], [1.0, -1.0, 0.5], [1.0, -2.0, 0.75]], dtype=torch.float64)
    inside = transform.points_to_internal(there).float()
    axes = transform.directions_to_internal(torch.eye(3))
    asset = to_file_space(Asset(inside, torch.zeros(0, 3, dtype=torch.int32), torch.cat([axes, axes[:1]])), transform)
    assert float((asset.vertices - there).abs().max()) < 1e-5
    assert asset.normals.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    corners = [torch.linalg.det((p[1:] - p[0]).double()) for p in (inside, asset.vertices)]
    assert float(corners[0]) * float(corners[1]) > 0


def test_up_becomes_y() -> None:
    asset = turned(quad(True), y_up((0.0, 0.0, 1.0)))
    assert torch.allclose(asset.vertices[2], torch.tensor([2.0, 3.0, -1.0]), atol=1e-6)  # (x, z, -y): what Blender turns back
    for up in ((0.0, 1.0, 0.0), (0.0, -1.0, 0.0), (1.0, 2.0, -3.0)):
        rotation = y_up(up)
        assert torch.allclose(rotation @ torch.nn.functional.normalize(torch.tensor(up), dim=0), torch.tensor([0.0, 1.0, 0.0]), atol=1e-6)
        assert float(torch.linalg.det(rotation)) == pytest.approx(1)


def test_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(NerfleetError, match="choose another place"):
        write_asset(tmp_path / "taken" / "quad.glb", quad(True))
    with pytest.raises(NerfleetError, match=r"no \.glb, \.obj or \.ply"):
        write_asset(tmp_path / "quad.stl", quad(True))
    empty = Asset(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.int32), torch.zeros(0, 3))
    with pytest.raises(NerfleetError, match="is empty"):
        write_asset(tmp_path / "quad.glb", empty)
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
