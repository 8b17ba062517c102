"""One rank of the collectives check: ``python -m nerfleet.doctor.worker``, started by :mod:`nerfleet.doctor.collectives`.

Before each stage the rank writes the stage's number into the store, so that whoever waits can see which rank has not come to it.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

SMALL_BYTES = 1 << 12
PAIR_BYTES = {"cpu": 1 << 22, "cuda": 1 << 26}
ALL_BYTES = {"cpu": 1 << 22, "cuda": 1 << 27}
REPEATS = 5
STAGES = ("start", "meeting", "first all-reduce", "pairs", "all-reduce of all")


def rounds(players: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Every pair once, in rounds in which nobody plays twice (the circle method of tournaments)."""
    ring: list[int | None] = [*players] + ([None] if len(players) % 2 else [])
    found = []
    for _ in range(len(ring) - 1):
        pairs = [(ring[i], ring[-1 - i]) for i in range(len(ring) // 2)]
        found.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


class Rank:
    """This rank and what it measures."""

    def __init__(self) -> None:
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if os.environ["DOCTOR_DEVICE"] == "cuda" else torch.device("cpu")
        self.timeout = datetime.timedelta(seconds=float(os.environ["DOCTOR_SECONDS"]))
        self.leaders: list[int] = json.loads(os.environ["DOCTOR_LEADERS"])
        self.store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, self.timeout, wait_for_workers=False)

    def stage(self, number: int) -> None:
        self.store.set(f"stage/{self.rank}", str(number))

    def run(self) -> None:
        self.stage(0)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.stage(1)
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        group = dist.PrefixStore("group", self.store)
        dist.init_process_group(backend, store=group, rank=self.rank, world_size=self.world_size, timeout=self.timeout)
        self.stage(2)
        small = torch.ones(SMALL_BYTES // 4, device=self.device)
        dist.all_reduce(small)
        if not bool((small == self.world_size).all()):
            raise RuntimeError(f"all-reduce of ones over {self.world_size} ranks gave {small[0].item()}")
        self.stage(3)
        for pairs in rounds(self.leaders):
            for pair in pairs:
                if self.rank in pair:
                    self._measure_pair(pair)
        self.stage(4)
        whole = torch.ones(ALL_BYTES[self.device.type] // 4, device=self.device)
        seconds = self._seconds(lambda: dist.all_reduce(whole))
        if self.rank == 0:
            bus = 2 * (self.world_size - 1) / self.world_size * whole.numel() * 4 / seconds
            self.store.set("result/all", json.dumps(bus))
        self.stage(len(STAGES))
        dist.destroy_process_group()

    def _measure_pair(self, pair: tuple[int, int]) -> None:
        """Both directions at once; bytes a second of one of them."""
        other = pair[0] + pair[1] - self.rank
        out = torch.ones(PAIR_BYTES[self.device.type] // 4, device=self.device)
        into = torch.empty_like(out)
        seconds = self._seconds(lambda: _exchange(out, into, other))
        if self.rank == pair[0]:
            self.store.set(f"result/{pair[0]}-{pair[1]}", json.dumps(out.numel() * 4 / seconds))

    def _seconds(self, action: Callable[[], object]) -> float:
        """The quickest of a few, after one that does not count."""
        times = []
        for _ in range(REPEATS + 1):
            begin = time.perf_counter()
            action()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            times.append(time.perf_counter() - begin)
        return min(times[1:])


def _exchange(out: Tensor, into: Tensor, other: int) -> None:
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, out, other), dist.P2POp(dist.irecv, into, other)]):
        work.wait()


if __name__ == "__main__":
    Rank().run()
    sys.stdout.flush()
    os._exit(0)  # whatever a library's threads still wait for
