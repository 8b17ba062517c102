"""What files hold, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nerfleet.geometry.color import linear_to_srgb, srgb_to_linear
from nerfleet.render.develop import Look, depth_picture, developed, exr_picture, normals_picture, png_picture, video_planes
from nerfleet.render.renderer import Rendered

av = pytest.importorskip("av", reason="PyAV is not installed")


def one(rgb: tuple[float, float, float], alpha: float) -> Rendered:
    """A single pixel of this straight colour."""
    return Rendered(torch.tensor(rgb).view(1, 1, 3) * alpha, torch.full((1, 1), alpha), torch.ones(1, 1))


def test_transparent_and_opaque_png() -> None:
    rendered = one((0.8, 0.4, 0.2), 0.5)
    assert png_picture(rendered, Look())[0, 0].tolist() == [204, 102, 51, 128]
    assert png_picture(rendered, Look((1.0, 1.0, 1.0)))[0, 0].tolist() == pytest.approx([229.5, 178.5, 153.0], abs=0.6)


def test_exr_is_linear_and_premultiplied() -> None:
    found = exr_picture(one((0.8, 0.4, 0.2), 0.5), Look())
    assert found.dtype == torch.float16
    linear = srgb_to_linear(torch.tensor([0.8, 0.4, 0.2]))
    assert found[0, 0].tolist() == pytest.approx([*(0.5 * linear).tolist(), 0.5], rel=1e-3)


@pytest.mark.parametrize("stops", [-2.0, 1.0])
def test_exposure_multiplies_linear_light(stops: float) -> None:
    rendered, colour = one((0.5, 0.3, 0.1), 1.0), torch.tensor([0.5, 0.3, 0.1])
    linear = srgb_to_linear(colour) * 2**stops
    assert developed(rendered, Look(exposure=stops))[0, 0, :3].tolist() == pytest.approx(linear_to_srgb(linear).tolist(), rel=1e-5)
    assert exr_picture(rendered, Look(exposure=stops))[0, 0, :3].tolist() == pytest.approx(linear.tolist(), rel=1e-3)
    behind = developed(one((0.0, 0.0, 0.0), 0.0), Look((0.5, 0.3, 0.1), stops))
    assert behind[0, 0, :3].tolist() == pytest.approx(linear_to_srgb(linear).tolist(), rel=1e-5), "the background too"


def test_depth_and_normals() -> None:
    assert depth_picture(torch.tensor([[0.0, 1.0, 1e9]]), 0.01).tolist() == [[0, 100, 65535]]
    normals = torch.tensor([[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]])
    assert normals_picture(normals).tolist() == [[[0, 0, 0], [255, 128, 128], [128, 1, 128]]]


@pytest.mark.parametrize(
    ("rgb", "yuv"),
    [((0, 0, 0), (16, 128, 128)), ((255, 255, 255), (235, 128, 128)), ((255, 0, 0), (63, 102, 240)), ((0, 0, 255), (32, 240, 118))],
)
def test_planes_are_bt709(rgb: tuple[int, int, int], yuv: tuple[int, int, int]) -> None:
    planes = video_planes(torch.tensor(rgb, dtype=torch.uint8).expand(2, 4, 3))
    assert planes.shape == (3, 4)
    assert planes[:2].unique().tolist() == [yuv[0]]
    assert planes[2].tolist() == [yuv[1], yuv[1], yuv[2], yuv[2]]


def test_odd_sizes_are_repeated() -> None:
    planes = video_planes(torch.rand(3, 5, 3))
    assert planes.shape == (6, 6)
    assert torch.equal(planes[:4, 5], planes[:4, 4])
    assert torch.equal(planes[3], planes[2])


def test_ffmpeg_reads_the_same_colours() -> None:
    """A smooth picture to planes and back by FFmpeg's own conversion."""
    x, y = np.meshgrid(np.linspace(0.4, 0.6, 64), np.linspace(0.2, 0.4, 48))
    picture = (255 * np.stack([x, y, 0.5 * (x + 1 - y)], -1)).astype(np.uint8)
    frame = av.VideoFrame.from_ndarray(video_planes(torch.from_numpy(picture)).numpy(), format="yuv420p")
    back = frame.reformat(format="rgb24", src_colorspace="ITU709", dst_colorspace="ITU709", src_color_range="MPEG", dst_color_range="JPEG").to_ndarray()
    difference = back.astype(int) - picture
    assert np.abs(difference).mean() < 1.8  # FFmpeg rounds down
    assert np.ptp(difference.mean((0, 1))) < 0.5, "no tint"
