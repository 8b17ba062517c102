"""The verb mesh: files, units, crop, JSON, and requests that cannot be met."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from tests.mesh.test_appearance import ALL_AROUND, cameras
from tests.support.shapes import block, solid_model

from nerfleet.cli.main import main
from nerfleet.data.scene import Scene
from nerfleet.geometry.poses import SceneTransform
from nerfleet.render.renderer import render_image
from nerfleet.snapshot.document import write_document
from nerfleet.snapshot.load import load_model
from nerfleet.snapshot.write import snapshot_document

TRANSFORM = SceneTransform(0.16, (0.0, 0.4, 0.0))
LOW, HIGH = (0.3, 0.35, 0.4), (0.6, 0.7, 0.65)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A block whose corners' places in the photographs' world are known."""
    known = cameras(*ALL_AROUND)
    n = len(known)
    scene = Scene(
        "block", None, "train", tuple(map(str, range(n))), known, torch.zeros(n * 64 * 64, 4, dtype=torch.uint8),
        torch.arange(n + 1) * 64 * 64, 1, TRANSFORM,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("model") / "block.ingp"
    write_document(path, snapshot_document(solid_model(block(LOW, HIGH), coloured=True), scene=scene))
    return path


QUICK = ("--resolution", "48", "--faces", "2000", "--device", "cpu", "--json")


def mesh(capsys: pytest.CaptureFixture[str], file: Path, out: Path, *words: str) -> dict:
    assert main(["mesh", str(file), "--out", str(out), *QUICK, *words]) == 0
    return json.loads(capsys.readouterr().out)


def world() -> np.ndarray:
    """[2, 3] corners of the block in the photographs' world."""
    ends = TRANSFORM.points_to_file(torch.tensor([LOW, HIGH], dtype=torch.float64)).numpy()
    return np.sort(ends, axis=0)


CELL = 1 / 48 / 0.16


def test_a_corner_comes_back_where_it_was(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = mesh(capsys, file, tmp_path / "block.ply")
    assert answer["files"] == [str(tmp_path / "block.ply"), str(tmp_path / "block.json")]
    assert {"threshold", "vertices", "faces", "holes", "seconds"} <= answer.keys()
    found = trimesh.load(tmp_path / "block.ply", process=False)
    assert np.abs(found.bounds - world()).max() < CELL
    assert len(found.faces) == answer["faces"] <= 2010
    assert found.visual.vertex_colors[:, 0].std() > 5
    beside = json.loads((tmp_path / "block.json").read_text())
    corner = np.array(beside["internal_to_file"]) @ [*LOW, 1.0]
    assert np.allclose(corner, TRANSFORM.points_to_file(torch.tensor(LOW, dtype=torch.float64)).numpy())


def test_glb_is_y_up_and_textured(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mesh(capsys, file, tmp_path / "block.glb", "--texture", "128", "--cameras")
    scene = trimesh.load(tmp_path / "block.glb")
    (found,) = scene.geometry.values()
    low, high = world()
    expected = np.array([[low[0], low[2], -high[1]], [high[0], high[2], -low[1]]])  # z is up in this file: (x, z, -y)
    assert np.abs(found.bounds - expected).max() < CELL
    assert found.visual.material.baseColorTexture.size == (128, 128)
    assert np.asarray(found.visual.material.baseColorTexture).std() > 5
    document = (tmp_path / "block.glb").read_bytes()
    assert document.count(b'"name":"camera ') == len(ALL_AROUND)


def test_obj_and_cameras_beside_it(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = mesh(capsys, file, tmp_path / "block.obj", "--texture", "64", "--cameras")
    assert {Path(name).name for name in answer["files"]} == {"block.obj", "block.mtl", "block.png", "block.json", "block.cameras.json"}
    assert np.abs(trimesh.load(tmp_path / "block.obj", force="mesh").bounds - world()).max() < CELL
    (first, *_) = json.loads((tmp_path / "block.cameras.json").read_text())["frames"]
    place = np.array(first["transform_matrix"])[:3, 3]
    assert np.allclose(place, TRANSFORM.points_to_file(torch.tensor([2.0, 0.5, 0.5])).numpy(), atol=1e-5)


def test_crop_is_in_the_photographs_units(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    low, high = world()
    middle = (low + high) / 2
    box = ",".join(f"{v:.6f}" for v in (*(low - 1), middle[0], *(high + 1)[1:]))
    mesh(capsys, file, tmp_path / "half.ply", f"--crop={box}", "--resolution", "64", "--keep-unseen")
    found = trimesh.load(tmp_path / "half.ply", process=False)
    assert found.bounds[1, 0] == pytest.approx(middle[0], abs=0.01 * CELL)
    assert found.bounds[0, 0] == pytest.approx(low[0], abs=CELL)
    assert found.bounds[1, 1] == pytest.approx(high[1], abs=CELL)


def test_convert_keeps_a_crop_box_for_pictures_and_meshes(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    low, high = world()
    middle = (low + high) / 2
    box = ",".join(f"{v:.6f}" for v in (*(low - 1), middle[0], *(high + 1)[1:]))
    kept, whole = tmp_path / "half.ingp", tmp_path / "whole.ingp"
    assert main(["convert", str(file), str(kept), f"--crop={box}"]) == 0
    model = load_model(kept)
    camera = cameras((1.0, 0, 0))  # across the cut: file x is internal z
    pictures = [render_image(m, camera).alpha.mean() for m in (load_model(file), model)]
    assert 0.3 < float(pictures[1] / pictures[0]) < 0.7
    capsys.readouterr()
    mesh(capsys, kept, tmp_path / "half.ply", "--keep-unseen")
    assert trimesh.load(tmp_path / "half.ply", process=False).bounds[1, 0] == pytest.approx(middle[0], abs=0.01 * CELL)
    assert main(["convert", str(kept), str(whole), "--crop", "none"]) == 0
    assert load_model(whole).render_aabb is None


def test_point_clouds(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mesh(capsys, file, tmp_path / "cloud.ply", "--points", "5000")
    cloud = trimesh.load(tmp_path / "cloud.ply")
    assert len(cloud.vertices) == 5000
    assert np.abs(cloud.bounds - world()).max() < CELL


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--out", "x.stl"], "no .glb, .obj or .ply file"),
        (["--out", "x.obj", "--points", "5"], "no point clouds"),
        (["--out", "x.ply", "--resolution", "1"], "resolution 1: is out of range"),
        (["--out", "x.ply", "--threshold", "1e37"], "nothing is as dense as"),
        (["--out", "x.ply", "--crop", "1,2,3"], "write x0,y0,z0,x1,y1,z1"),
        (["--out", "x.ply", "--crop=1,1,1,0,2,2"], "write the minimum first"),
        (["--out", "x.ply", "--crop=90,90,90,91,91,91"], "the scene box reaches from"),
        (["--out", "x.ply", "--memory-mb", "1", "--resolution", "2000"], "is too little for resolution 2000: allow"),
        (["--out", "x.glb", "--texture", "3"], "texture: 3 texels"),
    ],
)
def test_requests_that_cannot_be_met(
    words: list[str], complaint: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["mesh", str(file), "--device", "cpu", *words]) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_model_that_knows_no_scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lonely.ingp"
    write_document(path, snapshot_document(solid_model(block(LOW, HIGH))))
    assert main(["mesh", str(path), "--out", str(tmp_path / "lonely.ply"), *QUICK]) == 0
    assert "the default scale 0.33 and offset 0.5 are used" in capsys.readouterr().err
    assert main(["mesh", str(path), "--out", str(tmp_path / "lonely.glb"), *QUICK, "--cameras"]) == 2
    assert "holds no cameras" in capsys.readouterr().err
