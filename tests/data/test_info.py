"""The report of ``nerfleet info``."""

from __future__ import annotations

import io
import json
from pathlib import Path

from tests.support.scenes import HEIGHT, WIDTH, edit, write_cube_scene

from nerfleet.cli.info import device_bytes_estimate, info, print_info

CONTRACT = {"n_frames", "n_used", "skipped", "n_cameras", "aabb_scale", "image_bytes", "device_bytes_estimate", "warnings"}


def test_keys_and_counts(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "cube")
    (path.parent / "images/0003.png").unlink()
    report = info(path)
    assert set(report) >= CONTRACT
    assert json.loads(json.dumps(report)) == report
    assert (report["n_frames"], report["n_used"], report["n_cameras"]) == (8, 7, 1)
    assert report["skipped"] == [{"frame": "images/0003.png", "reason": "image is missing"}]
    assert report["image_bytes"] == 7 * WIDTH * HEIGHT * 4
    assert info(path, downscale=2)["image_bytes"] == 7 * WIDTH * HEIGHT
    assert report["splits"] == {"train": 7}


def test_cameras_are_counted_by_their_intrinsics(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "cube")
    edit(path, lambda root: root["frames"][3].update(fl_x=31.0))
    assert info(path)["n_cameras"] == 2


def test_memory_estimate_grows_with_images_and_box() -> None:
    base = device_bytes_estimate(0, 1)
    assert 1.0e9 < base < 2.0e9
    assert device_bytes_estimate(10**9, 1) == base + 10**9
    grid_growth = (12_855_296 - 11_681_792) * 22  # parameters of the base grid at aabb_scale 4 and 1
    assert device_bytes_estimate(0, 4) == base + grid_growth + 2 * 128**3 * 6


def test_table_names_everything(tmp_path: Path) -> None:
    path = write_cube_scene(tmp_path / "cube")
    (path.parent / "images/0003.png").unlink()
    out = io.StringIO()
    print_info(info(path), file=out)
    text = out.getvalue()
    for part in ("8 listed, 7 used, 1 skipped", "image is missing: images/0003.png", "32x24 (7)", "warning", "GPU memory"):
        assert part in text
