"""The main process of a training container: ``python -m nerfleet.deploy.pod [flags] -- PROGRAM WORDS``.

It runs the program, passes SIGTERM on so that a checkpoint is written, gives a sign of life for the probes, and ends with the exit
code that restart policies understand: 0 complete, 2 bad input, 75 other ranks lost, 143 asked to leave, 128 + n ended by signal n.
When another pod is asked to leave, all ranks stop together (130); the pods that stay go on at once from the checkpoint that was made.
With ``--after serve`` it shows the finished run instead of ending, because a StatefulSet starts again whatever ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from nerfleet.deploy.alive import PERIOD_SECONDS, give_sign
from nerfleet.deploy.finished import serve

LEFT = 128 + signal.SIGTERM
STOPPED_TOGETHER = 130
AGAIN_SECONDS = 1.0
RANKS_SECONDS = 10.0
"""Ranks have so long to stop by themselves before their launcher gets the signal too."""
RANK_NAME = re.compile(r"nerfleet \d+")
"""The name of a rank's process (parallel/launch.py)."""
MARKER = "complete.json"
"""In the run folder: the words of the program that came to its end."""


def main(argv: Sequence[str] | None = None) -> int:
    flags = _parser().parse_args(argv)
    words = flags.program[1:] if flags.program[:1] == ["--"] else flags.program
    if not words:
        _parser().error("no program; write it after --")
    leave = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leave.set())
    marker = flags.run / MARKER if flags.run else None
    if marker is not None and _is_complete(marker, words):
        say(f"{flags.run} is complete: nothing to train")
        code = 0
    else:
        code = run(words, leave)
        while code == STOPPED_TOGETHER and not leave.wait(AGAIN_SECONDS):
            say("another pod leaves: going on without it, from the checkpoint that was made")
            code = run(words, leave)
        if code == 0 and marker is not None and not leave.is_set():
            _mark(marker, words)
    if code == 0 and flags.after == "serve" and not leave.is_set():
        host, _, port = flags.listen.rpartition(":")
        say(f"training is complete; its report is served on {flags.listen} until this container is stopped")
        serve(host, int(port), flags.run, leave, give_sign, PERIOD_SECONDS)
    return code


def run(words: Sequence[str], leave: threading.Event) -> int:
    """Run the program to its end; exit code as above. ``leave`` set: its ranks get SIGTERM, and time until the container is killed.

    The launcher gets it only if it has no ranks, or if they do not stop: torch elastic lets the launchers of the other pods wait five
    minutes for one that left on a signal, but none for one whose ranks have ended.
    """
    command = [sys.executable, "-m", "nerfleet", *words[1:]] if words[0] == "nerfleet" else list(words)
    child = subprocess.Popen(command)
    asked_at, told = math.inf, False
    while child.poll() is None:
        give_sign()
        if leave.is_set() and asked_at == math.inf:
            say("asked to leave: a checkpoint is being written")
            asked_at, ranks = time.monotonic(), rank_processes(child.pid)
            for pid in ranks or [child.pid]:
                _terminate(pid)
            told = not ranks
        if not told and time.monotonic() > asked_at + RANKS_SECONDS:
            told = True
            _terminate(child.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.2)
    code = child.returncode
    if asked_at < math.inf and code != 0:
        return LEFT
    return 128 - code if code < 0 else code


def rank_processes(launcher: int) -> list[int]:
    """Process ids of the ranks below a launcher (Linux)."""
    found: dict[int, tuple[int, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            name, rest = stat.read_text().split("(", 1)[1].rsplit(")", 1)
            found[int(stat.parent.name)] = (int(rest.split()[1]), name)
    below, parents = [], {launcher}
    while parents:
        parents = {pid for pid, (parent, _) in found.items() if parent in parents}
        below += sorted(parents)
    return [pid for pid in below if RANK_NAME.fullmatch(found[pid][1])]


def _terminate(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def say(text: str) -> None:
    sys.stderr.write(f"nerfleet pod: {text}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nerfleet.deploy.pod", description="Main process of a training container.")
    parser.add_argument("--after", choices=("end", "serve"), default="end", help="what to do once the program has come to its end")
    parser.add_argument("--listen", default="127.0.0.1:9400", help="host:port of the finished run's page and metrics")
    parser.add_argument("--run", type=Path, help="the run folder")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- nerfleet train ...")
    return parser


def _is_complete(marker: Path, words: Sequence[str]) -> bool:
    try:
        return bool(json.loads(marker.read_text())["words"] == list(words))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _mark(marker: Path, words: Sequence[str]) -> None:
    """Several pods may do it at once: each under a name of its own, then renamed."""
    temporary = marker.with_name(f"{marker.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps({"words": list(words), "time": time.time()}) + "\n")
        os.replace(temporary, marker)
    except OSError as error:
        say(f"{marker}: {error.strerror}")


if __name__ == "__main__":
    sys.exit(main())
