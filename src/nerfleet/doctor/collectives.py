"""An all-reduce and the bandwidth between every pair of hosts, with a time limit and the name of whoever holds it up."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from nerfleet.doctor.check import Check
from nerfleet.doctor.explain import explain

if TYPE_CHECKING:
    from torch.distributed import TCPStore

NAME = "collectives"
BETWEEN_HOSTS_BITS_PER_S = 50e9
"""Slower links between hosts make training wait (a warning)."""
STAGES = ("start", "meeting", "first all-reduce", "pairs", "all-reduce of all")
LINGER_SECONDS = 3.0
START_FACTOR = 3
"""Python and PyTorch are loaded before a rank can be heard of: that may take so many times longer."""


@dataclass(frozen=True)
class Seat:
    """Where a host's ranks stand among all.

    Attributes:
        hosts: all hosts in order.
        n_ranks: ranks of each host.
        own: this host's index.
        device: "cpu" (gloo) or "cuda" (NCCL).
        interface: for sockets; None: the libraries choose.
    """

    hosts: list[str]
    n_ranks: list[int]
    own: int
    device: str
    interface: str | None = None

    @property
    def first(self) -> int:
        return sum(self.n_ranks[: self.own])

    @property
    def world_size(self) -> int:
        return sum(self.n_ranks)

    @property
    def leaders(self) -> list[int]:
        """The ranks that measure pairs: the first of every host; on one host all."""
        if len(self.hosts) == 1:
            return list(range(self.n_ranks[0]))
        return [sum(self.n_ranks[:i]) for i in range(len(self.hosts))]

    def name(self, rank: int) -> str:
        """ "rank 2 on host b"."""
        for i, host in enumerate(self.hosts):
            if sum(self.n_ranks[: i + 1]) > rank:
                return f"rank {rank} on host {host}"
        return f"rank {rank}"


def host_store(address: str, seconds: float) -> TCPStore:
    """The board that all write on, held by this process; it listens on this address only, on a free port."""
    from torch.distributed import TCPStore

    listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=256)
    port = listener.getsockname()[1]
    limit = datetime.timedelta(seconds=seconds)
    return TCPStore(address, port, None, True, limit, wait_for_workers=False, master_listen_fd=listener.detach())


def join_store(address: str, port: int, seconds: float) -> TCPStore:
    """The board that the first host holds."""
    from torch.distributed import TCPStore

    return TCPStore(address, port, None, False, datetime.timedelta(seconds=seconds), wait_for_workers=False)


def run(seat: Seat, store: TCPStore, address: str, port: int, seconds: float) -> list[Check]:
    """Start this host's ranks, wait while any rank comes to a new stage within ``seconds``, say what was measured or who is missing."""
    with contextlib.ExitStack() as held:
        logs = [held.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in range(seat.n_ranks[seat.own])]
        workers = [_start(seat, local, address, port, seconds, logs[local]) for local in range(seat.n_ranks[seat.own])]
        try:
            complaint = _wait(seat, store, workers, logs, seconds)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    if complaint is not None:
        return [complaint]
    return measured(seat, _results(store, seat))


def leave(store: TCPStore, seat: Seat) -> None:
    """The first host, which holds the board, waits a moment until the others have read it."""
    with contextlib.suppress(Exception):
        store.set(f"left/{seat.own}", "1")
        until = time.monotonic() + LINGER_SECONDS
        while seat.own == 0 and time.monotonic() < until:
            if store.check([f"left/{other}" for other in range(len(seat.hosts))]):
                return
            time.sleep(0.1)


def _start(seat: Seat, local: int, address: str, port: int, seconds: float, log: IO[str]) -> subprocess.Popen[bytes]:
    variables = dict(os.environ)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if seat.interface and len(seat.hosts) > 1:
            variables.setdefault(name, seat.interface)
    own = {"RANK": seat.first + local, "LOCAL_RANK": local, "WORLD_SIZE": seat.world_size, "MASTER_ADDR": address, "MASTER_PORT": port}
    own |= {"DOCTOR_DEVICE": seat.device, "DOCTOR_SECONDS": 2 * START_FACTOR * seconds, "DOCTOR_LEADERS": json.dumps(seat.leaders), "OMP_NUM_THREADS": 1}
    variables |= {name: str(value) for name, value in own.items()} | {"NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}
    return subprocess.Popen([sys.executable, "-m", "nerfleet.doctor.worker"], env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def _wait(seat: Seat, store: TCPStore, workers: Sequence[subprocess.Popen[bytes]], logs: Sequence[IO[str]], seconds: float) -> Check | None:
    """None once all of this host's ranks are done."""
    reached, moved = [-1] * seat.world_size, time.monotonic()
    while time.monotonic() - moved < seconds * (START_FACTOR if min(reached) < 0 else 1):
        codes = [worker.poll() for worker in workers]
        bad = next((i for i, code in enumerate(codes) if code), None)
        if bad is not None:
            logs[bad].seek(0)
            return broken(seat.name(seat.first + bad), logs[bad].read(), stages(store, seat), seat)
        if all(code == 0 for code in codes):
            return None
        now = stages(store, seat)
        if now != reached:
            reached, moved = now, time.monotonic()
        time.sleep(0.2)
    return stalled(reached, seat, seconds)


def stages(store: TCPStore, seat: Seat) -> list[int]:
    """How far each rank has come; -1: not heard of."""
    found = []
    for rank in range(seat.world_size):
        try:
            found.append(int(store.get(f"stage/{rank}")) if store.check([f"stage/{rank}"]) else -1)
        except Exception:  # the board is gone with its host
            found.append(-1)
    return found


def stalled(reached: list[int], seat: Seat, seconds: float) -> Check:
    """Who is behind the others."""
    least, most = min(reached), max(reached)
    if least == most:
        where = STAGES[least] if 0 <= least < len(STAGES) else "the start"
        remedy = "a link hangs: NCCL_DEBUG=INFO shows which; try NCCL_P2P_DISABLE=1 or NCCL_IB_DISABLE=1, and the interface named above"
        return Check(NAME, "fail", f"all ranks wait in {where}, no answer within {seconds:.0f} s", remedy)
    who = ", ".join(seat.name(rank) for rank, stage in enumerate(reached) if stage == least)
    where = "did not start" if least < 0 else f"stalled in {STAGES[least]}"
    remedy = "look at that host: is the process there (ps), stopped, out of memory (dmesg), its GPU at 100 % (nvidia-smi); restart it"
    return Check(NAME, "fail", f"{who}: {where}; the others waited {seconds:.0f} s", remedy)


def broken(who: str, log: str, reached: list[int], seat: Seat) -> Check:
    """A rank ended with an error; if its text is known, with what helps."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    known = explain(lines)
    late = [seat.name(rank) for rank, stage in enumerate(reached) if stage < max(reached)]
    last = lines[-1][:200] if lines else "without a word"
    remedy = f"{known[0].error.meaning}: {known[0].error.remedy} ({known[0].error.link})" if known else "NCCL_DEBUG=INFO nerfleet doctor says more"
    return Check(NAME, "fail", f"{who}: {last}" + (f"; behind the others: {', '.join(late)}" if late else ""), remedy)


def _results(store: TCPStore, seat: Seat) -> dict[str, float]:
    """Measured bytes a second of each pair, and of all."""
    keys = ["all", *(f"{a}-{b}" for i, a in enumerate(seat.leaders) for b in seat.leaders[i + 1 :])]
    found = {}
    for key in keys:
        with contextlib.suppress(Exception):
            found[key] = float(json.loads(store.get(f"result/{key}")))
    return found


def measured(seat: Seat, results: Mapping[str, float]) -> list[Check]:
    """Bandwidths as checks; those between hosts are compared with what training needs."""
    backend = "NCCL" if seat.device == "cuda" else "gloo"
    between = "hosts" if len(seat.hosts) > 1 else "GPUs"
    pairs = {key: rate for key, rate in results.items() if key != "all"}
    checks = [Check(NAME, "ok", f"{backend}, {seat.world_size} ranks: all-reduce right, bus bandwidth {gigabits(results.get('all', 0.0))}")]
    if not pairs or seat.own > 0:  # one host says it for all
        return checks
    shown = ", ".join(f"{_short(seat, key)} {gigabits(rate)}" for key, rate in sorted(pairs.items(), key=lambda item: item[1])[:8])
    slow = [key for key, rate in pairs.items() if 8 * rate < BETWEEN_HOSTS_BITS_PER_S]
    if len(seat.hosts) > 1 and slow:
        remedy = "use the fast interface (NCCL_SOCKET_IFNAME, InfiniBand), jumbo frames; or one host with more GPUs; larger batches hide some of it"
        return [*checks, Check(f"between {between}", "warn", f"under {BETWEEN_HOSTS_BITS_PER_S / 1e9:.0f} Gb/s, slowest first: {shown}", remedy)]
    return [*checks, Check(f"between {between}", "ok", f"slowest first: {shown}")]


def _short(seat: Seat, key: str) -> str:
    a, b = (int(part) for part in key.split("-"))
    if len(seat.hosts) == 1:
        return key
    return f"{seat.name(a).split()[-1]}-{seat.name(b).split()[-1]}"


def gigabits(bytes_per_s: float) -> str:
    return f"{8 * bytes_per_s / 1e9:.1f} Gb/s"
