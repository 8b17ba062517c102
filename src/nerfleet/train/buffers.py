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
        rgb: [N, 3] traced colour without background. transmittance: [N].
        final: [N, 3] colour with background. gradient: [N, 3] d loss/d colour, scaled.
    """

    origins: Tensor
    directions: Tensor
    starts: Tensor
    targets: Tensor
    backgrounds: Tensor
    rgb: Tensor
    transmittance: Tensor
    final: Tensor
    gradient: Tensor

    @staticmethod
    def allocate(n: int, device: torch.device) -> RayBatch:
        scalars = ("starts", "transmittance")
        return RayBatch(**{f.name: torch.zeros((n,) if f.name in scalars else (n, 3), device=device) for f in fields(RayBatch)})


@dataclass(frozen=True)
class SampleBatch:
    """Samples that carry weight, the first counters[COUNT_KEPT] (at most S) rows valid, each a record of its own.

    Attributes:
        ray_indices: [S] int32. positions: [S, 3] in the unit cube. t, dt: [S] internal units.
        features: [S, L * F]. rgb: [S, 3]. raw: [S] log density. weight: [S].
        after: [S] transmittance after the sample. prefix: [S, 3] colour of the ray up to and including it.
        d_rgb: [S, 3], d_raw: [S], d_features: [S, L * F]: gradients, scaled.
    """

    ray_indices: Tensor
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
    d_features: Tensor

    @staticmethod
    def allocate(n: int, n_features: int, device: torch.device) -> SampleBatch:
        half = torch.float32 if device.type == "cpu" else torch.float16

        def scalar() -> Tensor:
            return torch.zeros(n, device=device)

        def vector() -> Tensor:
            return torch.zeros(n, 3, device=device)

        def feature() -> Tensor:
            return torch.zeros(n, n_features, dtype=half, device=device)

        return SampleBatch(
            ray_indices=torch.zeros(n, dtype=torch.int32, device=device),
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
