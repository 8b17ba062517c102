"""A model that was written and read in a new process renders the same pictures."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.train.small import SIZE, config

from nerfleet.data.synthetic import synthetic_scene
from nerfleet.geometry.color import composite
from nerfleet.nn.model import Model
from nerfleet.render.evaluate import psnr
from nerfleet.render.renderer import render_image
from nerfleet.snapshot.ingp import Snapshot
from nerfleet.snapshot.write import snapshot_document, write_snapshot
from nerfleet.train.trainer import train

SOURCE = Path(__file__).resolve().parents[2] / "src"
SCRIPT = f"""
import sys, torch
from nerfleet.data.synthetic import synthetic_scene
from nerfleet.render.renderer import render_image
from nerfleet.snapshot.load import load_model

camera = synthetic_scene("test", n_views=1, width={SIZE}, height={SIZE}).cameras
torch.save(render_image(load_model(sys.argv[1]), camera).rgb, sys.argv[2])
"""


def rounded(model: Model) -> Model:
    """Weights as the file holds them: in half precision."""
    return dataclasses.replace(model, mlp=model.mlp.half().float(), table=model.table.half().float())


def test_a_reloaded_model_renders_the_same(tmp_path: Path) -> None:
    scene, held_out = (synthetic_scene(split, n_views=n, width=SIZE, height=SIZE) for split, n in (("train", 8), ("test", 1)))
    model = train(scene, config(steps=50), device="cpu").model
    document = snapshot_document(model, scene=scene, training_step=50)
    write_snapshot(tmp_path / "model.ingp", Snapshot(model, document))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "model.ingp"), str(tmp_path / "picture.pt")]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(SOURCE)}, timeout=120)
    reloaded = torch.load(tmp_path / "picture.pt")
    before = render_image(model, held_out.cameras).rgb
    assert torch.equal(reloaded, render_image(rounded(model), held_out.cameras).rgb)
    assert psnr(reloaded.clamp(0, 1), before.clamp(0, 1)) > 50
    truth = composite(held_out.image(0), torch.zeros(3))
    assert psnr(reloaded.clamp(0, 1), truth) == pytest.approx(psnr(before.clamp(0, 1), truth), abs=0.01)
