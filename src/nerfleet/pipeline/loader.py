"""Decoding processes, as the training process sees them: jobs in, pieces of photographs out, the lost ones replaced."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from nerfleet.data.photograph import Decoding
from nerfleet.errors import NerfleetError
from nerfleet.pipeline.messages import Done, Failed, Free, Job, Layout, Open, Opened, Piece
from nerfleet.pipeline.segment import Segment, check_room, free_bytes, remove_stale

AHEAD = 4
"""Jobs that a worker has before it: enough that it never waits for the next, few enough that all workers end together."""
MAX_TRIES = 2
"""Of a photograph whose decoder ends its process."""
MAX_LOSSES_EACH = 4
"""Lost workers, times their number, after which something is wrong with the machine."""
END_SECONDS = 2.0
MIB = 1 << 20
WHOLE_VIEWS_BYTES = 1 << 30
"""Shared memory that is spent on slots in which whole photographs fit: they are decoded there, without a copy."""

Pin = Callable[[memoryview], Callable[[], None]]
"""Makes memory readable for the GPU -> how to undo it."""


@dataclass(frozen=True)
class RingSize:
    """Of each worker."""

    slot_bytes: int
    n_slots: int

    @property
    def n_bytes(self) -> int:
        return self.slot_bytes * self.n_slots


def ring_size(n_workers: int, piece_bytes: int) -> RingSize:
    """Slots for pieces of a photograph: whole ones where shared memory has room for them, else 4 MiB, or less where that is too much.

    Raises:
        NerfleetError: /dev/shm is too small even for the smallest.
    """
    remove_stale()
    free = free_bytes()
    room = WHOLE_VIEWS_BYTES if free is None else min(WHOLE_VIEWS_BYTES, free // 2)
    whole = -(-piece_bytes // 4096) * 4096
    for wanted in (RingSize(whole, 3), RingSize(whole, 2), RingSize(min(whole, 4 * MIB), 4)):
        if wanted.n_bytes * n_workers <= room:
            return wanted
    smallest = RingSize(MIB // 4, 2)
    check_room(smallest.n_bytes * n_workers, f"{n_workers} image workers")
    return smallest


@dataclass
class LoaderCounts:
    """What happened so far. ``decoding_seconds`` and ``waiting_seconds`` are sums over workers."""

    decoded: int = 0
    decoding_seconds: float = 0.0
    waiting_seconds: float = 0.0
    replaced_workers: int = 0
    polls: int = 0
    slots_filled: int = 0  # summed over polls that looked while slots were in use


@dataclass(eq=False)
class _Worker:
    """A process, its ring, what it was asked for and not finished, and slots that the trainer still reads."""

    process: subprocess.Popen
    connection: Connection
    segment: Segment
    unpin: Callable[[], None]
    jobs: deque[Job] = field(default_factory=deque)
    held: int = 0
    lost: bool = False

    def end(self) -> None:
        """Closes what is closed without waiting; the ring once nobody reads it."""
        with contextlib.suppress(OSError):
            self.connection.close()
        self.lost = True
        self.close_ring()

    def close_ring(self) -> None:
        if self.lost and self.held == 0:
            self.unpin()
            self.segment.close()


@dataclass(frozen=True)
class Arrived:
    """A piece, readable until it is released."""

    piece: Piece
    worker: _Worker
    slot_bytes: int

    @property
    def slot(self) -> memoryview:
        """The memory that it lies in; do not keep it."""
        begin = self.piece.slot * self.slot_bytes
        return self.worker.segment.buffer[begin : begin + self.slot_bytes]


class Loader:
    """See the module. Not thread-safe: the training loop polls it between steps."""

    def __init__(self, n_workers: int, how: Decoding, layout: Layout, ring: RingSize, say: Callable[[str], None], pin: Pin | None = None) -> None:
        """Starts the workers.

        Args:
            ring: of each worker (:func:`ring_size`). say: hears of lost workers. pin: for a GPU.

        Raises:
            NerfleetError: no room in shared memory, or no process can be started.
        """
        self.layout, self.ring, self.counts = layout, ring, LoaderCounts()
        self._how, self._say, self._pin = how, say, pin
        self._tries: dict[int, int] = {}
        self._again: deque[Job] = deque()
        self._poll = select.poll()
        self._by_descriptor: dict[int, _Worker] = {}
        self._n_workers = n_workers
        check_room(ring.n_bytes * n_workers, f"{n_workers} image workers")
        launched: deque[tuple[subprocess.Popen, Connection]] = deque()
        try:
            launched.extend(_launch() for _ in range(n_workers))  # all first: they come up while memory is reserved and pinned
            while launched:
                self._equip(*launched.popleft())
        except BaseException:
            for process, connection in launched:
                connection.close()
                process.wait()
            self.close()
            raise

    @property
    def workers(self) -> list[int]:
        """Process ids."""
        return [worker.process.pid for worker in self._by_descriptor.values()]

    @property
    def n_held(self) -> int:
        """Pieces that are not released."""
        return sum(worker.held for worker in self._by_descriptor.values())

    @property
    def idle(self) -> bool:
        """Whether every job that was given out is finished."""
        return not self._again and not any(worker.jobs for worker in self._by_descriptor.values())

    def give(self, next_job: Callable[[], Job | None]) -> None:
        """Gives out jobs until every worker has enough, or there is none left for now."""
        for worker in self._by_descriptor.values():
            while len(worker.jobs) < AHEAD:
                job = self._again.popleft() if self._again else next_job()
                if job is None:
                    return
                worker.jobs.append(job)
                with contextlib.suppress(OSError):  # lost: noticed at the next poll
                    worker.connection.send(job)

    def poll(self, seconds: float = 0.0) -> list[Arrived | Done | Failed]:
        """What has arrived; waits at most so long for the first.

        Raises:
            NerfleetError: workers are lost again and again.
        """
        messages: list[Arrived | Done | Failed] = []
        for descriptor, _ in self._poll.poll(1e3 * seconds):
            worker = self._by_descriptor.get(descriptor)
            if worker is not None:
                messages += self._receive(worker)
        self.counts.polls += 1
        self.counts.slots_filled += self.n_held
        return messages

    def release(self, arrived: Arrived) -> None:
        """The piece has been read."""
        worker = arrived.worker
        worker.held -= 1
        if worker.lost:
            worker.close_ring()
        else:
            with contextlib.suppress(OSError):
                worker.connection.send(Free(arrived.piece.slot))

    def close(self) -> None:
        """Ends all workers and frees their memory, also that of pieces that were not released."""
        workers = list(self._by_descriptor.values())
        self._by_descriptor.clear()
        for worker in workers:
            worker.held = 0
            worker.end()
        deadline = time.monotonic() + END_SECONDS
        for worker in workers:
            try:
                worker.process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def _equip(self, process: subprocess.Popen, ours: Connection) -> None:
        """Gives a process its ring."""
        try:
            segment = Segment(self.ring.n_bytes)
        except NerfleetError:
            ours.close()
            process.wait()
            raise
        unpin = self._pin(segment.buffer) if self._pin else _nothing
        worker = _Worker(process, ours, segment, unpin)
        with contextlib.suppress(OSError):
            ours.send(Open(segment.name, self.ring.slot_bytes, self.ring.n_slots, self.layout, self._how))
        self._by_descriptor[ours.fileno()] = worker
        self._poll.register(ours.fileno(), select.POLLIN)

    def _receive(self, worker: _Worker) -> list[Arrived | Done | Failed]:
        messages: list[Arrived | Done | Failed] = []
        try:
            while True:
                message = worker.connection.recv()
                if isinstance(message, Opened):
                    worker.segment.unlink()
                elif isinstance(message, Piece):
                    worker.held += 1
                    messages.append(Arrived(message, worker, self.ring.slot_bytes))
                else:
                    worker.jobs.popleft()
                    messages.append(message)
                    if isinstance(message, Done):
                        self.counts.decoded += 1
                        self.counts.decoding_seconds += message.seconds
                        self.counts.waiting_seconds += message.waited
                if not worker.connection.poll():
                    return messages
        except (EOFError, OSError):
            failed = self._replace(worker)
            return [*messages, failed] if failed else messages

    def _replace(self, worker: _Worker) -> Failed | None:
        """Starts another process for one that is gone; its jobs are given out again, but not a photograph that ends every decoder."""
        descriptor = next(d for d, w in self._by_descriptor.items() if w is worker)
        self._poll.unregister(descriptor)
        del self._by_descriptor[descriptor]
        worker.end()
        why = ending(worker.process)
        failed = None
        if worker.jobs:
            first = worker.jobs[0].view
            self._tries[first] = self._tries.get(first, 0) + 1
            if self._tries[first] >= MAX_TRIES:
                worker.jobs.popleft()
                failed = Failed(first, f"ended {MAX_TRIES} image workers ({why})")
        self._again.extend(worker.jobs)
        self.counts.replaced_workers += 1
        if self.counts.replaced_workers > MAX_LOSSES_EACH * self._n_workers:
            lost = f"{self.counts.replaced_workers} were lost, the last one {why}"
            raise NerfleetError("image workers", lost, "memory may be short: use fewer --image-workers, or --downscale")
        try:
            self._equip(*_launch())
            self._say(f"an image worker was lost ({why}) and is replaced")
        except NerfleetError as error:
            if not self._by_descriptor:
                raise
            self._say(f"an image worker was lost ({why}) and cannot be replaced: {error}")
        return failed


def _launch() -> tuple[subprocess.Popen, Connection]:
    """A decoding process and our end of the pipe to it."""
    ours, theirs = multiprocessing.Pipe()
    try:
        return start_process("nerfleet.pipeline.worker", theirs), ours
    except OSError as error:
        ours.close()
        raise NerfleetError("image workers", f"cannot be started ({error.strerror})", "use fewer --image-workers") from None


def start_process(module: str, connection: Connection) -> subprocess.Popen:
    """Starts ``python -m module FD`` with one end of a pipe, which is closed here; the process ends when the other end does.

    Its own session: an interrupt from the keyboard is for the training process. One thread: processes are the parallelism.
    """
    root = str(Path(__file__).parents[2])
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    paths = os.pathsep.join(path for path in (root, os.environ.get("PYTHONPATH", "")) if path)
    descriptor = connection.fileno()
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **threads, "PYTHONPATH": paths},
        )
    finally:
        connection.close()


def ending(process: subprocess.Popen) -> str:
    """How a process ended, in words."""
    try:
        code = process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    return f"signal {name}" + (", perhaps for memory" if -code == signal.SIGKILL else "")


def _nothing() -> None:
    return None
