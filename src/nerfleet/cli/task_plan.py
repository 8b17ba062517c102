"""Tasks of a file and the machines that they can run on, as the planner assigns them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerfleet.cli.flags import say
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.planner.assign import Job, Machine, Schedule
    from nerfleet.planner.calibration import Calibration
    from nerfleet.planner.tasks import Task
    from nerfleet.planner.topology import Cluster

NOT_AS_TASK = ("plan", "cost", "run")
CPUS_A_SLOT = 4
DEFAULT_MINUTES = 1.0
DEFAULT_BYTES = 2e9
"""Of tasks of which nothing is known."""


def task_verbs() -> tuple[str, ...]:
    from nerfleet.cli.main import VERBS

    return tuple(verb for verb in VERBS if verb not in NOT_AS_TASK)


def machines_of(cluster: Cluster | None, calibration: Calibration, cpu_slots: int = 0) -> list[Machine]:
    """Every GPU of a cluster, its speed relative to the fastest one; and places for CPU tasks."""
    from nerfleet.config import TrainConfig
    from nerfleet.planner.assign import Machine
    from nerfleet.planner.memory import CONTEXT_BYTES
    from nerfleet.planner.simulate import simulate
    from nerfleet.planner.topology import uniform
    from nerfleet.planner.workload import workload

    found: list[Machine] = []
    if cluster is not None:
        known = calibration.steps[0].load
        load = workload(known.scene, TrainConfig(), known.profile)
        seconds = [simulate(load, uniform(card.gpu, 1, link="none"), 1, calibration).step_seconds / card.speed for card in cluster.cards]
        for i, (card, own) in enumerate(zip(cluster.cards, seconds)):
            room = card.gpu.memory_bytes - CONTEXT_BYTES
            found.append(Machine(f"GPU {i}, {card.gpu.name}", min(seconds) / own, room, "gpu", card.host, card.gpu.name))
    n_cpus = sum(host.n_cpus for host in cluster.hosts) if cluster is not None else (os.cpu_count() or 1)
    found += [Machine(f"CPU {i}", kind="cpu") for i in range(cpu_slots or max(n_cpus // CPUS_A_SLOT, 1))]
    return found


def jobs_of(tasks: Sequence[Task], cluster: Cluster | None, calibration: Calibration) -> list[Job]:
    """What each task takes: as its file says, else predicted (trainings), else a guess that is said."""
    from nerfleet.planner.assign import Job

    jobs = []
    for task in tasks:
        seconds, memory = 60 * task.minutes, task.memory_bytes
        if task.device == "gpu" and task.verb == "train" and not (seconds and memory):
            predicted = _training(task, cluster, calibration)
            seconds, memory = seconds or predicted[0], memory or predicted[1]
        elif not seconds:
            say(f"{task.where}: no minutes given for {task.name}: {DEFAULT_MINUTES:g} is assumed")
        needs_memory = (memory or DEFAULT_BYTES) if task.device == "gpu" else 0.0
        jobs.append(Job(task.name, seconds or 60 * DEFAULT_MINUTES, needs_memory, task.device, task.after, task.max_gpus))
    return jobs


def _training(task: Task, cluster: Cluster | None, calibration: Calibration) -> tuple[float, float]:
    """(seconds, torch's peak bytes) on the fastest GPU, however small its memory."""
    from nerfleet.cli import train
    from nerfleet.cli.main import parse
    from nerfleet.cli.scene_facts import scene_facts
    from nerfleet.planner.choose import possibilities
    from nerfleet.planner.topology import uniform

    try:
        flags = parse(train.Arguments, "nerfleet train", list(task.words[1:]))
        config = train.config_from(flags, "cuda")
        facts = scene_facts(flags.scene, flags.downscale, flags.train_on_all)
    except NerfleetError as error:
        if task.minutes or task.after:  # its scene may not be there yet
            return 60 * (task.minutes or DEFAULT_MINUTES), DEFAULT_BYTES
        raise NerfleetError(task.where, str(error)) from None
    gpu = calibration.steps[0].gpu
    if cluster is not None:
        gpu = max((card.gpu for card in cluster.cards), key=lambda one: one.issue_rate)
    (option,) = possibilities(facts, config, uniform(gpu, 1, link="none"), calibration, (1,), fixed_batch=True)
    seconds = min(option.train_seconds, flags.max_seconds) if flags.max_seconds else option.train_seconds
    return seconds, option.simulated.ranks[0].memory.peak


def on_cpus(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The same tasks where there is no GPU."""
    return tuple(dataclasses.replace(task, device="cpu", max_gpus=1) for task in tasks)


def plan_tasks(path: Path, cluster: Cluster | None, calibration: Calibration, cpu_slots: int = 0) -> tuple[tuple[Task, ...], list[Machine], Schedule]:
    """Raises NerfleetError: what is wrong with the file, or what no GPU can hold."""
    from nerfleet.planner.assign import assign
    from nerfleet.planner.tasks import read_tasks

    tasks = read_tasks(path, task_verbs())
    if cluster is None:
        tasks = on_cpus(tasks)
    machines = machines_of(cluster, calibration, cpu_slots)
    return tasks, machines, assign(jobs_of(tasks, cluster, calibration), machines)


def schedule_values(machines: Sequence[Machine], schedule: Schedule) -> dict[str, Any]:
    """The object of ``nerfleet plan --tasks --json``."""
    return {
        "tasks": [
            {
                "name": one.job.name,
                "machines": [machines[i].name for i in one.machines],
                "start_seconds": one.start,
                "end_seconds": one.end,
                "memory_bytes": int(one.job.memory_bytes),
                "after": list(one.job.after),
            }
            for one in schedule.placed
        ],
        "makespan_seconds": schedule.makespan,
        "optimal": schedule.exact,
    }


def print_schedule(machines: Sequence[Machine], schedule: Schedule) -> None:
    from nerfleet.cli.plan import table, wide_console
    from nerfleet.planner.explain import duration

    rows = [
        (duration(one.start), duration(one.end), one.job.name, " + ".join(machines[i].name for i in one.machines), f"{one.job.memory_bytes / 1e9:.1f} GB")
        for one in schedule.placed
    ]
    console = wide_console()
    console.print(table(("from", "to", "task", "on", "memory"), rows))
    proven = "; no assignment is shorter" if schedule.exact else ""
    console.print(f"{len(schedule.placed)} tasks, done after {duration(schedule.makespan)}{proven}")
