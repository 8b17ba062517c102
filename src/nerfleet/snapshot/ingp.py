"""instant-ngp snapshots (``.ingp``, ``.msgpack``), read and written: the only place that knows their key names."""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import torch

from nerfleet.config import check_aabb_scale
from nerfleet.errors import NerfleetError
from nerfleet.kernels.march.reference import GRID_SIZE, N_CELLS
from nerfleet.nn.field import field_spec
from nerfleet.nn.model import Model
from nerfleet.nn.occupancy_grid import OccupancyGrid, n_cascades
from nerfleet.presets import network_from_json

MAX_BYTES = 16 << 30
"""Size of an unpacked snapshot that is still read."""
DEFAULT_CONE_ANGLE = 1.0 / 256.0


@dataclass(frozen=True)
class Snapshot:
    """A model and the whole map it came from or goes to (binary blobs included)."""

    model: Model
    document: dict[str, Any]


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot; :class:`NerfleetError` names the file and the key that is wrong."""
    document = read_document(path)
    where = str(path)
    snapshot = _map(document, "snapshot", where)
    if _integer(snapshot, "version", where) < 1:
        raise NerfleetError(where, f"snapshot version {snapshot['version']} is too old", "save it again with a newer instant-ngp")
    if snapshot.get("mode", "nerf") != "nerf":
        raise NerfleetError(where, f"holds a model of kind {snapshot['mode']!r}", "only NeRF models can be read")
    if _integer(snapshot, "density_grid_size", where) != GRID_SIZE:
        raise NerfleetError(where, f"density_grid_size is {snapshot['density_grid_size']}", f"only {GRID_SIZE} is supported")
    nerf = _map(snapshot, "nerf", where)
    aabb_scale = check_aabb_scale(_aabb_scale(nerf), f"{where}: aabb_scale")
    network = network_from_json(document, where)
    spec = field_spec(network, aabb_scale)
    if snapshot.get("params_type", "__half") not in ("__half", "float"):
        raise NerfleetError(where, f"params_type {snapshot['params_type']!r} is not known", "save it again as half or float")
    dtype = np.dtype("<f2" if snapshot.get("params_type", "__half") == "__half" else "<f4")
    expected = spec.n_mlp_params + spec.grid.n_params
    weights = _array(snapshot, "params_binary", dtype, where)
    if len(weights) != expected:
        raise NerfleetError(where, f"params_binary holds {len(weights)} parameters, its configuration has {expected}", "the file is damaged or of another kind")
    values = torch.from_numpy(weights.astype(np.float32))
    model = Model(
        network=network,
        aabb_scale=aabb_scale,
        cone_angle=0.0 if aabb_scale <= 1 else DEFAULT_CONE_ANGLE,
        mlp=values[: spec.n_mlp_params].clone(),
        table=values[spec.n_mlp_params :].clone(),
        occupancy=_read_occupancy(snapshot, aabb_scale, where),
        render_aabb=_read_box(snapshot.get("render_aabb"), where),
    )
    return Snapshot(model, document)


def _read_occupancy(snapshot: dict[str, Any], aabb_scale: int, where: str) -> OccupancyGrid:
    cells = _array(snapshot, "density_grid_binary", np.dtype("<f2"), where)
    expected = n_cascades(aabb_scale) * N_CELLS
    if len(cells) == 0:  # saved before the first step: everything may be occupied
        return OccupancyGrid(torch.zeros(expected), torch.full((expected // 8,), 255, dtype=torch.uint8))
    if len(cells) != expected:
        raise NerfleetError(where, f"density_grid_binary holds {len(cells)} cells, aabb_scale {aabb_scale} has {expected}", "the file is damaged")
    return OccupancyGrid.from_values(torch.from_numpy(cells.astype(np.float32)))


def _aabb_scale(nerf: dict[str, Any]) -> object:
    dataset = nerf.get("dataset")
    return nerf.get("aabb_scale", dataset.get("aabb_scale", 1) if isinstance(dataset, dict) else 1)


def _read_box(value: object, where: str) -> torch.Tensor | None:
    """{min, max} -> [2, 3]; None where it is missing or empty."""
    if not isinstance(value, dict):
        return None
    try:
        box = torch.tensor([[float(v) for v in value[key]] for key in ("min", "max")])
    except (KeyError, TypeError, ValueError):
        raise NerfleetError(where, "render_aabb is not {min, max} of three numbers", "the file is damaged") from None
    if box.shape != (2, 3) or box.isnan().any():
        raise NerfleetError(where, "render_aabb is not {min, max} of three numbers", "the file is damaged")
    return box if bool((box[1] > box[0]).all()) else None


def read_document(path: Path) -> dict[str, Any]:
    """The MessagePack map of a snapshot, unpacked."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NerfleetError(str(path), error.strerror or "cannot be read", "name an .ingp or .msgpack file") from None
    if path.suffix.lower() != ".msgpack":
        data = _decompress(data, path)
    try:
        document = msgpack.unpackb(data, strict_map_key=False, max_bin_len=MAX_BYTES)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise NerfleetError(str(path), f"is not a whole snapshot ({str(error) or 'incomplete'})", "copy the file again") from None
    if not isinstance(document, dict):
        raise NerfleetError(str(path), "is not a snapshot (no map at its top)", "name an .ingp or .msgpack file")
    return document


def _decompress(data: bytes, path: Path) -> bytes:
    """gzip or zlib, with a bound on the result."""
    unpacker = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    try:
        plain = unpacker.decompress(data, MAX_BYTES)
    except zlib.error:
        raise NerfleetError(str(path), "is not compressed as .ingp files are, or is damaged", "copy the file again, or rename it to .msgpack") from None
    if not unpacker.eof:
        raise NerfleetError(str(path), "is truncated or too large", "copy the file again")
    return plain


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write a snapshot map; the extension decides about compression. Appears whole or not at all."""
    data = msgpack.packb(document, use_single_float=False)
    if path.suffix.lower() != ".msgpack":
        data = gzip.compress(data, compresslevel=4, mtime=0)
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise NerfleetError(str(path), error.strerror or "cannot be written", "choose another place") from None


def _map(parent: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict):
        raise NerfleetError(where, f"has no {key!r} map", "is it a NeRF snapshot?")
    return value


def _integer(parent: dict[str, Any], key: str, where: str) -> int:
    value = parent.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise NerfleetError(where, f"snapshot.{key} is {value!r}", "is it a NeRF snapshot?")
    return value


def _array(parent: dict[str, Any], key: str, dtype: np.dtype, where: str) -> np.ndarray:
    value = parent.get(key)
    if not isinstance(value, bytes) or len(value) % dtype.itemsize:
        raise NerfleetError(where, f"snapshot.{key} is missing or cut", "copy the file again")
    return np.frombuffer(value, dtype)
