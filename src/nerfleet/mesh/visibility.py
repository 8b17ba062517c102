"""Which cameras see which vertices: every camera draws the mesh, a vertex counts where nothing lies in front of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nerfleet.geometry.cameras import Cameras, Lens, project
from nerfleet.kernels.threads import over_blocks
from nerfleet.mesh.raster import NOTHING, raster
from nerfleet.mesh.surface import Mesh

LENSES = (Lens.PERSPECTIVE, Lens.OPENCV, Lens.OPENCV_FISHEYE)
TOLERANCE = 2.5
"""In pixels' footprints: depth by which a vertex may lie behind the drawn surface and still be seen."""


def usable_cameras(cameras: Cameras, at_most: int) -> Cameras:
    """Cameras whose lens can be projected through, at most so many, evenly chosen."""
    known = torch.tensor([int(lens) in LENSES for lens in cameras.lens]).nonzero()[:, 0]
    if len(known) > at_most:
        known = known[(torch.arange(at_most) * len(known)) // at_most]
    return cameras[known]


def shrink(cameras: Cameras, longest: int) -> Cameras:
    """The same views in at most ``longest`` pixels along the longer side."""
    size = cameras.resolution.float()
    factor = (longest / size.amax(-1, keepdim=True)).clamp(max=1)
    return replace(
        cameras,
        focal=cameras.focal * factor,
        principal=cameras.principal * factor,
        resolution=(size * factor).round().clamp(min=1).int(),
    )


def draw(mesh: Mesh, camera: Cameras) -> tuple[Tensor, Tensor, Tensor]:
    """The mesh as ONE camera sees it: face [h, w] int64 (-1: none), inverse depth [h, w], barycentric weights [h, w, 3] in space.

    The mesh is on the CPU, in internal space; so is the camera. Depth is the distance from the camera.
    """
    width, height = (int(v) for v in camera.resolution[0])
    screen, inverse, valid = _projected(mesh, camera)
    face = np.full((height, width), NOTHING, np.int32)
    nearest, weights = np.zeros((height, width), np.float32), np.zeros((height, width, 2), np.float32)
    raster(screen.numpy(), inverse.numpy(), valid.numpy(), mesh.faces.numpy(), face, nearest, weights)
    index = torch.from_numpy(face).long()
    on_screen = torch.from_numpy(weights)
    share = torch.stack([1 - on_screen.sum(-1), on_screen[..., 0], on_screen[..., 1]], -1)
    corners = mesh.faces.long()[index.clamp(min=0)]
    in_space = share * inverse[corners]
    return index, torch.from_numpy(nearest), in_space / in_space.sum(-1, keepdim=True).clamp_min(1e-30)


def seen_vertices(mesh: Mesh, cameras: Cameras, *, longest: int = 512, progress: Callable[[float], None] | None = None) -> Tensor:
    """[n_cameras, n_vertices] bool.

    Args:
        mesh: on the CPU, internal space.
        cameras: on the CPU; all with a lens of ``LENSES``.
        longest: pixels along the longer side of the pictures that are drawn.
    """
    small = shrink(cameras, longest)
    seen = torch.zeros(len(cameras), len(mesh.vertices), dtype=torch.bool)

    done = 0

    def one(rows: slice) -> None:
        nonlocal done
        for i in range(rows.start, rows.stop):
            seen[i] = _seen_by(mesh, small[i : i + 1])
        done += rows.stop - rows.start
        if progress is not None:
            progress(done / max(len(cameras), 1))

    over_blocks(len(cameras), 1, one)
    return seen


def _seen_by(mesh: Mesh, camera: Cameras) -> Tensor:
    width, height = (int(v) for v in camera.resolution[0])
    screen, inverse, valid = _projected(mesh, camera)
    face = np.full((height, width), NOTHING, np.int32)
    nearest, weights = np.zeros((height, width), np.float32), np.zeros((height, width, 2), np.float32)
    raster(screen.numpy(), inverse.numpy(), valid.numpy(), mesh.faces.numpy(), face, nearest, weights)
    column, row = screen[:, 0].long(), screen[:, 1].long()
    inside = valid & (screen >= 0).all(-1) & (column < width) & (row < height)
    surface = torch.from_numpy(nearest)[row.clamp(0, height - 1), column.clamp(0, width - 1)]
    distance, front = 1 / inverse.clamp_min(1e-9), 1 / surface.clamp_min(1e-9)
    footprint = distance / float(camera.focal[0].min())
    return inside & ((surface == 0) | (distance <= front + TOLERANCE * footprint))


def _projected(mesh: Mesh, camera: Cameras) -> tuple[Tensor, Tensor, Tensor]:
    """Pixels [n, 2], inverse distance from the camera [n], in front [n] bool of all vertices."""
    pixels, in_front = project(camera, torch.zeros(len(mesh.vertices), dtype=torch.int64), mesh.vertices)
    pose = camera.camera_to_world[0]
    if int(camera.lens[0]) == Lens.OPENCV_FISHEYE:
        distance = (mesh.vertices - pose[:, 3]).norm(dim=-1)
    else:
        distance = (mesh.vertices - pose[:, 3]) @ pose[:, 2]
    valid = in_front & torch.isfinite(pixels).all(-1)
    return pixels.nan_to_num(0, 0, 0).clamp(-1e6, 1e6).float().contiguous(), (1 / distance.clamp_min(1e-6)).float(), valid
