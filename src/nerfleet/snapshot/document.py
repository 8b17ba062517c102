"""Snapshot files as plain maps: MessagePack, compressed in ``.ingp``, bare in ``.msgpack``. Nothing here knows a key."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import msgpack

from nerfleet.errors import NerfleetError

MAX_BYTES = 16 << 30
"""Size of an unpacked snapshot that is still read, where a third of the memory is not less."""
SUFFIXES = (".ingp", ".msgpack")
_MAX_LIST = 1 << 20
_READ_BYTES = 1 << 20


def read_document(path: Path) -> dict[str, Any]:
    """The map of a snapshot file.

    Raises:
        NerfleetError: not a file, damaged, cut, or too large.
    """
    if path.is_dir():
        raise NerfleetError(str(path), "is a folder", "name an .ingp or .msgpack file")
    if path.exists() and not path.is_file():
        raise NerfleetError(str(path), "is not a plain file", "name an .ingp or .msgpack file")
    try:
        data: bytes | bytearray = _read_plain(path) if path.suffix.lower() == ".msgpack" else _read_compressed(path)
        limits = {"max_bin_len": MAX_BYTES, "max_array_len": _MAX_LIST, "max_map_len": _MAX_LIST}
        document = msgpack.unpackb(data, strict_map_key=False, **limits)
    except OSError as error:
        raise NerfleetError(str(path), error.strerror or "cannot be read", "name an .ingp or .msgpack file") from None
    except MemoryError:
        raise NerfleetError(str(path), "does not fit the memory", "use a machine with more") from None
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise NerfleetError(str(path), f"is not a whole snapshot ({str(error) or 'incomplete'})", "copy the file again") from None
    if not isinstance(document, dict):
        raise NerfleetError(str(path), "is not a snapshot (no map at its top)", "name an .ingp or .msgpack file")
    return document


def _read_plain(path: Path) -> bytes:
    _check_size(path, path.stat().st_size)
    return path.read_bytes()


def _read_compressed(path: Path) -> bytearray:
    """gzip or zlib, in pieces, so that a small file which unpacks to a huge one is noticed in time."""
    unpacker = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    plain = bytearray()
    with path.open("rb") as file:
        while not unpacker.eof and (piece := file.read(_READ_BYTES)):
            while piece and not unpacker.eof:
                try:
                    plain += unpacker.decompress(piece, 64 * _READ_BYTES)
                except zlib.error:
                    remedy = "copy the file again, or rename it to .msgpack if it is not compressed"
                    raise NerfleetError(str(path), "is not compressed as .ingp files are, or is damaged", remedy) from None
                _check_size(path, len(plain))
                piece = unpacker.unconsumed_tail
    if not unpacker.eof:
        raise NerfleetError(str(path), "is truncated", "copy the file again")
    return plain


def _check_size(path: Path, n_bytes: int) -> None:
    limit = MAX_BYTES
    if hasattr(os, "sysconf"):
        limit = min(limit, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3)
    if n_bytes > limit:
        raise NerfleetError(str(path), f"is larger than {limit / 1e9:.1f} GB unpacked", "use a machine with more memory")


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write a snapshot map; the extension decides about compression. The file appears whole or not at all.

    Raises:
        NerfleetError: another extension, a folder of that name, or a place that cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise NerfleetError(str(path), "is neither an .ingp nor a .msgpack file", "choose one of these extensions")
    if path.is_dir():
        raise NerfleetError(str(path), "is a folder", "choose another name")
    data = pack(document)
    if path.suffix.lower() == ".ingp":
        data = gzip.compress(data, compresslevel=4, mtime=0)
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        _remove(temporary)
        raise NerfleetError(str(path), error.strerror or "cannot be written", "choose another place") from None


def _remove(temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    except OSError:  # its folder is not one, or may not be written: nothing was left there
        return


def pack(document: dict[str, Any]) -> bytes:
    """MessagePack as instant-ngp writes it: a float is single where that loses nothing, else double."""
    parts: list[bytes] = []
    _pack_into(parts, msgpack.Packer(), document)
    return b"".join(parts)


def _pack_into(parts: list[bytes], packer: Any, value: Any) -> None:
    if isinstance(value, float):
        parts.append(_pack_float(value))
    elif isinstance(value, dict):
        parts.append(packer.pack_map_header(len(value)))
        for key, entry in value.items():
            parts.append(packer.pack(key))
            _pack_into(parts, packer, entry)
    elif isinstance(value, list | tuple):
        parts.append(packer.pack_array_header(len(value)))
        for entry in value:
            _pack_into(parts, packer, entry)
    else:
        parts.append(packer.pack(value))


def _pack_float(value: float) -> bytes:
    try:
        single = struct.pack(">f", value)
    except OverflowError:
        return b"\xcb" + struct.pack(">d", value)
    is_exact = abs(value) != float("inf") and struct.unpack(">f", single)[0] == value
    return b"\xca" + single if is_exact else b"\xcb" + struct.pack(">d", value)
