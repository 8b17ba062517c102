"""A run folder belongs to one training at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nerfleet.errors import NerfleetError
from nerfleet.train.run_lock import run_lock

pytest.importorskip("fcntl", reason="Windows has no flock")
HOLD = """
import sys, pathlib
from nerfleet.train.run_lock import run_lock
with run_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_told(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(NerfleetError) as error, run_lock(tmp_path):
            pass
        other.kill()
    assert str(error.value) == f"{tmp_path}: another process trains in it: wait for its end, or choose another --out"
    with run_lock(tmp_path):  # a killed process leaves nothing behind
        assert list(tmp_path.iterdir()) == []


def test_it_is_let_go_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), run_lock(tmp_path):
        raise ValueError("mine")
    with run_lock(tmp_path), pytest.raises(NerfleetError), run_lock(tmp_path):
        pass
