"""Pictures, transparency and depth of a model through any camera."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import nerfleet.kernels.rays.camera
import nerfleet.kernels.trace.op  # noqa: F401  (registers the ops)
from nerfleet.geometry.box import ray_box, scene_box
from nerfleet.geometry.cameras import Cameras, pixel_rays
from nerfleet.geometry.color import srgb_to_linear
from nerfleet.kernels.march.reference import to_lattice
from nerfleet.kernels.rays.camera import START_MARGIN
from nerfleet.nn.model import Model
from nerfleet.render.depth_of_field import ThinLens, pixel_noise, through_lens

MIN_TRANSMITTANCE = 1e-3
"""Of pictures. Training goes on to 1e-4; the held-out PSNR of fox is the same, and a picture takes a fifth less time."""
RAYS_AT_ONCE = {"cpu": 1 << 15, "cuda": 1 << 21}


@dataclass(frozen=True)
class Rendered:
    """Attributes:
    rgb: [..., 3] float32 sRGB, premultiplied by alpha. alpha: [...].
    depth: [...] mean distance along the ray in internal units (0 where nothing was hit).
    """

    rgb: Tensor
    alpha: Tensor
    depth: Tensor

    def over(self, background: tuple[float, float, float] | Tensor) -> Tensor:
        """[..., 3] sRGB in front of an sRGB background (mixed in sRGB, as the model was trained)."""
        return self.rgb + (1 - self.alpha[..., None]) * torch.as_tensor(background, dtype=self.rgb.dtype, device=self.rgb.device)

    def rgba_linear(self) -> Tensor:
        """[..., 4] linear light, premultiplied."""
        straight = self.rgb / self.alpha[..., None].clamp_min(1e-9)
        return torch.cat([srgb_to_linear(straight) * self.alpha[..., None], self.alpha[..., None]], -1)


def render_rays(
    model: Model, origins: Tensor, directions: Tensor, *, jitter: float | Tensor = 0.5, min_transmittance: float = MIN_TRANSMITTANCE, step_cascades: bool = True
) -> Rendered:
    """Trace rays [n, 3] with unit directions (internal space, the model's device).

    Args:
        jitter: where in its first step a ray starts, 0 to 1; a number or [n].
        min_transmittance: rays end, opaque, when less light than this passes.
        step_cascades: look for occupied cells no finer than the step, as in training. instant-ngp's own pictures do not,
            and lose faint far things (0.2 dB and more where steps grow with distance): False reproduces them.
    """
    box = render_box(model)
    near, far = ray_box(origins, directions, box.to(origins.device))
    starts = to_lattice(near + START_MARGIN, model.cone_angle) + jitter
    starts = torch.where(far > near, starts, -1.0)
    return _trace(model, origins.contiguous(), directions.contiguous(), starts.float(), box, min_transmittance, step_cascades)


def render_box(model: Model) -> Tensor:
    """[2, 3] on the CPU: the scene box, cropped."""
    box = scene_box(model.aabb_scale)
    if model.render_aabb is None:
        return box
    return torch.stack([torch.maximum(box[0], model.render_aabb[0]), torch.minimum(box[1], model.render_aabb[1])])


def _trace(model: Model, origins: Tensor, directions: Tensor, starts: Tensor, box: Tensor, min_transmittance: float, step_cascades: bool) -> Rendered:
    march = (model.occupancy.bitfield, model.occupancy.n_cascades, model.cone_angle, model.aabb_scale)
    weights = (model.table, model.mlp)
    found = torch.ops.nerfleet.render_rays(origins, directions, starts, box, *march, *weights, *model.spec.arguments, min_transmittance, step_cascades)
    return Rendered(*found)


def render_pixels(model: Model, camera: Cameras, pixels: Tensor, **options: Any) -> Rendered:
    """Pixels [n, 2] (x, y; centres at + 0.5) of ONE camera, any lens; a batch at a time."""
    parts = []
    camera = camera.to(model.device)
    for chunk in pixels.split(RAYS_AT_ONCE[model.device.type]):
        chunk = chunk.to(model.device)
        origins, directions = pixel_rays(camera, torch.zeros(len(chunk), dtype=torch.int64, device=chunk.device), chunk)
        parts.append(render_rays(model, origins, torch.nn.functional.normalize(directions, dim=-1), **options))
    return _joined(parts)


def render_image(
    model: Model,
    camera: Cameras,
    *,
    spp: int = 1,
    min_transmittance: float = MIN_TRANSMITTANCE,
    step_cascades: bool = True,
    thin_lens: ThinLens | None = None,
    progress: Callable[[float], None] | None = None,
) -> Rendered:
    """A whole picture [h, w] of ONE camera.

    Args:
        spp: samples per pixel: 1 looks through pixel centres; more are spread inside the pixel and averaged.
        thin_lens: blurs what is out of focus; needs many samples per pixel. None: everything is sharp.
        min_transmittance, step_cascades: as in :func:`render_rays`.
        progress: called with the finished share, 0 to 1.
    """
    width, height = (int(v) for v in camera.resolution[0])
    camera = camera.to(model.device)
    total: Rendered | None = None
    n, blur = width * height, None
    if thin_lens is not None and not thin_lens.is_pinhole:
        blur = _Blur(thin_lens, pixel_noise(n, model.device))
    for i, (offset, jitter) in enumerate(_pixel_samples(spp)):
        one = _render_range(model, camera, width, 0, n, offset, jitter, min_transmittance, step_cascades, blur, i)
        total = one if total is None else Rendered(total.rgb + one.rgb, total.alpha + one.alpha, total.depth + one.depth)
        if progress is not None:
            progress((i + 1) / spp)
    assert total is not None
    if spp > 1:
        total = Rendered(total.rgb / spp, total.alpha / spp, total.depth / spp)
    return Rendered(total.rgb.view(height, width, 3), total.alpha.view(height, width), total.depth.view(height, width))


@dataclass(frozen=True)
class _Blur:
    lens: ThinLens
    noise: Tensor  # [n_pixels, 2]


def render_range(model: Model, camera: Cameras, first: int, end: int) -> Rendered:
    """Pixels ``first`` to ``end`` of ONE camera, row by row, as :func:`render_image` sees them: [end - first]."""
    return _render_range(model, camera.to(model.device), int(camera.resolution[0, 0]), first, end, (0.5, 0.5), 0.5, MIN_TRANSMITTANCE, True, None, 0)


def _render_range(
    model: Model, camera: Cameras, width: int, first: int, end: int, offset: tuple[float, float], jitter: float, min_transmittance: float,
    step_cascades: bool, blur: _Blur | None, sample: int,
) -> Rendered:  # fmt: skip
    """Pixels of ONE camera, row by row, one ray each."""
    fields = (camera.camera_to_world, camera.focal, camera.principal, camera.resolution, camera.lens, camera.lens_params)
    box, parts, at_once = render_box(model), [], RAYS_AT_ONCE[model.device.type]
    for begin in range(first, end, at_once):
        count = min(at_once, end - begin)
        origins, directions, starts = torch.ops.nerfleet.camera_rays(*fields, width, begin, count, *offset, jitter, box, model.cone_angle)
        if blur is not None:
            noise, pose = blur.noise[begin : begin + count], camera.camera_to_world[0]
            origins, directions, starts = through_lens(origins, directions, pose, blur.lens, noise, sample, jitter, box, model.cone_angle)
        parts.append(_trace(model, origins, directions, starts, box, min_transmittance, step_cascades))
    return _joined(parts)


def _joined(parts: list[Rendered]) -> Rendered:
    """Batches of rays one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Rendered(*(torch.cat([getattr(part, name) for part in parts]) for name in ("rgb", "alpha", "depth")))


def _pixel_samples(spp: int) -> Iterator[tuple[tuple[float, float], float]]:
    """(position inside the pixel, start jitter) of each sample: the R3 sequence (Roberts 2018), centred."""
    if spp == 1:
        yield (0.5, 0.5), 0.5
        return
    root = 1.2207440846057596
    for i in range(spp):
        yield ((0.5 + (i + 1) / root) % 1, (0.5 + (i + 1) / root**2) % 1), (0.5 + (i + 1) / root**3) % 1


def to_uint8(srgb: Tensor) -> Tensor:
    """sRGB floats, clipped -> uint8."""
    return (srgb.clamp(0, 1) * 255 + 0.5).to(torch.uint8)
