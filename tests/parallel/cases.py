"""What ranks do in the tests: each case runs on every rank, in order, and its results are kept for the test that looks at them."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.train.small import NETWORK, SIZE, config

from nerfleet.config import NetworkConfig, TrainConfig
from nerfleet.data.part import Part, take_part
from nerfleet.data.scene import MASKED_PIXEL, Scene
from nerfleet.data.synthetic import synthetic_scene
from nerfleet.errors import NerfleetError
from nerfleet.kernels.control.op import STATE_RAYS, STATE_SKIPPED, STATE_STEP
from nerfleet.kernels.hash_grid import fixed_point
from nerfleet.nn import field
from nerfleet.nn.field import field_spec
from nerfleet.parallel.data_parallel import DataParallel
from nerfleet.parallel.grid_parallel import GridParallel
from nerfleet.parallel.mesh import Degrees
from nerfleet.parallel.ranks import Ranks
from nerfleet.parallel.shares import edges, shares
from nerfleet.presets import load_network
from nerfleet.render.evaluate import evaluate
from nerfleet.train import trainer
from nerfleet.train.buffers import Control
from nerfleet.train.graph import GraphedStep
from nerfleet.train.ranks import Parallel, SingleDevice
from nerfleet.train.step import TrainStep
from nerfleet.train.trainer import train

Result = dict[str, Any]
N_PAIRED = 1000
WARM_UP = 4
"""Steps before the one whose gradients are compared: densities are no longer all alike."""
N_RAYS = 450
PSNR_STEPS = 300
ALL_MAX_RAYS = 1 << 13


SMOOTH = dataclasses.replace(NETWORK, optimizer=dataclasses.replace(NETWORK.optimizer, learning_rate=3e-3, ema_decay=0.98))
"""Learns slowly enough that rounding and the choice of rays move the score of a short training little."""


def small_scene(split: str = "train", n_views: int = 8) -> Scene:
    return synthetic_scene(split, n_views=n_views, width=SIZE, height=SIZE, supersample=1)


def own_config(world_size: int, **changes: Any) -> TrainConfig:
    """The same step on any number of ranks: ``max_rays`` is per rank."""
    return config(max_rays=ALL_MAX_RAYS // world_size, initial_rays=2048, **changes)


def data_parallel(ranks: Ranks, views: str, speeds: tuple[float, ...] = (), measured: bool = False) -> tuple[DataParallel, Callable[[Scene], Scene]]:
    """The strategy, and what takes a rank's part of a scene."""
    parts = shares(speeds or (1.0,) * ranks.world_size)
    bounds = edges(parts)
    if views == "replicate":
        return DataParallel(ranks, parts, None, measured), lambda scene: scene
    part = Part(bounds[ranks.rank], bounds[ranks.rank + 1])
    return DataParallel(ranks, parts, parts, measured), lambda scene: take_part(scene, part)


EIGHT_LEVELS = dataclasses.replace(NETWORK, encoding=dataclasses.replace(NETWORK.encoding, n_levels=8))
"""Enough levels that gradients travel in pieces."""


def step_gradients(scene: Scene, parallel: Parallel, world_size: int, network: NetworkConfig = NETWORK) -> Result:
    """Summed gradients of one step after a few others, whole, and the ray count that follows."""
    step = TrainStep(scene, own_config(world_size, network=network), torch.device("cpu"), parallel)
    for i in range(WARM_UP):
        step(i)
    step.control.state[STATE_RAYS] = N_RAYS
    step.forward_backward()
    parallel.reduce(step.mlp, step.table, step.owned, step.control)
    table = parallel.whole(step.owned.gradient, step.spec.grid.n_params).clone()
    before = {"table": table, "mlp": step.mlp.gradient.clone(), "counters": step.control.counters.clone(), "loss_sum": step.control.loss_sum.clone()}
    weights = parallel.whole(step.owned.master, step.spec.grid.n_params).clone()
    return before | {"weights": weights, "occupancy": step.occupancy.values.clone()}


def gradients_data(ranks: Ranks, folder: Path) -> Result:
    parallel, take = data_parallel(ranks, "replicate", tuple(float(1 + rank) for rank in range(ranks.world_size)))
    return step_gradients(take(small_scene()), parallel, ranks.world_size)


def gradients_pieces(ranks: Ranks, folder: Path) -> Result:
    """As gradients_data, with the table in pieces that are under way while others are computed."""
    parallel, take = data_parallel(ranks, "replicate")
    found = step_gradients(take(small_scene()), parallel, ranks.world_size, EIGHT_LEVELS)
    traffic, groups = parallel.early()
    return found | {"groups": len(groups), "early": traffic is not None}


def gradients_grid(ranks: Ranks, folder: Path) -> Result:
    return _gradients_of_levels(ranks, ranks.world_size)


def gradients_hybrid(ranks: Ranks, folder: Path) -> Result:
    return _gradients_of_levels(ranks, 2)


def _gradients_of_levels(ranks: Ranks, grid: int) -> Result:
    parallel = GridParallel(ranks, Degrees(ranks.world_size // grid, grid), shares((1.0,) * ranks.world_size), None)
    found = step_gradients(small_scene(), parallel, ranks.world_size)
    assert parallel.ownership is not None
    return found | {"units": parallel.ownership.units, "width": parallel.ownership.width}


TWO_LEVELS = dataclasses.replace(NETWORK, encoding=dataclasses.replace(NETWORK.encoding, n_levels=2))
"""Fewer levels than four ranks."""


def gradients_columns(ranks: Ranks, folder: Path) -> Result:
    """More ranks than levels: each level of four features is split into two columns of two."""
    n = ranks.world_size
    parallel = GridParallel(ranks, Degrees(1, n), shares((1.0,) * n), None)
    found = step_gradients(small_scene(), parallel, n, TWO_LEVELS)
    assert parallel.ownership is not None
    return found | {"width": parallel.ownership.width}


def resume_grid(ranks: Ranks, folder: Path) -> Result:
    """Continue what data-parallel ranks have trained, with the levels split: the model as it was read, and its score."""
    n = ranks.world_size
    parallel = GridParallel(ranks, Degrees(1, n), shares((1.0,) * n), None)
    scene = small_scene("train", 30)
    result = train(scene, psnr_config(n), device="cpu", out=folder / "run_split", parallel=parallel)
    return {"table": result.model.table, "mlp": result.model.mlp, "steps": result.steps, "strategy": result.strategy}


def train_grid(ranks: Ranks, folder: Path) -> Result:
    n = ranks.world_size
    return _run(ranks, folder / "run_grid", GridParallel(ranks, Degrees(1, n), shares((1.0,) * n), None), small_scene("train", 30))


def fixed_point_sums(ranks: Ranks, folder: Path) -> Result:
    """The table's gradient as CUDA has it, in pairs: each rank's own, and this rank's slice of their sum."""
    parallel, _ = data_parallel(ranks, "replicate")
    original = field.table_gradient
    field.table_gradient = lambda n, device: torch.zeros(-(-n // 2), dtype=torch.int64, device=device)
    try:
        whole, owned = parallel.shard(torch.zeros(N_PAIRED), field_spec(NETWORK, 1), torch.device("cpu"))
    finally:
        field.table_gradient = original
    values = torch.randn(N_PAIRED, generator=torch.Generator().manual_seed(ranks.rank)).half().float()
    whole.gradient.copy_(fixed_point.pack(values))
    networks = field.ParameterGroup.from_values(torch.zeros(8), torch.device("cpu"), is_table=False)
    parallel.reduce(networks, whole, owned, Control.allocate(16, torch.device("cpu")))
    return {"own": values, "sum": fixed_point.unpack(owned.gradient), "cleared": not whole.gradient.any()}


def nan(ranks: Ranks, folder: Path) -> Result:
    """One rank's gradient is not a number in one step."""
    parallel, take = data_parallel(ranks, "split")
    step = TrainStep(take(small_scene()), own_config(ranks.world_size), torch.device("cpu"), parallel)
    step(0)
    before = step.owned.master.clone()
    healthy = step.mlp.weights.clone()
    if ranks.rank == 1:
        step.mlp.weights[7] = torch.nan
    step.forward_backward()
    step.mlp.master.copy_(healthy)
    step.update()
    unchanged = torch.equal(step.owned.master, before)
    skipped = int(step.control.state[STATE_SKIPPED])
    step(2)
    return {"unchanged": unchanged, "skipped": skipped, "moved": not torch.equal(step.owned.master, before)}


def masked(ranks: Ranks, folder: Path) -> Result:
    """All that the last rank holds is masked: it has rays, but nothing to learn from."""
    parallel, take = data_parallel(ranks, "split")
    own = take(small_scene())
    if ranks.rank == ranks.world_size - 1:
        own = dataclasses.replace(own, pixels=torch.tensor(MASKED_PIXEL, dtype=torch.uint8).repeat(len(own.pixels), 1))
    result = train(own, own_config(ranks.world_size, steps=10), device="cpu", parallel=parallel)
    return {"steps": result.steps, "skipped": result.skipped_steps, "finite": bool(torch.isfinite(result.model.table).all())}


def train_split(ranks: Ranks, folder: Path) -> Result:
    return _trained(ranks, folder, "split")


def train_replicate(ranks: Ranks, folder: Path) -> Result:
    return _trained(ranks, folder, "replicate")


def psnr_config(world_size: int) -> TrainConfig:
    return own_config(world_size, steps=PSNR_STEPS, network=SMOOTH, background="black", checkpoint_every_seconds=5.0)


def _trained(ranks: Ranks, folder: Path, views: str) -> Result:
    parallel, take = data_parallel(ranks, views)
    return _run(ranks, folder / f"run_{views}", parallel, take(small_scene("train", 30)))


def _run(ranks: Ranks, out: Path, parallel: Parallel, own: Scene) -> Result:
    scene = small_scene("train", 30)
    shown = take_part(scene, Part(ranks.rank / ranks.world_size, (ranks.rank + 1) / ranks.world_size))
    result = train(own, psnr_config(ranks.world_size), device="cpu", out=out, held_out=shown, parallel=parallel)
    assert result.evaluation is not None
    views_seen = [view.name for view in result.evaluation.views]
    return {"psnr": result.evaluation.psnr_mean, "views": views_seen, "table": result.model.table, "mlp": result.model.mlp, "steps": result.steps}


HALF = PSNR_STEPS // 2


def half(ranks: Ranks, folder: Path) -> Result:
    """The first half of a run, as a signal ends it. All hold all views: any number of ranks draws the same rays, so that the score is no matter of chance."""
    parallel, take = data_parallel(ranks, "replicate")
    agree = parallel.agree
    parallel.agree = lambda step, wishes: agree(step, wishes) | (trainer.WISH_STOP if step >= HALF else 0)  # type: ignore[method-assign]
    result = train(take(small_scene("train", 30)), psnr_config(ranks.world_size), device="cpu", out=folder / "half", parallel=parallel)
    return {"steps": result.steps, "stopped_by": result.stopped_by}


def second_half(ranks: Ranks, folder: Path) -> Result:
    parallel, take = data_parallel(ranks, "replicate")
    return _run(ranks, _own_copy(ranks, folder), parallel, take(small_scene("train", 30)))


def second_half_grid(ranks: Ranks, folder: Path) -> Result:
    n = ranks.world_size
    parallel = GridParallel(ranks, Degrees(1, n), shares((1.0,) * n), None)
    return _run(ranks, _own_copy(ranks, folder, "grid"), parallel, small_scene("train", 30))


def _own_copy(ranks: Ranks, folder: Path, suffix: str = "") -> Path:
    copy = folder / f"half_{ranks.world_size}{suffix}"
    if ranks.rank == 0:
        shutil.copytree(folder / "half", copy)
    ranks.exchange(None)
    return copy


def resume(ranks: Ranks, folder: Path) -> Result:
    """Continue ``folder/run_split`` (of another number of ranks), which is at its end: the model as it was read."""
    parallel, take = data_parallel(ranks, "split")
    result = train(take(small_scene("train", 30)), psnr_config(ranks.world_size), device="cpu", out=folder / "run_split", parallel=parallel)
    return {"table": result.model.table, "mlp": result.model.mlp, "steps": result.steps}


def speed_balanced(ranks: Ranks, folder: Path) -> Result:
    return _slowed(ranks, measured=True)


def speed_equal(ranks: Ranks, folder: Path) -> Result:
    return _slowed(ranks, measured=False)


def _slowed(ranks: Ranks, measured: bool) -> Result:
    """Train while every ray takes some time, on the last rank three times as long."""
    seconds_a_ray = 1.5e-2 * (3 if ranks.rank == ranks.world_size - 1 else 1)
    at_full_speed = TrainStep.forward_backward

    def slow(step: TrainStep) -> None:
        at_full_speed(step)
        time.sleep(seconds_a_ray * int(step.rank_state[STATE_RAYS]))

    parallel, take = data_parallel(ranks, "split", measured=measured)
    TrainStep.forward_backward = slow  # type: ignore[method-assign]
    try:
        short = dataclasses.replace(own_config(ranks.world_size, steps=30), batch_size=1 << 10, initial_rays=256)
        result = train(take(small_scene()), short, device="cpu", parallel=parallel)
    finally:
        TrainStep.forward_backward = at_full_speed  # type: ignore[method-assign]
    return {"samples_per_s": result.trained_samples / result.train_seconds, "shares": parallel.shares}


GRAPH_STEPS, QUIET_STEPS = 40, 10
"""Steps in all; of these the last, in which the host may not wait for the device."""


def graph(ranks: Ranks, folder: Path) -> Result:
    """The captured step on CUDA, with gradients and weights under way inside the graph."""
    n = ranks.world_size
    parallel = DataParallel(ranks, shares((1.0,) * n), None, measured=False)
    step = _captured(ranks, parallel)
    traffic, _ = parallel.early()
    assert traffic is not None
    found = {"pieces": len(traffic.sharding.pieces), "early": True, "weights": step.table.weights.cpu(), "steps": GRAPH_STEPS}
    return found | {"stats": step.control.stats[:GRAPH_STEPS].cpu(), "step": int(step.control.state[STATE_STEP])}


def graph_alone(ranks: Ranks, folder: Path) -> Result:
    return {"stats": _captured(ranks, SingleDevice()).control.stats[:GRAPH_STEPS].cpu()}


def _captured(ranks: Ranks, parallel: Parallel) -> TrainStep:
    network = load_network("base")
    network = dataclasses.replace(network, encoding=dataclasses.replace(network.encoding, log2_hashmap_size=15))
    scene = synthetic_scene(n_views=6, width=64, height=48)
    step = TrainStep(scene, TrainConfig(network=network, batch_size=1 << 16, max_rays=1 << 14, seed=3), ranks.device, parallel)
    advance = GraphedStep(step)
    for number in range(GRAPH_STEPS):
        if number == GRAPH_STEPS - QUIET_STEPS:
            torch.cuda.set_sync_debug_mode("error")
        advance(number)
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    return step


def slow_evaluation(ranks: Ranks, folder: Path) -> Result:
    """The first rank looks at its part of the held-out views for twice as long as a collective may take."""
    scene = small_scene("test", 4)
    part = take_part(scene, Part(ranks.rank / ranks.world_size, (ranks.rank + 1) / ranks.world_size))

    def lingering(*arguments: Any, **options: Any) -> Any:
        if ranks.rank == 0:
            for _ in range(24):
                time.sleep(0.5)
                ranks.heartbeat.alive("evaluating")
        return evaluate(*arguments, **options)

    parallel, take = data_parallel(ranks, "split")
    trainer.evaluate = lingering
    try:
        found = train(take(small_scene()), own_config(ranks.world_size, steps=3), device="cpu", held_out=part, parallel=parallel)
    finally:
        trainer.evaluate = evaluate
    assert found.evaluation is not None
    return {"views": len(found.evaluation.views)}


def stall(ranks: Ranks, folder: Path) -> Result:
    """Rank 1 does nothing any more at step 5."""
    at_full_speed = TrainStep.forward_backward

    def stalled(step: TrainStep) -> None:
        if ranks.rank == 1 and int(step.control.state[STATE_STEP]) == 5:
            time.sleep(600)
        at_full_speed(step)

    TrainStep.forward_backward = stalled  # type: ignore[method-assign]
    parallel, take = data_parallel(ranks, "split")
    train(take(small_scene()), own_config(ranks.world_size), device="cpu", parallel=parallel)
    return {}


def refuse(ranks: Ranks, folder: Path) -> Result:
    """One rank finds an error: all hear of it."""

    def act() -> None:
        if ranks.rank == 1:
            raise NerfleetError("photograph 3", "is damaged", "replace it")

    try:
        ranks.together(act)
    except NerfleetError as error:
        return {"error": str(error)}
    return {}


CASE_FUNCTIONS = (
    *(gradients_data, gradients_pieces, gradients_grid, gradients_hybrid, gradients_columns, fixed_point_sums, nan, masked),
    *(train_split, train_replicate, train_grid, resume, resume_grid, half, second_half, second_half_grid),
    *(speed_balanced, speed_equal, slow_evaluation, stall, refuse, graph, graph_alone),
)
CASES: dict[str, Callable[[Ranks, Path], Result]] = {f.__name__: f for f in CASE_FUNCTIONS}
