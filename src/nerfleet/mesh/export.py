"""Meshes to files: binary glTF, Wavefront OBJ with MTL and PNG, Stanford PLY. Each file appears whole or not at all.

The formats' own rules: glTF 2.0 (Khronos) is y-up, its UV origin is the top left, its vertex colours are linear; OBJ's UV origin
is the bottom left; PLY holds uchar sRGB colours. What is baked holds the scene's light already, so the glTF material is unlit.
"""

from __future__ import annotations

import io
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Cameras, Lens
from nerfleet.geometry.color import srgb_to_linear
from nerfleet.mesh.asset import Asset

SUFFIXES = (".glb", ".obj", ".ply")
_FLOAT, _UINT, _USHORT = 5126, 5125, 5123
_VERTICES, _INDICES = 34962, 34963
_LINES_AT_ONCE = 1 << 16


def write_asset(path: Path, asset: Asset, cameras: Cameras | None = None) -> list[Path]:
    """Write a mesh (or, without faces, a point cloud); the suffix decides the format.

    Args:
        cameras: go into a .glb as camera nodes; the same space as the mesh, OpenGL axes.

    Returns:
        The files written.

    Raises:
        NerfleetError: another suffix, or a place that cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix == ".glb":
        files = {path: glb_bytes(asset, cameras)}
    elif suffix == ".ply":
        files = {path: ply_bytes(asset)}
    elif suffix == ".obj":
        files = _obj_files(path, asset)
    else:
        raise NerfleetError(str(path), "is no .glb, .obj or .ply file", "choose one of these extensions")
    write_files(files)
    return list(files)


def write_files(files: dict[Path, bytes]) -> None:
    """All of them under temporary names first. Raises: NerfleetError: a place that cannot be written."""
    temporary = {path: path.with_name(path.name + ".part") for path in files}
    path = next(iter(files))
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary[path].write_bytes(content)
        for path in files:
            os.replace(temporary[path], path)
    except OSError as error:
        for name in temporary.values():
            if name.is_file():
                name.unlink()
        raise NerfleetError(str(path), error.strerror or "cannot be written", "choose another place") from None


def _bytes_of_colours(colours: Tensor) -> NDArray[np.uint8]:
    return (colours.clamp(0, 1) * 255 + 0.5).to(torch.uint8).numpy()


def png_bytes(picture: Tensor) -> bytes:
    """[h, w, 3] uint8 -> PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture.numpy()).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def ply_bytes(asset: Asset) -> bytes:
    """Binary little endian; normals, uchar colours."""
    fields: list[tuple[str, str]] = [(name, "<f4") for name in ("x", "y", "z", "nx", "ny", "nz")]
    if asset.colours is not None:
        fields += [(name, "u1") for name in ("red", "green", "blue")]
    rows = np.zeros(len(asset.vertices), np.dtype(fields))
    for i, name in enumerate(("x", "y", "z")):
        rows[name], rows["n" + name] = asset.vertices[:, i].numpy(), asset.normals[:, i].numpy()
    if asset.colours is not None:
        for name, column in zip(("red", "green", "blue"), _bytes_of_colours(asset.colours).T):
            rows[name] = column
    names = {"<f4": "float", "u1": "uchar"}
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(rows)}"]
    lines += [f"property {names[kind]} {name}" for name, kind in fields]
    content = rows.tobytes()
    if len(asset.faces):
        faces = np.zeros(len(asset.faces), np.dtype([("n", "u1"), ("corners", "<i4", 3)]))
        faces["n"], faces["corners"] = 3, asset.faces.numpy()
        lines += [f"element face {len(faces)}", "property list uchar int vertex_indices"]
        content += faces.tobytes()
    return ("\n".join([*lines, "end_header"]) + "\n").encode() + content


def _obj_files(path: Path, asset: Asset) -> dict[Path, bytes]:
    if len(asset.faces) == 0 and len(asset.vertices):
        raise NerfleetError(str(path), "OBJ files hold no point clouds", "write a .ply file")
    files: dict[Path, bytes] = {}
    if asset.uv is not None and asset.texture is not None:
        material, picture = path.with_suffix(".mtl"), path.with_suffix(".png")
        files[picture] = png_bytes(asset.texture)
        lines = ["newmtl baked", "Ka 0 0 0", "Kd 1 1 1", "Ks 0 0 0", "illum 1", f"map_Kd {picture.name}"]
        files[material] = ("\n".join(lines) + "\n").encode()
    return files | {path: obj_bytes(asset, path)}


def obj_bytes(asset: Asset, path: Path) -> bytes:
    """Text; without a texture, colours follow the places (as MeshLab and Blender read them)."""
    out = io.BytesIO()
    textured = asset.uv is not None and asset.texture is not None
    if textured:
        out.write(f"mtllib {path.with_suffix('.mtl').name}\nusemtl baked\n".encode())
    out.write(b"o mesh\n")
    places = asset.vertices.numpy()
    if asset.colours is not None and not textured:
        places = np.hstack([places, asset.colours.clamp(0, 1).numpy()])
    _lines(out, "v" + " %.7g" * places.shape[1], places)
    if textured:
        assert asset.uv is not None
        _lines(out, "vt %.7g %.7g", np.stack([asset.uv[:, 0].numpy(), 1 - asset.uv[:, 1].numpy()], -1))
    _lines(out, "vn %.4f %.4f %.4f", asset.normals.numpy())
    corner = "%d/%d/%d" if textured else "%d//%d"
    repeated = np.repeat(asset.faces.numpy() + 1, 3 if textured else 2, axis=1)
    _lines(out, f"f {corner} {corner} {corner}", repeated)
    return out.getvalue()


def _lines(out: io.BytesIO, pattern: str, rows: NDArray[Any]) -> None:
    for first in range(0, len(rows), _LINES_AT_ONCE):
        part = rows[first : first + _LINES_AT_ONCE]
        out.write((((pattern + "\n") * len(part)) % tuple(part.ravel().tolist())).encode())


class _Buffer:
    """glTF's binary part and the entries that describe it."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.views: list[dict[str, Any]] = []
        self.accessors: list[dict[str, Any]] = []

    def view(self, content: bytes, target: int | None = None) -> int:
        self.views.append({"buffer": 0, "byteOffset": self.size, "byteLength": len(content)} | ({} if target is None else {"target": target}))
        padding = -len(content) % 4
        self.parts += [content, b"\0" * padding]
        self.size += len(content) + padding
        return len(self.views) - 1

    def accessor(self, values: NDArray[Any], kind: str, component: int, target: int, limits: bool = False, normalized: bool = False) -> int:
        entry: dict[str, Any] = {"bufferView": self.view(values.tobytes(), target), "componentType": component, "count": len(values), "type": kind}
        if kind == "SCALAR":
            entry["count"] = values.size
        if limits:
            entry |= {"min": values.min(0).tolist(), "max": values.max(0).tolist()}
        if normalized:
            entry["normalized"] = True
        self.accessors.append(entry)
        return len(self.accessors) - 1


def glb_bytes(asset: Asset, cameras: Cameras | None = None) -> bytes:
    """One binary glTF file with everything in it; the mesh must be y-up already."""
    if len(asset.vertices) == 0:
        raise NerfleetError("mesh", "is empty", "lower the threshold, or widen the crop box")
    buffer = _Buffer()
    attributes = {
        "POSITION": buffer.accessor(asset.vertices.float().contiguous().numpy(), "VEC3", _FLOAT, _VERTICES, limits=True),
        "NORMAL": buffer.accessor(asset.normals.float().contiguous().numpy(), "VEC3", _FLOAT, _VERTICES),
    }
    material: dict[str, Any] = {"name": "baked", "pbrMetallicRoughness": {"metallicFactor": 0.0, "roughnessFactor": 1.0}, "doubleSided": True}
    material["extensions"] = {"KHR_materials_unlit": {}}
    document: dict[str, Any] = {"asset": {"version": "2.0", "generator": "nerfleet"}, "extensionsUsed": ["KHR_materials_unlit"]}
    if asset.uv is not None and asset.texture is not None:
        attributes["TEXCOORD_0"] = buffer.accessor(asset.uv.float().contiguous().numpy(), "VEC2", _FLOAT, _VERTICES)
        document["images"] = [{"name": "baked", "mimeType": "image/png", "bufferView": buffer.view(png_bytes(asset.texture))}]
        document |= {"samplers": [{"magFilter": 9729, "minFilter": 9987}], "textures": [{"source": 0, "sampler": 0}]}
        material["pbrMetallicRoughness"]["baseColorTexture"] = {"index": 0}
    elif asset.colours is not None:
        linear = (srgb_to_linear(asset.colours.clamp(0, 1)) * 65535 + 0.5).int().numpy().astype(np.uint16)
        padded = np.concatenate([linear, np.full((len(linear), 1), 65535, np.uint16)], 1)  # rows must be whole words
        attributes["COLOR_0"] = buffer.accessor(padded, "VEC4", _USHORT, _VERTICES, normalized=True)
    primitive: dict[str, Any] = {"attributes": attributes, "material": 0}
    if len(asset.faces):
        primitive["indices"] = buffer.accessor(asset.faces.numpy().astype(np.uint32).ravel(), "SCALAR", _UINT, _INDICES)
    else:
        primitive["mode"] = 0
    nodes: list[dict[str, Any]] = [{"name": "mesh", "mesh": 0}]
    if cameras is not None:
        document["cameras"], camera_nodes = _camera_nodes(cameras)
        nodes += camera_nodes
    document |= {"meshes": [{"name": "mesh", "primitives": [primitive]}], "materials": [material], "nodes": nodes}
    document |= {"scene": 0, "scenes": [{"nodes": list(range(len(nodes)))}], "buffers": [{"byteLength": buffer.size}]}
    document |= {"bufferViews": buffer.views, "accessors": buffer.accessors}
    text = json.dumps(document, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    head = struct.pack("<4sII", b"glTF", 2, 12 + 8 + len(text) + 8 + buffer.size)
    return b"".join([head, struct.pack("<I4s", len(text), b"JSON"), text, struct.pack("<I4s", buffer.size, b"BIN\0"), *buffer.parts])


def _camera_nodes(cameras: Cameras) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Perspective cameras only; principal points off the centre and lens distortion have no place in glTF."""
    lenses: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    for i in range(len(cameras)):
        if int(cameras.lens[i]) not in (Lens.PERSPECTIVE, Lens.OPENCV):
            continue
        width, height = (int(v) for v in cameras.resolution[i])
        angle = 2 * float(torch.atan(0.5 * height / cameras.focal[i, 1]))
        lenses.append({"type": "perspective", "perspective": {"yfov": angle, "aspectRatio": width / height, "znear": 0.01}})
        pose = torch.eye(4)
        pose[:3] = cameras.camera_to_world[i]
        nodes.append({"name": f"camera {i}", "camera": len(lenses) - 1, "matrix": pose.T.flatten().tolist()})
    return lenses, nodes
