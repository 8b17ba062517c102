"""This process as one of several ranks: joining, messages between hosts' processes, and a loss that is named."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import datetime
import gc
import itertools
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from nerfleet.errors import NerfleetError
from nerfleet.parallel import remarks
from nerfleet.parallel.heartbeat import EXIT_LOST, Heartbeat, machine

DEFAULT_TIMEOUT_SECONDS = 120.0
JOIN_TIMEOUT = datetime.timedelta(minutes=10)
"""For all ranks to start: longer than any collective's, because restarted ranks come at different moments."""
_PR_SET_PDEATHSIG = 1
_LOST = re.compile(r"connection (closed|reset|refused)|timed? ?out|broken pipe|socket|gloo|nccl|remote process", re.IGNORECASE)

_Value = TypeVar("_Value")


class SharedError(NerfleetError):
    """An error of one rank that all ranks have heard of."""


class RankLost(Exception):
    """Another rank is gone or stalled; the message names it."""


@dataclass(frozen=True)
class Ranks:
    """All ranks, seen from one of them. Messages between hosts go over gloo; the GPUs' own traffic is not touched."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    heartbeat: Heartbeat
    store: dist.Store
    _meetings: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def exchange(self, value: _Value) -> list[_Value]:
        """One value of each rank, in order. Waits as long as it takes, while the others are alive: no collective is pending meanwhile.

        Raises:
            SharedError: one of them is an error.
            RankLost: another rank is gone.
        """
        values: list[Any] = [None] * self.world_size
        with self.waiting():
            self._meet()
            dist.all_gather_object(values, value)
        for other in values:
            if isinstance(other, NerfleetError):
                raise SharedError(*other.args)
        return values

    def _meet(self) -> None:
        """Until all ranks have come to this same meeting."""
        number, pause = next(self._meetings), 0.001
        if number >= 2:  # all have left that one
            self.store.delete_key(f"meeting/{number - 2}/{self.rank}")
        self.store.set(f"meeting/{number}/{self.rank}", "")
        names = [f"meeting/{number}/{rank}" for rank in range(self.world_size)]
        with self.heartbeat.resting():
            while not self.store.check(names):
                gone = self.heartbeat.gone()
                if gone:
                    raise RankLost("; ".join(gone))
                time.sleep(pause)
                pause = min(2 * pause, 0.1)

    def together(self, action: Callable[[], _Value]) -> _Value:
        """Run something on all ranks; an error of one is raised on all, so that none is left waiting."""
        try:
            result = action()
        except SharedError:
            raise
        except NerfleetError as error:
            self.exchange(error)
            raise
        self.exchange(None)
        return result

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around whatever needs the other ranks. After an error this rank counts as waiting: it is not the one that is missing."""
        self.heartbeat.waiting(True)
        yield
        self.heartbeat.waiting(False)


@contextlib.contextmanager
def joined(device_type: str, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS, say: Callable[[str], None] | None = None) -> Iterator[Ranks]:
    """Join the ranks that the environment names.

    Raises:
        NerfleetError: more ranks than GPUs here, or ranks of different versions.
        RankLost: another rank is gone or stalled while this one runs.
    """
    rank, world_size, local_rank = (int(os.environ[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    _die_with_parent()
    device = own_device(device_type, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    timeout = datetime.timedelta(seconds=timeout_seconds)
    store = _store(rank, world_size)
    _wait_for_all(store, rank, world_size)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, store=dist.PrefixStore("group", store), rank=rank, world_size=world_size, timeout=timeout)
    except (RuntimeError, dist.DistError) as error:
        raise RankLost(f"a rank is gone before all had joined ({' '.join(str(error).split())[:200]})") from None
    heartbeat = Heartbeat(_second_connection(store), rank, world_size, timeout_seconds)
    ranks = Ranks(rank, world_size, local_rank, device, heartbeat, store)
    clean = False
    try:
        _same_versions(ranks)
        if rank == 0 and say is not None:
            say(f"{world_size} ranks, {backend}; a rank that does not answer for {timeout_seconds:g} s ends the run")
        for remark in _remarks(ranks):
            if rank == 0 and say is not None:
                say(f"warning: {remark}")
        yield ranks
        clean = True
    except (RuntimeError, dist.DistError) as error:
        if not isinstance(error, dist.DistError) and not _LOST.search(str(error)):
            raise
        raise RankLost(heartbeat.blame()) from error
    finally:
        heartbeat.close()
        if clean or device.type == "cpu":  # NCCL waits for ever for captured graphs that an error's frames still hold
            gc.collect()
            with contextlib.suppress(Exception):
                dist.destroy_process_group()


def own_device(device_type: str, local_rank: int, n_local: int) -> torch.device:
    """The device of this rank, set as current; checked before NCCL is touched."""
    if device_type != "cuda":
        return torch.device("cpu")
    n_gpus = torch.cuda.device_count()
    if n_local > n_gpus:
        remedy = f"use --gpus {n_gpus} (torchrun: --nproc-per-node {n_gpus})"
        raise NerfleetError(f"{n_local} ranks on {socket.gethostname()}", f"there are {n_gpus} GPUs", remedy)
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def exit_lost(error: RankLost) -> None:
    """Say who is missing and end this process at once, whatever its threads wait for."""
    sys.stderr.write(f"nerfleet: error: {error}: run the same command again to continue from the last checkpoint\n")
    sys.stderr.flush()
    os._exit(EXIT_LOST)


def _store(rank: int, world_size: int) -> dist.TCPStore:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    agent_has_it = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        return dist.TCPStore(address, port, world_size, rank == 0 and not agent_has_it, JOIN_TIMEOUT, wait_for_workers=False)
    except (RuntimeError, dist.DistError) as error:
        if "EADDRINUSE" in str(error) or "already in use" in str(error):
            raise NerfleetError(f"port {port}", "is in use by another program", "choose another --master-port") from None
        raise NerfleetError(f"{address}:{port}", "rank 0 does not answer there", "check the name, the port and the firewall") from None


def _wait_for_all(store: dist.TCPStore, rank: int, world_size: int) -> None:
    """Until every rank has come this far; raises RankLost that names those that have not."""
    store.set(f"joined/{rank}", socket.gethostname())
    names = [f"joined/{other}" for other in range(world_size)]
    try:
        store.wait(names, JOIN_TIMEOUT)
    except (RuntimeError, dist.DistError):
        with contextlib.suppress(RuntimeError, dist.DistError):
            missing = [str(other) for other, name in enumerate(names) if not store.check([name])]
            raise RankLost(f"rank {', '.join(missing)} did not join within {JOIN_TIMEOUT.total_seconds():.0f} s") from None
        raise RankLost("rank 0 is gone before all had joined") from None


def _second_connection(store: dist.TCPStore) -> dist.TCPStore:
    """For the heartbeat's thread: a call that blocks on the first must not hold it up."""
    return dist.TCPStore(store.host, store.port, None, False, JOIN_TIMEOUT, wait_for_workers=False)


def _same_versions(ranks: Ranks) -> None:
    import importlib.metadata

    try:
        own = importlib.metadata.version("nerfleet")
    except importlib.metadata.PackageNotFoundError:
        own = "from source"
    mine = (own, torch.__version__, socket.gethostname())
    everyone = ranks.exchange(mine)
    for rank, other in enumerate(everyone):
        if other[:2] != everyone[0][:2]:
            first = f"rank 0 on {everyone[0][2]} nerfleet {everyone[0][0]}, PyTorch {everyone[0][1]}"
            wrong = f"has nerfleet {other[0]}, PyTorch {other[1]}; {first}"
            raise SharedError(f"rank {rank} on {other[2]}", wrong, "install the same versions everywhere")


def _remarks(ranks: Ranks) -> list[str]:
    """What looks wrong about the machines, each remark once. All ranks together."""
    n_machines = len(set(ranks.exchange(machine() or socket.gethostname())))
    n_local_gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if ranks.device.type == "cuda" else 0
    own = remarks.of_this_machine(os.environ, n_machines > 1, n_local_gpus)
    everyone = ranks.exchange((own, (socket.gethostname(), time.time())))
    return [*dict.fromkeys(remark for found, _ in everyone for remark in found), *remarks.of_clocks([clock for _, clock in everyone])]


def _die_with_parent() -> None:
    """A rank does not outlive its launcher (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
