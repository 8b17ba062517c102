"""What a training must reach on a CPU, at full length; NERFLEET_SECONDS shortens the real scenes (then nothing but the way is tested)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nerfleet.cli.main import main

SECONDS = float(os.environ.get("NERFLEET_SECONDS", "300"))
FULL = SECONDS >= 300
Call = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.slow


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a verb with --json and returns what it prints."""

    def call(*words: object) -> dict[str, Any]:
        code = main([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)

    return call


def scores(answer: Call, scene: Path, downscale: int, out: Path, pixels: int) -> tuple[float, float]:
    """Training seconds and held-out PSNR of a training on the CPU."""
    limits = ("--max-seconds", SECONDS, "--pixels", pixels, "--device", "cpu", "--out", out)
    found = answer("train", scene, "--downscale", downscale, *limits)
    assert found["stopped_by"] in ("max_seconds", "steps")
    assert found["trained_samples"] > 0
    return found["train_seconds"], found["psnr_mean"]


@pytest.mark.data
def test_fox(data_dir: Path, answer: Call, tmp_path: Path) -> None:
    seconds, psnr = scores(answer, data_dir / "fox", 8, tmp_path, 0)
    assert seconds < SECONDS + 5
    assert psnr >= (26 if FULL else 8)


@pytest.mark.data
def test_lego(data_dir: Path, answer: Call, tmp_path: Path) -> None:
    seconds, psnr = scores(answer, data_dir / "lego", 4, tmp_path, 0 if FULL else 500)
    assert seconds < SECONDS + 5
    assert psnr >= (27 if FULL else 8)


def test_demo(answer: Call, tmp_path: Path) -> None:
    found = answer("demo", "--device", "cpu", "--out", tmp_path)
    assert found["train_seconds"] < 100
    assert found["psnr_mean"] >= 28
    assert found["psnr_object"] >= 24
    assert found["psnr_nearest_photograph"] <= 18
    assert (tmp_path / "report.html").stat().st_size > 100_000
