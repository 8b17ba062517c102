"""Tracing on the CPU, in chunks of rays, a thread a chunk, and in rounds: march a few samples on, evaluate those, composite, drop finished rays.

A round evaluates the density of its samples first; the colour network only sees samples that carry weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np
import torch
from torch import Tensor

from nerfleet.kernels.control.op import COUNT_EVALUATED, COUNT_HIT, COUNT_KEPT, STATE_RAYS
from nerfleet.kernels.field import cpu as field_cpu
from nerfleet.kernels.march import cpu as march_cpu
from nerfleet.kernels.march.reference import MAX_SAMPLES
from nerfleet.kernels.threads import over_blocks

CHUNKS, MIN_CHUNK, MAX_CHUNK = 4, 384, 4096
"""Rays are traced in about CHUNKS chunks, each by one thread from beginning to end; rays of a chunk."""
ROUND_SAMPLES = 1 << 16
"""Samples that a round of a chunk evaluates at most (64 bytes of features and more each)."""
MIN_WIDTH, FIRST_WIDTH, MAX_WIDTH = 8, 16, 128
"""Samples of one ray in one round: FIRST_WIDTH at first and twice as many in each further one, within the limits. Those
behind an opaque surface are evaluated in vain, so the first rounds are narrow."""
NO_LIMIT = 1 << 30
Encode = Callable[[Tensor], Tensor]


@dataclass
class Sinks:
    """Where a training trace stores its kept samples (numpy views of the op's buffers)."""

    ray_indices: np.ndarray
    ranks: np.ndarray
    positions: np.ndarray
    t: np.ndarray
    dt: np.ndarray
    features: np.ndarray
    rgb: np.ndarray
    raw: np.ndarray
    weight: np.ndarray
    after: np.ndarray
    prefix: np.ndarray


@numba.njit(cache=True, nogil=True)
def _flatten(live, t_in, dt_in, firsts, counts, origins, directions, aabb_scale, t, dt, positions):
    """[m, width] columns -> flat samples of the round, with positions in the unit cube."""
    scale = np.float32(1) / np.float32(aabb_scale)
    for i in range(live.shape[0]):
        ray = live[i]
        for j in range(counts[i]):
            flat = firsts[i] + j
            t[flat], dt[flat] = t_in[i, j], dt_in[i, j]
            for axis in range(3):
                internal = origins[ray, axis] + directions[ray, axis] * t_in[i, j]
                unit = (internal - np.float32(0.5)) * scale + np.float32(0.5)
                positions[flat, axis] = min(max(unit, np.float32(0)), np.float32(1))


@numba.njit(cache=True, nogil=True)
def _count_kept(live, raw, dt, firsts, counts, transmittance, min_transmittance, kept):
    """Samples of each live ray up to and including the one that cuts it."""
    for i in range(live.shape[0]):
        after = transmittance[live[i]]
        n = 0
        while n < counts[i]:
            flat = firsts[i] + n
            after *= np.float32(np.exp(-np.exp(raw[flat]) * dt[flat]))
            n += 1
            if after < min_transmittance:
                break
        kept[i] = n


@numba.njit(cache=True, nogil=True)
def _gather_kept(live, firsts, kept, kept_firsts, kept_before, index, ray_of, rank):
    for i in range(live.shape[0]):
        for j in range(kept[i]):
            sample = kept_firsts[i] + j
            index[sample], ray_of[sample], rank[sample] = firsts[i] + j, live[i], kept_before[live[i]] + j
        kept_before[live[i]] += kept[i]


@numba.njit(cache=True, nogil=True)
def _composite(live, kept, kept_firsts, rgb, raw, t, dt, transmittance, colour, depth, weight, after, prefix):
    """Composites the kept samples of each ray, in order, on top of what the ray has."""
    for i in range(live.shape[0]):
        ray = live[i]
        remaining = transmittance[ray]
        for j in range(kept[i]):
            sample = kept_firsts[i] + j
            through = np.float32(np.exp(-np.exp(raw[sample]) * dt[sample]))
            w = remaining * (np.float32(1) - through)
            remaining *= through
            for channel in range(3):
                colour[ray, channel] += w * rgb[sample, channel]
                prefix[sample, channel] = colour[ray, channel]
            depth[ray] += w * t[sample]
            weight[sample], after[sample] = w, remaining
        transmittance[ray] = remaining


class _Rays:
    """State of the rays of one trace: colour, transmittance and depth so far, and where each goes on."""

    def __init__(self, origins: Tensor, directions: Tensor, starts: Tensor) -> None:
        self.origins, self.directions, self.starts = (np.ascontiguousarray(x.numpy()) for x in (origins, directions, starts))
        n = len(self.starts)
        self.live = np.flatnonzero(self.starts >= 0)
        self.offsets = np.zeros(n, np.int32)
        self.colour = np.zeros((n, 3), np.float32)
        self.transmittance = np.ones(n, np.float32)
        self.depth = np.zeros(n, np.float32)
        self.n_samples = np.zeros(n, np.int32)
        self.n_kept = np.zeros(n, np.int32)
        self.width = FIRST_WIDTH


class _Tracer:
    """The field and the scene that rays are traced through; with a crop ``box`` without the limits of training."""

    def __init__(
        self, march: tuple, table: Tensor, mlp: Tensor, field: tuple, min_transmittance: float, box: Tensor | None = None, step_cascades: bool = True,
        encode: Encode | None = None,
    ) -> None:  # fmt: skip
        bitfield, self.n_cascades, cone_angle, self.aabb_scale = march
        self.bitfield, self.cone_angle = bitfield.numpy(), np.float32(cone_angle)
        self.table, self.mlp = table.detach().float(), mlp.detach().float()
        *grid, self.density_dims, self.rgb_dims = field
        self.encode = encode or (lambda positions: torch.ops.nerfleet.hash_grid(positions, self.table, *grid))
        self.min_transmittance = np.float32(min_transmittance)
        self.step_cascades = step_cascades
        half = 0.5 * self.aabb_scale
        self.box = np.array([[0.5 - half] * 3, [0.5 + half] * 3], np.float32) if box is None else box.float().numpy()
        self.limit = MAX_SAMPLES if box is None else NO_LIMIT

    def round(self, rays: _Rays) -> tuple[np.ndarray, dict[str, np.ndarray], int]:
        """One round -> (indices of the kept samples' rays, their values by name, samples evaluated)."""
        live = rays.live
        width = int(np.clip(ROUND_SAMPLES // max(len(live), 1), MIN_WIDTH, min(rays.width, MAX_WIDTH)))
        rays.width *= 2
        limit = np.minimum(self.limit - rays.n_samples[live], width).astype(np.int32)
        t_in, dt_in = np.empty((len(live), width), np.float32), np.empty((len(live), width), np.float32)
        counts = np.empty(len(live), np.int32)
        scene = (self.bitfield, self.n_cascades, self.cone_angle, self.box, self.step_cascades)
        march_cpu.march(live, rays.origins, rays.directions, rays.starts, rays.offsets, *scene, limit, t_in, dt_in, counts)

        firsts = np.cumsum(counts) - counts
        n = int(counts.sum())
        t, dt, positions = np.empty(n, np.float32), np.empty(n, np.float32), np.empty((n, 3), np.float32)
        _flatten(live, t_in, dt_in, firsts, counts, rays.origins, rays.directions, self.aabb_scale, t, dt, positions)
        features = self.encode(torch.from_numpy(positions))
        outputs = field_cpu.density_outputs(features, self.mlp, self.density_dims)
        raw = outputs[:, 0].numpy().copy()

        kept = np.empty(len(live), np.int32)
        _count_kept(live, raw, dt, firsts, counts, rays.transmittance, self.min_transmittance, kept)
        kept_firsts = np.cumsum(kept) - kept
        n_kept = int(kept.sum())
        index, ray_of, ranks = np.empty(n_kept, np.int64), np.empty(n_kept, np.int64), np.empty(n_kept, np.int32)
        _gather_kept(live, firsts, kept, kept_firsts, rays.n_kept, index, ray_of, ranks)
        chosen = torch.from_numpy(index)
        rgb = field_cpu.colour(outputs[chosen], torch.from_numpy(rays.directions[ray_of]), self.mlp, self.density_dims, self.rgb_dims).numpy()
        values = {"t": t[index], "dt": dt[index], "raw": raw[index], "positions": positions[index], "features": features[chosen].numpy(), "rgb": rgb}
        values["ranks"] = ranks
        values |= {"weight": np.empty(n_kept, np.float32), "after": np.empty(n_kept, np.float32), "prefix": np.empty((n_kept, 3), np.float32)}
        samples = (rgb, values["raw"], values["t"], values["dt"])
        written = (values["weight"], values["after"], values["prefix"])
        _composite(live, kept, kept_firsts, *samples, rays.transmittance, rays.colour, rays.depth, *written)

        rays.n_samples[live] += counts
        cut = rays.transmittance[live] < self.min_transmittance
        rays.live = live[~cut & (rays.offsets[live] >= 0) & (rays.n_samples[live] < self.limit)]
        return ray_of, values, n


@dataclass(frozen=True)
class _Traced:
    """A chunk of rays after its last round: its rays, and the kept samples of each round (with their rays' indices)."""

    rays: _Rays
    rounds: list[dict[str, np.ndarray]]
    n_evaluated: int


def _trace_chunk(tracer: _Tracer, rays: _Rays, first: int, most: Callable[[int], int] = int) -> _Traced:
    """All rounds of the rays that begin at index ``first``."""
    rounds, n_evaluated = [], 0
    while most(len(rays.live)):
        ray_of, values, evaluated = tracer.round(rays)
        rounds.append(values | {"ray_indices": ray_of + first})
        n_evaluated += evaluated
    return _Traced(rays, rounds, n_evaluated)


def _chunk(n_rays: int) -> int:
    """Rays that a thread traces together: the same for any number of threads, so that the order of samples is too."""
    return min(max(-(-n_rays // CHUNKS), MIN_CHUNK), MAX_CHUNK)


def trace(
    origins: Tensor, directions: Tensor, starts: Tensor, state: Tensor, *arguments, encode: Encode | None = None, most: Callable[[int], int] = int
) -> None:
    """Arguments as the op's schema (trace/op.py).

    Args:
        encode: positions [n, 3] -> features [n, L * F], in place of the hash grid; called once a round for all rays, n may be 0.
        most: number of live rays -> another one: rounds go on while it is not 0, for encoders that several processes call together.
    """
    march, (table, mlp), field = arguments[:4], arguments[4:6], arguments[6:12]
    min_transmittance, rgb, transmittance, kept = arguments[12:16]
    sinks, counters = Sinks(*(buffer.numpy() for buffer in arguments[16:27])), arguments[27]
    n_rays = int(state[STATE_RAYS])
    tracer = _Tracer(march, table, mlp, field, min_transmittance, encode=encode)

    def run(part: slice) -> _Traced:
        return _trace_chunk(tracer, _Rays(origins[part], directions[part], starts[part]), part.start, most)

    chunks = over_blocks(n_rays, _chunk(n_rays), run) if encode is None else [run(slice(0, n_rays))]
    stored, n_kept = 0, 0
    for values in (one for chunk in chunks for one in chunk.rounds):
        found = len(values["ray_indices"])
        n_kept += found
        room = min(found, len(sinks.t) - stored)
        for name, value in values.items():
            getattr(sinks, name)[stored : stored + room] = value[:room]
        stored += room
    left = np.concatenate([chunk.rays.transmittance for chunk in chunks])
    rgb[:n_rays] = torch.from_numpy(np.concatenate([chunk.rays.colour for chunk in chunks]))
    kept[:n_rays] = torch.from_numpy(np.concatenate([chunk.rays.n_kept for chunk in chunks]))
    transmittance[:n_rays] = torch.from_numpy(np.where(left < min_transmittance, np.float32(0), left))
    counters[COUNT_KEPT] += n_kept
    counters[COUNT_EVALUATED] += sum(chunk.n_evaluated for chunk in chunks)
    counters[COUNT_HIT] += sum(int((chunk.rays.n_samples > 0).sum()) for chunk in chunks)


def render_rays(origins: Tensor, directions: Tensor, starts: Tensor, box: Tensor, *arguments) -> tuple[Tensor, Tensor, Tensor]:
    """Arguments as the op's schema (trace/op.py)."""
    march, (table, mlp), field, min_transmittance = arguments[:4], arguments[4:6], arguments[6:12], arguments[12]
    tracer = _Tracer(march, table, mlp, field, min_transmittance, box, step_cascades=arguments[13])

    def run(part: slice) -> _Rays:
        rays = _Rays(origins[part], directions[part], starts[part])
        while len(rays.live):
            tracer.round(rays)
        return rays

    chunks = over_blocks(len(starts), _chunk(len(starts)), run)
    rgb, transmittance, depth = (torch.from_numpy(np.concatenate([getattr(rays, name) for rays in chunks])) for name in ("colour", "transmittance", "depth"))
    alpha = 1 - transmittance
    cut = alpha > 1 - min_transmittance
    rgb = torch.where(cut[:, None], rgb / alpha[:, None].clamp_min(1e-9), rgb)
    depth = depth / alpha.clamp_min(1e-9)
    return rgb, torch.where(cut, 1.0, alpha), depth
