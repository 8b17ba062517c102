"""The manifest's own command in "pods" that are network namespaces with the headless Service's names (Linux, root, kubectl).

Pods are killed and started again, as the kubelet would, and the StatefulSet is scaled, while it trains.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deploy.render import find, pod_of, render
from tests.parallel.spawn import NETWORK_JSON, REPOSITORY, outside

from nerfleet.cli.main import main
from nerfleet.cli.train import Arguments
from nerfleet.data.synthetic import write_scene

pytestmark = pytest.mark.slow
GRACE_SECONDS = 30.0
PATIENCE_SECONDS = 240.0
MOST = 4


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Cluster:
    """A switch and pods plugged into it; ``nerfleet-0.nerfleet`` and so on are their names."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tag = folder, uuid.uuid4().hex[:5]
        self.switch = f"nf{self.tag}s"
        self.pods: dict[int, subprocess.Popen[bytes]] = {}
        self.command, self.settings = self._manifest()
        names = "".join(f"10.79.0.{10 + i} nerfleet-{i}.nerfleet nerfleet-{i}\n" for i in range(MOST))
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for i in range(MOST):
            hosts = Path("/etc/netns") / self.name(i) / "hosts"
            hosts.parent.mkdir(parents=True)
            hosts.write_text(f"127.0.0.1 localhost\n{names}")
            ip("netns", "add", self.name(i))
            ip("-n", self.name(i), "link", "set", "lo", "up")
            ip("-n", self.switch, "link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", self.name(i))
            ip("-n", self.switch, "link", "set", f"p{i}", "master", "br0", "up")
            ip("-n", self.name(i), "addr", "add", f"10.79.0.{10 + i}/24", "dev", "eth0")
            ip("-n", self.name(i), "link", "set", "eth0", "up")

    def name(self, i: int) -> str:
        return f"nf{self.tag}{i}"

    def _manifest(self) -> tuple[list[str], dict[str, str]]:
        """Command and settings of the StatefulSet that ``nerfleet deploy k8s`` writes; only the volumes' places differ here."""
        write_scene(self.folder / "scene", 7, 2, 5, 32, 32, supersample=1)
        (self.folder / "small.json").write_text(json.dumps(NETWORK_JSON))
        flags = f"--network {self.folder / 'small.json'} --batch-size 1024 --collective-timeout 30s"
        words = ["deploy", "k8s", "--scene", "scene", "--out", str(self.folder / "overlay"), "--kind", "statefulset", "--gpus", "0", "--pods", "3"]
        words += ["--max-pods", str(MOST), "--steps", "1000000", "--checkpoint-every", "1s", f"--train-flags={flags}"]
        assert main(words) == 0
        objects = render(self.folder / "overlay")
        settings = {**find(objects, "ConfigMap", "nerfleet-run")["data"], "SCENE": str(self.folder / "scene"), "RUN": str(self.folder / "run")}
        (container,) = pod_of(objects)["containers"]
        command = [re.sub(r"\$\((\w+)\)", lambda match: settings[match[1]], word) for word in (*container["command"], *container["args"])]
        assert command[0] == "python"
        return [sys.executable, *command[1:]], settings

    def start(self, i: int) -> None:
        variables = {**outside(), **self.settings, "NERFLEET_SIGN": str(self.folder / f"sign{i}")}
        inside = ["sh", "-c", f'hostname nerfleet-{i} && exec "$@"', "pod", *self.command]
        with self.log(i).open("a") as log:
            program = ["ip", "netns", "exec", self.name(i), "unshare", "--uts", *inside]
            self.pods[i] = subprocess.Popen(program, env=variables, stdout=log, stderr=log, cwd=REPOSITORY)

    def log(self, i: int) -> Path:
        return self.folder / f"pod{i}.log"

    def kill(self, i: int) -> None:
        """All processes of the pod at once, as when a node is lost."""
        pids = subprocess.run(["ip", "netns", "pids", self.name(i)], capture_output=True, text=True).stdout.split()
        for pid in map(int, pids):
            os.kill(pid, signal.SIGKILL)
        self.pods.pop(i).wait()

    def leave(self, i: int) -> int:
        """SIGTERM to the main process, as when it is scaled away; its exit code."""
        self.pods[i].send_signal(signal.SIGTERM)
        return self.pods.pop(i).wait(timeout=GRACE_SECONDS)

    def text(self) -> str:
        return "\n".join(self.log(i).read_text() for i in range(MOST) if self.log(i).exists())

    def step(self) -> int:
        return max((int(path.parent.name[5:]) for path in self.folder.glob("run/checkpoints/*/complete.json")), default=0)

    def joined(self, n: int) -> int:
        """How often so many ranks came together."""
        return self.text().count(f"{n} ranks, gloo")

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait; containers that end meanwhile are started again, as the kubelet does."""
        begin = time.monotonic()
        while not condition():
            for i in [i for i, process in self.pods.items() if process.poll() is not None]:
                assert self.pods[i].returncode != 2, self.text()[-3000:]
                self.start(i)
            assert time.monotonic() - begin < PATIENCE_SECONDS, f"{what}\n{self.text()[-4000:]}"
            time.sleep(0.3)
        return time.monotonic() - begin

    def trains_with(self, n: int, times: int) -> float:
        """Until so many ranks have come together that often, and a checkpoint is newer."""
        seconds = self.until(lambda: self.joined(n) >= times, f"{n} ranks for the {times}. time")
        before = self.step()
        self.until(lambda: self.step() > before, "a newer checkpoint")
        return seconds

    def remove(self) -> None:
        for i in list(self.pods):
            self.kill(i)
        for name in (self.switch, *map(self.name, range(MOST))):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("network namespaces need root and the commands `ip` and `unshare`")
    if "nnodes" not in {field.name for field in dataclasses.fields(Arguments)}:
        pytest.skip("nerfleet train has no --nnodes yet")
    made = Cluster.__new__(Cluster)
    try:
        made.__init__(tmp_path)  # type: ignore[misc]
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        yield made
    finally:
        made.remove()


def test_pods_are_lost_and_come_back_and_are_scaled(cluster: Cluster) -> None:
    took: dict[str, float] = {}
    for i in range(3):
        cluster.start(i)
    took["3 pods train"] = cluster.trains_with(3, 1)

    cluster.kill(2)
    took["pod 2 killed, 2 go on"] = cluster.trains_with(2, 1)
    cluster.start(2)
    took["pod 2 is back"] = cluster.trains_with(3, 2)

    before = cluster.step()
    cluster.kill(0)
    cluster.start(0)
    took["pod 0, where all meet, killed and back"] = cluster.trains_with(3, 3)
    assert cluster.step() > before

    before = cluster.step()
    begin = time.monotonic()
    assert cluster.leave(2) == 143
    took["pod 2 scaled away, checkpoint written"] = time.monotonic() - begin
    assert cluster.step() >= before
    took["2 go on"] = cluster.trains_with(2, 2)
    cluster.start(2)
    cluster.start(3)
    took["scaled to 4"] = cluster.trains_with(4, 1)

    text = cluster.text()
    assert "continues at step" in text
    assert "another pod leaves: going on without it" in text
    print("; ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items()))
