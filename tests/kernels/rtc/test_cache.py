"""The cubin cache: whole files or none, keys that see every change, one process that compiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nerfleet.kernels.rtc import cache, source

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NERFLEET_CACHE", str(tmp_path / "cubins"))
    return tmp_path / "cubins"


class Maker:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return b"machine code"


def test_made_once(folder: Path) -> None:
    make = Maker()
    assert [cache.cached("k", "a" * 64, make) for _ in range(3)] == [b"machine code"] * 3
    assert make.calls == 1
    assert len(list(folder.glob("*.cubin"))) == 1
    assert cache.cached("k", "b" * 64, make) == b"machine code"
    assert make.calls == 2


WHOLE = cache.pack(b"machine code")


@pytest.mark.parametrize("damage", [b"", b"nerfleet", WHOLE[:-1], WHOLE[:-1] + b"x", b"x" + WHOLE])
def test_damage_is_found_and_mended(damage: bytes, folder: Path) -> None:
    make = Maker()
    cache.cached("k", "a" * 64, make)
    (file,) = folder.glob("*.cubin")
    file.write_bytes(damage)
    assert cache.cached("k", "a" * 64, make) == b"machine code"
    assert make.calls == 2
    assert cache.unpack(file.read_bytes()) == b"machine code"


def test_a_failure_leaves_nothing(folder: Path) -> None:
    def fail() -> bytes:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.cached("k", "a" * 64, fail)
    assert list(folder.glob("*.cubin")) == []
    assert cache.cached("k", "a" * 64, Maker()) == b"machine code"  # the lock was released


def test_key_sees_every_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = tmp_path / "include"
    include.mkdir()
    monkeypatch.setattr(source, "INCLUDE_FOLDER", include)
    path, inner, outer = tmp_path / "k.cu", include / "inner.cuh", include / "outer.cuh"
    texts = {path: '#include "outer.cuh"\n', outer: '#include "inner.cuh"\n', inner: "int a;\n"}

    def key(defines: tuple[tuple[str, int], ...] = (("N", 1),), architecture: str = "sm_90", compiler: tuple[int, int] = (13, 0)) -> str:
        for file, text in texts.items():
            file.write_text(text)
        source.read.cache_clear()
        source.headers.cache_clear()
        return cache.key(path, defines, architecture, compiler)

    first = key()
    assert key() == first
    changed = [key(defines=(("N", 2),)), key(defines=()), key(architecture="sm_80"), key(compiler=(13, 1))]
    for file in list(texts):
        before, texts[file] = texts[file], texts[file] + "// more\n"
        changed.append(key())
        texts[file] = before
    assert len({first, *changed}) == len(changed) + 1
    source.read.cache_clear()
    source.headers.cache_clear()


def test_one_process_makes_it_and_others_wait(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = f"""
import time
from nerfleet.kernels.rtc import cache
def make():
    with open({str(log)!r}, "a") as file: file.write("made ")
    time.sleep(0.5)
    return b"x" * 100000
assert cache.cached("k", "a" * 64, make) == b"x" * 100000
"""
    environment = {"PYTHONPATH": str(REPOSITORY / "src"), "NERFLEET_CACHE": str(folder), "PATH": "/usr/bin", "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert log.read_text() == "made "


@pytest.mark.skipif(sys.platform == "win32", reason="permissions work differently there")
def test_a_folder_that_cannot_be_written_is_said(folder: Path) -> None:
    folder.write_text("a file, not a folder")
    with pytest.warns(UserWarning, match="set NERFLEET_CACHE"):
        assert cache.cached("k", "a" * 64, Maker()) == b"machine code"
