"""The two real scenes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nerfleet.cli.info import info
from nerfleet.data import available_splits, load_scene
from nerfleet.errors import NerfleetError
from nerfleet.geometry.cameras import Lens


def test_fox_views_and_missing_images(data_dir: Path) -> None:
    test = load_scene(data_dir / "fox", "test", downscale=8)
    existing = sorted(f"images/{p.name}" for p in (data_dir / "fox/images").iterdir())
    assert list(test.names) == existing[::8]
    assert len(test.skipped) == 17
    assert test.warnings == ("17 of 67 listed images are missing (images/0005.jpg, images/0016.jpg, images/0017.jpg, ...)",)
    assert test.cameras.resolution.tolist() == [[135, 240]] * 7
    assert (test.cameras.lens == Lens.OPENCV).all()
    assert test.aabb_scale == 4
    with pytest.raises(NerfleetError, match="17 of 67 listed images are missing"):
        load_scene(data_dir / "fox", strict=True)


def test_fox_info(data_dir: Path) -> None:
    report = info(data_dir / "fox")
    assert (report["n_frames"], report["n_used"], len(report["skipped"])) == (67, 50, 17)
    assert report["image_bytes"] == 50 * 1080 * 1920 * 4
    assert report["splits"] == {"train": 43, "test": 7}


def test_lego_reduced(data_dir: Path) -> None:
    scene = load_scene(data_dir / "lego", "test", downscale=2, strict=True)
    assert available_splits(data_dir / "lego") == ("train", "test")
    assert len(scene) == 25
    assert scene.has_alpha
    assert scene.names[:2] == ("./test/r_0", "./test/r_8")
    with Image.open(data_dir / "lego/test/r_8.webp") as image:
        image_a = np.asarray(image.convert("RGBA")).astype(float) / 255
    premultiplied = np.concatenate([image_a[..., :3] * image_a[..., 3:], image_a[..., 3:]], -1)
    mean = premultiplied.reshape(400, 2, 400, 2, 4).mean((1, 3))
    ours = scene.image(1).numpy() / 255
    assert np.abs(ours[..., 3] - mean[..., 3]).max() <= 0.5 / 255 + 1e-9
    assert np.abs(ours[..., :3] * mean[..., 3:] - mean[..., :3]).max() <= 0.5 / 255 + 1e-9


MEMORY_PROBE = """
import sys, numpy, torch, simplejpeg
from PIL import Image
from nerfleet.data import load_scene
def peak():  # not ru_maxrss, which a child inherits from the process that started it
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines["VmHWM"].split()[0]) * 1024
before = peak()
scene = load_scene(sys.argv[1], train_on_all=True)
print((peak() - before) / scene.pixels.numel())
"""


def test_fox_at_full_size_fits_in_memory(data_dir: Path) -> None:
    """Peak memory above the interpreter (with its imports) under 1.5 times the photographs as RGBA8."""
    pytest.importorskip("simplejpeg", reason="the bound holds for the decoder that writes in place")
    run = subprocess.run(
        [sys.executable, "-c", MEMORY_PROBE, str(data_dir / "fox")],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert 0.9 < float(run.stdout) < 1.5
