"""Shared memory that never outlives its processes: created, attached to, and unlinked as soon as the other side has attached.

From then on the memory has no name: the last process that ends frees it, however it ends. A segment whose creator was killed in
the short time before is removed by Python's resource tracker or, if that was killed too, by the next run (:func:`remove_stale`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from nerfleet.errors import NerfleetError

FOLDER = Path("/dev/shm")
"""Where Linux shows shared memory as files."""
_PREFIX = "nerfleet"


class Segment:
    """Shared memory that this process created."""

    def __init__(self, n_bytes: int) -> None:
        """Raises: NerfleetError: there is not that much shared memory."""
        self.n_bytes = n_bytes
        try:
            self._memory = SharedMemory(f"{_PREFIX}-{os.getpid()}-{secrets.token_hex(4)}", create=True, size=n_bytes)
        except OSError as error:
            raise _too_small(n_bytes, error.strerror or "refused") from None
        self._linked = True
        try:
            _reserve(self._memory.name, n_bytes)
        except OSError as error:
            self.close()
            raise _too_small(n_bytes, error.strerror or "refused") from None

    @property
    def name(self) -> str:
        return self._memory.name

    @property
    def buffer(self) -> memoryview:
        assert self._memory.buf is not None
        return self._memory.buf

    def unlink(self) -> None:
        """Takes the name away; the memory stays with those who have it."""
        if self._linked:
            self._linked = False
            with contextlib.suppress(FileNotFoundError):
                self._memory.unlink()

    def close(self) -> None:
        self.unlink()
        with contextlib.suppress(BufferError):  # arrays that still look at it keep it until they are gone
            self._memory.close()


def attach(name: str) -> SharedMemory:
    """Another process's segment, for this process's whole life. Its creator alone unlinks it, so it is not tracked here."""
    if sys.version_info >= (3, 13):
        return SharedMemory(name, track=False)
    register, resource_tracker.register = resource_tracker.register, lambda *_: None
    try:
        return SharedMemory(name)
    finally:
        resource_tracker.register = register


def free_bytes() -> int | None:
    """Shared memory that is left; None where the system does not say."""
    try:
        stats = os.statvfs(FOLDER)
    except (OSError, AttributeError):
        return None
    return stats.f_bavail * stats.f_frsize


def check_room(n_bytes: int, what: str) -> None:
    """Raises NerfleetError, with the size that is needed, if shared memory is too small for ``what``."""
    free = free_bytes()
    if free is not None and n_bytes > free:
        raise _too_small(n_bytes, f"{free / 1e6:.0f} MB are free", what)


def remove_stale() -> list[str]:
    """Removes segments whose creators are gone -> their names."""
    removed = []
    for path in FOLDER.glob(f"{_PREFIX}-*") if FOLDER.is_dir() else ():
        pid = path.name.split("-")[1]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path.name)
    return removed


def _reserve(name: str, n_bytes: int) -> None:
    """Takes the memory now: where there is none, writing to it later would kill the process."""
    path = FOLDER / name
    if hasattr(os, "posix_fallocate") and path.exists():
        file = os.open(path, os.O_RDWR)
        try:
            os.posix_fallocate(file, 0, n_bytes)
        finally:
            os.close(file)


def _too_small(n_bytes: int, found: str, what: str = "the image workers") -> NerfleetError:
    need = f"{what} need {n_bytes / 1e6:.0f} MB of shared memory, {found}"
    return NerfleetError(str(FOLDER), need, "enlarge it (docker run --shm-size=1g), free some, or use fewer --image-workers")
