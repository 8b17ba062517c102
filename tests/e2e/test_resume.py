"""Runs that are killed: in the middle of a step, in the middle of a checkpoint, and politely. The same command goes on."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.train.small import NETWORK, SIZE

from nerfleet.cli.main import main
from nerfleet.data.synthetic import write_scene
from nerfleet.presets import network_to_json
from nerfleet.train.checkpoint import MARKER

SOURCE = Path(__file__).resolve().parents[2] / "src"
RUN = "import sys; from nerfleet.cli.main import main; sys.exit(main(sys.argv[1:]))"
STUCK = """
import sys, time
from nerfleet.cli.main import main
from nerfleet.train import checkpoint

complete = checkpoint._complete

def stuck(target, progress):
    if list(target.parent.glob(f"*/{checkpoint.MARKER}")):
        time.sleep(600)
    complete(target, progress)

checkpoint._complete = stuck
sys.exit(main(sys.argv[1:]))
"""
"""``nerfleet``, whose second checkpoint has all its data but never gets its marker."""


@contextlib.contextmanager
def process(script: str, words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command line in a process of its own, ended at the latest with the block."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", script, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as started:
        try:
            yield started
        finally:
            started.kill()


def wait_for(condition: Callable[[], bool], started: subprocess.Popen[str], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if started.poll() is not None or time.monotonic() > end:
            started.kill()
            raise AssertionError(f"did not get there: {started.communicate()[1][-2000:]}")
        time.sleep(0.01)


def complete(run: Path) -> list[str]:
    """Names of the complete checkpoints."""
    return sorted(marker.parent.name for marker in (run / "checkpoints").glob(f"*/{MARKER}"))


def step_of(name: str) -> int:
    return int(name.removeprefix("step_"))


def killed_while_writing(words: list[str], run: Path) -> int:
    """Runs until a checkpoint is complete and another has its data, kills -9 -> step of the complete one."""
    with process(STUCK, words) as started:
        wait_for(lambda: len(list((run / "checkpoints").glob("*/.metadata"))) == 2, started)
        started.send_signal(signal.SIGKILL)
        assert started.wait() == -signal.SIGKILL
    (whole,) = complete(run)
    assert len(list((run / "checkpoints").iterdir())) == 2
    return step_of(whole)


def killed_while_training(words: list[str], run: Path, after: int) -> int:
    """Runs until there is a checkpoint past step ``after``, kills -9 -> step of the newest one."""
    with process(RUN, words) as started:
        wait_for(lambda: any(step_of(name) > after for name in complete(run)), started)
        started.send_signal(signal.SIGKILL)
        _, err = started.communicate()
        assert started.returncode == -signal.SIGKILL
    assert f"continues at step {after} from " in err
    return step_of(complete(run)[-1])


def terminated(words: list[str], run: Path, after: int) -> int:
    """Runs until there is a checkpoint past step ``after``, sends SIGTERM -> step at which it ended."""
    with process(RUN, words) as started:
        wait_for(lambda: any(step_of(name) > after for name in complete(run)), started)
        started.send_signal(signal.SIGTERM)
        out, err = started.communicate(timeout=60)
    assert started.returncode == 130, err
    assert f"continues at step {after} from " in err
    found = json.loads(out)
    assert found["stopped_by"] == "signal"
    assert complete(run)[-1] == f"step_{found['steps']:09d}"
    return int(found["steps"])


def finished(words: list[str]) -> tuple[dict, str]:
    """The same in this process, to its end -> the object that it prints, and what it says."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        assert main(words) == 0, err.getvalue()
    return json.loads(out.getvalue()), err.getvalue()


def survive(folder: Path, size: int, steps: int, every: str, network: list[str]) -> tuple[float, float]:
    """Held-out PSNR of an uninterrupted run and of one that was killed three times, in three ways."""
    write_scene(folder / "scene", n_train=10, n_val=1, n_test=2, width=size, height=size, supersample=1)
    words = ["train", str(folder / "scene"), *network, "--steps", str(steps), "--device", "cpu", "--json"]
    whole, _ = finished([*words, "--out", str(folder / "whole")])
    run = folder / "run"
    words += ["--out", str(run), "--checkpoint-every", every]
    first = killed_while_writing(words, run)
    second = killed_while_training(words, run, first)
    third = terminated(words, run, second)
    assert 0 < first < second < third < steps
    result, err = finished(words)
    assert f"continues at step {third} from " in err
    assert (result["steps"], result["stopped_by"], len(complete(run))) == (steps, "steps", 2)
    assert len(list((run / "checkpoints").iterdir())) == 2
    return whole["psnr_mean"], result["psnr_mean"]


@pytest.fixture
def small_network(tmp_path: Path) -> list[str]:
    (tmp_path / "network.json").write_text(json.dumps(network_to_json(NETWORK)))
    return ["--network", str(tmp_path / "network.json"), "--batch-size", "4096"]


def test_a_killed_run_goes_on(tmp_path: Path, small_network: list[str]) -> None:
    whole, interrupted = survive(tmp_path, SIZE, 100, "0.1s", small_network)
    assert interrupted == pytest.approx(whole, abs=0.2)


@pytest.mark.slow
def test_a_long_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    whole, interrupted = survive(tmp_path, 96, 600, "3s", ["--network", "small", "--batch-size", "16384"])
    assert whole > 20
    assert interrupted == pytest.approx(whole, abs=0.2)
