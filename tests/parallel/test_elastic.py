"""Several machines, played by several launchers on this one: losses of every kind, a join, and the score at the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.parallel.spawn import NETWORK_JSON, REPOSITORY, children, free_port, outside, ranks_of

from nerfleet.data.synthetic import write_scene

pytestmark = pytest.mark.slow
STEPS = 1500
SMOOTH_JSON = NETWORK_JSON | {"optimizer": {"otype": "Ema", "decay": 0.98, "nested": {"otype": "Adam", "learning_rate": 3e-3}}}
FLAGS = "--device cpu --batch-size 1024 --background black --views replicate --checkpoint-every 1s --collective-timeout 20s".split()
RUNNING_AGAIN_SECONDS = 15.0
SLACK = 4.0
"""The machine of the tests may be as many times slower than a free one, which the goal is for."""


class Job:
    """Launchers of one run, one rank each; ``--max-restarts`` covers what the tests do to it."""

    def __init__(self, folder: Path) -> None:
        write_scene(folder / "scene", 30, 1, 5, 32, 32, supersample=1)  # enough views that chance does not decide the score
        (folder / "small.json").write_text(json.dumps(SMOOTH_JSON))
        self.folder, self.launchers, self.logs = folder, {}, {}  # type: ignore[var-annotated]
        self.port, self.id = free_port(), uuid.uuid4().hex

    def words(self, out: str) -> list[str]:
        scene, run, network = (str(self.folder / name) for name in ("scene", out, "small.json"))
        return [sys.executable, "-m", "nerfleet", "train", scene, "--out", run, "--network", network, "--steps", str(STEPS), *FLAGS]

    def start(self, name: str) -> None:
        together = ["--nnodes", "1:2", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id", self.id, "--max-restarts", "9"]
        self.logs[name] = self.folder / f"{name}.log"
        with self.logs[name].open("a") as log:
            self.launchers[name] = subprocess.Popen([*self.words("run"), *together], env=outside(), stderr=log, stdout=log, cwd=REPOSITORY)

    def kill_rank(self, name: str) -> None:
        os.kill(ranks_of(self.launchers[name].pid)[0], signal.SIGKILL)

    def kill_machine(self, name: str) -> None:
        """Launcher, server and rank at once."""
        launcher = self.launchers.pop(name)
        helpers = children(launcher.pid)
        ranks = [rank for helper in helpers for rank in children(helper)]
        for pid in (launcher.pid, *ranks, *helpers):
            os.kill(pid, signal.SIGKILL)
        launcher.wait()

    def text(self) -> str:
        return "\n".join(log.read_text() for log in self.logs.values())

    def step(self) -> int:
        return max((int(p.parent.name[5:]) for p in self.folder.glob("run/checkpoints/*/complete.json")), default=0)

    def host_answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def until(self, condition: Callable[[], bool], seconds: float) -> float:
        begin = time.monotonic()
        while not condition():
            assert time.monotonic() - begin < seconds, self.text()[-3000:]
            time.sleep(0.1)
        return time.monotonic() - begin

    def running_again(self, n_ranks: int, what: str, action: Callable[[], None]) -> None:
        """Do something to the run, and wait until so many ranks have come further than before."""
        started = f"{n_ranks} ranks, gloo"
        before, starts = self.step(), self.text().count(started)
        seen = [(time.monotonic(), before)]

        def watched(condition: Callable[[], bool]) -> Callable[[], bool]:
            def look() -> bool:
                if self.step() != seen[-1][1]:
                    seen.append((time.monotonic(), self.step()))
                return condition()

            return look

        action()
        again = self.until(watched(lambda: self.text().count(started) > starts), SLACK * RUNNING_AGAIN_SECONDS)
        back = len(seen)
        self.until(watched(lambda: len(seen) > back), SLACK * RUNNING_AGAIN_SECONDS)
        pause = max(after - earlier for (earlier, _), (after, _) in pairwise(seen))
        print(f"{what}: ranks are back after {again:.1f} s, longest time between two checkpoints {pause:.1f} s (load {os.getloadavg()[0]:.1f})")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    running = Job(tmp_path)
    running.start("first")
    running.until(running.host_answers, 60)
    running.start("second")
    running.until(lambda: running.step() > 0 and "2 ranks, gloo" in running.text(), 120)
    yield running
    for name in list(running.launchers):
        running.kill_machine(name)


def test_losses_of_every_kind_and_a_join_do_not_change_the_score(job: Job) -> None:
    job.running_again(2, "kill -9 of a rank", lambda: job.kill_rank("second"))
    job.running_again(1, "kill -9 of a machine", lambda: job.kill_machine("second"))
    job.running_again(2, "a machine joins", lambda: job.start("third"))
    job.running_again(1, "kill -9 of the rendezvous host", lambda: job.kill_machine("first"))
    job.running_again(2, "a machine joins", lambda: job.start("first"))
    ends = [launcher.wait(timeout=400) for launcher in job.launchers.values()]
    assert ends == [0, 0], job.text()[-3000:]
    job.launchers.clear()
    whole = subprocess.run([*job.words("whole"), "--json"], env=outside(), cwd=REPOSITORY, capture_output=True, text=True, timeout=400)
    assert whole.returncode == 0, whole.stderr
    interrupted = json.loads((job.folder / "run" / "config.json").read_text())
    assert interrupted["steps"] == STEPS
    expected = json.loads(whole.stdout)["psnr_mean"]
    found = evaluated(job.folder / "run", job.folder / "scene")
    print(f"held-out PSNR {found:.3f} dB, uninterrupted {expected:.3f}")
    assert found == pytest.approx(expected, abs=0.1)


def evaluated(run: Path, scene: Path) -> float:
    words = ["-m", "nerfleet", "eval", str(run), "--scene", str(scene), "--split", "test", "--device", "cpu", "--json"]
    ended = subprocess.run([sys.executable, *words], env=outside(), cwd=REPOSITORY, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    return float(json.loads(ended.stdout)["psnr_mean"])
