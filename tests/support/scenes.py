"""A small scene with analytic poses: 8 photographs, 32x24, of a coloured cube; and a way to damage its transforms file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WIDTH, HEIGHT, FOCAL, RADIUS = 32, 24, 30.0, 4.0
FACES = np.array([[220, 40, 40], [40, 220, 40], [40, 40, 220], [220, 220, 40], [40, 220, 220], [220, 40, 220]], np.uint8)
"""Colours of the faces -x, +x, -y, +y, -z, +z of the cube [-1, 1]^3."""
BACKGROUND = (90, 100, 110)


def cube_pose(angle: float) -> np.ndarray:
    """[4, 4] OpenGL camera-to-world on a circle of radius 4 at height 1.5, looking at the origin."""
    position = np.array([RADIUS * np.cos(angle), RADIUS * np.sin(angle), 1.5])
    back = position / np.linalg.norm(position)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3] = np.column_stack([right, np.cross(back, right), back, position])
    return pose


def cube_photograph(pose: np.ndarray, width: int = WIDTH, height: int = HEIGHT, focal: float = FOCAL) -> np.ndarray:
    """[height, width, 4] uint8: face colours, alpha 0 where the cube is not hit."""
    x, y = np.meshgrid((np.arange(width) + 0.5 - width / 2) / focal, (np.arange(height) + 0.5 - height / 2) / focal)
    rays = np.stack([x, -y, -np.ones_like(x)], -1) @ pose[:3, :3].T
    with np.errstate(divide="ignore"):
        t = (np.array([-1.0, 1.0])[:, None, None, None] - pose[:3, 3]) / rays
    near, far = t.min(0), t.max(0)
    axis = near.argmax(-1)
    hit = near.max(-1) < far.min(-1)
    side = np.take_along_axis(rays, axis[..., None], -1)[..., 0] < 0
    rgb = FACES[2 * axis + side]
    rgb[~hit] = BACKGROUND
    return np.dstack([rgb, np.where(hit, 255, 0).astype(np.uint8)])


def write_cube_scene(folder: Path, n: int = 8, *, rgba: bool = False, extension: str = "png") -> Path:
    """Writes images/0001.png ... and transforms.json; returns the transforms file."""
    (folder / "images").mkdir(parents=True)
    frames = []
    for i in range(n):
        pose = cube_pose(2 * np.pi * i / n)
        photograph = cube_photograph(pose)
        name = f"images/{i + 1:04d}.{extension}"
        Image.fromarray(photograph if rgba else photograph[..., :3].copy()).save(folder / name)
        frames.append({"file_path": name, "transform_matrix": pose.tolist()})
    root = {"fl_x": FOCAL, "fl_y": FOCAL, "cx": WIDTH / 2, "cy": HEIGHT / 2, "w": WIDTH, "h": HEIGHT, "aabb_scale": 1}
    path = folder / "transforms.json"
    path.write_text(json.dumps({**root, "frames": frames}), encoding="utf-8")
    return path


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Applies ``change`` to the JSON object in place and writes it back."""
    root = json.loads(path.read_text(encoding="utf-8"))
    change(root)
    path.write_text(json.dumps(root, ensure_ascii=False), encoding="utf-8")
    return path
