"""Starts ranks as processes of their own, as torchrun would."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

NETWORK_JSON: dict[str, Any] = {
    "encoding": {"otype": "HashGrid", "n_levels": 4, "n_features_per_level": 4, "log2_hashmap_size": 12, "base_resolution": 16},
    "network": {"otype": "FullyFusedMLP", "n_neurons": 32, "n_hidden_layers": 1},
    "rgb_network": {"otype": "FullyFusedMLP", "n_neurons": 32, "n_hidden_layers": 1},
}
"""The small network of the trainer's tests as ``--network FILE`` reads it."""
REPOSITORY = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONWARNINGS": "ignore"}
    path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    return {**os.environ, **threads, **{name: str(value) for name, value in names.items()}, "PYTHONPATH": path}


def outside() -> dict[str, str]:
    """The environment of a command that is no rank itself."""
    names = ("RANK", "LOCAL_", "WORLD_", "MASTER_")
    return {name: value for name, value in environment(0, 1, 0).items() if not name.startswith(names)}


def ranks_of(launcher: int) -> list[int]:
    """Processes of the ranks under a launcher, in order of rank: the children of its server that bear a rank's name."""
    found = {}
    for server in children(launcher):
        for child in children(server):
            name = (Path(f"/proc/{child}") / "comm").read_text().split()
            if name[0] == "nerfleet":
                found[int(name[1])] = child
    return [found[rank] for rank in sorted(found)]


def children(process: int) -> list[int]:
    return [int(pid) for pid in subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True).stdout.split()]


def start(world_size: int, *command: str) -> list[subprocess.Popen]:
    """``python -m command`` on every rank."""
    port = free_port()
    python = [sys.executable, "-m", *command]
    return [
        subprocess.Popen(python, env=environment(rank, world_size, port), cwd=REPOSITORY, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in range(world_size)
    ]


def finish(processes: list[subprocess.Popen], timeout: float) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of each; all are ended after ``timeout`` seconds."""
    try:
        ended = [(process, *process.communicate(timeout=timeout)) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, out, err) for process, out, err in ended]


def run_cases(folder: Path, world_size: int, *names: str, timeout: float = 600) -> None:
    results = finish(start(world_size, "tests.parallel.worker", str(folder), *names), timeout)
    assert all(code == 0 for code, _, _ in results), "\n".join(err[-1500:] for _, _, err in results)


def result(folder: Path, name: str, rank: int) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(folder / f"{name}.{rank}.pt", weights_only=False)
    return loaded
