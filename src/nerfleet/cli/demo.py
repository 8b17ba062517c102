"""``nerfleet demo``: the built-in scene, trained, scored, rendered and reported, on any machine."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerfleet.cli.flags import Device, print_json, say
from nerfleet.cli.train import run_summary, train_run
from nerfleet.config import REFERENCE_BATCH, EncodingConfig, NetworkConfig, TrainConfig
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.data.scene import Scene
    from nerfleet.nn.model import Model
    from nerfleet.telemetry.report import HeldOutView

SUMMARY = "built-in scene -> training -> pictures and report"
N_TRAIN, N_TEST = 60, 12
MAX_SIZE = 2048
CPU_SECONDS, CUDA_SECONDS = 95.0, 20.0
CPU_SURFACE_FROM = 20
TURNTABLE_FRAMES = 36
MESH = "still_life.glb"
MESH_FACES, MESH_TEXTURE, MESH_CAMERAS = 60_000, 1024, 32
SHOWN_MESH_VIEWS = 3


@dataclass(frozen=True)
class Arguments:
    """Train on the built-in scene and write a report with everything in it.

    Examples:
        nerfleet demo
        nerfleet demo --seconds 30 --size 200 --out runs/quick

    Attributes:
        out: run folder.
        seconds: training time; 0: 95 seconds, on a GPU 20.
        size: width and height of the photographs.
        json: print one JSON object at the end.
    """

    out: Path = Path("runs/demo")
    seconds: float = 0.0
    size: int = 128
    device: Device = "auto"
    seed: int = 1337
    json: bool = False


def run(arguments: Arguments) -> None:
    from nerfleet.cli.run_report import run_report
    from nerfleet.data.synthetic import synthetic_scene
    from nerfleet.telemetry.report import Headline, write_report
    from nerfleet.train.trainer import choose_device

    if not 1 <= arguments.size <= MAX_SIZE:
        raise NerfleetError(f"--size {arguments.size}", "is out of range", f"use 1 to {MAX_SIZE}")
    device = choose_device(arguments.device)
    say("ray tracing the built-in scene")
    scene = synthetic_scene("train", n_views=N_TRAIN, width=arguments.size, height=arguments.size)
    held_out = synthetic_scene("test", n_views=N_TEST, width=arguments.size, height=arguments.size)
    limit = arguments.seconds or (CPU_SECONDS if device.type == "cpu" else CUDA_SECONDS)
    config = demo_config(device.type, limit, arguments.seed)
    result = train_run(scene, held_out, config, arguments.out, device)
    if result.stopped_by == "signal":
        say("stopped by a signal; run the same command to continue")
        raise KeyboardInterrupt
    summary = run_summary(result, arguments.out) | scores(result.model, scene, held_out)
    say("rendering the turntable")
    video = turntable_video(result.model, arguments.out / "turntable.mp4")
    mesh_views, of_mesh = textured_mesh(result.model, scene, held_out, arguments.out / MESH)
    summary |= of_mesh
    report = run_report(scene, config, result, summary, device, video)
    if mesh_views:
        note = f"{summary['mesh_faces']:,} faces; where photographs show something"
        tile = Headline("PSNR of the mesh", f"{summary['mesh_psnr']:.2f} dB", note)
        report = dataclasses.replace(report, mesh_views=mesh_views, headlines=(*report.headlines, tile))
    write_report(arguments.out / "report.html", report)
    if arguments.json:
        print_json(summary)
    whole, inside = summary["psnr_mean"], summary["psnr_object"]
    if mesh_views:
        say(f"textured mesh: {arguments.out / MESH}, {summary['mesh_psnr']:.2f} dB in held-out views")
    say(f"held-out PSNR {whole:.2f} dB ({inside:.2f} dB on the object) after {result.train_seconds:.0f} s: {arguments.out / 'report.html'}")


def demo_config(device_type: str, limit: float, seed: int) -> TrainConfig:
    """On the CPU small steps and a table that stays in cache; on CUDA the defaults."""
    if device_type != "cpu":
        return TrainConfig(max_seconds=limit, seed=seed, batch_size=REFERENCE_BATCH)
    network = NetworkConfig(encoding=EncodingConfig(log2_hashmap_size=17))
    network = dataclasses.replace(network, optimizer=dataclasses.replace(network.optimizer, decay_start=60, decay_interval=30))
    return TrainConfig(network=network, max_seconds=limit, seed=seed, batch_size=1 << 14, surface_from=CPU_SURFACE_FROM)


def scores(model: Model, scene: Scene, held_out: Scene) -> dict[str, Any]:
    """PSNR inside the object's mask, and of the nearest training photograph in place of each rendering."""
    import torch

    from nerfleet.data.synthetic import object_masks
    from nerfleet.geometry.color import composite
    from nerfleet.render.evaluate import psnr
    from nerfleet.render.renderer import render_image

    black = torch.zeros(3)
    masks = object_masks(held_out)
    places = scene.cameras.camera_to_world[:, :, 3]
    on_object, nearest = [], []
    for i in range(len(held_out)):
        truth = composite(held_out.image(i), black)
        rendering = render_image(model, held_out.cameras[i : i + 1]).rgb.clamp(0, 1).cpu()
        mask = torch.as_tensor(masks[i])
        on_object.append(psnr(rendering[mask], truth[mask]))
        closest = int((places - held_out.cameras.camera_to_world[i, :, 3]).norm(dim=-1).argmin())
        nearest.append(psnr(composite(scene.image(closest), black), truth))
    return {"psnr_object": sum(on_object) / len(on_object), "psnr_nearest_photograph": sum(nearest) / len(nearest)}


def turntable_video(model: Model, path: Path) -> bytes:
    """A turn around the still life as MP4, written to ``path`` and returned."""
    from nerfleet.render.camera_path import turntable
    from nerfleet.render.renderer import render_image, to_uint8
    from nerfleet.render.video import write_video

    cameras = turntable(TURNTABLE_FRAMES, (0.5, 0.4, 0.5), 1.15, 0.55, (160, 160), 42)
    frames = (to_uint8(render_image(model, cameras[i : i + 1]).rgb).cpu().numpy() for i in range(len(cameras)))
    write_video(path, frames, fps=12)
    return path.read_bytes()


def textured_mesh(model: Model, scene: Scene, held_out: Scene, path: Path) -> tuple[tuple[HeldOutView, ...], dict[str, Any]]:
    """Writes the model as a textured mesh -> pictures of it beside photographs, and its figures; nothing if there is no surface yet."""
    import torch

    from nerfleet.cli.mesh import whole_bar, write_mesh
    from nerfleet.data.progress import progress_bar
    from nerfleet.geometry.color import composite
    from nerfleet.mesh.build import MeshOptions, build_mesh
    from nerfleet.mesh.preview import picture
    from nerfleet.render.evaluate import psnr
    from nerfleet.render.renderer import to_uint8
    from nerfleet.snapshot.dataset import up_direction
    from nerfleet.snapshot.placement import Placement
    from nerfleet.telemetry.report import HeldOutView

    options = MeshOptions(n_faces=MESH_FACES, texture=MESH_TEXTURE, max_views=MESH_CAMERAS)
    try:
        with progress_bar("mesh") as bar:
            asset, stats = build_mesh(model, options, scene.cameras, whole_bar(bar))
    except NerfleetError as error:
        say(f"no mesh: {error}")
        return (), {}
    x, y, z = up_direction(scene)
    write_mesh(path, asset, Placement(scene.transform, scene.cameras, (x, y, z)), stats)
    views = []
    for i in range(len(held_out)):
        truth, shown = composite(held_out.image(i), torch.zeros(3)), picture(asset, held_out.cameras[i : i + 1])[0]
        there = held_out.image(i)[..., 3] > 127
        score = psnr(shown[there], truth[there])
        views.append(HeldOutView(held_out.names[i], to_uint8(truth * there[..., None]).numpy(), to_uint8(shown).numpy(), score))
    figures = {"mesh": str(path), "mesh_faces": stats.faces, "mesh_holes": stats.holes, "mesh_psnr": sum(view.psnr for view in views) / len(views)}
    stride = max(1, len(views) // SHOWN_MESH_VIEWS)
    return tuple(views[::stride][:SHOWN_MESH_VIEWS]), figures | {"mesh_seconds": sum(stats.seconds.values())}
