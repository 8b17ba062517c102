"""instant-ngp snapshots (``.ingp``, ``.msgpack``) to models. The files of this room alone know instant-ngp's key names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerfleet.config import check_aabb_scale, default_cone_angle
from nerfleet.errors import NerfleetError
from nerfleet.geometry.box import scene_box
from nerfleet.nn.field import field_spec
from nerfleet.nn.model import Model
from nerfleet.nn.occupancy_grid import GRID_SIZE, N_CELLS, OccupancyGrid, n_cascades
from nerfleet.presets import network_from_json
from nerfleet.snapshot.document import read_document

PARAMETER_TYPES: dict[str, np.dtype[Any]] = {"__half": np.dtype("<f2"), "float": np.dtype("<f4")}
CELL_TYPE = np.dtype("<f2")


@dataclass(frozen=True)
class Snapshot:
    """A model and the whole map that it came from (binary blobs included)."""

    model: Model
    document: dict[str, Any]


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot.

    Raises:
        NerfleetError: names the file, the key that is wrong and the remedy.
    """
    document = read_document(path)
    return Snapshot(model_from_document(document, str(path)), document)


def model_from_document(document: dict[str, Any], where: str) -> Model:
    """The model in a snapshot's map, on the CPU; ``where`` names the file in errors."""
    snapshot = _map(document, "snapshot", where)
    _check_kind(document, snapshot, where)
    nerf = _map(snapshot, "nerf", where)
    aabb_scale = check_aabb_scale(_aabb_scale(nerf), f"{where}: aabb_scale")
    network = network_from_json(document, where)
    spec = field_spec(network, aabb_scale)
    params_type = snapshot.get("params_type", "__half")
    if not isinstance(params_type, str) or params_type not in PARAMETER_TYPES:
        raise NerfleetError(where, f"params_type {params_type!r} is not known", "save it again as half or float")
    weights = _array(snapshot, "params_binary", PARAMETER_TYPES[params_type], where)
    expected = spec.n_mlp_params + spec.grid.n_params
    if len(weights) != expected:
        wrong = f"params_binary holds {len(weights)} parameters, its configuration has {expected}"
        raise NerfleetError(where, wrong, "the file is damaged or of another kind")
    values = torch.from_numpy(weights.astype(np.float32))
    return Model(
        network=network,
        aabb_scale=aabb_scale,
        cone_angle=cone_angle_of(nerf, aabb_scale, where),
        mlp=values[: spec.n_mlp_params].clone(),
        table=values[spec.n_mlp_params :].clone(),
        occupancy=_read_occupancy(snapshot, aabb_scale, where),
        render_aabb=crop_box(snapshot, aabb_scale, where),
    )


def _check_kind(document: dict[str, Any], snapshot: dict[str, Any], where: str) -> None:
    """Raises NerfleetError for what the rest could only misread."""
    if _integer(snapshot, "version", where) < 1:
        raise NerfleetError(where, f"snapshot version {snapshot['version']} is too old", "save it again with a newer instant-ngp")
    if snapshot.get("mode", "nerf") != "nerf":
        raise NerfleetError(where, f"holds a model of kind {snapshot['mode']!r}", "only NeRF models can be read")
    if _integer(snapshot, "density_grid_size", where) != GRID_SIZE:
        raise NerfleetError(where, f"density_grid_size is {snapshot['density_grid_size']}", f"only {GRID_SIZE} is supported")
    nerf = snapshot.get("nerf")
    dataset = nerf.get("dataset") if isinstance(nerf, dict) else None
    if isinstance(dataset, dict) and dataset.get("n_extra_learnable_dims"):
        raise NerfleetError(where, "has appearance latents per photograph (n_extra_learnable_dims)", "train it without them")
    if isinstance(dataset, dict) and dataset.get("is_hdr"):
        raise NerfleetError(where, "was trained on HDR photographs", "only models of ordinary photographs can be read")
    for name in ("network", "rgb_network"):
        section = document.get(name)
        activation = section.get("activation", "ReLU") if isinstance(section, dict) else "ReLU"
        if activation != "ReLU":
            raise NerfleetError(where, f"{name} has the activation {activation!r}", "only ReLU is supported")


def training_step(document: dict[str, Any]) -> int:
    """Steps that a snapshot's model was trained for; 0 where its map does not tell."""
    step = document["snapshot"].get("training_step")
    return step if isinstance(step, int) and not isinstance(step, bool) and step > 0 else 0


def cone_angle_of(nerf: dict[str, Any], aabb_scale: int, where: str) -> float:
    """instant-ngp derives it; our own key ``cone_angle`` is written where a run was trained with another one."""
    value = nerf.get("cone_angle", default_cone_angle(aabb_scale))
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise NerfleetError(where, f"snapshot.nerf.cone_angle is {value!r}", "the file is damaged")
    return float(value)


def _read_occupancy(snapshot: dict[str, Any], aabb_scale: int, where: str) -> OccupancyGrid:
    cells = _array(snapshot, "density_grid_binary", CELL_TYPE, where)
    expected = n_cascades(aabb_scale) * N_CELLS
    if len(cells) == 0:  # saved before the first step: everything may be occupied
        return OccupancyGrid(torch.zeros(expected), torch.full((expected // 8,), 255, dtype=torch.uint8))
    if len(cells) != expected:
        wrong = f"density_grid_binary holds {len(cells)} cells, aabb_scale {aabb_scale} has {expected}"
        raise NerfleetError(where, wrong, "the file is damaged")
    return OccupancyGrid.from_values(torch.from_numpy(cells.astype(np.float32)))


def _aabb_scale(nerf: dict[str, Any]) -> object:
    dataset = nerf.get("dataset")
    return nerf.get("aabb_scale", dataset.get("aabb_scale", 1) if isinstance(dataset, dict) else 1)


def crop_box(snapshot: dict[str, Any], aabb_scale: int, where: str) -> Tensor | None:
    """[2, 3] crop box in internal space; None where it is missing, empty, or leaves the whole scene box."""
    box = _box(snapshot.get("render_aabb"), where)
    whole = scene_box(aabb_scale)
    if box is None or bool((box[0] <= whole[0]).all() and (box[1] >= whole[1]).all()):
        return None
    turn = snapshot.get("render_aabb_to_local", [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    if turn != [[1, 0, 0], [0, 1, 0], [0, 0, 1]]:
        raise NerfleetError(where, "its crop box is turned (render_aabb_to_local)", "reset the crop in instant-ngp")
    return box


def _box(value: object, where: str) -> Tensor | None:
    if not isinstance(value, dict):
        return None
    try:
        box = torch.tensor([[float(v) for v in value[key]] for key in ("min", "max")])
    except (KeyError, TypeError, ValueError):
        box = torch.empty(0)
    if box.shape != (2, 3) or box.isnan().any():
        raise NerfleetError(where, "render_aabb is not {min, max} of three numbers", "the file is damaged")
    return box if bool((box[1] > box[0]).all()) else None


def _map(parent: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict):
        raise NerfleetError(where, f"has no {key!r} map", "is it a NeRF snapshot?")
    return value


def _integer(parent: dict[str, Any], key: str, where: str) -> int:
    """``snapshot.<key>``, a whole number."""
    value = parent.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise NerfleetError(where, f"snapshot.{key} is {value!r}", "is it a NeRF snapshot?")
    return value


def _array(parent: dict[str, Any], key: str, dtype: np.dtype, where: str) -> np.ndarray:
    value = parent.get(key)
    if not isinstance(value, bytes) or len(value) % dtype.itemsize:
        raise NerfleetError(where, f"snapshot.{key} is missing or cut", "copy the file again")
    return np.frombuffer(value, dtype)
