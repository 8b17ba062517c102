"""Two machines, played by two network namespaces with their own hosts files; one learns the other's name late (Linux, root)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.parallel.spawn import NETWORK_JSON, REPOSITORY, outside

from nerfleet.data.synthetic import write_scene

pytestmark = pytest.mark.slow
PORT, LATE_SECONDS = 29400, 8.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Machine:
    """A namespace with one address, one end of a virtual cable."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address, self.cable = name, address, f"v{name[-6:]}"
        self.hosts = Path("/etc/netns") / name / "hosts"
        self.hosts.parent.mkdir(parents=True)
        self.hosts.write_text(f"127.0.0.1 localhost\n{address} {os.uname().nodename}\n")
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")

    def plug(self) -> None:
        ip("link", "set", self.cable, "netns", self.name)
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", self.cable)
        ip("-n", self.name, "link", "set", self.cable, "up")

    def start(self, log: Path, launcher: str, *program: str) -> subprocess.Popen[str]:
        variables = {**outside(), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": self.cable}
        together = ["--nnodes", "2", "--rdzv-endpoint", f"machine-a:{PORT}", "--rdzv-id", "two-machines"]
        agent = ["-m", "torch.distributed.run", *together, "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--local-addr", self.address]
        words = [*agent, *program] if launcher == "torchrun" else [*program, *together]
        with log.open("w") as output:
            command = ["ip", "netns", "exec", self.name, sys.executable, *words]
            return subprocess.Popen(command, env=variables, stdout=output, stderr=output, cwd=REPOSITORY, text=True)

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        shutil.rmtree(self.hosts.parent, ignore_errors=True)


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command `ip`")
    tag = uuid.uuid4().hex[:5]
    made: list[Machine] = []
    try:
        for letter, address in (("a", "10.77.0.1"), ("b", "10.77.0.2")):
            made.append(Machine(f"nerfleet-{tag}{letter}", address))
        ip("link", "add", made[0].cable, "type", "veth", "peer", "name", made[1].cable)
        for machine in made:
            machine.plug()
    except (OSError, subprocess.CalledProcessError) as error:
        for machine in made:
            machine.remove()
        pytest.skip(f"no network namespaces here: {error}")
    yield made[0], made[1]
    for machine in made:
        machine.remove()


@pytest.mark.parametrize("launcher", ["torchrun", "nerfleet"])
def test_they_train_together_though_the_name_resolves_late(launcher: str, machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    write_scene(tmp_path / "scene", 7, 2, 5, 32, 32, supersample=1)
    (tmp_path / "small.json").write_text(json.dumps(NETWORK_JSON))
    flags = ["--out", str(tmp_path / "run"), "--network", str(tmp_path / "small.json"), *"--device cpu --steps 20 --batch-size 1024 --json".split()]
    program = ["-m", "nerfleet", "train", str(tmp_path / "scene"), *flags]
    first, second = machines
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    with first.hosts.open("a") as hosts:
        hosts.write(f"{first.address} machine-a\n")
    processes = [machine.start(log, launcher, *program) for machine, log in zip(machines, logs)]
    time.sleep(LATE_SECONDS)
    with second.hosts.open("a") as hosts:  # appended, not replaced: it is mounted
        hosts.write(f"{first.address} machine-a\n")
    try:
        codes = [process.wait(timeout=180) for process in processes]
    finally:
        for process in processes:
            process.kill()
    text = "\n".join(log.read_text() for log in logs)
    assert codes == [0, 0], text[-3000:]
    answer = next(json.loads(line) for line in text.splitlines() if line.startswith("{"))
    assert (answer["world_size"], answer["steps"]) == (2, 20)
