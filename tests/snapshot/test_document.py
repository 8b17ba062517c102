"""Snapshot files as bytes: compression, single and double floats, damage."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from nerfleet.errors import NerfleetError
from nerfleet.snapshot import document as module
from nerfleet.snapshot.document import pack, read_document, write_document

DOCUMENT: dict[str, Any] = {
    "half": 0.5,
    "decay": 0.95,
    "single": float(np.float32(0.33)),
    "huge": 1e300,
    "boxes": {"max": [-math.inf] * 3, "min": [math.inf] * 3},
    "blob": bytes(range(256)),
    "none": None,
    "yes": True,
    "count": 3,
    "name": "ü",
    "empty": [],
}


def test_floats_are_single_where_that_loses_nothing() -> None:
    assert pack({"x": 0.5}) == b"\x81\xa1x\xca\x3f\x00\x00\x00"
    assert pack({"x": 0.95})[3] == 0xCB
    assert pack({"x": float(np.float32(0.33))})[3] == 0xCA
    assert pack({"x": math.inf})[3] == pack({"x": math.nan})[3] == 0xCB


@pytest.mark.parametrize("name", ["a.ingp", "a.msgpack"])
def test_round_trip(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / name
    write_document(path, DOCUMENT)
    assert read_document(path) == DOCUMENT
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith("ingp")
    assert [p.name for p in path.parent.iterdir()] == [name]


def test_zlib_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "a.ingp"
    path.write_bytes(zlib.compress(pack(DOCUMENT)))
    assert read_document(path) == DOCUMENT



@pytest.mark.parametrize(
    "data, expected",
    [
        (gzip.compress(pack(DOCUMENT))[:-100], "is truncated"),
        (b"", "is truncated"),
        (pack(DOCUMENT), "is not compressed as .ingp files are"),
        (gzip.compress(pack(DOCUMENT)[:-50]), "is not a whole snapshot"),
        (gzip.compress(pack(DOCUMENT) + b"\x00"), "is not a whole snapshot"),
        (gzip.compress(b"\x93\x01\x02\x03"), "no map at its top"),
        (gzip.compress(b"\xdd\xff\xff\xff\xff"), "is not a whole snapshot"),  # claims 2^32 - 1 entries
        (gzip.compress(b"\x81\xa1x\xc6\xff\xff\xff\xff"), "is not a whole snapshot"),  # claims 4 GB
        (gzip.compress(b"\x91" * 5000 + b"\x01"), "is not a whole snapshot"),
    ],
)
def test_damage_is_one_line_that_names_the_file(data: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.ingp"
    path.write_bytes(data)
    with pytest.raises(NerfleetError) as error:
        read_document(path)
    assert expected in str(error.value)
    assert "broken.ingp" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_bomb_is_noticed_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.ingp"
    path.write_bytes(gzip.compress(bytes(200 << 20), compresslevel=1))
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    with pytest.raises(NerfleetError, match="is larger than"):
        read_document(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NerfleetError, match="is a folder"):
        read_document(tmp_path)
    with pytest.raises(NerfleetError, match="No such file"):
        read_document(tmp_path / "missing.ingp")
    with pytest.raises(NerfleetError, match="is not a plain file"):
        read_document(Path("/dev/null"))


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.ingp").mkdir()
    for path, expected in (
        (tmp_path / "a.json", "neither an .ingp nor a .msgpack"),
        (tmp_path / "folder.ingp", "is a folder"),
        (tmp_path / "file" / "a.ingp", "file"),
    ):
        with pytest.raises(NerfleetError, match=expected):
            write_document(path, DOCUMENT)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder.ingp"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.msgpack"
    write_document(path, DOCUMENT)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "replace", full)
    with pytest.raises(NerfleetError, match="No space left on device"):
        write_document(path, {"other": 1})
    assert msgpack.unpackb(path.read_bytes())["count"] == 3
    assert [p.name for p in tmp_path.iterdir()] == ["a.msgpack"]
