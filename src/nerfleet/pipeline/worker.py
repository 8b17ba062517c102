"""A decoding process: ``python -m nerfleet.pipeline.worker FD``. It ends when the other end of its socket is closed.

It imports neither torch nor numba: it starts in a fraction of a second and takes little memory.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from multiprocessing.connection import Connection

import numpy as np

from nerfleet.data.images import Array, ImageError
from nerfleet.data.photograph import decode_depth_map, decode_photograph
from nerfleet.errors import NerfleetError
from nerfleet.pipeline.messages import Done, Failed, Free, Job, Open, Opened, Piece, sample_places
from nerfleet.pipeline.segment import attach

NICENESS = 5
"""Decoding steps back behind the training loop where cores are short."""


class Worker:
    """Decodes the photographs that it is asked for, in order, into the slots of its ring."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._jobs: deque[Job] = deque()
        self._free: deque[int] = deque()
        opening = connection.recv()
        assert isinstance(opening, Open)
        self._layout, self._how, self._slot_bytes = opening.layout, opening.how, opening.slot_bytes
        self._memory = attach(opening.segment)
        buffer = self._memory.buf
        assert buffer is not None
        self._slots = [buffer[i * self._slot_bytes : (i + 1) * self._slot_bytes] for i in range(opening.n_slots)]
        self._free.extend(range(opening.n_slots))
        self._scratch = np.empty(0, np.uint32)
        self._waited = 0.0
        connection.send(Opened())

    def run(self) -> None:
        """Until the connection ends."""
        while True:
            while not self._jobs:
                self._receive()
            job = self._jobs.popleft()
            try:
                self._do(job)
            except ImageError as error:
                self._connection.send(Failed(job.view, str(error)))
            except NerfleetError as error:  # a side file: without it the photograph would teach what it should not
                self._connection.send(Failed(job.view, f"is left out: {error}"))
            except MemoryError:
                self._connection.send(Failed(job.view, "does not fit into memory: use --downscale or fewer --image-workers"))

    def _receive(self) -> None:
        message = self._connection.recv()
        if isinstance(message, Job):
            self._jobs.append(message)
        else:
            assert isinstance(message, Free)
            self._free.append(message.slot)

    def _take_slot(self) -> int:
        begin = time.perf_counter()
        while not self._free:
            self._receive()
        self._waited += time.perf_counter() - begin
        return self._free.popleft()

    def _do(self, job: Job) -> None:
        self._waited = 0.0
        begin = time.perf_counter()
        height, width = self._how.size(job.files.header)
        n = height * width
        whole = job.n_samples == 0 and (job.first, job.last) == (0, n) and n * self._layout.pixel_bytes <= self._slot_bytes
        slot = self._take_slot() if whole else -1
        try:
            target = np.frombuffer(self._slots[slot], np.uint32, n) if whole else self._scratch_of(n)
            alpha = decode_photograph(job.files, self._how, target.view(np.uint8).reshape(height, width, 4))
            depth = self._depth(job, n)
        except BaseException:
            if whole:
                self._free.append(slot)
            raise
        seconds = time.perf_counter() - begin - self._waited
        if whole:
            self._send(job, slot, 0, n, None, None, depth)
        else:
            self._send_selected(job, target, depth)
        self._connection.send(Done(job.view, alpha.n_masked, seconds, self._waited))

    def _depth(self, job: Job, n: int) -> Array | None:
        if not self._layout.has_depth:
            return None
        return decode_depth_map(job.files, self._how).reshape(-1) if job.files.side_files.depth else np.zeros(n, np.float16)

    def _send_selected(self, job: Job, colours: Array, depth: Array | None) -> None:
        """The pixels that the job asks for, in pieces of a slot."""
        places = sample_places(job) if job.n_samples else None
        n, capacity = job.n_samples or job.last - job.first, self._slot_bytes // self._layout.pixel_bytes
        for first in range(0, n, capacity):
            count = min(capacity, n - first)
            wanted = places[first : first + count] if places is not None else slice(job.first + first, job.first + first + count)
            self._send(job, self._take_slot(), first, count, colours[wanted], wanted, depth[wanted] if depth is not None else None)

    def _send(self, job: Job, slot: int, first: int, n: int, colours: Array | None, places: Array | slice | None, depth: Array | None) -> None:
        """Announces a slot, after writing what is not in it yet (colours: None: they are)."""
        planes = self._layout.planes(self._slots[slot], n)
        for plane, values in zip(planes, (colours, places, depth)):
            if plane is not None and values is not None:
                plane[:] = values
        self._connection.send(Piece(job.view, slot, first, n))

    def _scratch_of(self, n: int) -> Array:
        if len(self._scratch) < n:
            self._scratch = np.empty(n, np.uint32)
        return self._scratch[:n]


def main(descriptor: int) -> None:
    os.nice(NICENESS)
    try:
        Worker(Connection(descriptor)).run()
    except (EOFError, ConnectionError):  # the training process is gone, or needs no more
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
