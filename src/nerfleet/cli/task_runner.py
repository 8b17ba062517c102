"""Runs scheduled tasks as processes: one a GPU, their output in files, what is done remembered."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nerfleet.cli.calibration_file import write_text
from nerfleet.errors import NerfleetError
from nerfleet.planner.assign import Machine, Placed, Schedule
from nerfleet.planner.tasks import Task

POLL_SECONDS = 0.1
GRACE_SECONDS = 60.0
"""For running tasks after a signal: a training writes a checkpoint in this time."""
STATE_FILE = "done.json"


@dataclass(frozen=True)
class Result:
    """Attributes: status: "done", "failed" or "skipped" (one that it waits for failed). reason: of the latter two."""

    name: str
    status: str
    seconds: float
    machines: tuple[str, ...]
    log: Path
    reason: str = ""

    def values(self) -> dict[str, Any]:
        found = {"name": self.name, "status": self.status, "seconds": self.seconds, "machines": list(self.machines), "log": str(self.log)}
        return found | {"reason": self.reason}


@dataclass(frozen=True)
class _Running:
    task: Task
    placed: Placed
    process: subprocess.Popen[bytes]
    began: float
    output: IO[bytes]


class TaskRunner:
    """Tasks in the order of a schedule; a machine whose next task still waits takes a later one of its own.

    Args:
        again: do not trust what an earlier command has done. say: remarks, one line each.
    """

    def __init__(self, tasks: Sequence[Task], machines: Sequence[Machine], schedule: Schedule, logs: Path, again: bool, say: Callable[[str], None]) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._machines, self._schedule, self._logs, self._say = machines, schedule, logs, say
        self._cpu_threads = max((os.cpu_count() or 1) // max(sum(machine.kind == "cpu" for machine in machines), 1), 1)
        self._results: dict[str, Result] = {}
        self.seconds = 0.0
        try:
            logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NerfleetError(str(logs), error.strerror or "cannot be made", "choose another --logs") from None
        if not again:
            self._remember()

    def run(self) -> list[Result]:
        """All tasks to their end -> results, in the file's order. Raises KeyboardInterrupt after a signal, when all have ended."""
        began = time.monotonic()
        waiting = [placed for placed in self._schedule.placed if placed.job.name not in self._results]
        running: list[_Running] = []
        with _signals() as stop:
            try:
                while waiting or running:
                    if stop.is_set():
                        raise KeyboardInterrupt
                    running = [one for one in running if not self._ended(one)]
                    waiting = [placed for placed in waiting if not self._hopeless(placed)]
                    for placed in list(waiting):
                        busy = {machine for one in running for machine in one.placed.machines}
                        if self._ready(placed) and not busy & set(placed.machines):
                            running.append(self._start(placed))
                            waiting.remove(placed)
                    time.sleep(POLL_SECONDS)
            finally:
                self._end(running)
        self.seconds = time.monotonic() - began
        return [self._results[name] for name in self._tasks]

    def _ready(self, placed: Placed) -> bool:
        return all(name in self._results and self._results[name].status == "done" for name in placed.job.after)

    def _hopeless(self, placed: Placed) -> bool:
        """Whether a task that it waits for has failed; then it is skipped."""
        failed = [name for name in placed.job.after if name in self._results and self._results[name].status != "done"]
        if failed:
            self._finish(placed, "skipped", 0.0, f"was not started: {failed[0]} failed")
        return bool(failed)

    def _start(self, placed: Placed) -> _Running:
        task = self._tasks[placed.job.name]
        words = [*task.words, *(["--gpus", str(len(placed.machines))] if len(placed.machines) > 1 else [])]
        try:
            output = self._log(task.name).open("wb")
        except OSError as error:
            raise NerfleetError(str(self._log(task.name)), error.strerror or "cannot be written", "choose another --logs") from None
        process = subprocess.Popen(
            [sys.executable, "-m", "nerfleet", *words], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=self._environment(placed),
            start_new_session=True,
        )  # fmt: skip
        self._say(f"{task.name}: started on {' + '.join(self._names(placed))}")
        return _Running(task, placed, process, time.monotonic(), output)

    def _environment(self, placed: Placed) -> dict[str, str]:
        """A process sees its own GPUs; several CPU tasks share the cores."""
        on_gpus = self._machines[placed.machines[0]].kind == "gpu"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = visible.split(",") if visible else [str(i) for i in range(len(self._machines))]
        chosen = ",".join(names[i] for i in placed.machines) if on_gpus else ""
        threads = {} if on_gpus else {"OMP_NUM_THREADS": str(self._cpu_threads), "NUMBA_NUM_THREADS": str(self._cpu_threads)}
        return {**threads, **os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": chosen}

    def _ended(self, one: _Running) -> bool:
        code = one.process.poll()
        if code is None:
            return False
        one.output.close()
        seconds = time.monotonic() - one.began
        if code == 0:
            self._finish(one.placed, "done", seconds, "")
            self._save()
        else:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            last = _last_line(self._log(one.task.name))
            self._finish(one.placed, "failed", seconds, f"{how} ({last})" if last else how)
        return True

    def _finish(self, placed: Placed, status: str, seconds: float, reason: str) -> None:
        name = placed.job.name
        self._results[name] = Result(name, status, seconds, self._names(placed), self._log(name), reason)
        self._say(f"{name}: {status}{f' after {seconds:.0f} s' if seconds else ''}{f': {reason}' if reason else ''}")

    def _end(self, running: Sequence[_Running]) -> None:
        """Ask what still runs to end in good order, then end it."""
        for one in running:
            _send(one.process, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        for one in running:
            try:
                one.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                _send(one.process, signal.SIGKILL)
                one.process.wait()
            one.output.close()

    def _names(self, placed: Placed) -> tuple[str, ...]:
        return tuple(self._machines[i].name for i in placed.machines)

    def _log(self, name: str) -> Path:
        return self._logs / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.log"

    def _remember(self) -> None:
        """Tasks that an earlier command has done, if they are still the same and what they waited for is done too."""
        try:
            done = json.loads((self._logs / STATE_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        for placed in sorted(self._schedule.placed, key=lambda one: one.start):
            name = placed.job.name
            known = done.get(name) if isinstance(done, dict) else None
            if known == list(self._tasks[name].words) and self._ready(placed):
                self._results[name] = Result(name, "done", 0.0, (), self._log(name))
                self._say(f"{name}: was done before")

    def _save(self) -> None:
        done = {name: list(self._tasks[name].words) for name, result in self._results.items() if result.status == "done"}
        write_text(self._logs / STATE_FILE, json.dumps(done, indent=1) + "\n", "--logs")


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To the task and the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-4096:].decode("utf-8", "replace").split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")
    return ""


@contextlib.contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; handlers as before at the end."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
