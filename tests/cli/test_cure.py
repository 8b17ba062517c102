"""Every failed start of a training points to the doctor; nothing else does."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from nerfleet.cli import main as cli
from nerfleet.errors import NerfleetError


@dataclass(frozen=True)
class Arguments:
    """Nothing."""


def fail(error: BaseException) -> Callable[[Arguments], None]:
    def run(_: Arguments) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    "error, points",
    [
        (NerfleetError("scene", "is not there"), True),
        (RuntimeError("CUDA error"), True),
        (FileNotFoundError(2, "No such file", "x"), True),
        (SystemExit(2), True),  # the launcher, after its ranks have said why
        (SystemExit(0), False),
        (SystemExit(143), False),
        (KeyboardInterrupt(), False),
    ],
)
@pytest.mark.parametrize("verb", ["train", "render"])
def test_who_points_to_the_doctor(error: BaseException, points: bool, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = types.ModuleType(f"nerfleet.cli.{verb}")
    module.Arguments, module.run = Arguments, fail(error)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, f"nerfleet.cli.{verb}", module)
    try:
        cli.main([verb])
    except SystemExit:
        assert isinstance(error, SystemExit)
    err = capsys.readouterr().err
    assert ("`nerfleet doctor`" in err) == (points and verb == "train")
    assert err.count("\n") == (0 if isinstance(error, SystemExit) and "doctor" not in err else 1)
