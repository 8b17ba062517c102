"""Compiled programs on disk: self-checking files, written to a temporary name and renamed; one process compiles, others wait."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from nerfleet.kernels.rtc.compile import STANDARD, Defines, generated_header
from nerfleet.kernels.rtc.source import headers, read

MAGIC = b"nerfleet cubin 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size


def folder() -> Path:
    """NERFLEET_CACHE, else the platform's place for caches."""
    if chosen := os.environ.get("NERFLEET_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "nerfleet" / "cubins"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nerfleet" / "cubins"


def key(path: Path, defines: Defines, architecture: str, compiler: tuple[int, int]) -> str:
    """Digest of everything that the machine code depends on: source, headers, options, architecture, compiler."""
    digest = hashlib.sha256()
    parts = [generated_header(defines), architecture, STANDARD, repr(compiler)]
    for file in (path, *headers(path)):
        parts += [file.name, read(file)]
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def pack(payload: bytes) -> bytes:
    return MAGIC + hashlib.sha256(payload).digest() + payload


def unpack(data: bytes) -> bytes | None:
    """The payload, or None where the file is not whole."""
    start = len(MAGIC) + _DIGEST_BYTES
    payload = data[start:]
    whole = len(data) >= start and data.startswith(MAGIC) and hashlib.sha256(payload).digest() == data[len(MAGIC) : start]
    return payload if whole else None


def _read(file: Path) -> bytes | None:
    try:
        return unpack(file.read_bytes())
    except OSError:
        return None


def cached(name: str, digest: str, make: Callable[[], bytes]) -> bytes:
    """The payload stored under (name, digest); made and stored if it is missing or damaged.

    A folder that cannot be written gives a warning, and the payload is made every time.
    """
    file = folder() / f"{name}-{digest[:32]}.cubin"
    payload = _read(file)
    if payload is not None:
        return payload
    from filelock import FileLock

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file.with_suffix(".lock"))
        lock.acquire()
    except OSError as error:
        warnings.warn(f"compiled kernels cannot be kept in {file.parent} ({error}): set NERFLEET_CACHE", stacklevel=2)
        return make()
    try:
        payload = _read(file)
        if payload is None:
            payload = make()
            temporary = file.with_suffix(f".{os.getpid()}")
            temporary.write_bytes(pack(payload))
            os.replace(temporary, file)
        return payload
    finally:
        lock.release()
