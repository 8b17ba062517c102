"""Ops of the occupancy grid: ``occupancy_sample`` -> ``field_density`` -> ``occupancy_splat`` -> ``occupancy_update``."""

from __future__ import annotations

import torch

from nerfleet.kernels.control.op import HYPER_MEAN_DENSITY, STATE_STEP
from nerfleet.kernels.march.reference import N_CELLS
from nerfleet.kernels.rays.philox import split_seed

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define(
    "occupancy_sample(Tensor grid, Tensor state, int seed, int aabb_scale, int first, int n_uniform, Tensor(a!) cells, Tensor(b!) positions) -> ()"
)
library.define("occupancy_splat(Tensor cells, Tensor raw, Tensor(a!) updates) -> ()")
library.define("occupancy_update(Tensor(a!) updates, Tensor(b!) grid, Tensor(c!) bitfield, Tensor(d!) hyper) -> ()")


@torch.library.impl(library, "occupancy_sample", "CPU")
def _occupancy_sample_cpu(grid, state, seed, aabb_scale, first, n_uniform, cells, positions):
    """Points at which the density is looked at: samples first .. first + len(cells) of a refresh.

    Args:
        grid [cascades * 128^3] float32: cells in Morton order, cascade after cascade; -1: unseen by all cameras.
        n_uniform: samples 0 .. n_uniform - 1 are spread over all cells, later ones over cells above 0.01 (occupancy/cpu.py).
        cells [n] int32, positions [n, 3] float32 in the unit cube: written.
    """
    from nerfleet.kernels.occupancy import cpu

    cpu.sample(first, n_uniform, int(state[STATE_STEP]), *split_seed(seed), grid.numpy(), aabb_scale, cells.numpy(), positions.numpy())


@torch.library.impl(library, "occupancy_splat", "CPU")
def _occupancy_splat_cpu(cells, raw, updates):
    """updates [cells of the grid] float32: maximum with exp(raw) * MIN_STEP at ``cells``."""
    from nerfleet.kernels.occupancy import cpu

    cpu.splat(cells.numpy(), raw.numpy(), updates.numpy())


@torch.library.impl(library, "occupancy_update", "CPU")
def _occupancy_update_cpu(updates, grid, bitfield, hyper):
    """grid = max(0.95 grid, updates), updates cleared, bitfield written, hyper[HYPER_MEAN_DENSITY] set."""
    from nerfleet.kernels.occupancy import cpu
    from nerfleet.kernels.occupancy.reference import MAX_THRESHOLD

    mean = cpu.update(updates.numpy(), grid.numpy())
    hyper[HYPER_MEAN_DENSITY] = float(mean)
    cpu.threshold_bits(grid.numpy(), min(float(mean), MAX_THRESHOLD), bitfield.numpy())
    cpu.coarsen(bitfield.numpy(), len(grid) // N_CELLS)


def _cuda(name: str) -> None:
    def launch(*arguments: object) -> None:
        from nerfleet.kernels.occupancy import cuda

        getattr(cuda, name)(*arguments)

    torch.library.impl(library, name, "CUDA")(launch)
    torch.library.register_fake(f"nerfleet::{name}")(lambda *_: None)


for _name in ("occupancy_sample", "occupancy_splat", "occupancy_update"):
    _cuda(_name)
