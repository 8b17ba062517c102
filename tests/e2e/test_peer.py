"""Against instant-ngp itself: models that it wrote, pictures that it rendered, scores that it computed (peer/README.md)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nerfleet.cli.main import main
from nerfleet.data import Scene, load_scene
from nerfleet.data.plan import plan_scene, planned_cameras
from nerfleet.geometry.cameras import Cameras
from nerfleet.geometry.color import linear_to_srgb
from nerfleet.nn.model import Model
from nerfleet.render.evaluate import psnr
from nerfleet.render.renderer import render_image
from nerfleet.snapshot import document as files
from nerfleet.snapshot.document import pack, read_document
from nerfleet.snapshot.ingp import Snapshot, read_snapshot
from nerfleet.snapshot.load import load_model
from nerfleet.snapshot.write import snapshot_document, write_snapshot

pytestmark = pytest.mark.data
SCENES = ("fox", "lego")
FOX_DOWNSCALE = 8
NOT_WRITTEN = {"parent"}
"""Keys of a network file that was merged from several; a model of ours has none."""
FITTED_BY_PEER = {"cam_pos_offset", "cam_rot_offset", "extra_dims_opt"}
"""Optional: what instant-ngp's own optimizers of the cameras hold."""


def model_of(peer_dir: Path, name: str) -> Model:
    return load_model(peer_dir / f"{name}_small.ingp")


def pinhole(cameras: Cameras) -> Cameras:
    return dataclasses.replace(cameras, lens=torch.zeros_like(cameras.lens), lens_params=torch.zeros_like(cameras.lens_params))


def render_psnr(peer_dir: Path, data_dir: Path, name: str, view: int, downscale: int) -> float:
    """dB between our picture of a test view and the peer's, in clipped sRGB over black."""
    camera = pinhole(planned_cameras(plan_scene(data_dir / name, "test"), downscale))[view : view + 1]
    with np.load(peer_dir / f"{name}_small_renders.npz") as pictures:
        theirs = linear_to_srgb(torch.from_numpy(pictures[f"view{view}"][..., :3].astype(np.float32)))
    ours = render_image(model_of(peer_dir, name), camera, min_transmittance=1e-4, step_cascades=False).over((0.0, 0.0, 0.0))
    assert ours.shape == theirs.shape
    return psnr(ours.clamp(0, 1), theirs.clamp(0, 1))


@pytest.mark.parametrize("view", [0, 8, 16])
def test_lego_renders(view: int, peer_dir: Path, data_dir: Path) -> None:
    assert render_psnr(peer_dir, data_dir, "lego", view, 4) >= 46


@pytest.mark.parametrize(
    "view, least", [pytest.param(0, 42, marks=pytest.mark.slow), pytest.param(3, 45, marks=pytest.mark.slow), (6, 47)]
)
def test_fox_renders(view: int, least: float, peer_dir: Path, data_dir: Path) -> None:
    assert render_psnr(peer_dir, data_dir, "fox", view, 4) >= least


def evaluated(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, list[dict[str, float]]]:
    code = main(["eval", *map(str, words), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("views", ["0,14", pytest.param("", marks=pytest.mark.slow)])
def test_lego_scores(views: str, peer_dir: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = json.loads((peer_dir / "lego_small.json").read_text())
    model, scene = peer_dir / "lego_small.ingp", data_dir / "lego"
    found = evaluated(capsys, model, "--scene", scene, "--split", "test", "--downscale", 2, "--views", views)
    chosen = [int(view) for view in views.split(",")] if views else range(25)
    expected = [theirs["psnr_per_test_view"][view] for view in chosen]
    assert len(found["views"]) == len(expected)
    for view, value in zip(found["views"], expected):
        assert view["psnr"] == pytest.approx(value, abs=0.15), view["name"]
    assert found["psnr_mean"] == pytest.approx(sum(expected) / len(expected), abs=0.05 if not views else 0.1)
    if not views:
        assert found["psnr_mean"] == pytest.approx(theirs["mean_psnr"], abs=0.05)


@pytest.mark.parametrize("n_pixels, tolerance", [(1500, 0.7), pytest.param(15_000, 0.25, marks=pytest.mark.slow)])
def test_fox_scores_with_the_lens(
    n_pixels: int, tolerance: float, peer_dir: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = json.loads((peer_dir / "fox_small.json").read_text())
    model, scene = peer_dir / "fox_small.ingp", data_dir / "fox"
    found = evaluated(capsys, model, "--scene", scene, "--split", "test", "--pixels", n_pixels)
    assert len(found["views"]) == 7
    assert found["psnr_mean"] == pytest.approx(theirs["mean_psnr"], abs=tolerance)


@pytest.mark.parametrize("name", SCENES)
def test_read_and_written_again_is_the_same_to_the_byte(name: str, peer_dir: Path, tmp_path: Path) -> None:
    original, copy = peer_dir / f"{name}_small.ingp", tmp_path / "copy.ingp"
    snapshot = read_snapshot(original)
    write_snapshot(copy, snapshot)
    assert bytes(files._read_compressed(copy)) == bytes(files._read_compressed(original))
    again = read_snapshot(copy).model
    assert torch.equal(again.table, snapshot.model.table)
    assert torch.equal(again.mlp, snapshot.model.mlp)
    assert torch.equal(again.occupancy.values, snapshot.model.occupancy.values)
    assert again.network == snapshot.model.network


@pytest.fixture(scope="module", params=SCENES)
def scene(request: pytest.FixtureRequest, data_dir: Path) -> Scene:
    """The photographs that the peer trained on, quickly."""
    return load_scene(data_dir / request.param, "train", downscale=FOX_DOWNSCALE if request.param == "fox" else 2)


def test_a_new_document_has_every_key_with_its_type(scene: Scene, peer_dir: Path) -> None:
    original = read_document(peer_dir / f"{scene.name}_small.ingp")
    model = model_of(peer_dir, scene.name)
    values = original["snapshot"]
    rays = dict(values["nerf"]["rgb"])
    written = snapshot_document(model, scene=scene, training_step=values["training_step"], loss=values["loss"], **rays)
    assert set(original) - set(written) == NOT_WRITTEN
    assert set(values["nerf"]) - set(written["snapshot"]["nerf"]) == FITTED_BY_PEER
    ours, theirs = written["snapshot"], dict(values)
    assert set(ours) == set(theirs)
    for key in set(theirs) - {"nerf"}:
        assert pack({"x": ours[key]}) == pack({"x": theirs[key]}), key  # the bytes, so the types too
    dataset, peer_dataset = ours["nerf"]["dataset"], theirs["nerf"]["dataset"]
    assert set(dataset) == set(peer_dataset)
    for key in set(peer_dataset) - {"xforms", "metadata", "paths"}:
        assert pack({"x": dataset[key]}) == pack({"x": peer_dataset[key]}), key


def keys(value: object, path: str = "") -> dict[str, str]:
    """Path of every key in nested maps, also those in lists -> its type."""
    if isinstance(value, list):
        return {name: kind for entry in value if isinstance(entry, dict | list) for name, kind in keys(entry, f"{path}[]").items()}
    if not isinstance(value, dict):
        return {}
    return {f"{path}.{key}": type(entry).__name__ for key, entry in value.items()} | {
        name: kind for key, entry in value.items() for name, kind in keys(entry, f"{path}.{key}").items()
    }


def test_a_trained_model_has_every_key_at_every_depth(scene: Scene, peer_dir: Path, tmp_path: Path) -> None:
    """What `train` writes, read back: no key of the peer's file is missing or of another type."""
    model = model_of(peer_dir, scene.name)
    progress = {"training_step": 3000, "loss": 0.1, "rays_per_batch": 1, "measured_batch_size": 2, "measured_batch_size_before_compaction": 3}
    document = snapshot_document(model, scene=scene, **progress)
    write_snapshot(tmp_path / "a.ingp", Snapshot(model, document))
    theirs, ours = keys(read_document(peer_dir / f"{scene.name}_small.ingp")), keys(read_document(tmp_path / "a.ingp"))
    optional = tuple(f".snapshot.nerf.{name}" for name in FITTED_BY_PEER)
    missing = {name for name in theirs if name not in ours and not name.startswith(optional)}
    assert missing == {f".{name}" for name in NOT_WRITTEN}
    assert {name: kind for name, kind in theirs.items() if name in ours and ours[name] != kind} == {}


def test_the_cameras_are_the_peers(scene: Scene, peer_dir: Path) -> None:
    peer = read_document(peer_dir / f"{scene.name}_small.ingp")["snapshot"]["nerf"]["dataset"]
    ours = snapshot_document(model_of(peer_dir, scene.name), scene=scene)["snapshot"]["nerf"]["dataset"]
    order = [ours["paths"].index(path) for path in peer["paths"]]
    assert sorted(order) == list(range(peer["n_images"]))
    scale = FOX_DOWNSCALE if scene.name == "fox" else 1  # the peer trained on lego at half size, on fox at full size
    for i, (theirs, theirs_pose) in zip(order, zip(peer["metadata"], peer["xforms"])):
        mine = ours["metadata"][i]
        assert np.allclose(ours["xforms"][i]["start"], theirs_pose["start"], atol=2e-6)
        assert np.allclose(np.array(mine["focal_length"]) * scale, theirs["focal_length"], rtol=1e-5)
        assert np.allclose(mine["principal_point"], theirs["principal_point"], atol=1e-5)
        assert (mine["lens"] is None) == (theirs["lens"] is None)
        if mine["lens"] is not None:
            assert mine["lens"] == pytest.approx(theirs["lens"], abs=1e-7)
