"""Models to snapshots and back; snapshots that are wrong."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.models import NETWORK, ball_model
from tests.support.scenes import edit, write_cube_scene

from nerfleet.data import load_scene
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Lens
from nerfleet.nn.model import Model
from nerfleet.nn.occupancy_grid import N_CELLS, initial_grid
from nerfleet.snapshot.document import read_document, write_document
from nerfleet.snapshot.ingp import Snapshot, model_from_document, read_snapshot
from nerfleet.snapshot.load import load_model
from nerfleet.snapshot.write import snapshot_document, write_snapshot

REQUIRED = {"version", "density_grid_size", "density_grid_binary", "params_binary", "training_step", "loss", "nerf"}
LISTED = {"mode", "n_params", "params_type", "aabb", "render_aabb", "render_aabb_to_local", "bounding_radius"}
LISTED |= {"up_dir", "sun_dir", "exposure", "background_color", "camera"}
DATASET = {"n_images", "xforms", "render_aabb", "up", "offset", "envmap_resolution", "scale", "aabb_scale", "from_mitsuba"}


@pytest.fixture(scope="module")
def model() -> Model:
    return ball_model(aabb_scale=2)


@pytest.fixture(scope="module")
def document(model: Model) -> dict[str, Any]:
    return snapshot_document(model)


def assert_equal(a: Model, b: Model) -> None:
    for field in dataclasses.fields(Model):
        first, second = getattr(a, field.name), getattr(b, field.name)
        if isinstance(first, torch.Tensor):
            assert torch.equal(first, second), field.name
        elif field.name == "occupancy":
            assert torch.equal(first.values, second.values)
            assert torch.equal(first.bitfield, second.bitfield)
        else:
            assert first == second, field.name


@pytest.mark.parametrize("name", ["a.ingp", "a.msgpack"])
def test_a_new_model_survives_the_file(name: str, model: Model, tmp_path: Path) -> None:
    write_document(tmp_path / name, snapshot_document(model))
    assert_equal(load_model(tmp_path / name), model)


def test_a_new_document_is_complete(model: Model, document: dict[str, Any]) -> None:
    snapshot = document["snapshot"]
    assert set(snapshot) >= REQUIRED | LISTED
    assert set(document) >= {"encoding", "network", "rgb_network", "dir_encoding", "optimizer", "loss"}
    assert set(snapshot["nerf"]["rgb"]) == {"rays_per_batch", "measured_batch_size", "measured_batch_size_before_compaction"}
    assert snapshot["n_params"] * 2 == len(snapshot["params_binary"])
    assert len(snapshot["density_grid_binary"]) == 2 * 2 * N_CELLS
    assert snapshot["aabb"] == snapshot["render_aabb"] == {"min": [-0.5] * 3, "max": [1.5] * 3}
    assert "cone_angle" not in snapshot["nerf"]


def test_progress_is_written(model: Model) -> None:
    progress = {"rays_per_batch": 512, "measured_batch_size": 7, "measured_batch_size_before_compaction": 9}
    first = snapshot_document(model, training_step=12, loss=0.1, **progress)
    again = snapshot_document(model, base=first)
    for snapshot in (first["snapshot"], again["snapshot"]):
        assert snapshot["training_step"] == 12
        assert snapshot["loss"] == float(np.float32(0.1))
        assert snapshot["nerf"]["rgb"] == progress
    assert again == first


def test_the_scene_goes_along(model: Model, tmp_path: Path) -> None:
    path = edit(write_cube_scene(tmp_path / "cube"), lambda root: root.update(k1=0.1, p2=0.01, up=[0, 0, 1]))
    scene = load_scene(path, train_on_all=True)
    nerf = snapshot_document(model, scene=scene)["snapshot"]["nerf"]
    dataset = nerf["dataset"]
    assert set(dataset) >= DATASET
    assert dataset["n_images"] == len(dataset["xforms"]) == len(dataset["metadata"]) == len(dataset["paths"]) == 8
    assert dataset["xforms"][3]["start"] == dataset["xforms"][3]["end"] == scene.cameras.camera_to_world[3].tolist()
    assert dataset["render_aabb"]["min"] == [float("inf")] * 3
    assert dataset["up"] == [0.0, 1.0, 0.0]
    lens = dataset["metadata"][0]["lens"]
    assert (lens["is_fisheye"], lens["k2"]) == (False, 0.0)
    assert [lens["k1"], lens["p2"]] == pytest.approx([0.1, 0.01])
    assert dataset["metadata"][0]["principal_point"] == [0.5, 0.5]


@pytest.mark.parametrize(
    "lens, keys",
    [
        (Lens.PERSPECTIVE, None),
        (Lens.OPENCV_FISHEYE, {"is_fisheye", "k1", "k2", "k3", "k4"}),
        (Lens.FTHETA, {"ftheta_p0", "ftheta_p1", "ftheta_p2", "ftheta_p3", "ftheta_p4", "w", "h"}),
        (Lens.LATLONG, {"latlong"}),
        (Lens.EQUIRECTANGULAR, {"equirectangular"}),
        (Lens.ORTHOGRAPHIC, {"orthographic"}),
    ],
)
def test_lenses(lens: Lens, keys: set[str] | None, model: Model, tmp_path: Path) -> None:
    scene = load_scene(write_cube_scene(tmp_path / "cube"), train_on_all=True)
    cameras = dataclasses.replace(scene.cameras, lens=torch.full_like(scene.cameras.lens, int(lens)))
    written = snapshot_document(model, scene=dataclasses.replace(scene, cameras=cameras))
    found = written["snapshot"]["nerf"]["dataset"]["metadata"][0]["lens"]
    assert found is keys if keys is None else set(found) == keys


def test_what_rendering_uses_is_inside(model: Model, tmp_path: Path) -> None:
    changed = dataclasses.replace(model, cone_angle=0.0, render_aabb=torch.tensor([[0.25] * 3, [0.75, 0.5, 0.75]]))
    write_snapshot(tmp_path / "a.ingp", Snapshot(changed, snapshot_document(model)))
    assert_equal(load_model(tmp_path / "a.ingp"), changed)
    write_snapshot(tmp_path / "b.ingp", Snapshot(model, read_document(tmp_path / "a.ingp")))
    assert_equal(load_model(tmp_path / "b.ingp"), model)


def test_saved_before_the_first_step(tmp_path: Path) -> None:
    scene = load_scene(write_cube_scene(tmp_path / "cube"), train_on_all=True)
    fresh = dataclasses.replace(ball_model(), occupancy=initial_grid(scene.cameras[:1], 1))
    written = snapshot_document(fresh)
    assert written["snapshot"]["density_grid_binary"] == b""
    read = model_from_document(written, "a")
    assert bool((read.occupancy.bitfield == 255).all())
    assert snapshot_document(read, base=written) == written


def test_infinite_cells_survive(model: Model, document: dict[str, Any]) -> None:
    values = model.occupancy.values.clone()
    values[5] = 1e9
    written = snapshot_document(dataclasses.replace(model, occupancy=type(model.occupancy).from_values(values)))
    read = model_from_document(written, "a")
    assert read.occupancy.values[5] == float("inf")
    assert int(read.occupancy.bitfield[0]) & (1 << 5)
    assert snapshot_document(read, base=written) == written


def test_single_precision_weights_stay_so(model: Model, document: dict[str, Any]) -> None:
    single = copy.deepcopy(document)
    weights = torch.cat([model.mlp, model.table]).numpy() + np.float32(1e-6)
    single["snapshot"] |= {"params_type": "float", "params_binary": weights.tobytes()}
    read = model_from_document(single, "a")
    assert np.array_equal(torch.cat([read.mlp, read.table]).numpy(), weights)
    assert snapshot_document(read, base=single) == single


def test_optimizer_state_belongs_to_its_weights(model: Model, document: dict[str, Any]) -> None:
    base = copy.deepcopy(document)
    base["snapshot"]["optimizer"] = {"weights_ema_binary": b"123"}
    assert "optimizer" in snapshot_document(model, base=base)["snapshot"]
    assert "optimizer" not in snapshot_document(dataclasses.replace(model, mlp=model.mlp * 2), base=base)["snapshot"]


def put(*keys: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        for key in keys[:-1]:
            document = document.setdefault(key, {})
        if value is None:
            del document[keys[-1]]
        else:
            document[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change, expected",
    [
        (put("snapshot", value=None), "has no 'snapshot' map"),
        (put("snapshot", "version", value=0), "snapshot version 0 is too old"),
        (put("snapshot", "version", value="1"), "snapshot.version is '1'"),
        (put("snapshot", "mode", value="sdf"), "a model of kind 'sdf'"),
        (put("snapshot", "density_grid_size", value=64), "density_grid_size is 64"),
        (put("snapshot", "nerf", value=None), "has no 'nerf' map"),
        (put("snapshot", "nerf", "aabb_scale", value=3), "aabb_scale: 3 is not a power of two"),
        (put("snapshot", "nerf", "aabb_scale", value=8), "parameters, its configuration has|cells, aabb_scale 8 has"),
        (put("snapshot", "nerf", "cone_angle", value=-1), "cone_angle is -1"),
        (put("snapshot", "nerf", "dataset", value={"n_extra_learnable_dims": 4}), "appearance latents"),
        (put("snapshot", "nerf", "dataset", value={"is_hdr": True}), "HDR"),
        (put("snapshot", "params_type", value="int8"), "params_type 'int8'"),
        (put("snapshot", "params_type", value=["float"]), r"params_type \['float'\]"),
        (put("snapshot", "params_binary", value=b"\0" * 100), "params_binary holds 50 parameters, its configuration has"),
        (put("snapshot", "params_binary", value=b"\0" * 101), "params_binary is missing or cut"),
        (put("snapshot", "params_binary", value=None), "params_binary is missing or cut"),
        (put("snapshot", "density_grid_binary", value=b"\0" * 200), "density_grid_binary holds 100 cells"),
        (put("snapshot", "render_aabb", value={"min": [0, 0], "max": [1, 1]}), "render_aabb is not"),
        (put("snapshot", "render_aabb", value={"min": ["a"] * 3, "max": [1] * 3}), "render_aabb is not"),
        (put("encoding", "n_levels", value=30), "its configuration has"),
        (put("encoding", "n_levels", value=3.5), "n_levels is 3.5"),
        (put("encoding", "n_levels", value=1000), "n_levels"),
        (put("encoding", value=[]), "encoding is not an object"),
        (put("rgb_network", "activation", value="Sine"), "rgb_network has the activation 'Sine'"),
    ],
)
def test_wrong_snapshots_are_one_line(change: Callable[[dict[str, Any]], None], expected: str, document: dict[str, Any]) -> None:
    wrong = copy.deepcopy(document)
    change(wrong)
    with pytest.raises(NerfleetError, match=expected) as error:
        model_from_document(wrong, "wrong.ingp")
    assert str(error.value).startswith("wrong.ingp")
    assert "\n" not in str(error.value)


def test_progress_of_the_wrong_kind_is_replaced(document: dict[str, Any], model: Model) -> None:
    wrong = copy.deepcopy(document)
    wrong["snapshot"]["nerf"]["rgb"] = 3
    written = snapshot_document(model, base=wrong, rays_per_batch=7)
    assert written["snapshot"]["nerf"]["rgb"] == {"rays_per_batch": 7}


def test_a_turned_crop_is_refused(document: dict[str, Any]) -> None:
    turned = copy.deepcopy(document)
    turned["snapshot"]["render_aabb_to_local"] = [[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    model_from_document(turned, "a")  # no crop, nothing to turn
    turned["snapshot"]["render_aabb"] = {"min": [0.2] * 3, "max": [0.8] * 3}
    with pytest.raises(NerfleetError, match="is turned"):
        model_from_document(turned, "a")


def test_optional_keys_may_be_missing(model: Model, document: dict[str, Any]) -> None:
    bare = copy.deepcopy(document)
    for name in ("render_aabb", "mode", "params_type", "n_params", "camera"):
        del bare["snapshot"][name]
    assert_equal(model_from_document(bare, "a"), model)


def test_a_model_is_a_file_or_a_run_folder(model: Model, tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_document(run / "model.ingp", snapshot_document(model))
    assert_equal(load_model(run), model)
    write_cube_scene(tmp_path / "cube")
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("x")
    wrong = {"cube": "is a scene", "empty": "holds no model.ingp", "none": "does not exist", "a.txt": "is not a model"}
    for name, expected in wrong.items():
        with pytest.raises(NerfleetError, match=expected):
            load_model(tmp_path / name)


def test_read_snapshot_keeps_the_document(document: dict[str, Any], tmp_path: Path) -> None:
    other = copy.deepcopy(document) | {"parent": "base.json", "unknown": {"x": [1, 2.5]}}
    write_document(tmp_path / "a.ingp", other)
    snapshot = read_snapshot(tmp_path / "a.ingp")
    assert snapshot.document == other
    assert snapshot.model.network == NETWORK
    assert snapshot_document(snapshot.model, base=snapshot.document) == other
