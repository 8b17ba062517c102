"""Task files: commands of nerfleet that belong together, with what they need."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from nerfleet.planner.gpus import GB
from nerfleet.planner.yaml_file import Section, read_yaml

TASKS_EXAMPLE = """\
tasks:
  - name: fox
    run: train data/fox --out runs/fox --steps 5000
  - name: lego
    run: train data/lego --out runs/lego
    max_gpus: 2             # may use two GPUs if there are more GPUs than tasks
  - name: fox video
    run: render runs/fox --turntable 120 --out runs/fox/turn.mp4
    after: fox
    minutes: 2              # on the fastest GPU; predicted for trainings
    memory_gb: 3            # predicted for trainings
  - name: fox for instant-ngp
    run: convert runs/fox fox.ingp
    after: fox
    device: cpu
"""
GPU_VERBS = ("train", "render", "eval", "mesh", "bench", "demo")
"""Verbs that use a GPU unless the task says otherwise."""


@dataclass(frozen=True)
class Task:
    """Attributes:
    words: after ``nerfleet``. minutes, memory_bytes: 0 if the file does not say. where: file and line, for errors.
    """

    name: str
    words: tuple[str, ...]
    device: str
    after: tuple[str, ...]
    minutes: float
    memory_bytes: float
    max_gpus: int
    where: str

    @property
    def verb(self) -> str:
        return self.words[0]


def read_tasks(path: Path, verbs: tuple[str, ...]) -> tuple[Task, ...]:
    """A task file (:data:`TASKS_EXAMPLE`). ``verbs``: that a task may use.

    Raises:
        NerfleetError: the line and key that are wrong.
    """
    root = read_yaml(path)
    root.only(("tasks",))
    tasks = tuple(_task(section, verbs) for section in root.sections("tasks"))
    seen: dict[str, Task] = {}
    for task, section in zip(tasks, root.sections("tasks")):
        if task.name in seen:
            raise section.error("name", f"{task.name!r} is also the name of the task at {seen[task.name].where}", "give each task its own name")
        seen[task.name] = task
    for task, section in zip(tasks, root.sections("tasks")):
        for name in task.after:
            if name not in seen:
                raise section.error("after", f"there is no task {name!r}", f"tasks are {', '.join(seen)}")
    return tasks


def _task(section: Section, verbs: tuple[str, ...]) -> Task:
    section.only(("name", "run", "device", "after", "minutes", "memory_gb", "max_gpus"))
    text = section.text("run")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise section.error("run", str(error).lower(), "close the quotes") from None
    if words and words[0] == "nerfleet":
        words = words[1:]
    if not words or words[0] not in verbs:
        raise section.error("run", f"{words[0] if words else text!r} is not a command of nerfleet that a task can use", f"use one of {', '.join(verbs)}")
    device = section.text("device", "gpu" if words[0] in GPU_VERBS else "cpu")
    if device not in ("gpu", "cpu"):
        raise section.error("device", f"{device!r} is no kind of device", "use gpu or cpu")
    name = section.text("name", text)
    if not re.fullmatch(r"[^/\\\0]{1,100}", name):
        raise section.error("name", f"{name[:60]!r} is no name", "use a short name without slashes")
    minutes = section.number("minutes", positive=True) if "minutes" in section.values else 0.0
    max_gpus = section.whole("max_gpus", 1, most=64)
    if max_gpus > 1 and words[0] != "train":
        raise section.error("max_gpus", "only trainings run on several GPUs", "remove it")
    memory = GB * section.number("memory_gb", 0.0)
    return Task(name, words, device, tuple(section.words("after")), minutes, memory, max_gpus, f"{section.file}, line {section.line}")
