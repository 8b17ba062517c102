"""From a model to a finished mesh: surface, cleaning, colours; what ``nerfleet mesh`` and scripts call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from nerfleet.config import check
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Cameras
from nerfleet.mesh.appearance import Views, surface_colours, vertex_points, views_of
from nerfleet.mesh.asset import Asset
from nerfleet.mesh.atlas import make_atlas
from nerfleet.mesh.clean import decimate, face_areas, n_holes, smooth, vertex_normals, without_floaters, without_unseen
from nerfleet.mesh.settle import settle
from nerfleet.mesh.surface import Mesh, check_resolution, extract, in_box
from nerfleet.mesh.texture import bake
from nerfleet.mesh.threshold import surface_density
from nerfleet.mesh.visibility import seen_vertices, usable_cameras
from nerfleet.nn.model import Model
from nerfleet.render.renderer import render_box

Progress = Callable[[str, float], None]
"""Is told the stage's name and its finished share."""
MAX_TEXTURE = 16_384
MIN_CAMERAS, MANY_CAMERAS = 2, 10
"""With many cameras, what a single one glimpses past an edge is not seen."""


@dataclass(frozen=True)
class MeshOptions:
    """Attributes:
    resolution: cells along the longest side of the (cropped) scene box.
    threshold: density of the surface; 0: found from where rays end (threshold.py).
    n_faces: at most about so many after decimation; 0: all.
    smoothing: rounds of Taubin smoothing.
    min_piece: loose pieces with less than this share of the largest one's surface are dropped.
    keep_unseen: keep what no training camera sees (backs, undersides, insides).
    max_unseen: share of the whole surface up to which an unseen region stays all the same.
    settle: move vertices to where rays along their normals end.
    texture: texels along a side; 0: colours at the vertices instead.
    max_views: training cameras that are asked for visibility and colour, evenly chosen.
    budget_bytes: memory for a slab of the field.
    """

    resolution: int = 256
    threshold: float = 0.0
    n_faces: int = 100_000
    smoothing: int = 3
    min_piece: float = 1e-3
    keep_unseen: bool = False
    max_unseen: float = 1e-4
    settle: bool = True
    texture: int = 2048
    max_views: int = 64
    budget_bytes: int = 256 << 20

    def validate(self) -> None:
        """Raises NerfleetError, naming the option."""
        check_resolution(self.resolution)
        check(self.threshold >= 0, "threshold", f"{self.threshold:g} is negative", "use a density above 0, or 0 to find one")
        check(self.n_faces >= 0, "faces", f"{self.n_faces} is negative", "use 0 (all) or more")
        check(0 <= self.smoothing <= 1000, "smoothing", f"{self.smoothing} is out of range", "use 0 to 1000 rounds")
        check(0 <= self.min_piece <= 1, "min_piece", f"{self.min_piece:g} is no share", "use 0 to 1")
        fits = self.texture == 0 or 16 <= self.texture <= MAX_TEXTURE
        check(fits, "texture", f"{self.texture} texels are out of range", f"use 16 to {MAX_TEXTURE}, or 0 for none")


@dataclass
class MeshStats:
    """What was done; goes into the file beside the mesh. Attributes: seconds: of each stage."""

    threshold: float = 0.0
    vertices: int = 0
    faces: int = 0
    faces_extracted: int = 0
    small_pieces: int = 0
    hidden_pieces: int = 0
    unseen_regions: int = 0
    holes: int = 0
    area: float = 0.0  # internal units
    texture_seen: float = 0.0  # share of the texels that a training camera saw
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str, device: torch.device) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self.seconds[stage] = time.perf_counter() - begin


def build_mesh(model: Model, options: MeshOptions, cameras: Cameras | None = None, progress: Progress | None = None) -> tuple[Asset, MeshStats]:
    """The mesh of a model, on the CPU, in internal space.

    Args:
        cameras: of the training photographs: they say which surfaces were seen, and from where. None: unknown.

    Raises:
        NerfleetError: options out of range, or nothing there at this threshold.
    """
    options.validate()
    tell: Progress = progress or (lambda stage, share: None)
    stats, device = MeshStats(), model.device
    known = None if cameras is None else usable_cameras(cameras, options.max_views)
    cameras = known if known is not None and len(known) else None
    with stats.timed("threshold", device):
        stats.threshold = options.threshold or surface_density(model, cameras)
    with stats.timed("surface", device):
        mesh = extract(
            model, options.resolution, stats.threshold, budget_bytes=options.budget_bytes, progress=lambda share: tell("surface", share)
        )
    stats.faces_extracted = len(mesh.faces)
    if len(mesh.faces) == 0:
        raise NerfleetError("mesh", f"nothing is as dense as {stats.threshold:.3g}", "lower the threshold, or widen the crop box")
    mesh = _clean(model, mesh, options, cameras, stats, tell)
    stats.vertices, stats.faces = len(mesh.vertices), len(mesh.faces)
    stats.holes, stats.area = n_holes(mesh), float(face_areas(mesh).double().sum())
    with stats.timed("views", device):
        views = views_of(mesh, cameras)
    asset = _textured(model, mesh, views, options, stats, tell) if options.texture else _coloured(model, mesh, views, stats, tell)
    return asset, stats


def _clean(model: Model, mesh: Mesh, options: MeshOptions, cameras: Cameras | None, stats: MeshStats, tell: Progress) -> Mesh:
    """Loose and unseen parts off, smooth, light, in place; on the CPU."""
    device = model.device
    with stats.timed("clean", device):
        seen = None
        if cameras is not None:
            count = seen_vertices(mesh.to("cpu"), cameras, progress=lambda share: tell("visibility", share)).sum(0)
            seen = (count >= (MIN_CAMERAS if len(cameras) >= MANY_CAMERAS else 1)).to(device)
        if seen is not None and bool(seen.any()) and not options.keep_unseen:
            mesh, stats.unseen_regions = without_unseen(mesh, seen, max_share=options.max_unseen)
            seen = torch.ones(len(mesh.vertices), dtype=torch.bool, device=device)
        mesh, stats.small_pieces, stats.hidden_pieces = without_floaters(mesh, min_share=options.min_piece, seen=seen)
        mesh = smooth(mesh, options.smoothing)
    with stats.timed("decimate", device):
        mesh = decimate(mesh, options.n_faces)
    if options.settle:
        with stats.timed("settle", device):
            mesh = settle(model, mesh, options.resolution, progress=lambda share: tell("settle", share))
    return in_box(mesh.to("cpu"), render_box(model))


def _coloured(model: Model, mesh: Mesh, views: Views, stats: MeshStats, tell: Progress) -> Asset:
    device = model.device
    with stats.timed("colours", device):
        there = mesh.to(device)
        colours, seen = surface_colours(model, there, vertex_points(there), views.to(device), lambda share: tell("colours", share))
    stats.texture_seen = float(seen.float().mean())
    return Asset(mesh.vertices, mesh.faces, vertex_normals(mesh), colours.cpu())


def _textured(model: Model, mesh: Mesh, views: Views, options: MeshOptions, stats: MeshStats, tell: Progress) -> Asset:
    device = model.device
    with stats.timed("atlas", device):
        tell("atlas", 0.0)
        atlas = make_atlas(mesh, options.texture)
    with stats.timed("texture", device):
        baked = bake(model, mesh.to(device), atlas, views.to(device), options.texture, lambda share: tell("texture", share))
    texture, stats.texture_seen = baked
    return Asset(mesh.vertices[atlas.vertex], atlas.faces, vertex_normals(mesh)[atlas.vertex], None, atlas.uv, texture)


def summary(stats: MeshStats) -> dict[str, Any]:
    """Plain values for ``--json`` and for the file beside a mesh."""
    return {name: getattr(stats, name) for name in MeshStats.__dataclass_fields__}
