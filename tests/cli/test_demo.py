"""The verb demo, shortened: everything that its page promises is there, and nothing comes from outside."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.train.small import NETWORK

import nerfleet.cli.train as train_verb
from nerfleet.cli import demo
from nerfleet.cli.main import main
from nerfleet.config import REFERENCE_BATCH, TrainConfig
from nerfleet.snapshot.load import load_model

SIZE = 32


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer photographs, frames and parameters."""
    monkeypatch.setattr(demo, "N_TRAIN", 8)
    monkeypatch.setattr(demo, "N_TEST", 3)
    monkeypatch.setattr(demo, "TURNTABLE_FRAMES", 3)
    config = TrainConfig(network=NETWORK, batch_size=1 << 12, max_rays=1 << 12, initial_rays=1 << 12)
    monkeypatch.setattr(demo, "demo_config", lambda device, limit, seed: dataclasses.replace(config, max_seconds=limit, seed=seed))


def test_everything_is_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("av")
    words = ["demo", "--seconds", "3", "--size", str(SIZE), "--device", "cpu", "--out", str(tmp_path / "run"), "--json"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert out.count("\n") == 1
    assert set(found) >= {"steps", "trained_samples", "train_seconds", "world_size", "strategy", "psnr_mean", "psnr_object", "psnr_nearest_photograph", "model"}
    assert (found["stopped_by"], found["world_size"]) == ("max_seconds", 1)
    assert 3 <= found["train_seconds"] < 10
    assert found["psnr_mean"] > 9
    assert 3 < found["psnr_nearest_photograph"] < 18
    for part in ("step ", "PSNR ~", "held-out PSNR", "dB on the object", "report.html"):
        assert part in err
    files = {p.name for p in (tmp_path / "run").iterdir()}
    written = {"checkpoints", "config.json", "model.ingp", "report.html", "report.json", "turntable.mp4"}
    meshes = {"still_life.glb", "still_life.json"} if "mesh" in found else set()  # three seconds may leave nothing with a surface
    assert files == written | meshes
    assert bool(meshes) != ("no mesh: " in err)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["psnr_object"] == pytest.approx(found["psnr_object"])
    assert load_model(tmp_path / "run").network.encoding == NETWORK.encoding
    check_page((tmp_path / "run" / "report.html").read_text())


def check_page(page: str) -> None:
    for heading in ("Training", "Held-out views", "Settings", "Environment"):
        assert f"<h2>{heading}</h2>" in page
    for curve in ("Training loss", "PSNR of the training rays"):
        assert curve in page
    n_triples = 3 + (3 if "<h2>Textured mesh</h2>" in page else 0)
    assert page.count("data:image/png;base64,") == 3 * n_triples  # photograph, rendering and difference of each view
    assert page.count("data:video/mp4;base64,") == 1
    assert "<polyline" in page or "<path" in page
    sources = re.findall(r"""(?:src|href|data|poster)\s*=\s*["']([^"']*)""", page)
    assert sources
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert not re.search(r"url\(\s*['\"]?(?!data:|#)|@import", page)


def test_an_interrupt_ends_it_in_good_order(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def line(_: Any) -> str:
        signal.raise_signal(signal.SIGINT)
        return "a line"

    monkeypatch.setattr(train_verb, "progress_line", line)
    assert main(["demo", "--size", str(SIZE), "--device", "cpu", "--out", str(tmp_path / "run"), "--json"]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("stopped by a signal; run the same command to continue\nnerfleet: interrupted\n")
    assert list((tmp_path / "run" / "checkpoints").glob("*/complete.json"))
    assert not (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    "flags, expected",
    [
        (["--size", "0"], "--size 0: is out of range"),
        (["--seconds", "-1"], "max_seconds: -1.0 is negative"),
        (["--seconds", "long"], "--seconds"),
        (["--seed", "-1"], "seed: -1 is out of range"),
        (["--device", "tpu"], "--device"),
    ],
)
def test_wrong_flags_are_one_line(flags: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--size", str(SIZE), "--out", str(tmp_path / "run"), *flags]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err.splitlines()[-1]
    assert not (tmp_path / "run" / "model.ingp").exists()


def test_the_demos_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    slow, fast = demo.demo_config("cpu", 90.0, 1), demo.demo_config("cuda", 20.0, 2)
    slow.validate()
    fast.validate()
    assert (slow.max_seconds, slow.batch_size, slow.seed) == (90.0, 1 << 14, 1)
    assert (fast.max_seconds, fast.batch_size, fast.seed) == (20.0, REFERENCE_BATCH, 2)
    assert demo.CPU_SECONDS < 100


@pytest.mark.parametrize("size", ["0", "-1", "99999999999"])
def test_a_size_out_of_range_is_one_line(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--size", size]) == 2
    assert capsys.readouterr().err == f"nerfleet: error: --size {size}: is out of range: use 1 to 2048\n"
