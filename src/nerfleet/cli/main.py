"""Finds the verb, parses its flags, and turns failures into one line and an exit code.

Only the module of the verb that was asked for is imported, so ``nerfleet --help`` answers at once.

Exit codes: 0 done, 1 a defect of nerfleet itself, 2 bad input or a bad request, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import importlib.metadata
import inspect
import io
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from nerfleet.errors import NerfleetError

VERBS: dict[str, str] = {
    "demo": "built-in scene -> training -> pictures and report",
    "train": "train a radiance field on a scene; resumes by itself",
    "eval": "PSNR and SSIM of a model on a scene's photographs",
    "render": "pictures, depth maps or video of a model",
    "mesh": "a model as a textured mesh or point cloud",
    "info": "what a scene or a model holds",
    "convert": "a model to .ingp or .msgpack",
    "plan": "which GPUs and strategy, how long, how much memory",
    "cost": "time and money for numbers of GPUs and kinds of machines",
    "run": "the tasks of a file on this machine's GPUs and CPUs",
    "bench": "time training steps or pictures",
    "doctor": "what keeps training from starting, and what to do",
    "deploy": "manifests of a run for Kubernetes",
}
"""Verb -> its one-line summary; the module is ``nerfleet.cli.<verb>``."""

DEBUG_FLAG = "--debug"
CURE = {"train": " (`nerfleet doctor` checks this machine, `nerfleet doctor --explain LOG` what a log says)"}
"""Said after the error of a verb that failed."""
STOPPED = (0, None, 130, 128 + 15)
"""Exit codes that are no failure: done, or ended by a signal."""
_PURPOSE = "Trains instant-ngp radiance fields: photographs in; pictures and models out."
_NOTES = (
    "`nerfleet VERB --help` shows a verb's flags with examples, `nerfleet --version` the version;",
    "`--debug` anywhere shows the traceback of an error.",
)
_FRAME = "╭╮╰╯│ "
_WRITE_ERRORS = (errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EFBIG)
"""What the system answers to a write; it names no file then."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")

_Arguments = TypeVar("_Arguments")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        argv: the words after ``nerfleet``; those of this process if None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = DEBUG_FLAG in words
    words = [word for word in words if word != DEBUG_FLAG]
    return guarded(lambda: _dispatch(words), debug, CURE.get(words[0], "") if words else "")


def guarded(action: Callable[[], None], debug: bool = False, cure: str = "") -> int:
    """Run a command; what it raises becomes one line on standard error, with ``cure`` at its end. Returns the exit code."""
    _replace_closed_streams()
    try:
        try:
            action()
        finally:
            _flush_output()
    except KeyboardInterrupt:
        return _fail("interrupted", 130, debug)
    except SystemExit as stop:  # ranks have said why
        if cure and stop.code not in STOPPED:
            sys.stderr.write(f"nerfleet:{cure}\n")
        raise
    except NerfleetError as error:
        return _fail(f"error: {error}{cure}", 2, debug)
    except OSError as error:
        place = "output" if error.filename is None and error.errno in _WRITE_ERRORS else error.filename
        if place is None:
            return _fail(_defect(error) + cure, 1, debug)
        return _fail(f"error: {place}: {error.strerror}{cure}", 2, debug)
    except Exception as error:
        return _fail(_defect(error) + cure, 1, debug)
    return 0


def help_text() -> str:
    """What ``nerfleet --help`` prints."""
    width = max((len(verb) for verb in VERBS), default=0)
    verbs = [f"  {verb:<{width}}  {summary}" for verb, summary in VERBS.items()]
    return "\n".join(["usage: nerfleet VERB [flags]", "", _PURPOSE, "", "verbs:", *verbs, "", *_NOTES])


def version() -> str:
    """The installed version, or a word that says that nerfleet runs from its sources."""
    try:
        return importlib.metadata.version("nerfleet")
    except importlib.metadata.PackageNotFoundError:
        return "from source (not installed)"


def _dispatch(words: list[str]) -> None:
    if not words:
        raise NerfleetError("no verb given", f"one of {', '.join(VERBS)}; see `nerfleet --help`")
    verb, *flags = words
    if verb in ("-h", "--help"):
        sys.stdout.write(help_text() + "\n")
    elif verb == "--version":
        sys.stdout.write(f"nerfleet {version()}\n")
    elif verb in VERBS:
        module = importlib.import_module(f"nerfleet.cli.{verb}")
        module.run(parse(module.Arguments, f"nerfleet {verb}", flags))
    else:
        near = difflib.get_close_matches(verb, VERBS, n=1)
        remedy = f"did you mean `{near[0]}`?" if near else "see `nerfleet --help`"
        raise NerfleetError(f"unknown verb `{verb}`", remedy)


def parse(arguments: type[_Arguments], prog: str, flags: Sequence[str]) -> _Arguments:
    """Flags as an instance of the dataclass ``arguments``; prints the help and exits on ``--help``.

    Raises:
        NerfleetError: a flag is unknown, missing or has a bad value.
    """
    import tyro

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(arguments, prog=prog, description=_description(arguments), args=list(flags))
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise NerfleetError(*_complaint(complaint.getvalue()), f"see `{prog} --help`") from None


def _description(arguments: type) -> str:
    """The dataclass's docstring without its list of attributes; tyro alone would drop the examples."""
    return inspect.cleandoc(arguments.__doc__ or "").split("\nAttributes:")[0].strip()


def _complaint(box: str) -> list[str]:
    """The message inside tyro's framed error and its nearest flag, without frame, title and help on flags."""
    parts: list[list[str]] = [[]]
    for line in _ANSI.sub("", box).splitlines()[1:]:
        text = line.strip(_FRAME)
        if text.strip("─-"):
            parts[-1].append(text)
        else:
            parts.append([])
    message, *rest = [part for part in parts if part]
    near = [part[1] for part in rest if part[0].startswith("Perhaps you meant")]
    return [" ".join(message).rstrip("."), *(f"did you mean `{flag}`?" for flag in near)]


def _replace_closed_streams() -> None:
    """Python has no stream where a descriptor was closed (``>&-``), or where there is no console (pythonw)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


def _flush_output() -> None:
    """Now, where a full disk or a reader that has gone can still be told; what cannot be written is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        raise


def _defect(error: Exception) -> str:
    return f"internal error: {type(error).__name__}: {error} (`{DEBUG_FLAG}` shows where)"


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    sys.stderr.write(f"nerfleet: {' '.join(message.split())}\n")
    return code
