"""Pictures of fields whose pictures are known."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from tests.support.models import ball_model, front_camera, uniform_model

from nerfleet.geometry.cameras import Lens
from nerfleet.geometry.color import srgb_to_linear
from nerfleet.nn.model import Model
from nerfleet.render import renderer
from nerfleet.render.renderer import Rendered, render_image, render_pixels, render_rays, to_uint8

ORIGIN, FORWARD = torch.tensor([[0.5, 0.5, -1.0]]), torch.tensor([[0.0, 0.0, 1.0]])


@pytest.fixture(scope="module")
def ball() -> Model:
    return ball_model()


@pytest.mark.parametrize("raw", [0.0, 1.0])
def test_uniform_fog(raw: float) -> None:
    density = math.exp(raw)
    seen = render_rays(uniform_model(raw), ORIGIN, FORWARD)
    alpha = 1 - math.exp(-density)  # the box is 1 deep
    assert float(seen.alpha) == pytest.approx(alpha, rel=2e-3)
    assert seen.rgb[0].tolist() == pytest.approx([0.5 * alpha] * 3, rel=2e-3)
    mean = 1.0 + 1 / density - math.exp(-density) / alpha  # of exp(-density t) in the box, which begins at distance 1
    assert float(seen.depth) == pytest.approx(mean, rel=2e-3)


def test_opaque_wall() -> None:
    seen = render_rays(uniform_model(8.0), ORIGIN, FORWARD)
    assert float(seen.alpha) == 1.0
    assert seen.rgb[0].tolist() == pytest.approx([0.5] * 3, rel=1e-6)
    assert float(seen.depth) == pytest.approx(1.0, abs=2e-3)


def test_rays_that_miss_are_empty() -> None:
    origins = torch.tensor([[0.5, 0.5, -1.0], [2.0, 0.5, -1.0]])
    seen = render_rays(uniform_model(8.0), origins, torch.tensor([[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]]))
    assert not seen.rgb.any()
    assert not seen.alpha.any()
    assert not seen.depth.any()


def test_the_crop_box_cuts() -> None:
    crop = torch.tensor([[0.0, 0.0, 0.5], [1.0, 0.75, 1.0]])
    model = dataclasses.replace(uniform_model(0.0), render_aabb=crop)
    seen = render_rays(model, torch.tensor([[0.5, 0.5, -1.0], [0.5, 0.8, -1.0]]), FORWARD.expand(2, 3))
    assert seen.alpha.tolist() == pytest.approx([1 - math.exp(-0.5), 0.0], rel=4e-3)


def test_empty_cells_are_clear(ball: Model) -> None:
    seen = render_image(ball, front_camera())
    assert seen.rgb.shape == (12, 16, 3)
    assert seen.alpha.shape == seen.depth.shape == (12, 16)
    assert not seen.alpha[0, 0]
    assert seen.alpha[6, 8] > 0.1
    assert 1.2 < seen.depth[6, 8] < 1.8


def test_batches_do_not_show(ball: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = render_image(ball, front_camera())
    monkeypatch.setitem(renderer.RAYS_AT_ONCE, "cpu", 50)
    assert torch.allclose(render_image(ball, front_camera()).rgb, whole.rgb, atol=1e-6)


def test_pixels_are_those_of_the_image_lens_included(ball: Model) -> None:
    plain = front_camera()
    params = plain.lens_params.clone()
    params[0, 0] = 0.3
    camera = dataclasses.replace(plain, lens=torch.tensor([int(Lens.OPENCV)], dtype=torch.int32), lens_params=params)
    image = render_image(ball, camera)
    pixels = torch.tensor([[5.5, 4.5], [9.5, 7.5]])
    some = render_pixels(ball, camera, pixels)
    assert torch.allclose(some.rgb, torch.stack([image.rgb[4, 5], image.rgb[7, 9]]), atol=1e-6)
    assert not torch.allclose(image.rgb, render_image(ball, plain).rgb, atol=1e-3)


def test_more_samples_smooth_the_silhouette() -> None:
    crop = torch.tensor([[0.3] * 3, [0.7] * 3])
    cube = dataclasses.replace(uniform_model(8.0), render_aabb=crop)
    shares: list[float] = []
    one, many = render_image(cube, front_camera()), render_image(cube, front_camera(), spp=8, progress=shares.append)
    assert set(one.alpha.unique().tolist()) == {0.0, 1.0}
    assert ((many.alpha > 0.05) & (many.alpha < 0.95)).any()
    assert float((many.alpha.mean() - one.alpha.mean()).abs()) < 0.05
    assert shares == [(i + 1) / 8 for i in range(8)]


def test_background_and_linear_light() -> None:
    seen = Rendered(torch.tensor([[0.2, 0.1, 0.0]]), torch.tensor([0.5]), torch.tensor([1.0]))
    assert seen.over((1.0, 1.0, 0.0))[0].tolist() == pytest.approx([0.7, 0.6, 0.0])
    linear = seen.rgba_linear()[0]
    assert linear[0] == pytest.approx(0.5 * float(srgb_to_linear(torch.tensor(0.4))))
    assert linear[3] == 0.5
    assert to_uint8(torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0])).tolist() == [0, 0, 128, 255, 255]
