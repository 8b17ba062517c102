"""``nerfleet eval``: PSNR and SSIM of a model on the photographs of a scene."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nerfleet.cli import on_ranks
from nerfleet.cli.flags import Device, Split, parse_color, parse_views, print_json, say
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from torch import Tensor

    from nerfleet.data import Scene
    from nerfleet.data.decode import Progress
    from nerfleet.data.part import Part
    from nerfleet.nn.model import Model
    from nerfleet.parallel.ranks import Ranks
    from nerfleet.render.evaluate import Evaluation, ViewScore, ViewShown

SUMMARY = "PSNR and SSIM of a model on a scene's photographs"
MAX_SEED = 1 << 63


@dataclass(frozen=True)
class Arguments:
    """PSNR and SSIM of a model on a scene's photographs.

    PSNR is the mean of the views' PSNRs, in sRGB clipped to [0, 1]. Photographs with alpha are mixed with the background in
    linear light first.

    Examples:
        nerfleet eval runs/fox --scene data/fox
        nerfleet eval lego.ingp --scene data/lego --downscale 2 --json
        nerfleet eval lego.ingp --scene data/lego --views 0,3-5 --out compared

    Attributes:
        model: an .ingp or .msgpack file, or a run folder.
        scene: a transforms.json, or a folder that holds one.
        split: the photographs to compare with.
        views: only these of the split, for example 0,3-5.
        downscale: compare with photographs reduced by this factor (box filter).
        pixels: look at this many random pixels of each view only; 0: all.
        seed: of the random pixels.
        background: black, white or #rrggbb.
        device: where to render.
        strict: warnings about the scene become errors.
        gpus: ranks that share the work, one a GPU (with --device cpu: processes).
        json: print one JSON object.
        out: folder for pictures: photograph, rendering and their difference side by side.
    """

    model: Annotated[Path, tyro.conf.Positional]
    scene: Path
    split: Split = "test"
    views: str = ""
    downscale: int = 1
    pixels: int = 0
    seed: int = 0
    background: str = "black"
    device: Device = "auto"
    strict: bool = False
    gpus: int = 1
    json: bool = False
    out: Path | None = None


def run(arguments: Arguments) -> None:
    parse_color(arguments.background)
    _check(arguments)
    if on_ranks.wanted(arguments.gpus):
        on_ranks.run("eval", arguments, lambda ranks: _evaluate(arguments, ranks))
    else:
        _evaluate(arguments)


def _evaluate(arguments: Arguments, ranks: Ranks | None = None) -> None:
    """Alone, or as one of several ranks, each on its part of the photographs; the first one answers."""
    from nerfleet.data.progress import progress_bar
    from nerfleet.render.evaluate import evaluate
    from nerfleet.snapshot.load import load_model
    from nerfleet.train.trainer import choose_device

    first = ranks is None or ranks.rank == 0
    model = load_model(arguments.model).to(ranks.device if ranks is not None else choose_device(arguments.device))
    with progress_bar() if first else contextlib.nullcontext() as reading:
        scene = _scene(arguments, reading, None if ranks is None else on_ranks.equal_part(ranks))
    if first and not arguments.json:
        say(*(f"warning: {text}" for text in scene.warnings), *_remarks(scene, model))
    views = parse_views(arguments.views, len(scene))
    options: dict[str, Any] = {"n_pixels": arguments.pixels, "seed": arguments.seed, "views": views}
    options["show"] = None if arguments.out is None else _writer(arguments.out)
    if ranks is not None:
        options["exchange"] = ranks.exchange
    with progress_bar("views") if first else contextlib.nullcontext() as bar:

        def progress(share: float) -> None:
            if ranks is not None:
                ranks.heartbeat.alive("evaluating")
            if bar is not None:
                bar(round(share * len(views)), len(views))

        found = evaluate(model, scene, background=parse_color(arguments.background), progress=progress, **options)
    if first and arguments.json:
        print_json(report(found, scene.split, arguments.background))
    elif first:
        print_table(found)


def _scene(arguments: Arguments, progress: Progress | None, part: Part | None) -> Scene:
    """Large scenes are decoded one view at a time, as they are compared, where one process looks at all of them."""
    from nerfleet.data.on_demand import open_scene
    from nerfleet.data.plan import plan_scene, planned_cameras
    from nerfleet.data.transforms import load_plan
    from nerfleet.pipeline.choice import PROGRESSIVE_BYTES

    plan = plan_scene(arguments.scene, arguments.split)
    if arguments.strict:
        plan.findings.raise_if_strict(str(arguments.scene))
    if part is None and 4 * int(planned_cameras(plan, arguments.downscale).resolution.long().prod(-1).sum()) > PROGRESSIVE_BYTES:
        return open_scene(plan, arguments.downscale)
    return load_plan(plan, arguments.downscale, strict=arguments.strict, progress=progress, part=part)


def _check(arguments: Arguments) -> None:
    """Raises NerfleetError for flags that contradict one another, before anything is read."""
    if arguments.pixels < 0:
        raise NerfleetError(f"--pixels {arguments.pixels}", "is negative", "use 0 for all pixels")
    if arguments.downscale < 1:
        raise NerfleetError(f"--downscale {arguments.downscale}", "is not a whole number from 1 on", "use 1 for full size")
    if not 0 <= arguments.seed < MAX_SEED:
        raise NerfleetError(f"--seed {arguments.seed}", "is out of range", "use 0 to 2^63 - 1")
    if arguments.out is not None and arguments.pixels:
        raise NerfleetError("--out", "needs whole views", "leave out --pixels")
    if arguments.out is not None and arguments.out.exists() and not arguments.out.is_dir():
        raise NerfleetError(f"--out {arguments.out}", "is a file", "name a folder")


def report(found: Evaluation, split: str, background: str) -> dict[str, object]:
    """The contract of ``nerfleet eval --json``."""
    views = [{"name": view.name, "psnr": view.psnr, "ssim": view.ssim} for view in found.views]
    return {"psnr_mean": found.psnr_mean, "ssim_mean": found.ssim_mean, "views": views, "split": split, "background": background}


def _remarks(scene: Scene, model: Model) -> list[str]:
    remarks = []
    if scene.skipped:
        remarks.append(f"{len(scene.skipped)} frames skipped, the first: {scene.skipped[0].frame}: {scene.skipped[0].reason}")
    if scene.aabb_scale != model.aabb_scale:
        wrong = f"aabb_scale is {scene.aabb_scale} in the scene, {model.aabb_scale} in the model"
        remarks.append(f"warning: {wrong}: was it trained on this scene?")
    return remarks


def _writer(folder: Path) -> ViewShown:
    """Writes photograph, rendering and absolute difference of each view side by side."""
    import numpy as np
    import torch

    from nerfleet.render.pictures import write_png
    from nerfleet.render.renderer import to_uint8

    def show(score: ViewScore, prediction: Tensor, truth: Tensor) -> None:
        pictures = torch.cat([truth, prediction, (prediction - truth).abs()], 1)
        write_png(folder / picture_name(score.name), np.ascontiguousarray(to_uint8(pictures).numpy()))

    return show


def picture_name(view: str) -> str:
    """``./train/r_0.jpg`` -> ``train_r_0.png``: one flat name for each file_path."""
    parts = [part for part in Path(view.replace("\\", "/")).parts if part not in ("/", ".", "..")]
    name = "_".join(parts)
    stem = Path(name).stem if Path(name).suffix.lower() in (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tga", ".exr") else name
    return f"{stem}.png"


def print_table(found: Evaluation) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, show_footer=True)
    mean = "-" if found.ssim_mean is None else f"{found.ssim_mean:.4f}"
    table.add_column("view", footer="mean", overflow="fold")
    table.add_column("PSNR, dB", footer=f"{found.psnr_mean:.2f}", justify="right")
    table.add_column("SSIM", footer=mean, justify="right")
    for view in found.views:
        table.add_row(view.name, f"{view.psnr:.2f}", "-" if view.ssim is None else f"{view.ssim:.4f}")
    Console(markup=False, highlight=False).print(table)
