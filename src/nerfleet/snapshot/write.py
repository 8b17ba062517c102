"""Models to instant-ngp snapshots: every key that instant-ngp itself writes, with its type."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerfleet.config import default_cone_angle
from nerfleet.data.scene import Scene
from nerfleet.geometry.box import scene_box
from nerfleet.nn.model import Model
from nerfleet.nn.occupancy_grid import GRID_SIZE, OccupancyGrid
from nerfleet.presets import network_from_json, network_to_json
from nerfleet.snapshot.dataset import IDENTITY, dataset_document, singles, up_direction
from nerfleet.snapshot.document import write_document
from nerfleet.snapshot.ingp import CELL_TYPE, PARAMETER_TYPES, Snapshot, crop_box

VERSION = 1
_INITIAL_RAYS = 4096
_DECAY = {"decay_base": 0.33, "decay_interval": 10_000, "decay_start": 20_000, "otype": "ExponentialDecay"}
_ADAM = {"beta1": 0.9, "beta2": 0.99, "otype": "Adam"}
_SHAMPOO: dict[str, Any] = {
    "beta3": 0.9,
    "beta_shampoo": 0.0,
    "cg_on_momentum": False,
    "frobenius_normalization": True,
    "identity": 1e-4,
    "l2_reg": 1e-10,
}
"""Of another optimizer; instant-ngp's files carry them along."""
_UNUSED_PARTS: dict[str, Any] = {
    "distortion_map": {
        "optimizer": _DECAY | {"decay_end": 25_000, "nested": _ADAM | {"epsilon": 1e-8, "learning_rate": 1e-4}},
        "resolution": [32, 32],
    },
    "envmap": {
        "loss": {"otype": "RelativeL2"},
        "optimizer": {
            "decay": 0.99,
            "nested": _DECAY | {"nested": _ADAM | {"epsilon": 1e-10, "learning_rate": 1e-2} | _SHAMPOO},
            "otype": "Ema",
        },
    },
}
"""How instant-ngp would go on to fit a lens correction and an environment map; it wants to find them."""
_START_CAMERA: dict[str, Any] = {
    "aperture_size": 0.0,
    "autofocus": False,
    "autofocus_depth": 0.0,
    "autofocus_target": [0.5, 0.5, 0.5],
    "fov_axis": 1,
    "matrix": [[1.0, 0.0, 0.0, 0.5], [0.0, -1.0, 0.0, 0.5], [0.0, 0.0, -1.0, 2.0]],
    "relative_focal_length": [1.0571610927581787] * 2,
    "scale": 1.5,
    "screen_center": [0.5, 0.5],
    "zoom": 1.0,
}
"""Where instant-ngp's window looks from at first: 50.6 degrees, 1.5 in front of the centre."""


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write a model and the rest of the map it came from; whole or not at all. Errors as :func:`write_document`."""
    write_document(path, snapshot_document(snapshot.model, base=snapshot.document))


def snapshot_document(
    model: Model,
    *,
    scene: Scene | None = None,
    training_step: int | None = None,
    loss: float | None = None,
    rays_per_batch: int | None = None,
    measured_batch_size: int | None = None,
    measured_batch_size_before_compaction: int | None = None,
    base: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A snapshot's map.

    Args:
        scene: what it was trained on; its cameras go along (instant-ngp needs them to open a model without photographs).
        training_step, loss, rays_per_batch, measured_batch_size, measured_batch_size_before_compaction: None: as in
            ``base``, else those of a run that has not begun.
        base: a map that was read; all that the model does not change stays as it is there.
    """
    document = _new_document(model) if base is None else copy.deepcopy(base)
    snapshot = document["snapshot"]
    if base is not None and network_from_json(base, "base") != model.network:
        document |= network_to_json(model.network)
    _put_weights(document, model)
    _put_boxes(document, model)
    progress = {"training_step": training_step, "loss": None if loss is None else singles([loss])[0]}
    snapshot |= {key: value for key, value in progress.items() if value is not None}
    rays = {
        "rays_per_batch": rays_per_batch,
        "measured_batch_size": measured_batch_size,
        "measured_batch_size_before_compaction": measured_batch_size_before_compaction,
    }
    before = snapshot["nerf"].get("rgb")
    snapshot["nerf"]["rgb"] = (before if isinstance(before, dict) else {}) | {key: value for key, value in rays.items() if value is not None}
    if scene is not None:
        _put_scene(snapshot, scene)
    return document


def _new_document(model: Model) -> dict[str, Any]:
    rgb = {"measured_batch_size": 0, "measured_batch_size_before_compaction": 0, "rays_per_batch": _INITIAL_RAYS}
    snapshot = {
        "background_color": [0.0, 0.0, 0.0, 1.0],
        "bounding_radius": 1.0,
        "camera": copy.deepcopy(_START_CAMERA),
        "density_grid_size": GRID_SIZE,
        "exposure": 0.0,
        "loss": 0.0,
        "mode": "nerf",
        "nerf": {"aabb_scale": model.aabb_scale, "rgb": rgb},
        "params_type": "__half",
        "render_aabb_to_local": IDENTITY,
        "sun_dir": singles([3**-0.5] * 3),
        "training_step": 0,
        "up_dir": [0.0, 1.0, 0.0],
        "version": VERSION,
    }
    return network_to_json(model.network) | copy.deepcopy(_UNUSED_PARTS) | {"snapshot": snapshot}


def _put_weights(document: dict[str, Any], model: Model) -> None:
    """Parameters and occupancy. Optimizer state of other weights is dropped."""
    snapshot = document["snapshot"]
    weights = torch.cat([model.mlp.detach().cpu().float(), model.table.detach().cpu().float()]).numpy()
    dtype = PARAMETER_TYPES[snapshot.get("params_type", "__half")]
    with np.errstate(over="ignore"):  # beyond half precision: infinite, as instant-ngp stores it
        binary = weights.astype(dtype).tobytes()
        cells = _stored_cells(model.occupancy).astype(CELL_TYPE).tobytes()
    if snapshot.get("params_binary", binary) != binary:
        snapshot.pop("optimizer", None)
    snapshot |= {"params_binary": binary, "n_params": len(weights), "density_grid_binary": cells}


def _stored_cells(occupancy: OccupancyGrid) -> np.ndarray:
    """[n] float32; empty for a grid that was never refreshed (bits without densities), so that it is read as one."""
    values = occupancy.values.detach().cpu().float()
    if bool(occupancy.bitfield.any()) and not bool((values > 0).any()):
        values = values[:0]
    return values.numpy()


def _put_boxes(document: dict[str, Any], model: Model) -> None:
    """Scene box, crop box and cone angle, where they differ from what is there."""
    snapshot = document["snapshot"]
    snapshot["nerf"].setdefault("aabb_scale", model.aabb_scale)
    snapshot.setdefault("aabb", _box(scene_box(model.aabb_scale)))
    if "render_aabb" not in snapshot or not _same(crop_box(snapshot, model.aabb_scale, "base"), model.render_aabb):
        snapshot["render_aabb"] = snapshot["aabb"] if model.render_aabb is None else _box(model.render_aabb)
    snapshot["nerf"].pop("cone_angle", None)
    if model.cone_angle != default_cone_angle(model.aabb_scale):
        snapshot["nerf"]["cone_angle"] = model.cone_angle


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b if a is None or b is None else torch.equal(a, b)


def _box(box: Tensor) -> dict[str, list[float]]:
    return {"max": box[1].tolist(), "min": box[0].tolist()}


def _put_scene(snapshot: dict[str, Any], scene: Scene) -> None:
    snapshot["nerf"]["dataset"] = dataset_document(scene)
    snapshot["up_dir"] = up_direction(scene)
    if scene.background is not None:
        snapshot["background_color"] = singles(list(scene.background))
    for name in ("cam_pos_offset", "cam_rot_offset", "extra_dims_opt"):  # one entry for each photograph of another scene
        snapshot["nerf"].pop(name, None)
