"""Dispatch, one-line errors and exit codes of the command line."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from nerfleet.cli import main as cli
from nerfleet.errors import NerfleetError


@dataclass(frozen=True)
class Arguments:
    """Train something.

    Examples:
        nerfleet fake --steps 3

    Attributes:
        steps: number of steps.
    """

    steps: int = 1
    device: Literal["cpu", "cuda"] = "cpu"


Runner = Callable[[Arguments], None]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Runner], None]:
    """Installs ``run`` as the one verb, ``fake``."""

    def install(run: Runner) -> None:
        module = types.ModuleType("nerfleet.cli.fake")
        module.Arguments, module.run = Arguments, run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "nerfleet.cli.fake", module)
        monkeypatch.setattr(cli, "VERBS", {"fake": "train something"})

    return install


def test_flags_reach_the_verb(verb: Callable[[Runner], None]) -> None:
    seen: list[Arguments] = []
    verb(seen.append)
    assert cli.main(["fake", "--steps", "3"]) == 0
    assert seen == [Arguments(steps=3)]


@pytest.mark.parametrize(
    "words, expected",
    [
        ([], "no verb given"),
        (["fkae"], "unknown verb `fkae`: did you mean `fake`?"),
        (["zzz"], "unknown verb `zzz`: see `nerfleet --help`"),
        (["fake", "--stpes", "3"], "--stpes, 3: did you mean `--steps INT`?"),
        (["fake", "--steps", "many"], "--steps: invalid literal"),
        (["fake", "--steps"], "Missing value for argument '--steps'"),
        (["fake", "--device", "tpu"], "invalid choice 'tpu' for argument '--device'"),
        (["fake", "more"], "Unrecognized options: more: see `nerfleet fake --help`"),
    ],
)
def test_bad_requests_are_one_line(
    words: list[str], expected: str, verb: Callable[[Runner], None], capsys: pytest.CaptureFixture[str]
) -> None:
    verb(lambda arguments: pytest.fail("ran"))
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nerfleet: error: ")
    assert expected in err
    assert err.count("\n") == 1


def raising(error: BaseException) -> Runner:
    def run(arguments: Arguments) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    "error, code, message",
    [
        (NerfleetError("a.json", "no frames", "add\nsome"), 2, "nerfleet: error: a.json: no frames: add some\n"),
        (FileNotFoundError(2, "No such file", "/nowhere"), 2, "nerfleet: error: /nowhere: No such file\n"),
        (OSError(28, "No space left on device"), 2, "nerfleet: error: output: No space left on device\n"),
        (KeyboardInterrupt(), 130, "nerfleet: interrupted\n"),
        (ValueError("two\nlines"), 1, "nerfleet: internal error: ValueError: two lines (`--debug` shows where)\n"),
    ],
)
def test_failures_are_one_line(
    error: BaseException, code: int, message: str, verb: Callable[[Runner], None], capsys: pytest.CaptureFixture[str]
) -> None:
    verb(raising(error))
    assert cli.main(["fake"]) == code
    assert capsys.readouterr() == ("", message)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "nerfleet", "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "nerfleet: error: output: No space left on device\n")


def test_closed_streams_are_nothing_to_stumble_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert cli.main(["--help"]) == 0
    assert cli.main(["nonsense"]) == 2
    sys.stdout.close()
    sys.stderr.close()


def test_debug_shows_the_traceback(verb: Callable[[Runner], None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(raising(NerfleetError("a.json", "no frames")))
    assert cli.main(["fake", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.endswith("nerfleet: error: a.json: no frames\n")


def test_help_of_a_verb_keeps_its_examples(verb: Callable[[Runner], None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(lambda arguments: None)
    with pytest.raises(SystemExit) as stop:
        cli.main(["fake", "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "nerfleet fake --steps 3" in out
    assert "Attributes" not in out
    assert "number of steps" in out


def test_help_lists_the_verbs(verb: Callable[[Runner], None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(lambda arguments: None)
    assert cli.main(["--help"]) == 0
    assert "  fake  train something\n" in capsys.readouterr().out


def test_python_m_nerfleet_is_the_same_and_imports_little() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "nerfleet", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == cli.help_text() + "\n"
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "nerfleet.cli.main" in loaded
    assert not loaded & {"torch", "tyro", "numba", "rich"}


def test_every_verb_has_a_module() -> None:
    modules = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    assert set(cli.VERBS) <= modules - {"__init__", "main"}


@pytest.mark.parametrize("name", list(cli.VERBS))
def test_help_of_every_verb(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"nerfleet.cli.{name}").SUMMARY == cli.VERBS[name]
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    assert f"nerfleet {name} " in capsys.readouterr().out.split("Examples:")[1]
