"""Launchers of occupancy.cu; arguments as in occupancy/op.py."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from nerfleet.kernels.march.reference import N_CELLS
from nerfleet.kernels.rtc.launch import Program

SOURCE = Path(__file__).with_name("occupancy.cu")
BLOCK = 256
DEFINES = (("NF_CONE", 0),)
DECAY_BLOCKS = 1024


def occupancy_sample(grid: Tensor, state: Tensor, seed: int, aabb_scale: int, first: int, n_uniform: int, cells: Tensor, positions: Tensor) -> None:
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    arguments = (grid, state, *key, aabb_scale, first, n_uniform, len(cells), grid.numel(), cells, positions)
    Program(SOURCE, DEFINES).launch("occupancy_sample", (-(-len(cells) // BLOCK),), BLOCK, *arguments, device=grid.device)


def occupancy_splat(cells: Tensor, raw: Tensor, updates: Tensor) -> None:
    Program(SOURCE, DEFINES).launch("occupancy_splat", (-(-len(cells) // BLOCK),), BLOCK, cells, raw, len(cells), updates, device=raw.device)


def occupancy_update(updates: Tensor, grid: Tensor, bitfield: Tensor, hyper: Tensor) -> None:
    program, n, device = Program(SOURCE, DEFINES), grid.numel(), grid.device
    sums = torch.empty(DECAY_BLOCKS, device=device)
    program.launch("occupancy_decay", (DECAY_BLOCKS,), BLOCK, updates, grid, n, sums, device=device)
    program.launch("occupancy_mean", (1,), 32, sums, DECAY_BLOCKS, hyper, device=device)
    program.launch("occupancy_bits", (-(-n // BLOCK),), BLOCK, grid, hyper, n, bitfield, device=device)
    for cascade in range(1, n // N_CELLS):
        program.launch("occupancy_coarsen", (N_CELLS // 32 // BLOCK,), BLOCK, bitfield, cascade, device=device)
