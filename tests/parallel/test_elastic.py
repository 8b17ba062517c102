"""Several machines, played by several torchrun agents on this one: a loss, a join, the loss of the rendezvous host."""

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
from pathlib import Path

import pytest
from tests.parallel.spawn import NETWORK_JSON, REPOSITORY, free_port, outside

from nerfleet.data.synthetic import write_scene

pytestmark = pytest.mark.slow
RDZV = "join_timeout=120,last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=4"
"""A machine counts as lost after keep_alive_interval * keep_alive_max_attempt seconds (torch: 15)."""


class Job:
    """Agents of one run, one rank each."""

    def __init__(self, folder: Path) -> None:
        write_scene(folder / "scene", 7, 2, 5, 32, 32, supersample=1)
        (folder / "small.json").write_text(json.dumps(NETWORK_JSON))
        self.folder, self.agents, self.logs = folder, {}, {}  # type: ignore[var-annotated]
        self.port, self.id = free_port(), uuid.uuid4().hex

    def start(self, name: str) -> None:
        rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id", self.id, "--rdzv-conf", RDZV]
        agent = ["-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "5", *rendezvous, "--local-addr", "127.0.0.1"]
        flags = "--device cpu --steps 100000 --batch-size 1024 --checkpoint-every 1s --collective-timeout 20s".split()
        scene, out, network = (str(self.folder / name) for name in ("scene", "run", "small.json"))
        program = ["-m", "nerfleet", "train", scene, "--out", out, "--network", network, *flags]
        self.logs[name] = self.folder / f"{name}.log"
        with self.logs[name].open("a") as log:
            command = [sys.executable, *agent, *program]
            variables = {**outside(), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            self.agents[name] = subprocess.Popen(command, env=variables, stderr=log, stdout=log, cwd=REPOSITORY)

    def kill(self, name: str) -> None:
        """The machine is gone: agent and worker at once."""
        agent = self.agents.pop(name)
        workers = subprocess.run(["pgrep", "-P", str(agent.pid)], capture_output=True, text=True).stdout.split()
        for pid in (agent.pid, *map(int, workers)):
            os.kill(pid, signal.SIGKILL)
        agent.wait()

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
            time.sleep(0.2)
        return time.monotonic() - begin


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    running = Job(tmp_path)
    running.start("first")
    running.until(running.host_answers, 60)
    running.start("second")
    running.until(lambda: running.step() > 0, 120)
    yield running
    for name in list(running.agents):
        running.kill(name)


def test_a_lost_machine_and_one_that_joins(job: Job) -> None:
    assert "2 ranks, gloo" in job.text()
    before = job.step()
    job.kill("second")
    lost = job.until(lambda: "1 ranks, gloo" in job.text(), 40)
    job.until(lambda: job.step() > before, 40)
    assert "continues at step" in job.text()
    job.start("third")
    joined = job.until(lambda: job.text().count("2 ranks, gloo") == 2, 60)
    before = job.step()
    job.until(lambda: job.step() > before, 40)
    print(f"running again {lost:.1f} s after the loss, {joined:.1f} s after the start of the new machine")


def test_the_rendezvous_host_is_lost_and_comes_back(job: Job) -> None:
    """Without it no agent can go on: all end with an error, and whoever restarts them finds the last checkpoint."""
    before = job.step()
    job.kill("first")
    assert job.agents["second"].wait(timeout=60) != 0
    del job.agents["second"]
    job.start("first")
    job.until(job.host_answers, 60)
    job.start("second")
    job.until(lambda: job.text().count("2 ranks, gloo") == 2, 60)
    job.until(lambda: job.step() > before, 60)
    assert "continues at step" in job.text()
