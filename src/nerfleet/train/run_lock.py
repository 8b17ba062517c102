"""One training at a time in a run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from nerfleet.errors import NerfleetError


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Holds an existing folder for this process; the system lets go of it when the process ends, however it does.

    Nothing is written. Without effect on Windows, and on file systems that have no locks.

    Raises:
        NerfleetError: another process holds the folder.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NerfleetError(str(folder), "another process trains in it", "wait for its end, or choose another --out") from None
        except OSError:  # a network file system without locks
            pass
        yield
    finally:
        os.close(descriptor)
