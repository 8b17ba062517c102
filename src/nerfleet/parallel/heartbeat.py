"""Where each rank is, told to all through a key-value store, so that the one that is missing can be named."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from torch.distributed import TCPStore

PERIOD_SECONDS = 0.5
GONE_SECONDS = 3.0
"""A rank that has not been heard of for so long is gone; on one machine its process is looked for."""
GRACE_SECONDS = 5.0
"""Time after a collective's timeout in which its own error may come first."""
EXIT_LOST = 75
"""Exit code when other ranks are gone: a restart continues from the last checkpoint (EX_TEMPFAIL)."""


@dataclass(frozen=True)
class Beat:
    """One rank's place. ``machine``, ``process``: where it can be looked for. ``waiting``: in a collective. ``count``: beats so far.
    ``quiet_seconds``: since it last moved on."""

    rank: int
    host: str
    machine: str
    process: int
    step: int
    doing: str
    waiting: bool
    count: int
    quiet_seconds: float


class Heartbeat:
    """Sends this rank's beats and watches the others', in a thread of its own."""

    def __init__(self, store: TCPStore, rank: int, world_size: int, timeout_seconds: float, fail: Callable[[str], None] | None = None) -> None:
        self._store, self._rank, self._world_size, self._timeout = store, rank, world_size, timeout_seconds
        self._fail = fail or _end
        self._step, self._doing, self._waiting, self._moved = 0, "starting", False, math.inf
        self._count = 0
        self._seen: dict[int, tuple[int, float]] = {}  # rank -> (count, when it was new)
        self._last: dict[int, Beat] = {}
        self._host, self._machine = socket.gethostname(), machine()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def at(self, step: int, doing: str = "training") -> None:
        """This rank has moved on."""
        self._step, self._doing, self._moved = step, doing, time.monotonic()

    def rest(self) -> None:
        """Not watched until it moves on again: kernels are compiled, buffers allocated."""
        self._moved = math.inf

    def alive(self, doing: str) -> None:
        """This rank is at the same step, but busy."""
        self.at(self._step, doing)

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Inside, this rank is not watched."""
        before, self._moved = self._moved, math.inf
        yield
        self._moved = before if before == math.inf else time.monotonic()

    def waiting(self, on: bool) -> None:
        """Around a collective."""
        self._waiting = on

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def blame(self) -> str:
        """Who is missing: "rank 2 on host b: gone, last heard of at step 17"."""
        begin = time.monotonic()
        while True:
            guilty = self._guilty()
            if guilty or time.monotonic() - begin > GONE_SECONDS + 2 * PERIOD_SECONDS:
                return "; ".join(guilty) or "no rank in particular"
            time.sleep(0.2 * PERIOD_SECONDS)
            self._look()

    def _others(self) -> list[Beat]:
        return [beat for rank, beat in sorted(self._last.items()) if rank != self._rank]

    def _ended_here(self) -> list[Beat]:
        """Ranks of this machine whose process is no more."""
        return [b for b in self._others() if b.machine == self._machine and ended(b.process)]

    def gone(self, seconds: float = 5 * GONE_SECONDS) -> list[str]:
        """Ranks that have ended, or have not been heard of for so long; none once this rank is done."""
        if self._stop.is_set():
            return []
        others, here, now = self._others(), self._ended_here(), time.monotonic()
        lost = [b for b in others if b in here or now - self._seen[b.rank][1] > seconds]
        return [f"rank {b.rank} on host {b.host}: gone, last heard of at step {b.step}" for b in lost]

    def _guilty(self) -> list[str]:
        lost = self.gone(GONE_SECONDS)
        if lost:
            return lost
        others = self._others()
        stalled = [b for b in others if not b.waiting and b.step <= self._step and b.quiet_seconds > 0.5 * self._timeout]
        return [f"rank {b.rank} on host {b.host}: stalled at step {b.step} ({b.doing}) for {b.quiet_seconds:.0f} s" for b in stalled]

    def _look(self) -> bool:
        """Send this rank's beat and read the others'; False if the store does not answer."""
        with self._lock:
            self._count += 1
            quiet = max(time.monotonic() - self._moved, 0.0)
            beat = Beat(self._rank, self._host, self._machine, os.getpid(), self._step, self._doing, self._waiting, self._count, quiet)
            try:
                self._store.set(f"beat/{self._rank}", json.dumps(asdict(beat)))
                known = [rank for rank in range(self._world_size) if rank in self._last or self._store.check([f"beat/{rank}"])]
                texts = self._store.multi_get([f"beat/{rank}" for rank in known])
            except Exception:  # the store's host is gone or has finished: its beat grows old
                return False
            for rank, text in zip(known, texts):
                other = Beat(**json.loads(text))
                if self._seen.get(rank, (0, 0.0))[0] != other.count:
                    self._seen[rank] = (other.count, time.monotonic())
                self._last[rank] = other
            return True

    def _run(self) -> None:
        last_complete = time.monotonic()
        while not self._stop.wait(PERIOD_SECONDS):
            self._look()
            if not self._ended_here():
                last_complete = time.monotonic()
            if time.monotonic() - last_complete > GRACE_SECONDS:  # not every wait for a rank that has ended is told so: a GPU's goes on
                self._fail(self.blame())
                return
            if time.monotonic() - self._moved > self._timeout + GRACE_SECONDS:
                mine = "" if self._waiting else f"rank {self._rank} on host {self._host}: stalled at step {self._step} ({self._doing})"
                self._fail(mine or self.blame())
                return


def machine() -> str:
    """What processes that can look for one another have in common: this start of the kernel and its table of processes; empty if unknown (not Linux)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def ended(process: int) -> bool:
    """Whether a process of this machine has ended (Linux; False where that cannot be seen)."""
    try:  # the state follows the name, which may hold anything
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except FileNotFoundError:
        return Path("/proc/self/stat").exists()
    except OSError:
        return False


def _end(who: str) -> None:
    sys.stderr.write(f"nerfleet: error: {who}: run the same command again to continue from the last checkpoint\n")
    sys.stderr.flush()
    os._exit(EXIT_LOST)
