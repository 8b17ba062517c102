"""One training step: rays -> samples -> loss -> gradients -> update (docs/design.md, section 5), the same on every device.

Every op works in place on buffers that were allocated once, and no device value is read on the host, so that on CUDA
the whole step is captured in a graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

import nerfleet.kernels.adam.op
import nerfleet.kernels.composite.op
import nerfleet.kernels.field.op
import nerfleet.kernels.order.op
import nerfleet.kernels.rays.op
import nerfleet.kernels.trace.op  # noqa: F401  (registers the ops)
from nerfleet.config import TrainConfig
from nerfleet.data.scene import Scene
from nerfleet.geometry.cameras import Cameras
from nerfleet.kernels.composite.reference import LOSSES
from nerfleet.kernels.control.op import COUNT_ORDERED, RAY_MULTIPLE, STATE_RAYS, STATE_STEP
from nerfleet.kernels.march.reference import MAX_SAMPLES, N_CELLS
from nerfleet.kernels.rays.op import BACKGROUNDS
from nerfleet.nn.field import ParameterGroup, field_spec, initial_mlp, initial_table
from nerfleet.nn.model import Model
from nerfleet.nn.occupancy_grid import OccupancyGrid, initial_grid
from nerfleet.train.buffers import Control, RayBatch, SampleBatch
from nerfleet.train.photographs import Photographs, ResidentPhotographs
from nerfleet.train.ranks import Parallel
from nerfleet.train.ranks import SingleDevice as SingleDevice

MIN_TRANSMITTANCE = 1e-4
SAMPLE_MARGIN = 2.0
"""Room for kept samples, in target batches: the ray count follows the kept count by one step. A step that keeps more has no gradient."""
WARM_UP_STEPS = 256
"""Steps in which the occupancy grid is refreshed with samples in all cells."""
MAX_REFRESH_PERIOD = 16
OCCUPANCY_POINTS_AT_ONCE = 1 << 18


def refresh_period(step: int, reference_step_ratio: float) -> int:
    """Steps between refreshes of the occupancy grid; small batches do not refresh more often than per reference batch."""
    shortest = min(max(round(1 / reference_step_ratio), 1), MAX_REFRESH_PERIOD)
    return min(max(step // 16, shortest), MAX_REFRESH_PERIOD)


def is_refresh(step: int, reference_step_ratio: float) -> bool:
    """Whether the occupancy grid is refreshed before this step."""
    return step % refresh_period(step, reference_step_ratio) == 0


@dataclass(frozen=True)
class Start:
    """A model to train on from, and the steps that it has behind it. Its optimizer begins anew."""

    model: Model
    step: int


class TrainStep:
    """Parameters, occupancy and buffers of a run, and the step that moves them on."""

    def __init__(
        self, scene: Scene, config: TrainConfig, device: torch.device, parallel: Parallel, start: Start | None = None, photographs: Photographs | None = None,
        fresh: bool = True,
    ) -> None:  # fmt: skip
        """fresh: begin at step 0, or as ``start`` says; else a checkpoint follows, which brings the occupancy."""
        config = config.with_schedule()
        self.config, self.device, self.parallel = config, device, parallel
        self.aabb_scale, self.render_aabb = scene.aabb_scale, scene.render_aabb
        self.cone_angle = config.scene_cone_angle(scene.aabb_scale)
        self.spec = field_spec(config.network, scene.aabb_scale)
        generator = torch.Generator().manual_seed(config.seed)
        mlp, table = initial_mlp(self.spec, generator), initial_table(self.spec, generator)
        if start is not None:
            mlp, table = start.model.mlp, start.model.table
        self.mlp = ParameterGroup.from_values(mlp, device, is_table=False)
        self.table, self.owned = parallel.shard(table, self.spec, device)
        self.ops = parallel.ops(torch.ops.nerfleet)

        self.cameras: Cameras = scene.cameras.to(device)
        self.photographs: Photographs = photographs or ResidentPhotographs(scene, device)
        self.occupancy = initial_grid(self.cameras, scene.aabb_scale) if fresh else OccupancyGrid.empty(scene.aabb_scale, device)
        self.occupancy_updates = torch.zeros_like(self.occupancy.values)

        most = config.batch_size + RAY_MULTIPLE * MAX_SAMPLES  # what rounding up the ray count alone can make of a batch
        self.capacity = max(int(config.batch_size * SAMPLE_MARGIN), most)  # of all ranks
        self.max_rays = config.max_rays * parallel.world_size
        rounding = int(parallel.world_size > 1)  # of a rank's range of rays
        self.rays = RayBatch.allocate(math.ceil(self.max_rays * parallel.max_share) + rounding, device)
        self.samples = SampleBatch.allocate(math.ceil(self.capacity * parallel.max_share), self.spec.grid.n_output, device)
        self.control = Control.allocate(self._initial_rays(), device)
        if start is not None:
            self._begin_with(start)
        self.rank_state = parallel.rank_state(self.control.state)
        n_points = min(OCCUPANCY_POINTS_AT_ONCE, self._refresh_samples(0))
        self.cells = torch.zeros(n_points, dtype=torch.int32, device=device)
        self.points = torch.zeros(n_points, 3, device=device)
        self.drawn = False  # whether ``rays`` are those of the step to come

    def _begin_with(self, start: Start) -> None:
        """Step count and occupied cells of a model; cells that no camera of this scene sees stay out."""
        self.control.state[STATE_STEP] = start.step
        values = start.model.occupancy.values.to(self.device)
        if bool((values > 0).any()):
            seen = self.occupancy.values >= 0
            self.occupancy.values.copy_(torch.where(seen, values.clamp_min(0), self.occupancy.values))
            self.occupancy.bitfield.copy_(start.model.occupancy.bitfield.to(self.device))

    def _initial_rays(self) -> int:
        wanted = int(self.config.initial_rays * self.config.reference_step_ratio)
        return min(max(wanted // RAY_MULTIPLE, 1) * RAY_MULTIPLE, self.max_rays)

    def __call__(self, step: int) -> None:
        """Run step number ``step`` (counted from 0; the same as the device's own count)."""
        if is_refresh(step, self.config.reference_step_ratio):
            self.refresh_occupancy(step)
        self.forward_backward()
        self.update()

    def _march(self) -> tuple[Tensor, int, float, int]:
        return self.occupancy.bitfield, self.occupancy.n_cascades, self.cone_angle, self.aabb_scale

    def forward_backward(self) -> None:
        """Rays of this step, their loss and all gradients."""
        self.draw()
        self.learn()

    def draw(self) -> None:
        """Rays of this step; needs no weights. Once more is the same."""
        ops, config, rays, control, cameras, photographs = self.ops, self.config, self.rays, self.control, self.cameras, self.photographs
        optimizer = config.network.optimizer
        schedule = (config.reference_step_ratio, optimizer.learning_rate, optimizer.decay_start, optimizer.decay_interval, optimizer.decay_base)
        ops.begin(control.state, control.hyper, *schedule, optimizer.ema_decay)
        self.parallel.divide(control.state, self.rank_state)
        ops.sample_rays(
            photographs.pixels, photographs.offsets, photographs.drawable, photographs.places, cameras.camera_to_world, cameras.focal, cameras.principal,
            cameras.resolution, cameras.lens, cameras.lens_params, self.rank_state, self.parallel.seed(config.seed), self.cone_angle,
            self.aabb_scale, BACKGROUNDS[config.background], config.nerf_compatibility,
            rays.origins, rays.directions, rays.starts, rays.targets, rays.backgrounds,
        )  # fmt: skip
        self.drawn = True

    def learn(self) -> None:
        """Loss of the rays and all gradients."""
        ops, config, rays, samples, control = self.ops, self.config, self.rays, self.samples, self.control
        ops.trace(
            rays.origins, rays.directions, rays.starts, self.rank_state, *self._march(), self.table.weights, self.mlp.weights, *self.spec.arguments,
            MIN_TRANSMITTANCE, rays.rgb, rays.transmittance, rays.kept, samples.ray_indices, samples.ranks, samples.positions, samples.t, samples.dt,
            samples.features, samples.rgb, samples.raw, samples.weight, samples.after, samples.prefix, control.counters,
        )  # fmt: skip
        ops.sample_order(samples.ray_indices, samples.ranks, rays.kept, self.rank_state, control.counters, samples.order)
        count = control.counters[COUNT_ORDERED : COUNT_ORDERED + 1]
        ops.ray_loss(
            rays.rgb, rays.transmittance, rays.targets, rays.backgrounds, rays.starts, self.rank_state, LOSSES[config.network.loss], config.loss_scale,
            rays.gradient, rays.final, control.loss_sum, control.counters,
        )  # fmt: skip
        self.parallel.weigh(rays.gradient, control.loss_sum, control.state, self.rank_state)
        self._composite_backward(count)
        ops.field_backward(
            samples.features, samples.ray_indices, rays.directions, self.mlp.weights, self.spec.density_dims, self.spec.rgb_dims, samples.d_rgb, samples.d_raw,
            count, samples.order, self.mlp.gradient, samples.d_features,
        )  # fmt: skip
        ops.hash_grid_backward(samples.positions, samples.d_features, *self.spec.arguments[:4], self.table.gradient, count, samples.order)

    def _composite_backward(self, count: Tensor) -> None:
        """Gradients of the samples' colours and densities."""
        ops, config, rays, samples, control = self.ops, self.config, self.rays, self.samples, self.control
        records = (samples.ray_indices, samples.rgb, samples.raw, samples.t, samples.dt, samples.weight, samples.after, samples.prefix)
        end = (count, control.hyper, config.near_distance, samples.d_rgb, samples.d_raw)
        if config.surface_from < 0:
            ops.composite_backward(*records, rays.gradient, rays.final, *end)
            return
        scale = config.loss_scale / self.rank_state[STATE_RAYS : STATE_RAYS + 1].float()
        self.parallel.weigh(scale, torch.zeros_like(control.loss_sum), control.state, self.rank_state)
        first_step = math.ceil(config.surface_from / config.reference_step_ratio)
        rule = (scale, self.rank_state, first_step, LOSSES[config.network.loss])
        ops.relaxed_backward(*records, rays.targets, rays.gradient, rays.final, *rule, *end)

    def update(self) -> None:
        """Gradients of all ranks -> new weights; then on to the next step."""
        ops, config, control = self.ops, self.config, self.control
        optimizer = config.network.optimizer
        self.parallel.reduce(self.mlp, self.table, self.owned, control)
        constants = (optimizer.beta1, optimizer.beta2, optimizer.epsilon)
        ops.adam(*self.mlp.tensors(), control.hyper, control.counters, *constants, optimizer.l2_reg, config.loss_scale, False)
        ops.adam(*self.owned.tensors(), control.hyper, control.counters, *constants, 0.0, config.loss_scale, True)
        self.parallel.publish(self.table, self.owned)
        ops.advance(control.state, control.counters, control.hyper, control.loss_sum, control.stats, config.batch_size, self.max_rays)
        self.drawn = False

    def _refresh_samples(self, step: int) -> int:
        """Densities that a refresh looks at, in proportion to the batch."""
        all_cells = len(self.occupancy.values)
        share = min(1.0, self.config.reference_step_ratio)
        return max(int(all_cells * share) if step < WARM_UP_STEPS else int(all_cells * share) // 2, N_CELLS // 64)

    def refresh_occupancy(self, step: int) -> None:
        """Look at the density of random cells, with the raw weights, and set the bits anew."""
        ops, control, grid = self.ops, self.control, self.occupancy
        total = self._refresh_samples(step)
        n_uniform = total if step < WARM_UP_STEPS else total // 2
        begin, end = self.parallel.part(total)
        for first in range(begin, end, len(self.cells)):
            n = min(len(self.cells), end - first)
            cells, points = self.cells[:n], self.points[:n]
            ops.occupancy_sample(grid.values, control.state, self.config.seed, self.aabb_scale, first, n_uniform, cells, points)
            raw = ops.field_density(points, self.table.weights, self.mlp.weights, *self.spec.arguments)
            ops.occupancy_splat(cells, raw, self.occupancy_updates)
        self.parallel.maximum(self.occupancy_updates)
        ops.occupancy_update(self.occupancy_updates, grid.values, grid.bitfield, control.hyper)

    def model(self) -> Model:
        """The model so far: averaged weights (one rank: shared storage, not a copy) and the occupancy. All ranks must ask together."""
        table = self.parallel.whole(self.owned.ema, self.spec.grid.n_params)
        return Model(self.config.network, self.aabb_scale, self.cone_angle, self.mlp.ema, table, self.occupancy, self.render_aabb)

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint must hold, by name, with this rank's part of those in ``sharded_tensors``."""
        groups = {f"{name}.{part}": getattr(group, part) for name, group in (("mlp", self.mlp), ("table", self.owned)) for part in self._saved}
        return groups | {"occupancy": self.occupancy.values, "bitfield": self.occupancy.bitfield, "state": self.control.state, "hyper": self.control.hyper}

    _saved = ("master", "ema", "first_moment", "second_moment", "steps")

    def sharded_tensors(self) -> dict[str, int]:
        """Tensors of ``state_tensors`` that are spread over ranks -> their length on one device."""
        return {f"table.{part}": self.spec.grid.n_params for part in self._saved}

    def compile(self) -> None:
        """Run the first step and undo it, so that everything is compiled and loaded before a run's clock starts. All ranks together."""
        before = {name: tensor.to("cpu", copy=True) for name, tensor in self.state_tensors().items()}
        self(0)
        self.parallel.settle()
        for name, tensor in self.state_tensors().items():
            tensor.copy_(before[name])
        self.control.stats.zero_()
        self.restore()

    def restore(self) -> None:
        """After ``state_tensors`` were written: bring the derived tensors in line. All ranks together."""
        for group in (self.mlp, self.owned):
            if group.weights.data_ptr() != group.master.data_ptr():
                group.weights.copy_(group.master)
        self.parallel.publish(self.table, self.owned)
        self.parallel.settle()
        for group in (self.mlp, self.table, self.owned):
            group.gradient.zero_()
