"""Launchers of trace.cu and render.cu; arguments as in trace/op.py."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nerfleet.kernels.field.cuda import BLOCK, BLOCKS_A_MULTIPROCESSOR, Sizes, field_defines, sizes_of
from nerfleet.kernels.hash_grid.cuda import pack_grid, require_half
from nerfleet.kernels.march.cuda import BLOCK_BYTES, march_defines, pack_scene
from nerfleet.kernels.rtc import launch
from nerfleet.kernels.rtc.launch import Program

TRACE = Path(__file__).with_name("trace.cu")
RENDER = Path(__file__).with_name("render.cu")
SCRATCH_BYTES = 32 * 4
"""Of a warp, besides its tile."""
RENDER_LANES = 8
"""Lanes that share a ray in rendering."""
PATIENCE = 8
"""Tries to find samples after which a warp goes on with those that it has, if any."""
BLOCK_FIELD_THREADS = 1024


def shared_bytes(sizes: Sizes) -> int:
    return sizes.weight_bytes + BLOCK // 32 * (sizes.tile_bytes + SCRATCH_BYTES)


def _blocks(device: torch.device) -> int:
    return BLOCKS_A_MULTIPROCESSOR * launch.n_multiprocessors(device)


def _summarize(program: Program, kernel: str, bitfield: Tensor, n_cascades: int) -> Tensor:
    """Block field: a bit for each block of 16^3 cells, set where one of them is occupied."""
    blocks = torch.empty(n_cascades * BLOCK_BYTES, dtype=torch.uint8, device=bitfield.device)
    program.launch(kernel, (n_cascades * BLOCK_BYTES // 4,), BLOCK_FIELD_THREADS, bitfield, blocks, device=bitfield.device)
    return blocks


def trace(
    origins: Tensor, directions: Tensor, starts: Tensor, state: Tensor, bitfield: Tensor, n_cascades: int, cone_angle: float, aabb_scale: int,
    table: Tensor, mlp: Tensor, n_features: int, scales: Sequence[float], levels: Sequence[int], interpolation: int, density_dims: Sequence[int],
    rgb_dims: Sequence[int], min_transmittance: float, rgb: Tensor, transmittance: Tensor, kept: Tensor, sample_ray_indices: Tensor,
    sample_ranks: Tensor, sample_positions: Tensor, sample_t: Tensor, sample_dt: Tensor, sample_features: Tensor, sample_rgb: Tensor, sample_raw: Tensor,
    sample_weight: Tensor, sample_after: Tensor, sample_prefix: Tensor, counters: Tensor, lanes: int = 0, patience: int = PATIENCE,
) -> None:  # fmt: skip
    """``counters`` must be zero; ``lanes`` that share a ray: 0 chooses by the batch."""
    for name, tensor in (("table", table), ("mlp", mlp), ("sample_features", sample_features)):
        require_half(name, tensor)
    sizes = sizes_of(len(scales) * n_features, density_dims, rgb_dims)
    program = Program(TRACE, (*field_defines(n_features, levels, interpolation, sizes), *march_defines(n_cascades, cone_angle)))
    device, n = origins.device, len(starts)
    queue = torch.empty(n, 2, dtype=torch.int32, device=device)
    blocks = _summarize(program, "trace_blocks", bitfield, n_cascades)
    scene = pack_scene(bitfield, blocks, cone_angle, aabb_scale)
    rays = (origins, directions, starts)
    program.launch("trace_candidates", (-(-n // BLOCK),), BLOCK, *rays, state, scene, queue, counters, rgb, transmittance, kept, device=device)
    values = (sample_t, sample_dt, sample_features, sample_rgb, sample_raw, sample_weight, sample_after, sample_prefix)
    stored = (sample_ray_indices, sample_ranks, sample_positions, *values)
    sinks = struct.pack(f"<{len(stored)}Q", *(tensor.data_ptr() for tensor in stored))
    field = (table, mlp, pack_grid(scales, levels), min_transmittance, lanes, patience)
    arguments = (*rays, scene, *field, queue, counters, len(sample_t), rgb, transmittance, kept, sinks)
    program.launch("trace_rays", (_blocks(device),), BLOCK, *arguments, device=device, shared_bytes=shared_bytes(sizes))


def render_rays(
    origins: Tensor, directions: Tensor, starts: Tensor, box: Tensor, bitfield: Tensor, n_cascades: int, cone_angle: float, aabb_scale: int,
    table: Tensor, mlp: Tensor, n_features: int, scales: Sequence[float], levels: Sequence[int], interpolation: int, density_dims: Sequence[int],
    rgb_dims: Sequence[int], min_transmittance: float, step_cascades: bool, lanes: int = RENDER_LANES, patience: int = PATIENCE,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """rgb [n, 3], alpha [n], depth [n]. ``box`` is read on the host: keep it on the CPU."""
    require_half("table", table)
    require_half("mlp", mlp)
    sizes = sizes_of(len(scales) * n_features, density_dims, rgb_dims)
    program = Program(RENDER, (*field_defines(n_features, levels, interpolation, sizes), *march_defines(n_cascades, cone_angle, step_cascades)))
    device, n = origins.device, len(starts)
    rgb, alpha, depth = torch.empty(n, 3, device=device), torch.empty(n, device=device), torch.empty(n, device=device)
    queue, counters = torch.empty(n, 2, dtype=torch.int32, device=device), torch.zeros(2, dtype=torch.int32, device=device)
    blocks = _summarize(program, "render_blocks", bitfield, n_cascades)
    scene = pack_scene(bitfield, blocks, cone_angle, aabb_scale, box.flatten().tolist())
    rays = (origins.contiguous(), directions.contiguous(), starts.contiguous())
    pixels = (queue, counters, rgb, alpha, depth)
    program.launch("render_candidates", (-(-n // BLOCK),), BLOCK, *rays, n, scene, *pixels, device=device)
    field = (table, mlp, pack_grid(scales, levels), min_transmittance, lanes, patience)
    program.launch("render_rays", (_blocks(device),), BLOCK, *rays, scene, *field, *pixels, device=device, shared_bytes=shared_bytes(sizes))
    return rgb, alpha, depth
