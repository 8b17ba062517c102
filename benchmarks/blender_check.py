"""Opens a textured .glb in Blender and says what arrived; for an environment of its own (pip install bpy), not part of CI.

    python benchmarks/blender_check.py still_life.glb --size 2.62 2.62 1.17 --picture blender.png

Fails unless there is one mesh object with UVs and a texture image that is not one colour, z up, and, with --size, as large along
Blender's x, y and z as told, within 1 %.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import bpy
import numpy as np

TOLERANCE = 0.01


def check(glb: Path, size: list[float] | None) -> dict[str, Any]:
    """What Blender sees. Raises SystemExit with the first thing that is wrong."""
    bpy.ops.wm.read_factory_settings(use_empty=True)
    bpy.ops.import_scene.gltf(filepath=str(glb))
    meshes = [thing for thing in bpy.context.scene.objects if thing.type == "MESH"]
    if len(meshes) != 1:
        raise SystemExit(f"{len(meshes)} mesh objects, not one")
    thing, data = meshes[0], meshes[0].data
    if len(data.uv_layers) != 1:
        raise SystemExit("no UVs")
    images = [node.image for node in data.materials[0].node_tree.nodes if node.type == "TEX_IMAGE"]
    if len(images) != 1 or float(np.array(images[0].pixels[:40_000]).std()) < 1e-3 and float(np.array(images[0].pixels[:]).std()) < 1e-3:
        raise SystemExit("no texture, or one of a single colour")
    places = np.array([thing.matrix_world @ vertex.co for vertex in data.vertices])
    found = places.max(0) - places.min(0)
    if size and any(abs(a / b - 1) > TOLERANCE for a, b in zip(found, size)):
        raise SystemExit(f"size {found.round(4).tolist()} instead of {size}")
    return {"vertices": len(places), "faces": len(data.polygons), "size": found.tolist(), "low": places.min(0).tolist(), "texture": list(images[0].size)}


def render(path: Path, found: dict[str, Any]) -> None:
    """A picture from the front, above: what is up must be up."""
    centre, reach = np.array(found["low"]) + np.array(found["size"]) / 2, max(found["size"])
    camera = bpy.data.objects.new("eye", bpy.data.cameras.new("eye"))
    bpy.context.scene.collection.objects.link(camera)
    camera.location = centre + np.array([0.0, -1.5, 0.9]) * reach
    camera.rotation_euler = (math.atan2(1.5, 0.9), 0.0, 0.0)
    scene = bpy.context.scene
    scene.camera = camera
    scene.render.engine, scene.cycles.samples, scene.cycles.device = "CYCLES", 4, "CPU"
    scene.render.resolution_x = scene.render.resolution_y = 400
    scene.view_settings.view_transform = "Standard"
    scene.render.filepath = str(path.resolve())
    bpy.ops.render.render(write_still=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glb", type=Path)
    parser.add_argument("--size", type=float, nargs=3)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    found = check(arguments.glb, arguments.size)
    if arguments.picture:
        render(arguments.picture, found)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
