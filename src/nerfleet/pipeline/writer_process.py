"""The writing process: ``python -m nerfleet.pipeline.writer_process FD``. It ends when the other end of its socket is closed."""

from __future__ import annotations

import os
import pickle
import sys
from multiprocessing.connection import Connection

import numpy as np

from nerfleet.data.images import Array
from nerfleet.pipeline.messages import Filled, Finished, Free, Opened, OpenWriter, Raised, Task
from nerfleet.pipeline.segment import attach
from nerfleet.pipeline.worker import NICENESS


class WritingProcess:
    """Calls the functions that it is sent, one after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        opening = connection.recv()
        assert isinstance(opening, OpenWriter)
        self._slot_bytes = opening.slot_bytes
        self._memory = attach(opening.segment)
        connection.send(Opened())

    def run(self) -> None:
        """Until there is no more to do."""
        while (message := self._connection.recv()) is not None:
            assert isinstance(message, Task)
            arrays = {name: self._receive(shape, dtype) for name, shape, dtype in message.arrays}
            self._connection.send(_outcome(message, arrays))

    def _receive(self, shape: tuple[int, ...], dtype: str) -> Array:
        array = np.empty(shape, dtype)
        data, begin = array.reshape(-1).view(np.uint8), 0
        buffer = self._memory.buf
        assert buffer is not None
        while begin < len(data):
            message = self._connection.recv()
            assert isinstance(message, Filled)
            data[begin : begin + message.n_bytes] = np.frombuffer(buffer, np.uint8, message.n_bytes, message.slot * self._slot_bytes)
            begin += message.n_bytes
            self._connection.send(Free(message.slot))
        return array


def _outcome(task: Task, arrays: dict[str, Array]) -> Finished | Raised:
    try:
        return Finished(task.number, task.function(*task.arguments, **arrays))
    except Exception as error:  # whatever it is, the process that asked is told
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return Raised(task.number, RuntimeError(f"{type(error).__name__}: {error}"))
        return Raised(task.number, error)


def main(descriptor: int) -> None:
    os.nice(NICENESS)
    try:
        WritingProcess(Connection(descriptor)).run()
    except (EOFError, ConnectionError):  # the training process is gone
        pass
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
