"""PSNR and SSIM of views, whole and in part."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.support.models import ball_model, front_camera

from nerfleet.data.part import Part, take_part
from nerfleet.data.scene import MASKED_PIXEL, Scene
from nerfleet.geometry.cameras import Cameras
from nerfleet.geometry.poses import SceneTransform
from nerfleet.nn.model import Model
from nerfleet.render.evaluate import Evaluation, ViewScore, evaluate, psnr, ssim
from nerfleet.render.renderer import render_image, to_uint8

WIDTH, HEIGHT = 32, 24
ROUNDING_DB = 10 * math.log10(12 * 255**2)
"""PSNR of a picture that is rounded to 8 bits, at least."""


@pytest.fixture(scope="module")
def model() -> Model:
    return ball_model()


@pytest.fixture(scope="module")
def scene(model: Model) -> Scene:
    """Two photographs that are the model's own renderings over black, from different distances."""
    cameras = [front_camera(WIDTH, HEIGHT, distance) for distance in (1.5, 1.2)]
    joined = Cameras(**{f.name: torch.cat([getattr(c, f.name) for c in cameras]) for f in dataclasses.fields(Cameras)})
    opaque = torch.full((HEIGHT, WIDTH, 1), 255, dtype=torch.uint8)
    photographs = [torch.cat([to_uint8(render_image(model, c).over((0.0, 0.0, 0.0))), opaque], -1) for c in cameras]
    pixels = torch.cat([p.view(-1, 4) for p in photographs])
    offsets = torch.arange(3) * WIDTH * HEIGHT
    return Scene("made", None, "test", ("a.png", "b.png"), joined, pixels, offsets, 1, SceneTransform())


def with_pixels(scene: Scene, view: int, rows: slice, value: tuple[int, ...]) -> Scene:
    changed = dataclasses.replace(scene, pixels=scene.pixels.clone())
    changed.image(view)[rows] = torch.tensor(value, dtype=torch.uint8)
    return changed


def test_known_values() -> None:
    a = torch.zeros(12, 12, 3)
    assert psnr(a + 0.1, a) == pytest.approx(20.0, abs=1e-4)
    assert psnr(a, a) == math.inf
    assert math.isnan(psnr(a[:0], a[:0]))
    assert ssim(a, a) == pytest.approx(1.0)
    assert ssim(a[:10], a[:10]) is None
    luminance = (2 * 0.4 * 0.6 + 1e-4) / (0.4**2 + 0.6**2 + 1e-4)  # Wang et al., eq. 6; flat pictures have no contrast
    assert ssim(a + 0.4, a + 0.6) == pytest.approx(luminance, abs=1e-3)


def test_means_are_over_views() -> None:
    found = Evaluation((ViewScore("a", 20.0, 0.5), ViewScore("b", 30.0, 0.7), ViewScore("c", math.nan, None)))
    assert found.psnr_mean == 25.0
    assert found.ssim_mean is None
    assert Evaluation(found.views[:2]).ssim_mean == pytest.approx(0.6)
    assert math.isnan(Evaluation(found.views[2:]).psnr_mean)


def test_its_own_pictures_are_perfect_but_for_rounding(model: Model, scene: Scene) -> None:
    shares: list[float] = []
    found = evaluate(model, scene, progress=shares.append)
    assert [view.name for view in found.views] == ["a.png", "b.png"]
    assert found.psnr_mean > ROUNDING_DB
    assert found.ssim_mean is not None
    assert found.ssim_mean > 0.999
    assert shares == [0.5, 1.0]
    assert evaluate(model, scene, background=(1.0, 1.0, 1.0)).psnr_mean < 15


def test_chosen_views(model: Model, scene: Scene) -> None:
    assert [view.name for view in evaluate(model, scene, views=[1]).views] == ["b.png"]


def test_some_pixels_are_seeded(model: Model, scene: Scene) -> None:
    noisy = with_pixels(scene, 0, slice(8, 12), (255, 255, 255, 255))
    first, again, other = (evaluate(model, noisy, n_pixels=100, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.views[0].psnr != other.views[0].psnr
    assert first.ssim_mean is None
    whole = evaluate(model, noisy).views[0].psnr
    many = evaluate(model, noisy, n_pixels=WIDTH * HEIGHT - 1, seed=3).views[0].psnr
    assert many == pytest.approx(whole, abs=1.0)


@pytest.mark.parametrize("n_pixels", [0, 600])
def test_masked_pixels_do_not_count(model: Model, scene: Scene, n_pixels: int) -> None:
    masked = with_pixels(scene, 0, slice(8, 16), MASKED_PIXEL)
    assert evaluate(model, masked, n_pixels=n_pixels).psnr_mean > ROUNDING_DB
    wholly = with_pixels(scene, 0, slice(None), MASKED_PIXEL)
    found = evaluate(model, wholly, n_pixels=n_pixels)
    assert math.isnan(found.views[0].psnr)
    assert found.psnr_mean > ROUNDING_DB


def test_transparent_photographs_are_mixed_in_linear_light(model: Model, scene: Scene) -> None:
    clear = dataclasses.replace(model, occupancy=type(model.occupancy).from_values(torch.zeros_like(model.occupancy.values)))
    half = with_pixels(with_pixels(scene, 0, slice(None), (255, 255, 255, 128)), 1, slice(None), (255, 255, 255, 128))
    grey = 1.055 * (128 / 255) ** (1 / 2.4) - 0.055  # half white in front of black
    assert evaluate(clear, half).psnr_mean == pytest.approx(-20 * math.log10(grey), abs=1e-3)


def test_whole_views_are_shown(model: Model, scene: Scene) -> None:
    shown: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def show(score: ViewScore, prediction: torch.Tensor, truth: torch.Tensor) -> None:
        shown[score.name] = (prediction, truth)

    evaluate(model, scene, show=show)
    assert list(shown) == ["a.png", "b.png"]
    prediction, truth = shown["a.png"]
    assert prediction.shape == truth.shape == (HEIGHT, WIDTH, 3)
    assert torch.equal(to_uint8(truth), scene.image(0)[..., :3])
    shown.clear()
    evaluate(model, scene, n_pixels=10, show=show)
    assert not shown


class Sent(Exception):
    """What a part of the scene has to tell the others."""


def together(model: Model, scene: Scene, edges: list[float], **options: Any) -> list[Evaluation]:
    """What processes with parts of the scene find, played one after the other: as often as it takes until nobody waits for a message."""
    parts = [take_part(scene, Part(begin, end)) for begin, end in pairwise(edges)]
    messages: list[list[Any]] = []
    while True:
        sent, found = [], []
        for part in parts:
            heard = iter(messages)

            def exchange(value: Any, heard: Iterator[list[Any]] = heard) -> list[Any]:
                for message in heard:
                    return message
                raise Sent(value)

            try:
                found.append(evaluate(model, part, exchange=exchange, **options))
            except Sent as message:
                sent.append(message.args[0])
        if not sent:
            return found
        assert len(sent) == len(parts)
        messages.append(sent)


@pytest.mark.parametrize("n_pixels", [0, 100])
@pytest.mark.parametrize("edges", [[0.0, 0.3, 1.0], [0.0, 0.5, 0.6, 0.61, 1.0], [0.0, 0.1, 0.2, 1.0]])
def test_parts_of_a_scene_score_as_the_whole(model: Model, scene: Scene, edges: list[float], n_pixels: int) -> None:
    noisy = with_pixels(with_pixels(scene, 0, slice(8, 12), (255, 90, 255, 200)), 1, slice(3, 5), MASKED_PIXEL)
    options: dict[str, Any] = {"n_pixels": n_pixels, "seed": 4, "pictures_of": [1]}
    alone = evaluate(model, noisy, **options)
    assert alone.views[0].pictures is None
    assert alone.views[1].pictures is not None
    for found in together(model, noisy, edges, **options):
        assert found == alone
        for one, other in zip(found.views[1].pictures or (), alone.views[1].pictures):
            assert one.shape == (HEIGHT, WIDTH, 3)
            assert torch.equal(one, other)
