"""Meshes measured: the built-in scene's against its exact surface, speed and memory on a real scene.

    PYTHONPATH=src python benchmarks/mesh.py --lego data/lego --out mesh.json
    PYTHONPATH=src python benchmarks/mesh.py --device cpu --model runs/demo --out mesh.json

Surface: points on what at least two training cameras see, of the truth and of the mesh; distances both ways, in units of the scene
box's edge; F-score at 1 %. "plain" is marching cubes of the same model at instant-ngp's threshold (raw density 2.5), nothing else.
Textured: held-out views of the mesh against the photographs where these are not transparent. Times include everything that
``nerfleet mesh`` does between reading the model and writing the file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerfleet.config import TrainConfig
from nerfleet.data import load_scene
from nerfleet.data.scene import Scene
from nerfleet.data.synthetic import object_masks, signed_distance, synthetic_scene, trace_surface
from nerfleet.data.synthetic_still_life import N_GROUND_PRIMITIVES
from nerfleet.geometry.cameras import Cameras, pixel_rays, project
from nerfleet.geometry.color import composite
from nerfleet.mesh.asset import Asset, sample_surface
from nerfleet.mesh.build import MeshOptions, build_mesh, summary
from nerfleet.mesh.clean import vertex_normals
from nerfleet.mesh.preview import picture
from nerfleet.mesh.surface import Mesh, extract
from nerfleet.mesh.visibility import seen_vertices
from nerfleet.nn.model import Model
from nerfleet.render.evaluate import psnr
from nerfleet.render.renderer import render_image
from nerfleet.snapshot.load import load_model
from nerfleet.train.trainer import choose_device, train

F_DISTANCE = 0.01
PLAIN_RAW = 2.5
MIN_CAMERAS = 2
VOXEL = 0.0025
"""Truth points are thinned to one in a cube of this edge, so that near surfaces do not count more."""
MESH_POINTS = 1_000_000
N_VIEWS = 60


@dataclasses.dataclass(frozen=True)
class Truth:
    """Attributes: points: [n, 3] on the exact surface, seen by two cameras or more. is_object: [n] bool."""

    points: Tensor
    is_object: Tensor


def truth_of(cameras: Cameras) -> Truth:
    """Where the rays of all pixels end, thinned, and what two cameras agree on."""
    depth, primitive = trace_surface(cameras)
    height, width = depth.shape[1:]
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    pixels = torch.stack([columns, rows], -1).view(-1, 2).double() + 0.5
    points, kinds = [], []
    for i in range(len(cameras)):
        origins, directions = pixel_rays(cameras, torch.full((len(pixels),), i), pixels)
        hit = depth[i].view(-1) > 0
        points.append((origins + directions * depth[i].view(-1, 1))[hit])
        kinds.append(primitive[i].view(-1)[hit])
    everything, kind = torch.cat(points), torch.cat(kinds)
    _, cell = torch.unique((everything / VOXEL).floor().long(), dim=0, return_inverse=True)
    chosen = torch.empty(int(cell.max()) + 1, dtype=torch.int64)
    chosen[cell] = torch.arange(len(cell))
    everything, kind = everything[chosen], kind[chosen]
    count = torch.zeros(len(everything))
    for i in range(len(cameras)):
        found, in_front = project(cameras, torch.full((len(everything),), i), everything)
        column, row = found[:, 0].long(), found[:, 1].long()
        inside = in_front & (found >= 0).all(-1) & (column < width) & (row < height)
        pose = cameras.camera_to_world[i].double()
        z = (everything - pose[:, 3]) @ pose[:, 2]
        count += inside & ((z - depth[i][row.clamp(0, height - 1), column.clamp(0, width - 1)]).abs() < 2 * VOXEL)
    keep = count >= MIN_CAMERAS
    return Truth(everything[keep].float(), kind[keep] >= N_GROUND_PRIMITIVES)


def nearest(points: Tensor, others: Tensor) -> Tensor:
    """[n] distance from each point to the nearest of the others."""
    if torch.cuda.is_available():
        near = [torch.cdist(part.cuda(), others.cuda()).amin(-1).cpu() for part in points.split(1 << 12)]
        return torch.cat(near)
    from scipy.spatial import cKDTree

    return torch.from_numpy(cKDTree(others.numpy()).query(points.numpy())[0]).float()


def surface_scores(mesh: Mesh, cameras: Cameras, truth: Truth) -> dict[str, dict[str, float]]:
    """F-score, precision, recall and mean distances (shares of the box's edge) of "object", "ground" and "all"."""
    seen = (seen_vertices(mesh, cameras).sum(0) >= MIN_CAMERAS).float()
    samples = sample_surface(Asset(mesh.vertices, mesh.faces, vertex_normals(mesh), seen[:, None].expand(-1, 3)), MESH_POINTS)
    assert samples.colours is not None
    points = samples.vertices[samples.colours[:, 0] > 0.01]
    to_object, to_ground = (signed_distance(points, part).abs() for part in ("object", "ground"))
    to_truth, to_mesh = torch.minimum(to_object, to_ground), nearest(truth.points, points)
    everywhere = (torch.ones(len(points), dtype=torch.bool), torch.ones(len(truth.points), dtype=torch.bool))
    parts = {"object": (to_object < to_ground, truth.is_object), "ground": (to_object >= to_ground, ~truth.is_object), "all": everywhere}
    return {name: _scores(to_truth[ours], to_mesh[theirs]) for name, (ours, theirs) in parts.items()}


def _scores(to_truth: Tensor, to_mesh: Tensor) -> dict[str, float]:
    precision, recall = (float((distance < F_DISTANCE).float().mean()) for distance in (to_truth, to_mesh))
    accuracy, completeness = float(to_truth.mean()), float(to_mesh.mean())
    return {
        "f_score": 2 * precision * recall / max(precision + recall, 1e-9),
        "precision": precision,
        "recall": recall,
        "mean_distance": (accuracy + completeness) / 2,
        "mesh_to_truth": accuracy,
        "truth_to_mesh": completeness,
    }


def view_scores(asset: Asset, model: Model, held_out: Scene, masks: Tensor | None = None) -> dict[str, float]:
    """Means over held-out views, black background: PSNR of the mesh and of the field where the photograph is not transparent."""
    rows = []
    for i in range(len(held_out)):
        truth, camera = composite(held_out.image(i), torch.zeros(3)), held_out.cameras[i : i + 1]
        shown, field = picture(asset, camera)[0], render_image(model, camera).rgb.clamp(0, 1).cpu()
        mask = held_out.image(i)[..., 3] > 127
        scores = {"psnr_mesh": psnr(shown[mask], truth[mask]), "psnr_field": psnr(field[mask], truth[mask]), "psnr_mesh_whole": psnr(shown, truth)}
        if masks is not None:
            scores["psnr_mesh_object"] = psnr(shown[masks[i]], truth[masks[i]])
        rows.append(scores)
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def built_in(arguments: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """The still life: against its exact surface, and textured against photographs."""
    scene, held_out = (synthetic_scene(split, n, arguments.size, arguments.size) for split, n in (("train", N_VIEWS), ("test", 12)))
    if arguments.model:
        model = load_model(arguments.model).to(device)
    else:
        model = train(scene, TrainConfig(steps=arguments.steps, seed=1), device=device.type).model
    truth = truth_of(scene.cameras)
    plain = extract(model, arguments.resolution, math.exp(PLAIN_RAW), refine=False).to("cpu")
    options = MeshOptions(resolution=arguments.resolution, texture=arguments.texture)
    asset, stats = build_mesh(model, options, scene.cameras)
    rows: dict[str, Any] = {"stats": summary(stats)}
    rows["plain"] = surface_scores(plain, scene.cameras, truth)
    untextured, _ = build_mesh(model, dataclasses.replace(options, texture=0), scene.cameras)
    rows["mesh"] = surface_scores(Mesh(untextured.vertices, untextured.faces), scene.cameras, truth)
    rows["views"] = view_scores(asset, model, held_out, object_masks(held_out))
    return rows


def real(arguments: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Seconds and memory on a real scene; the first mesh compiles and is not counted."""
    scene, held_out = load_scene(arguments.lego), load_scene(arguments.lego, split="test")
    model = train(scene, TrainConfig(steps=arguments.steps, seed=1), device=device.type).model
    build_mesh(model, MeshOptions(resolution=64, texture=64), scene.cameras)
    rows: dict[str, Any] = {}
    for name, options in (("512", MeshOptions(resolution=512, texture=0)), ("512_texture_4096", MeshOptions(resolution=512, texture=4096))):
        begin = time.perf_counter()
        asset, stats = build_mesh(model, options, scene.cameras)
        rows[name] = {"seconds": time.perf_counter() - begin} | summary(stats)
    rows["views"] = view_scores(asset, model, _every(held_out, 8) if len(held_out) > 25 else held_out)
    rows["1024"] = extraction_memory(model)
    return rows


def _every(scene: Scene, stride: int) -> Scene:
    """Every so manieth view."""
    views = list(range(0, len(scene), stride))
    images = [scene.image(i).reshape(-1, 4) for i in views]
    offsets = torch.tensor([0, *(len(image) for image in images)]).cumsum(0)
    names = tuple(scene.names[i] for i in views)
    return dataclasses.replace(scene, names=names, cameras=scene.cameras[views], pixels=torch.cat(images), pixel_offsets=offsets, depth=None)


def extraction_memory(model: Model, resolution: int = 1024) -> dict[str, Any]:
    """Seconds, faces and peak memory of an extraction (host: of the process since its start)."""
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    mesh = extract(model, resolution, math.exp(PLAIN_RAW) * 2)
    row: dict[str, Any] = {"faces": len(mesh.faces), "seconds": time.perf_counter() - begin}
    row["host_peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if model.device.type == "cuda":
        row["device_peak_bytes"] = torch.cuda.max_memory_allocated()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lego", type=Path, help="folder of the lego scene; left out: only the built-in scene")
    parser.add_argument("--model", type=Path, help="a model of the built-in scene; left out: one is trained")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--resolution", type=int, default=256)
    parser.add_argument("--texture", type=int, default=2048)
    parser.add_argument("--size", type=int, default=256, help="pixels along a side of the built-in scene's photographs")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    result: dict[str, Any] = {"device": name, "built_in": built_in(arguments, device)}
    sys.stderr.write(json.dumps(result["built_in"]) + "\n")
    if arguments.lego:
        result["lego"] = real(arguments, device)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
