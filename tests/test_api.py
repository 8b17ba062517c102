"""The Python interface: four names, imported when they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.support.models import NETWORK, ball_model, front_camera
from tests.support.scenes import write_cube_scene

import nerfleet
import nerfleet.render.renderer
import nerfleet.train.trainer
from nerfleet.config import TrainConfig
from nerfleet.snapshot.load import load_model
from nerfleet.snapshot.write import snapshot_document, write_document

RENDER_AGAIN = """
import sys, torch, nerfleet
from nerfleet.snapshot.load import load_model
cameras = nerfleet.load_scene(sys.argv[2]).cameras
torch.save(nerfleet.render(load_model(sys.argv[1]), cameras[:1]).over((0.0, 0.0, 0.0)), sys.argv[3])
"""


def test_packages_can_be_called_and_stay_packages() -> None:
    model, camera = ball_model(), front_camera()
    seen = nerfleet.render(model, camera)
    assert torch.equal(seen.rgb, nerfleet.render.renderer.render_image(model, camera).rgb)
    assert nerfleet.render.__name__ == "nerfleet.render"
    assert set(nerfleet.__all__) == {"load_scene", "train", "render", "evaluate"}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = nerfleet.nonsense


def test_import_is_light_and_sets_how_threads_wait() -> None:
    script = "import os, sys, nerfleet; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    for given, expected in ((None, "PASSIVE False"), ("ACTIVE", "ACTIVE False")):
        environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
        environment |= {"OMP_WAIT_POLICY": given} if given else {}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.strip() == expected


def test_a_trained_model_renders_the_same_after_it_was_saved(tmp_path: Path) -> None:
    """Another process reads the file: all that rendering uses must be in it (instant-ngp issue 469)."""
    path = write_cube_scene(tmp_path / "cube", rgba=True)
    scene = nerfleet.load_scene(path)
    config = TrainConfig(network=NETWORK, steps=40, batch_size=4096, background="black")
    model = nerfleet.train(scene, config, device="cpu").model
    before = nerfleet.render(model, scene.cameras[:1]).over((0.0, 0.0, 0.0))
    assert before.std() > 0.02
    write_document(tmp_path / "a.ingp", snapshot_document(model, scene=scene))
    assert load_model(tmp_path / "a.ingp").aabb_scale == scene.aabb_scale
    words = [sys.executable, "-c", RENDER_AGAIN, str(tmp_path / "a.ingp"), str(path), str(tmp_path / "after.pt")]
    subprocess.run(words, check=True)
    after = torch.load(tmp_path / "after.pt")
    truth = scene.image(0)[..., :3].float() / 255
    assert float((after - before).abs().mean()) < 1e-3
    decibel = [float(-10 * ((picture - truth) ** 2).mean().log10()) for picture in (before, after)]
    assert decibel[1] == pytest.approx(decibel[0], abs=0.01)
