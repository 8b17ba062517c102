"""Pictures and videos from the GPU against those from the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.models import ball_model

from nerfleet.config import EncodingConfig, NetworkConfig
from nerfleet.geometry.poses import SceneTransform
from nerfleet.nn.model import Model
from nerfleet.render.camera_path import turntable
from nerfleet.render.depth_of_field import ThinLens
from nerfleet.render.sequence import FrameRenderer, Job, Shot, render_pictures, render_video
from nerfleet.render.several_gpus import devices, render_video_on

pytestmark = pytest.mark.gpu
SHOT = Shot(turntable(6, (0.5, 0.5, 0.5), resolution=(64, 48)), tuple(f"f{i}" for i in range(6)))


def load() -> Model:
    return ball_model(radius=0.4, network=NetworkConfig(encoding=EncodingConfig(n_levels=4, log2_hashmap_size=12)))


def test_layers_agree() -> None:
    job = Job("exr", depth=True, normals=True, transform=SceneTransform())
    expected, found = FrameRenderer(load(), SHOT, job).layers(1), FrameRenderer(load().to("cuda"), SHOT, job).layers(1)
    assert set(found) == {"rgba", "depth", "normals"}
    assert (found["rgba"].cpu() - expected["rgba"]).abs().mean() < 5e-3
    solid = expected["rgba"][..., 3] > 0.6
    assert (found["depth"].cpu() - expected["depth"])[solid].abs().mean() < 0.02
    assert ((found["normals"].cpu() * expected["normals"]).sum(-1)[solid] > 0.9).float().mean() > 0.9


def test_frames_arrive_in_order_and_whole() -> None:
    """Every frame that was copied while the next one was rendered is the frame itself."""
    renderer = FrameRenderer(load().to("cuda"), SHOT, Job("video"))
    frames = list(renderer.frames(range(6)))
    assert [index for index, _ in frames] == list(range(6))
    assert renderer.covered
    for index, layers in frames:
        alone = renderer.layers(index)["planes"].cpu().numpy()
        assert np.abs(layers["planes"].astype(int) - alone).max() <= 1


def test_depth_of_field() -> None:
    job, model = Job("png", spp=4), load().to("cuda")
    blurred = FrameRenderer(model, Shot(SHOT.cameras, SHOT.names, (ThinLens(0.2, 0.5),) * 6), job).layers(0)["rgba"].float()
    sharp = FrameRenderer(model, SHOT, job).layers(0)["rgba"].float()
    assert (blurred - sharp).abs().mean() > 1
    assert float(blurred.mean()) == pytest.approx(float(sharp.mean()), rel=0.2)


def test_files(tmp_path: Path) -> None:
    assert render_pictures(load().to("cuda"), SHOT, Job("png", depth=True, normals=True), tmp_path / "png", lambda _: None)
    assert len(list((tmp_path / "png").iterdir())) == 18


def pictures(path: Path) -> np.ndarray:
    import av

    with av.open(str(path)) as video:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)])


def test_video_of_one_process_and_of_a_process_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="PyAV is not installed")
    assert render_video(load().to("cuda"), SHOT, Job("video"), tmp_path / "one.mp4", lambda _: None)
    names = devices("cuda", torch.cuda.device_count())
    assert render_video_on(names, load, SHOT, Job("video"), tmp_path / "all.mp4", lambda _: None)
    one, every = (pictures(tmp_path / name) for name in ("one.mp4", "all.mp4"))
    assert one.shape == every.shape == (6, 48, 64, 3)
    assert np.abs(one.astype(int) - every).mean() < 1
