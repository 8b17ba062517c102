"""``nerfleet::sample_rays``: from the step number to the rays of a training batch and the colours they should have."""

from __future__ import annotations

import numpy as np
import torch

from nerfleet.geometry.box import ray_box, scene_box
from nerfleet.geometry.cameras import Cameras, pixel_rays
from nerfleet.geometry.color import composite
from nerfleet.kernels.control.op import N_RANK_STATE, STATE_ALL_RAYS, STATE_FIRST_RAY, STATE_RAYS, STATE_STEP
from nerfleet.kernels.march.reference import to_lattice
from nerfleet.kernels.rays.philox import split_seed

BACKGROUNDS = {"random": 0, "black": 1, "white": 2}
NO_RAY = -1.0
"""``starts`` of a ray that misses the box or looks at a masked pixel."""

library = torch.library.Library("nerfleet", "FRAGMENT")
library.define(
    "sample_rays(Tensor pixels, Tensor pixel_offsets, Tensor drawable, Tensor places, Tensor camera_to_world, Tensor focal, Tensor principal, "
    "Tensor resolution, Tensor lens, Tensor lens_params, Tensor state, int seed, float cone_angle, int aabb_scale, int background, bool srgb_blend, "
    "Tensor(a!) origins, Tensor(b!) directions, Tensor(c!) starts, Tensor(d!) targets, Tensor(e!) backgrounds) -> ()"
)


@torch.library.impl(library, "sample_rays", "CPU")
def _sample_rays_cpu(pixels, pixel_offsets, drawable, places, camera_to_world, focal, principal, resolution, lens, lens_params, state, seed,
                     cone_angle, aabb_scale, background, srgb_blend, origins, directions, starts, targets, backgrounds):  # fmt: skip
    """Writes the first state[STATE_RAYS] rays of the step state[STATE_STEP].

    Random numbers are Philox words of counter (ray, step, stream, 0): stream 0, word 0 chooses the pixel (see
    rays/cpu.py), word 1 the jitter of the start; stream 1, words 0 to 2 the random background.

    Args:
        pixels [P, 4] uint8, pixel_offsets [n_views + 1] int64: all photographs (:class:`nerfleet.data.scene.Scene`), or some pixels of each.
        drawable [n_views + 1] int64: pixels of the views before each that may be drawn, all or none of a view. Nothing is drawn while it is 0.
        places [P] int32: of each pixel, its index within its photograph; [0]: the photographs are there as a whole, in order.
        state: of N_RANK_STATE entries: rays FIRST_RAY .. FIRST_RAY + RAYS of ALL_RAYS are drawn (CPU only).
        camera_to_world ... lens_params: fields of :class:`Cameras`.
        background: 0 random, 1 black, 2 white. srgb_blend: blend photographs with it in sRGB instead of linear light.
        origins, directions [N, 3] float32: written, internal space, unit directions.
        starts [N] float32: written: lattice coordinate of the box entry (not before 0) plus the jitter, or NO_RAY.
        targets, backgrounds [N, 3] float32: written, sRGB.
    """
    from nerfleet.kernels.rays import cpu

    n, step, n_pixels = int(state[STATE_RAYS]), int(state[STATE_STEP]), int(drawable[-1])
    first, n_all = (int(state[STATE_FIRST_RAY]), int(state[STATE_ALL_RAYS])) if len(state) == N_RANK_STATE else (0, n)
    index, jitter = np.empty(n, np.int64), np.empty(n, np.float32)
    cpu.choose(first, n, n_all, step, *split_seed(seed), n_pixels, index, jitter, backgrounds.numpy())
    if background:
        backgrounds[:n] = float(background == BACKGROUNDS["white"])
    if n_pixels == 0:
        starts[:n] = NO_RAY
        for buffer in (origins, directions, targets):
            buffer[:n] = 0
        return
    draw = torch.from_numpy(index)
    cameras = Cameras(camera_to_world, focal, principal, resolution, lens, lens_params)
    view = torch.searchsorted(drawable, draw, right=True) - 1
    chosen = pixel_offsets[view].clamp(min=0) + draw - drawable[view]
    inside = places[chosen].long() if len(places) else chosen - pixel_offsets[view]
    width = resolution[view, 0].long()
    centres = torch.stack([inside % width, inside // width], -1).float() + 0.5
    ray_origins, ray_directions = pixel_rays(cameras, view, centres)
    ray_directions = torch.nn.functional.normalize(ray_directions, dim=-1)
    near, far = ray_box(ray_origins, ray_directions, scene_box(aabb_scale))
    rgba = pixels[chosen]
    masked = (rgba == torch.tensor([255, 0, 255, 0], dtype=torch.uint8)).all(-1)
    origins[:n], directions[:n] = ray_origins, ray_directions
    start = to_lattice(near, cone_angle) + torch.from_numpy(jitter)
    starts[:n] = torch.where((far <= near) | masked, NO_RAY, start)
    targets[:n] = composite(rgba, backgrounds[:n], in_srgb=srgb_blend)


@torch.library.impl(library, "sample_rays", "CUDA")
def _sample_rays_cuda(*arguments):
    from nerfleet.kernels.rays import cuda

    cuda.sample_rays(*arguments)


@torch.library.register_fake("nerfleet::sample_rays")
def _sample_rays_fake(*_):
    return None
