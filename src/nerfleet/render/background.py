"""Work that goes on in threads while the next item is being made: writing files, encoding video, sending frames."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Background(Generic[Item]):
    """Hands items to ``consume`` in other threads; at most ``capacity`` wait, then :meth:`put` does.

    One thread keeps the order. An error of ``consume`` is raised by the next :meth:`put` or at the end of the block; after an error in
    the block itself, items that still wait are dropped.

    Example:
        with Background(encoder.write) as frames:
            for frame in rendered:
                frames.put(frame)
    """

    def __init__(self, consume: Callable[[Item], object], n_threads: int = 1, capacity: int = 4) -> None:
        self._consume = consume
        self._queue: queue.Queue[Item | None] = queue.Queue(capacity)
        self._error: BaseException | None = None
        self._dropping = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(n_threads)]

    def __enter__(self) -> Background[Item]:
        for thread in self._threads:
            thread.start()
        return self

    def put(self, item: Item) -> None:
        """Waits while the queue is full. Raises what ``consume`` raised."""
        self._raise()
        self._queue.put(item)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._dropping.set()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        if error is None:
            self._raise()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._dropping.is_set():
                continue
            try:
                self._consume(item)
            except BaseException as error:
                self._error = self._error or error
                self._dropping.set()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
