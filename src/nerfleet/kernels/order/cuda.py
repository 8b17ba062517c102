"""Launcher of order.cu; arguments as in order/op.py."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from nerfleet.kernels.rtc.launch import Program

SOURCE = Path(__file__).with_name("order.cu")
BLOCK, RAYS = 256, 1024


def sample_order(ray_indices: Tensor, ranks: Tensor, kept: Tensor, state: Tensor, counters: Tensor, order: Tensor) -> None:
    program, device = Program(SOURCE), order.device
    offsets = torch.empty_like(kept)
    program.launch("ray_offsets", (-(-len(kept) // RAYS),), RAYS, kept, state, offsets, device=device)
    program.launch("sample_order", (-(-len(order) // BLOCK),), BLOCK, ray_indices, ranks, offsets, len(order), counters, order, device=device)
