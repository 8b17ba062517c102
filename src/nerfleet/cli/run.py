"""``nerfleet run``: the tasks of a file on this machine, one process a GPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from nerfleet.cli.flags import print_json, say
from nerfleet.errors import NerfleetError

SUMMARY = "the tasks of a file on this machine's GPUs and CPUs"


@dataclass(frozen=True)
class Arguments:
    """Run tasks: trainings, renderings, conversions, ... Each GPU has one process at a time, tasks for CPUs run beside them.

    A task that others wait for comes first; what is done is not done again by the same command, and a training that was interrupted
    continues. A task that fails stops only those that wait for it.

    Examples:
        nerfleet run tasks.yaml
        nerfleet run tasks.yaml --dry-run
        nerfleet plan --tasks tasks.yaml --gpus "2 x RTX 3090"

    Attributes:
        tasks: YAML file of tasks; `nerfleet run --example` prints one.
        example: print an example of a task file and stop.
        dry_run: only say which task would run where.
        again: also run what is done.
        device: auto: the GPUs of this machine, else its CPUs.
        cpu_slots: how many CPU tasks run at a time; 0: one for 4 CPUs.
        logs: folder for the tasks' output.
        calibration: files that bench step --save wrote.
        json: print one JSON object at the end.
    """

    tasks: tyro.conf.Positional[Path | None] = None
    example: bool = False
    dry_run: bool = False
    again: bool = False
    device: Literal["auto", "cpu"] = "auto"
    cpu_slots: int = 0
    logs: Path = Path("runs/tasks")
    calibration: tuple[Path, ...] = ()
    json: bool = False


def run(arguments: Arguments) -> None:
    from nerfleet.cli.task_plan import plan_tasks, print_schedule, schedule_values
    from nerfleet.cli.task_runner import TaskRunner
    from nerfleet.planner.calibration import read_calibration
    from nerfleet.planner.tasks import TASKS_EXAMPLE
    from nerfleet.planner.topology import this_machine

    if arguments.example:
        sys.stdout.write(TASKS_EXAMPLE)
        return
    if arguments.tasks is None:
        raise NerfleetError("run", "needs a file of tasks", "`nerfleet run --example` prints one")
    if not 0 <= arguments.cpu_slots <= 256:
        raise NerfleetError(f"--cpu-slots {arguments.cpu_slots}", "is out of range", "use 0 (automatic) to 256")
    cluster = this_machine() if arguments.device == "auto" else None
    if cluster is None and not arguments.json:
        say("no GPU is used: every task runs on the CPU")
    tasks, machines, schedule = plan_tasks(arguments.tasks, cluster, read_calibration(arguments.calibration), arguments.cpu_slots)
    if arguments.dry_run:
        if arguments.json:
            print_json(schedule_values(machines, schedule))
        else:
            print_schedule(machines, schedule)
        return
    runner = TaskRunner(tasks, machines, schedule, arguments.logs, arguments.again, say)
    results = runner.run()
    if arguments.json:
        values = [result.values() for result in results]
        print_json({"tasks": values, "seconds": runner.seconds, "predicted_seconds": schedule.makespan})
    failed = [result for result in results if result.status != "done"]
    if failed:
        first = failed[0]
        raise NerfleetError(f"task {first.name}", first.reason, f"{len(results) - len(failed)} of {len(results)} tasks are done; see {first.log}")
    if not arguments.json:
        say(f"{len(results)} tasks done in {runner.seconds:.0f} s")
