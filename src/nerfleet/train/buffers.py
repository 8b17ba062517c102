"""What flows through a training step, in buffers that are allocated once and reused."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from nerfleet.kernels.control.op import N_COUNTERS, N_HYPER, N_STATE, N_STATS, RING, STATE_RAYS


@dataclass(frozen=True)
class RayBatch:
    """Rays of a step, the first state[STATE_RAYS] rows valid.

    Attributes:
        origins, directions: [N, 3] float32, internal space, unit directions.
        starts: [N] lattice coordinate of the first sample; negative: no ray.
        targets, backgrounds: [N, 3] sRGB.
        rgb: [N, 3] traced colour without background. transmittance: [N]. kept: [N] int32 samples.
        final: [N, 3] colour with background. gradient: [N, 3] d loss/d colour, scaled.
    """

    origins: Tensor
    directions: Tensor
    starts: Tensor
    targets: Tensor
    backgrounds: Tensor
    rgb: Tensor
    transmittance: Tensor
    kept: Tensor
    final: Tensor
    gradient: Tensor

    @staticmethod
    def allocate(n: int, device: torch.device) -> RayBatch:
        def zeros(name: str) -> Tensor:
            shape = (n,) if name in ("starts", "transmittance", "kept") else (n, 3)
            return torch.zeros(shape, dtype=torch.int32 if name == "kept" else torch.float32, device=device)

        return RayBatch(**{f.name: zeros(f.name) for f in fields(RayBatch)})


@dataclass(frozen=True)
class SampleBatch:
    """Samples that carry weight, the first counters[COUNT_ORDERED] rows valid, each a record of its own.

    Attributes:
        ray_indices: [S] int32. ranks: [S] int32 among the ray's own. positions: [S, 3] in the unit cube. t, dt: [S] internal units.
        features: [S, L * F]. rgb: [S, 3]. raw: [S] log density. weight: [S].
        after: [S] transmittance after the sample. prefix: [S, 3] colour of the ray up to and including it.
        d_rgb: [S, 3], d_raw: [S]: gradients, scaled.
        order: [S] int32 which row is the i-th of a sequence that is the same every time (kernels/order/op.py).
        d_features: [S, L * F]: gradient, scaled, of the i-th of the sequence.
    """

    ray_indices: Tensor
    ranks: Tensor
    positions: Tensor
    t: Tensor
    dt: Tensor
    features: Tensor
    rgb: Tensor
    raw: Tensor
    weight: Tensor
    after: Tensor
    prefix: Tensor
    d_rgb: Tensor
    d_raw: Tensor
    order: Tensor
    d_features: Tensor

    @staticmethod
    def allocate(n: int, n_features: int, device: torch.device) -> SampleBatch:
        half = torch.float32 if device.type == "cpu" else torch.float16

        def index() -> Tensor:
            return torch.zeros(n, dtype=torch.int32, device=device)

        def scalar() -> Tensor:
            return torch.zeros(n, device=device)

        def vector() -> Tensor:
            return torch.zeros(n, 3, device=device)

        def feature() -> Tensor:
            return torch.zeros(n, n_features, dtype=half, device=device)

        return SampleBatch(
            ray_indices=index(),
            ranks=index(),
            positions=vector(),
            t=scalar(),
            dt=scalar(),
            features=feature(),
            rgb=vector(),
            raw=scalar(),
            weight=scalar(),
            after=scalar(),
            prefix=vector(),
            d_rgb=vector(),
            d_raw=scalar(),
            order=index(),
            d_features=feature(),
        )


@dataclass(frozen=True)
class Control:
    """Numbers that steer a step and live on the device (kernels/control/op.py names their entries)."""

    state: Tensor
    counters: Tensor
    hyper: Tensor
    loss_sum: Tensor
    stats: Tensor

    @staticmethod
    def allocate(n_rays: int, device: torch.device) -> Control:
        state = torch.zeros(N_STATE, dtype=torch.int64)
        state[STATE_RAYS] = n_rays
        return Control(
            state=state.to(device),
            counters=torch.zeros(N_COUNTERS, dtype=torch.int32, device=device),
            hyper=torch.zeros(N_HYPER, device=device),
            loss_sum=torch.zeros(1, device=device),
            stats=torch.zeros(RING, N_STATS, device=device),
        )
