"""``nerfleet::trace`` and ``nerfleet::render_rays``: march, evaluate the field and composite, with early stop.

On the CPU in rounds over all live rays; on CUDA one persistent kernel.
"""

from __future__ import annotations

import torch

from nerfleet.kernels.field.op import DIMS, GRID

library = torch.library.Library("nerfleet", "FRAGMENT")
MARCH = "Tensor bitfield, int n_cascades, float cone_angle, int aabb_scale"
library.define(
    f"trace(Tensor origins, Tensor directions, Tensor starts, Tensor state, {MARCH}, Tensor table, Tensor mlp, {GRID}, {DIMS}, float min_transmittance, "
    "Tensor(a!) rgb, Tensor(b!) transmittance, Tensor(c!) kept, Tensor(d!) sample_ray_indices, Tensor(e!) sample_ranks, Tensor(f!) sample_positions, "
    "Tensor(g!) sample_t, Tensor(h!) sample_dt, Tensor(i!) sample_features, Tensor(j!) sample_rgb, Tensor(k!) sample_raw, Tensor(l!) sample_weight, "
    "Tensor(m!) sample_after, Tensor(n!) sample_prefix, Tensor(o!) counters) -> ()"
)
library.define(
    f"render_rays(Tensor origins, Tensor directions, Tensor starts, Tensor box, {MARCH}, Tensor table, Tensor mlp, {GRID}, {DIMS}, float min_transmittance, "
    "bool step_cascades) -> (Tensor rgb, Tensor alpha, Tensor depth)"
)


@torch.library.impl(library, "trace", "CPU")
def _trace_cpu(origins, directions, starts, state, *arguments):
    """Traces the first state[STATE_RAYS] rays of a training batch.

    Args:
        origins, directions: [N, 3] float32, internal space, unit directions.
        starts: [N] float32 lattice coordinate (march/reference.py) of a ray's first sample; negative: no ray.
        bitfield: [n_cascades * 128^3 / 8] uint8.
        rgb [N, 3]: written: colour without background. transmittance [N]: written: what is left at the end; exactly 0
            for a ray that was cut (transmittance fell under min_transmittance), exactly 1 for one without samples.
        kept [N] int32: written: samples that each ray kept.
        sample_*: buffers of capacity S for the kept samples, in any order (neighbours of a ray mostly side by side; on CUDA
            in another order every time, see order/op.py): ray_indices int32, ranks int32 among the ray's own, positions [S, 3]
            in the unit cube, t, dt, features [S, L * F], rgb [S, 3], raw, weight, after (transmittance after the sample),
            prefix [S, 3] (colour up to and including it). Samples past the capacity are not stored, but count in the ray's
            colour.
        counters: COUNT_KEPT, COUNT_EVALUATED, COUNT_HIT are added to.
    """
    from nerfleet.kernels.trace import cpu

    cpu.trace(origins, directions, starts, state, *arguments)


@torch.library.impl(library, "trace", "CUDA")
def _trace_cuda(*arguments):
    from nerfleet.kernels.trace import cuda

    cuda.trace(*arguments)


@torch.library.register_fake("nerfleet::trace")
def _trace_fake(*_):
    return None


@torch.library.impl(library, "render_rays", "CPU")
def _render_rays_cpu(origins, directions, *arguments):
    """Renders rays: empty space is skipped on coarser cascades too, there is no limit on samples.

    Args:
        step_cascades: look cells up no finer than the step, as training does; else in the smallest cascade that holds
            the position, as instant-ngp's pictures do.
        box: [2, 3] float32 crop box (internal space); samples outside are skipped.
        starts: as in trace.

    Returns:
        rgb [n, 3] premultiplied by alpha (a ray that was cut is divided by its alpha and opaque), alpha [n],
        depth [n]: sum of weight * t divided by alpha (0 where alpha is 0), distances along the unit direction.
    """
    from nerfleet.kernels.trace import cpu

    return cpu.render_rays(origins, directions, *arguments)


@torch.library.impl(library, "render_rays", "CUDA")
def _render_rays_cuda(*arguments):
    from nerfleet.kernels.trace import cuda

    return cuda.render_rays(*arguments)


@torch.library.register_fake("nerfleet::render_rays")
def _render_rays_fake(origins, *_):
    n = origins.shape[0]
    return origins.new_empty((n, 3)), origins.new_empty(n), origins.new_empty(n)
