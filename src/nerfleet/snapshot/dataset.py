"""``snapshot.nerf.dataset``: the cameras of the photographs, so that instant-ngp opens a model without them."""

from __future__ import annotations

import math
from typing import Any

import torch

from nerfleet.data.scene import Scene
from nerfleet.geometry.cameras import Lens

IDENTITY = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
_UNSET_BOX = {"max": [-math.inf] * 3, "min": [math.inf] * 3}


def dataset_document(scene: Scene) -> dict[str, Any]:
    """The map of a scene's cameras (poses in internal space) and its placement."""
    poses = [pose.tolist() for pose in scene.cameras.camera_to_world.float().cpu()]
    box = scene.render_aabb
    return {
        "aabb_scale": scene.aabb_scale,
        "envmap_resolution": [0, 0],
        "from_mitsuba": scene.transform.from_mitsuba,
        "is_hdr": False,
        "metadata": [_metadata(scene, i) for i in range(len(scene))],
        "n_extra_learnable_dims": 0,
        "n_images": len(scene),
        "offset": singles(scene.transform.offset),
        "paths": list(scene.names),
        "render_aabb": _UNSET_BOX if box is None else {"max": box[1].tolist(), "min": box[0].tolist()},
        "render_aabb_to_local": IDENTITY,
        "scale": singles([scene.transform.scale])[0],
        "up": up_direction(scene),
        "wants_importance_sampling": True,
        "xforms": [{"end": pose, "start": pose} for pose in poses],
    }


def up_direction(scene: Scene) -> list[float]:
    """Unit vector, internal axes."""
    up = scene.transform.directions_to_internal(torch.tensor(scene.up, dtype=torch.float32))
    return torch.nn.functional.normalize(up, dim=0).tolist()


def singles(values: tuple[float, ...] | list[float]) -> list[float]:
    """Rounded to float32, as instant-ngp keeps them."""
    return torch.tensor(values, dtype=torch.float32).tolist()


def _metadata(scene: Scene, index: int) -> dict[str, Any]:
    cameras = scene.cameras
    return {
        "focal_length": cameras.focal[index].tolist(),
        "lens": _lens(Lens(int(cameras.lens[index])), cameras.lens_params[index].tolist()),
        "principal_point": (cameras.principal[index] / cameras.resolution[index]).tolist(),
        "resolution": cameras.resolution[index].tolist(),
        "rolling_shutter": [0.0] * 4,
    }


def _lens(lens: Lens, params: list[float]) -> dict[str, Any] | None:
    if lens == Lens.OPENCV:
        return {"is_fisheye": False} | dict(zip(("k1", "k2", "p1", "p2"), params))
    if lens == Lens.OPENCV_FISHEYE:
        return {"is_fisheye": True} | dict(zip(("k1", "k2", "k3", "k4"), params))
    if lens == Lens.FTHETA:
        return dict(zip(("ftheta_p0", "ftheta_p1", "ftheta_p2", "ftheta_p3", "ftheta_p4", "w", "h"), params))
    flags = {Lens.LATLONG: "latlong", Lens.EQUIRECTANGULAR: "equirectangular", Lens.ORTHOGRAPHIC: "orthographic"}
    return {flags[lens]: True} if lens in flags else None
