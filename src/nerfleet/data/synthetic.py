"""The built-in scene: exact photographs, depth, masks and surface, ray traced in seconds; ``nerfleet demo`` and the tests use it.

A still life (synthetic_still_life.py) inside the unit cube of internal space, seen by cameras on the upper hemisphere; where a
ray hits nothing the photograph is transparent. Three splits of any number of views, each with a Fibonacci set of directions.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nerfleet.data.scene import Scene
from nerfleet.data.synthetic_still_life import N_GROUND_PRIMITIVES, still_life
from nerfleet.data.synthetic_tracer import bake_rows, centre_rows, distance_rows, render_rows
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import N_LENS_PARAMS, Cameras, Lens
from nerfleet.geometry.poses import SceneTransform

NAME = "still_life"
SPLITS = ("train", "val", "test")
LOOK_AT = (0.5, 0.40, 0.5)
FOCAL = 1.22
"""Focal length as a multiple of the image's shorter side."""
_LIGHT_MAP_RESOLUTION = 256
Part = Literal["all", "object", "ground"]


def synthetic_scene(
    split: str = "train", n_views: int = 60, width: int = 128, height: int = 128, seed: int = 0, supersample: int = 3
) -> Scene:
    """Photograph the built-in scene.

    Args:
        split: "train", "val" or "test"; each has its own camera positions.
        n_views, width, height: any positive numbers (pixels).
        seed: turns and jitters the camera set; the scene itself never changes.
        supersample: samples a pixel along each axis.

    Returns:
        A scene of names ``train/view_000`` ..., aabb_scale 1, with straight alpha and depth (of the pixel's centre).

    Raises:
        NerfleetError: unknown split, or a number that is not positive.
    """
    if split not in SPLITS:
        raise NerfleetError(f"built-in scene, split {split!r}", "does not exist", f"choose one of {', '.join(SPLITS)}")
    for name, value in (("n_views", n_views), ("width", width), ("height", height), ("supersample", supersample)):
        if value < 1:
            raise NerfleetError(f"built-in scene, {name} = {value}", "must be at least 1", f"give a positive {name}")
    cameras = _cameras(split, n_views, width, height, seed)
    poses, intrinsics = _arrays(cameras)
    content = still_life()
    pixels = np.zeros((n_views, height, width, 4), np.uint8)
    light = (_light_map(), content.table_height)
    _in_threads(render_rows, n_views * height, content.arrays, *light, poses, intrinsics, supersample, pixels)
    depth, _ = _trace_centres(cameras)
    return Scene(
        name=NAME,
        path=None,
        split=split,
        names=tuple(f"{split}/view_{i:03d}" for i in range(n_views)),
        cameras=cameras,
        pixels=torch.from_numpy(pixels.reshape(-1, 4)),
        pixel_offsets=torch.arange(n_views + 1, dtype=torch.int64) * (width * height),
        aabb_scale=1,
        transform=SceneTransform(),
        depth=torch.from_numpy(depth.astype(np.float16).reshape(-1)),
        has_alpha=True,
    )


def object_masks(scene: Scene) -> Tensor:
    """[n, h, w] bool: the pixel's centre hits an object, neither the table nor nothing. For views of equal size only."""
    return trace_surface(scene.cameras)[1] >= N_GROUND_PRIMITIVES


def trace_surface(cameras: Cameras) -> tuple[Tensor, Tensor]:
    """Exact first hit through every pixel's centre, for perspective cameras of one size.

    Returns:
        depth [n, h, w] float64, multiples of the unnormalised camera ray (0 = nothing hit);
        primitive index [n, h, w] int64 (-1 = nothing; below ``N_GROUND_PRIMITIVES`` = table).

    Raises:
        NerfleetError: the cameras differ in size or have a lens.
    """
    sizes = torch.unique(cameras.resolution, dim=0)
    if len(sizes) != 1 or bool((cameras.lens != Lens.PERSPECTIVE).any()):
        raise NerfleetError("built-in scene", "can only trace perspective cameras of one size", "call it for one size at a time")
    depth, primitive = _trace_centres(cameras)
    return torch.from_numpy(depth), torch.from_numpy(primitive)


def signed_distance(points: Tensor, part: Part = "all") -> Tensor:
    """Distance from points [n, 3] (internal space) to the surface of ``part``, negative inside -> [n], same dtype.

    Exact outside and on the surface; inside overlapping solids it is a lower bound of the depth.
    """
    content = still_life()
    first = N_GROUND_PRIMITIVES if part == "object" else 0
    last = N_GROUND_PRIMITIVES if part == "ground" else content.n_primitives
    array = points.detach().to("cpu", torch.float64).reshape(-1, 3).contiguous().numpy()
    out = np.empty(len(array))
    _in_threads(distance_rows, len(array), content.arrays, array, first, last, out)
    return torch.from_numpy(out).to(points.dtype)


def write_scene(
    folder: Path,
    n_train: int = 60,
    n_val: int = 8,
    n_test: int = 12,
    width: int = 128,
    height: int = 128,
    seed: int = 0,
    supersample: int = 3,
) -> None:
    """Write the scene as RGBA PNGs (straight alpha) and transforms_train/val/test.json in ``folder``, as Blender exports do.

    Every file is written under a temporary name first; the JSON of a split comes after its pictures.
    A split of 0 views is left out.

    Raises:
        NerfleetError: as :func:`synthetic_scene`.
    """
    from PIL import Image

    for split, n_views in zip(SPLITS, (n_train, n_val, n_test)):
        if n_views == 0:
            continue
        scene = synthetic_scene(split, n_views, width, height, seed, supersample)
        (folder / split).mkdir(parents=True, exist_ok=True)
        for i, name in enumerate(scene.names):
            temporary = folder / f"{name}.png.part"
            Image.fromarray(scene.image(i).numpy()).save(temporary, format="PNG")
            os.replace(temporary, folder / f"{name}.png")
        temporary = folder / f"transforms_{split}.json.part"
        temporary.write_text(json.dumps(_transforms(scene), indent=1), encoding="utf-8")
        os.replace(temporary, folder / f"transforms_{split}.json")


def _transforms(scene: Scene) -> dict[str, object]:
    """Contents of a split's transforms.json."""
    width, height = scene.cameras.resolution[0].tolist()
    focal = float(scene.cameras.focal[0, 0])
    poses = scene.transform.poses_to_file(scene.cameras.camera_to_world.double()).tolist()
    last_row = [0.0, 0.0, 0.0, 1.0]
    frames = [{"file_path": f"./{name}", "transform_matrix": [*pose, last_row]} for name, pose in zip(scene.names, poses)]
    return {
        "camera_angle_x": 2.0 * math.atan(0.5 * width / focal),
        "fl_x": focal,
        "fl_y": focal,
        "w": width,
        "h": height,
        "aabb_scale": scene.aabb_scale,
        "frames": frames,
    }


@lru_cache(maxsize=1)
def _light_map() -> NDArray[np.float64]:
    """Shadows and ambient light on the table, computed once a process."""
    content = still_life()
    out = np.ones((_LIGHT_MAP_RESOLUTION, _LIGHT_MAP_RESOLUTION, 2))
    _in_threads(bake_rows, len(out), content.arrays, content.table_height, out)
    return out


def _trace_centres(cameras: Cameras) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Depth and primitive [n, h, w] of cameras of one size."""
    width, height = cameras.resolution[0].tolist()
    depth = np.zeros((len(cameras), height, width))
    primitive = np.full(depth.shape, -1, np.int64)
    _in_threads(centre_rows, len(cameras) * height, still_life().arrays, *_arrays(cameras), depth, primitive)
    return depth, primitive


def _in_threads(kernel: Callable[..., None], n_rows: int, *arguments: Any) -> None:
    """Run ``kernel(first_row, last_row, *arguments)`` over all rows in threads (the kernels release the GIL)."""
    n_threads = numba.get_num_threads()
    edges = np.linspace(0, n_rows, min(n_rows, 8 * n_threads) + 1).astype(int).tolist()
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda first, last: kernel(first, last, *arguments), edges[:-1], edges[1:]))


def _arrays(cameras: Cameras) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Poses [n, 3, 4] and intrinsics [n, 4] (fx, fy, cx, cy) for the tracer."""
    intrinsics = torch.cat([cameras.focal, cameras.principal], dim=1).double().contiguous().numpy()
    return cameras.camera_to_world.double().contiguous().numpy(), intrinsics


def _cameras(split: str, n_views: int, width: int, height: int, seed: int) -> Cameras:
    """Cameras of one split: a Fibonacci set on the zone between 12 and 68 degrees of elevation, looking at the still life."""
    shift = SPLITS.index(split)
    rng = np.random.default_rng([seed, shift])
    index = np.arange(n_views)
    low, high = math.sin(math.radians(12.0)), math.sin(math.radians(68.0))
    elevation = np.arcsin(low + (high - low) * (index + 0.5) / n_views)
    golden = math.pi * (3.0 - math.sqrt(5.0))
    azimuth = golden * index + 2.0 * math.pi * rng.random() + shift
    distance = 1.30 + 0.07 * (2.0 * rng.random(n_views) - 1.0)
    direction = np.stack([np.cos(elevation) * np.sin(azimuth), np.sin(elevation), np.cos(elevation) * np.cos(azimuth)], axis=1)
    position = np.array(LOOK_AT) + distance[:, None] * direction
    forward = -direction
    right = np.cross(forward, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    down = np.cross(forward, right)
    pose = np.stack([right, down, forward, position], axis=2)
    focal = FOCAL * min(width, height)
    return Cameras(
        camera_to_world=torch.from_numpy(pose.astype(np.float32)),
        focal=torch.full((n_views, 2), focal),
        principal=torch.tensor([[0.5 * width, 0.5 * height]]).repeat(n_views, 1),
        resolution=torch.tensor([[width, height]], dtype=torch.int32).repeat(n_views, 1),
        lens=torch.full((n_views,), int(Lens.PERSPECTIVE), dtype=torch.int32),
        lens_params=torch.zeros(n_views, N_LENS_PARAMS),
    )
