"""Hosts to examine: addresses of the loopback interface, and others that are played by a listener with a fault."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from nerfleet.cli.main import main
from nerfleet.doctor.check import Check


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def doctor(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Check]]:
    """(exit code, name -> check) of ``nerfleet doctor --json``."""
    capsys.readouterr()
    try:
        code = main(["doctor", *map(str, words), "--json"])
    except SystemExit as stop:
        code = int(stop.code or 0)
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    for check in answer["checks"]:
        assert set(check) >= {"name", "status", "found", "remedy"}
        assert check["remedy"] or check["status"] in ("ok", "skip"), check
    return code, {check["name"]: Check(**check) for check in answer["checks"]}
