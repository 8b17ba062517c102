"""``nerfleet mesh``: a model as a textured mesh, a coloured mesh or a point cloud, in the photographs' own units and axes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nerfleet.cli.flags import Device, parse_box, print_json, say
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from torch import Tensor

    from nerfleet.geometry.cameras import Cameras
    from nerfleet.mesh.asset import Asset
    from nerfleet.mesh.build import MeshOptions, MeshStats, Progress
    from nerfleet.nn.model import Model
    from nerfleet.snapshot.placement import Placement

SUMMARY = "a model as a textured mesh or point cloud"
SUFFIXES = (".glb", ".obj", ".ply")
MAX_POINTS = 100_000_000


@dataclass(frozen=True)
class Arguments:
    """A model as a mesh in the photographs' own units and axes (.glb: y up): textured .glb or .obj, or .ply with colours.

    A .json of the same name beside it holds the matrices between the spaces and what was done.

    Examples:
        nerfleet mesh runs/fox --out fox.glb
        nerfleet mesh lego.ingp --out lego.obj --resolution 512 --texture 4096
        nerfleet mesh lego.ingp --out cloud.ply --points 500000
        nerfleet mesh runs/fox --out head.glb --crop=-1,-1,-1,1,1,1.5

    Attributes:
        model: an .ingp or .msgpack file, or a run folder.
        out: the .glb, .obj (with .mtl and .png) or .ply file to write; an existing one is replaced.
        resolution: cells along the longest side of the box.
        threshold: density of the surface in internal units; 0: found from where rays end.
        faces: at most about so many; 0: all.
        smoothing: rounds of smoothing that does not shrink.
        texture: texels along each side of the texture; 0: colours at the vertices (a .ply always has these).
        points: write so many coloured points instead of a surface (.ply or .glb).
        crop: only this box, x0,y0,z0,x1,y1,z1 in the photographs' units and axes, instead of the model's own; none: the whole scene box.
        keep_unseen: keep surfaces that no training camera saw: undersides, insides.
        min_piece: drop loose pieces with less than this share of the largest piece's surface.
        cameras: put the training cameras into the .glb, or beside the others as NAME.cameras.json.
        memory_mb: memory for the part of the field that is looked at at once; the mesh itself comes on top.
        device: where to work.
        json: print one JSON object.
    """

    model: Annotated[Path, tyro.conf.Positional]
    out: Path
    resolution: int = 256
    threshold: float = 0.0
    faces: int = 100_000
    smoothing: int = 3
    texture: int = 2048
    points: int = 0
    crop: str = ""
    keep_unseen: bool = False
    min_piece: float = 1e-3
    cameras: bool = False
    memory_mb: int = 256
    device: Device = "auto"
    json: bool = False


def run(arguments: Arguments) -> None:
    _check(arguments)
    from nerfleet.data.progress import progress_bar
    from nerfleet.mesh.build import build_mesh, summary
    from nerfleet.snapshot.ingp import read_snapshot
    from nerfleet.snapshot.load import model_file
    from nerfleet.train.trainer import choose_device

    device = choose_device(arguments.device)
    file = model_file(arguments.model)
    snapshot = read_snapshot(file)
    model, placement = snapshot.model.to(device), told_placement(snapshot.document, str(file))
    if arguments.crop:
        model = dataclasses.replace(model, render_aabb=chosen_box(arguments.crop, model, placement))
    if arguments.cameras and placement.cameras is None:
        raise NerfleetError(str(file), "holds no cameras", "leave --cameras out")
    with progress_bar("mesh") as bar:
        asset, stats = build_mesh(model, _options(arguments), placement.cameras, whole_bar(bar))
    files = write_mesh(arguments.out, asset, placement, stats, n_points=arguments.points, with_cameras=arguments.cameras)
    if arguments.json:
        print_json({"files": [str(name) for name in files]} | summary(stats))
        return
    say(f"{files[0]}: {stats.vertices:,} vertices, {stats.faces:,} faces, {sum(stats.seconds.values()):.1f} s")
    if stats.holes:
        say(f"{stats.holes} holes, most of them where no camera looked; --keep-unseen closes those with what the field has there")


STAGES = {"surface": 0.35, "visibility": 0.5, "settle": 0.6, "atlas": 0.75, "texture": 1.0, "colours": 1.0}
"""Where the bar stands at a stage's end, roughly as long as they take on a CPU."""


def whole_bar(bar: Callable[[int, int], None]) -> Progress:
    """One bar over all stages."""
    ends = list(STAGES.values())

    def tell(stage: str, share: float) -> None:
        end = STAGES[stage]
        begin = max((value for value in ends if value < end), default=0.0)
        bar(round(1000 * (begin + (end - begin) * share)), 1000)

    return tell


def _check(arguments: Arguments) -> None:
    if arguments.out.suffix.lower() not in SUFFIXES:
        raise NerfleetError(str(arguments.out), "is no .glb, .obj or .ply file", "choose one of these extensions")
    if arguments.out.is_dir():
        raise NerfleetError(str(arguments.out), "is a folder", "choose another name")
    if not 0 <= arguments.points <= MAX_POINTS:
        raise NerfleetError(f"--points {arguments.points}", "is out of range", f"use 1 to {MAX_POINTS}, or leave it out for a surface")
    if arguments.points and arguments.out.suffix.lower() == ".obj":
        raise NerfleetError("--points", "OBJ files hold no point clouds", "write a .ply or .glb file")
    if arguments.memory_mb < 1:
        raise NerfleetError(f"--memory-mb {arguments.memory_mb}", "is not positive", "allow 64 or more")


def _options(arguments: Arguments) -> MeshOptions:
    from nerfleet.mesh.build import MeshOptions

    has_texture = arguments.out.suffix.lower() != ".ply" and not arguments.points
    return MeshOptions(
        resolution=arguments.resolution,
        threshold=arguments.threshold,
        n_faces=arguments.faces,
        smoothing=arguments.smoothing,
        min_piece=arguments.min_piece,
        keep_unseen=arguments.keep_unseen,
        texture=arguments.texture if has_texture else 0,
        budget_bytes=arguments.memory_mb << 20,
    )


def told_placement(document: dict[str, Any], where: str) -> Placement:
    """Of a snapshot; says so where it has no scale and offset, and takes instant-ngp's defaults."""
    from nerfleet.geometry.poses import SceneTransform
    from nerfleet.snapshot.placement import read_placement

    found = read_placement(document)
    if found.transform is None:
        say(f"{where}: does not say which scene it shows: the default scale 0.33 and offset 0.5 are used")
        return dataclasses.replace(found, transform=SceneTransform())
    return found


def chosen_box(text: str, model: Model, placement: Placement) -> Tensor | None:
    """``--crop`` in the photographs' units and axes -> crop box [2, 3] in internal space; ``none``: None.

    Raises:
        NerfleetError: no box, or one that misses the scene box.
    """
    from nerfleet.geometry.box import crop_box

    if text == "none":
        return None
    assert placement.transform is not None
    return crop_box(parse_box(text), placement.transform, model.aabb_scale)


def write_mesh(
    out: Path, asset: Asset, placement: Placement, stats: MeshStats, *, n_points: int = 0, with_cameras: bool = False
) -> list[Path]:
    """Writes a mesh of internal space in the photographs' space (.glb: turned so that up is y), and the .json beside it."""
    import torch

    from nerfleet.geometry.poses import cameras_to_file
    from nerfleet.mesh.asset import sample_surface, to_file_space, turned, y_up
    from nerfleet.mesh.build import summary
    from nerfleet.mesh.export import write_asset, write_files

    if n_points:
        asset = sample_surface(asset, n_points)
    transform, is_glb = placement.transform, out.suffix.lower() == ".glb"
    assert transform is not None
    up = transform.directions_to_file(torch.tensor(placement.up)).tolist()
    rotation = y_up((up[0], up[1], up[2])) if is_glb else torch.eye(3)
    cameras = cameras_to_file(placement.cameras, transform) if with_cameras and placement.cameras is not None else None
    turned_cameras = cameras if cameras is None else dataclasses.replace(cameras, camera_to_world=rotation @ cameras.camera_to_world)
    files = write_asset(out, turned(to_file_space(asset, transform), rotation), turned_cameras if is_glb else None)
    origin = transform.points_to_file(torch.cat([torch.zeros(1, 3), torch.eye(3)]).double())
    to_file = torch.cat([(origin[1:] - origin[0]).T, origin[:1].T], -1)
    matrices = {"internal_to_file": to_file.tolist(), "file_to_mesh": rotation.tolist()}
    beside = {out.with_suffix(".json"): json.dumps(matrices | {"up": up} | summary(stats), indent=1).encode()}
    if cameras is not None and not is_glb:
        beside[out.with_suffix(".cameras.json")] = json.dumps(_transforms(cameras), indent=1).encode()
    write_files(beside)
    return [*files, *beside]


def _transforms(cameras: Cameras) -> dict[str, Any]:
    """Cameras in file space as a transforms.json has them."""
    last_row, frames = [0.0, 0.0, 0.0, 1.0], []
    for i in range(len(cameras)):
        (fx, fy), (cx, cy), (width, height) = cameras.focal[i].tolist(), cameras.principal[i].tolist(), cameras.resolution[i].tolist()
        pose = [*cameras.camera_to_world[i].tolist(), last_row]
        frames.append({"file_path": f"camera_{i}", "fl_x": fx, "fl_y": fy, "cx": cx, "cy": cy, "w": width, "h": height, "transform_matrix": pose})
    return {"frames": frames}
