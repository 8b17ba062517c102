"""A process that writes what training makes (checkpoints, pictures, later video and meshes), so that the GPU never waits for a disk.

``submit`` copies the tensors on their own device and returns; a thread brings the copies piece by piece through a ring of shared
memory to the process, which calls the function there.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from subprocess import Popen, TimeoutExpired
from typing import Any

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.pipeline.loader import MIB, Pin, ending, start_process
from nerfleet.pipeline.messages import Filled, Finished, Free, OpenWriter, Raised, Task
from nerfleet.pipeline.segment import Segment, check_room, free_bytes, remove_stale

SLOT_BYTES, N_SLOTS = 4 * MIB, 4
MAX_PENDING = 8
"""Tasks that may wait, with copies of their tensors; another one waits in ``submit``."""
MAX_STARTS = 4
END_SECONDS = 30.0
_DTYPES = {
    torch.float32: "f4", torch.float16: "f2", torch.float64: "f8", torch.int64: "i8", torch.int32: "i4", torch.int16: "i2", torch.uint8: "u1", torch.bool: "?",
}  # fmt: skip


class WriterLost(ChildProcessError):
    """The process is gone, and with it what it had not finished."""


@dataclass(frozen=True)
class _Submitted:
    task: Task
    tensors: list[Tensor]
    ready: torch.cuda.Event | None


class Writer:
    """One writing process. A process that is lost is replaced with the next task; the futures of its tasks raise :class:`WriterLost`."""

    def __init__(self, say: Callable[[str], None], pin: Pin | None = None) -> None:
        """Args: say: hears of lost processes. pin: for tensors on a GPU (:func:`nerfleet.pipeline.uploads.pin`).

        Raises:
            NerfleetError: shared memory is too small.
        """
        remove_stale()
        free = free_bytes()
        self._slot_bytes = SLOT_BYTES if free is None or free > 2 * SLOT_BYTES * N_SLOTS else SLOT_BYTES // 16
        check_room(self._slot_bytes * N_SLOTS, "the writing process")
        self._say, self._pin = say, pin
        self._room = threading.Semaphore(MAX_PENDING)
        self._number, self._starts = 0, 0
        self._process: _Process | None = None

    def submit(self, function: Callable[..., Any], tensors: Mapping[str, Tensor], *arguments: Any) -> Future[Any]:
        """Calls ``function(*arguments, **arrays)`` in the writing process, later; tensors arrive as numpy arrays.

        Args:
            function: of a module, by name; it, its arguments and its result travel as pickles.
            tensors: copied before this returns; they may be changed right after.

        Returns:
            Its result, or what it raised, or :class:`WriterLost`.

        Raises:
            NerfleetError: the process is lost again and again.
        """
        self._room.acquire()
        process = self._alive()
        copies = [tensor.detach().clone() for tensor in tensors.values()]
        on_gpu = next((copy.device for copy in copies if copy.device.type == "cuda"), None)
        ready = torch.cuda.Event() if on_gpu is not None else None
        if ready is not None:
            ready.record(torch.cuda.current_stream(on_gpu))
        self._number += 1
        arrays = tuple((name, tuple(copy.shape), _DTYPES[copy.dtype]) for name, copy in zip(tensors, copies))
        future: Future[Any] = Future()
        future.add_done_callback(lambda _: self._room.release())
        process.put(_Submitted(Task(self._number, function, arguments, arrays), copies, ready), future)
        return future

    @property
    def pid(self) -> int | None:
        """Of the process, if it runs."""
        return self._process.popen.pid if self._process is not None and not self._process.lost else None

    def close(self) -> None:
        """Waits until everything is written, then ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _alive(self) -> _Process:
        if self._process is None or self._process.lost:
            if self._process is not None:
                self._process.close()
            self._starts += 1
            if self._starts > MAX_STARTS:
                raise NerfleetError("writing process", f"was lost {MAX_STARTS} times", "memory may be short, or the disk unreachable")
            self._process = _Process(self._slot_bytes, self._say, self._pin)
        return self._process


class _Process:
    """The process, its ring, and the two threads that serve it."""

    def __init__(self, slot_bytes: int, say: Callable[[str], None], pin: Pin | None) -> None:
        self._slot_bytes, self._say = slot_bytes, say
        self._segment = Segment(slot_bytes * N_SLOTS)
        ours, theirs = multiprocessing.Pipe()
        self._connection: Connection = ours
        self.popen: Popen = start_process("nerfleet.pipeline.writer_process", theirs)
        self._unpin = pin(self._segment.buffer) if pin else lambda: None
        self.lost = False
        self._closing = False
        self._futures: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[_Submitted | None] = queue.SimpleQueue()
        self._free: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        for slot in range(N_SLOTS):
            self._free.put(slot)
        self._connection.send(OpenWriter(self._segment.name, slot_bytes, N_SLOTS))
        self._threads = [threading.Thread(target=target, daemon=True, name="writer") for target in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def put(self, submitted: _Submitted, future: Future[Any]) -> None:
        with self._lock:
            if not self.lost:
                self._futures[submitted.task.number] = future
        if self.lost:
            future.set_exception(WriterLost("the writing process is gone"))
        else:
            self._tasks.put(submitted)

    def close(self) -> None:
        self._closing = True
        self._tasks.put(None)
        self._threads[0].join()
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._threads[1].join()
        try:
            self.popen.wait(END_SECONDS)
        except TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self._unpin()
        self._connection.close()
        self._segment.close()

    def _send(self) -> None:
        """A thread: tasks and their arrays, piece by piece, as slots become free."""
        with contextlib.suppress(OSError, EOFError):
            while (submitted := self._tasks.get()) is not None:
                self._connection.send(submitted.task)
                for tensor in submitted.tensors:
                    for slot, n in self._pieces(tensor, submitted.ready):
                        self._connection.send(Filled(slot, n))

    def _pieces(self, tensor: Tensor, ready: torch.cuda.Event | None) -> Iterator[tuple[int, int]]:
        """Fills free slots with the tensor's bytes -> (slot, bytes in it)."""
        data = tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
        stream = torch.cuda.Stream(tensor.device) if ready is not None and tensor.device.type == "cuda" else None
        for begin in range(0, len(data), self._slot_bytes):
            slot = self._free.get()
            if slot is None:
                raise EOFError
            piece = data[begin : begin + self._slot_bytes]
            at = slot * self._slot_bytes
            target = torch.frombuffer(self._segment.buffer, dtype=torch.uint8, count=len(piece), offset=at)
            if stream is None or ready is None:
                target.copy_(piece)
            else:
                with torch.cuda.stream(stream):
                    stream.wait_event(ready)
                    target.copy_(piece, non_blocking=True)
                stream.synchronize()
            yield slot, len(piece)

    def _receive(self) -> None:
        """A thread: free slots and results; at the end, whatever is unfinished is lost."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = self._connection.recv()
                if isinstance(message, Free):
                    self._segment.unlink()
                    self._free.put(message.slot)
                elif isinstance(message, Finished | Raised):
                    with self._lock:
                        future = self._futures.pop(message.number)
                    if isinstance(message, Finished):
                        future.set_result(message.result)
                    else:
                        future.set_exception(message.error)
                else:
                    self._segment.unlink()
        with self._lock:
            self.lost = True
            unfinished, self._futures = self._futures, {}
        self._free.put(None)
        if not self._closing or unfinished:
            why = f"the writing process was lost ({ending(self.popen)})"
            self._say(f"{why}; what it was writing is dropped")
            for future in unfinished.values():
                future.set_exception(WriterLost(why))
