"""Whole tasks to unequal machines so that the last one is done as early as possible, within each machine's memory.

Uniform machines (a task takes work / speed): the task with the most work behind it first, to the machine that would be done with it
first (list scheduling, Graham 1969; longest processing time first on uniform machines, Gonzalez, Ibarra and Sahni 1977), then
moves and swaps while they help, and branch and bound where that is quick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nerfleet.errors import NerfleetError

EXACT_TASKS, EXACT_NODES = 14, 200_000
MAX_ROUNDS = 200
WIDE_EFFICIENCY = 0.9
"""Of a second GPU, a third, ... for a training that runs on several."""


@dataclass(frozen=True)
class Job:
    """One task as the assignment sees it.

    Attributes:
        work: seconds on a machine of speed 1. needs: kind of machine ("gpu", "cpu"). after: names of jobs that must be done before.
        max_gpus: GPUs of one host that it can use together.
    """

    name: str
    work: float
    memory_bytes: float = 0.0
    needs: str = "gpu"
    after: tuple[str, ...] = ()
    max_gpus: int = 1


@dataclass(frozen=True)
class Machine:
    """A GPU, or a place for a CPU task. Machines of one ``host`` and ``model`` can serve one job together."""

    name: str
    speed: float = 1.0
    memory_bytes: float = math.inf
    kind: str = "gpu"
    host: int = 0
    model: str = ""


@dataclass(frozen=True)
class Placed:
    """Attributes: machines: indices; several only for a job that was widened."""

    job: Job
    machines: tuple[int, ...]
    start: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """Attributes: placed: by start. exact: proven to be the best possible."""

    placed: tuple[Placed, ...]
    exact: bool = False

    @property
    def makespan(self) -> float:
        return max((one.end for one in self.placed), default=0.0)

    def of(self, machine: int) -> list[Placed]:
        return [one for one in self.placed if machine in one.machines]


def assign(jobs: Sequence[Job], machines: Sequence[Machine], exact: bool = True) -> Schedule:
    """The shortest schedule that is found; proven shortest for few jobs without dependencies (``exact``).

    Raises:
        NerfleetError: a job that no machine can hold (says how much the largest has), or jobs that wait for one another.
    """
    able = {job.name: _able(job, machines) for job in jobs}
    order = _by_tail(jobs)
    if any(job.after for job in jobs):
        return _widened(_listed(order, machines, able), machines)
    owners = _improved(order, machines, able, _greedy(order, machines, able))
    proven = False
    if exact and len(jobs) <= EXACT_TASKS:
        owners, proven = _searched(order, machines, able, owners)
    return _widened(_timed(order, machines, owners, proven), machines)


def _able(job: Job, machines: Sequence[Machine]) -> list[int]:
    of_kind = [i for i, machine in enumerate(machines) if machine.kind == job.needs]
    able = [i for i in of_kind if machines[i].memory_bytes >= job.memory_bytes]
    if not of_kind:
        raise NerfleetError(f"task {job.name}", f"needs a {job.needs}", f"there is none; give it `device: {'cpu' if job.needs == 'gpu' else 'gpu'}` or add one")
    if not able:
        largest = max(of_kind, key=lambda i: machines[i].memory_bytes)
        wrong = f"needs {job.memory_bytes / 1e9:.1f} GB; the largest, {machines[largest].name}, has {machines[largest].memory_bytes / 1e9:.1f} GB"
        raise NerfleetError(f"task {job.name}", wrong, "reduce it (smaller log2_hashmap_size, --downscale) or use a larger GPU")
    return able


def _by_tail(jobs: Sequence[Job]) -> list[Job]:
    """Most work first, that of the jobs that wait for it included; a job never before one that it waits for. Raises NerfleetError."""
    by_name = {job.name: job for job in jobs}
    waiting: dict[str, list[str]] = {job.name: [] for job in jobs}
    for job in jobs:
        for before in job.after:
            if before not in by_name:
                raise NerfleetError(f"task {job.name}", f"waits for {before}, which is not there", f"tasks are {', '.join(by_name)}")
            waiting[before].append(job.name)
    left = {job.name: len(waiting[job.name]) for job in jobs}
    tails: dict[str, float] = {}
    free = [name for name, n in left.items() if n == 0]
    while free:
        name = free.pop()
        tails[name] = by_name[name].work + max((tails[other] for other in waiting[name]), default=0.0)
        for before in dict.fromkeys(by_name[name].after):
            left[before] -= by_name[name].after.count(before)
            if left[before] == 0:
                free.append(before)
    if len(tails) < len(jobs):
        ring = ", ".join(job.name for job in jobs if job.name not in tails)
        raise NerfleetError("tasks", f"{ring} wait for one another", "remove one `after`")
    return sorted(jobs, key=lambda job: (-tails[job.name], len(_ancestors(job, by_name)), -job.memory_bytes, job.name))


def _ancestors(job: Job, by_name: dict[str, Job]) -> set[str]:
    found: set[str] = set()
    open_ = list(job.after)
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += by_name[name].after
    return found


def _greedy(order: Sequence[Job], machines: Sequence[Machine], able: dict[str, list[int]]) -> list[int]:
    """Machine of each job: the one that would be done first; among equals the one that fewest others could use."""
    busy = [0.0] * len(machines)
    owners = []
    for job in order:
        chosen = min(able[job.name], key=lambda i: (busy[i] + job.work / machines[i].speed, machines[i].memory_bytes, i))
        busy[chosen] += job.work / machines[chosen].speed
        owners.append(chosen)
    return owners


def _loads(order: Sequence[Job], machines: Sequence[Machine], owners: Sequence[int]) -> list[float]:
    busy = [0.0] * len(machines)
    for job, owner in zip(order, owners):
        busy[owner] += job.work / machines[owner].speed
    return busy


def _improved(order: Sequence[Job], machines: Sequence[Machine], able: dict[str, list[int]], owners: list[int]) -> list[int]:
    """Moves a job off the machine that is done last, or swaps it with one elsewhere, while both ends get earlier than that."""
    owners = list(owners)
    for _ in range(MAX_ROUNDS):
        busy = _loads(order, machines, owners)
        last = max(range(len(machines)), key=lambda i: busy[i])
        better = _better(order, machines, able, owners, busy, last)
        if better is None:
            return owners
        for job, owner in better:
            owners[job] = owner
    return owners


def _better(
    order: Sequence[Job], machines: Sequence[Machine], able: dict[str, list[int]], owners: Sequence[int], busy: Sequence[float], last: int
) -> list[tuple[int, int]] | None:
    """[(job, new machine)] that relieves ``last`` most; None if nothing does."""
    best, found = busy[last] * (1 - 1e-9), None
    for a in (j for j, owner in enumerate(owners) if owner == last):
        gone = order[a].work / machines[last].speed
        for target in able[order[a].name]:
            if target == last:
                continue
            arrives = order[a].work / machines[target].speed
            value = max(busy[last] - gone, busy[target] + arrives)
            if value < best:
                best, found = value, [(a, target)]
            for b in (j for j, owner in enumerate(owners) if owner == target and last in able[order[j].name]):
                here = busy[last] - gone + order[b].work / machines[last].speed
                there = busy[target] + arrives - order[b].work / machines[target].speed
                if max(here, there) < best:
                    best, found = max(here, there), [(a, target), (b, last)]
    return found


def _searched(order: Sequence[Job], machines: Sequence[Machine], able: dict[str, list[int]], owners: list[int]) -> tuple[list[int], bool]:
    """Branch and bound from a good start: (owners, whether the search was complete)."""
    best_value, best = max(_loads(order, machines, owners)), list(owners)
    rest = [0.0] * (len(order) + 1)
    for i in range(len(order) - 1, -1, -1):
        rest[i] = rest[i + 1] + order[i].work
    speed = {kind: sum(m.speed for m in machines if m.kind == kind) for kind in {m.kind for m in machines}}
    one_kind = len({job.needs for job in order}) == 1
    busy, current, nodes = [0.0] * len(machines), [0] * len(order), 0

    def descend(i: int) -> bool:
        nonlocal best_value, best, nodes
        nodes += 1
        if nodes > EXACT_NODES:
            return False
        if i == len(order):
            value = max(busy)
            if value < best_value * (1 - 1e-12):
                best_value, best = value, list(current)
            return True
        if one_kind:
            kind = order[i].needs
            done = sum(b * m.speed for b, m in zip(busy, machines) if m.kind == kind)
            if (done + rest[i]) / speed[kind] >= best_value * (1 - 1e-12):
                return True
        tried = set()
        for m in sorted(able[order[i].name], key=lambda k: busy[k] + order[i].work / machines[k].speed):
            alike = (busy[m], machines[m].speed, machines[m].memory_bytes)
            end = busy[m] + order[i].work / machines[m].speed
            if alike in tried or end >= best_value * (1 - 1e-12):
                continue
            tried.add(alike)
            before, busy[m], current[i] = busy[m], end, m
            complete = descend(i + 1)
            busy[m] = before
            if not complete:
                return False
        return True

    complete = descend(0)
    return best, complete


def _timed(order: Sequence[Job], machines: Sequence[Machine], owners: Sequence[int], exact: bool) -> Schedule:
    """On each machine the longest first."""
    busy, placed = [0.0] * len(machines), []
    for job, owner in zip(order, owners):
        end = busy[owner] + job.work / machines[owner].speed
        placed.append(Placed(job, (owner,), busy[owner], end))
        busy[owner] = end
    return Schedule(tuple(sorted(placed, key=lambda one: (one.start, one.machines))), exact)


def _listed(order: Sequence[Job], machines: Sequence[Machine], able: dict[str, list[int]]) -> Schedule:
    """Jobs that wait for others: in order, each as early as it can be done."""
    busy, placed = [0.0] * len(machines), []
    ends: dict[str, float] = {}
    for job in order:
        ready = max((ends[name] for name in job.after), default=0.0)
        chosen = min(able[job.name], key=lambda i: (max(busy[i], ready) + job.work / machines[i].speed, machines[i].memory_bytes, i))
        start = max(busy[chosen], ready)
        busy[chosen] = ends[job.name] = start + job.work / machines[chosen].speed
        placed.append(Placed(job, (chosen,), start, busy[chosen]))
    return Schedule(tuple(sorted(placed, key=lambda one: (one.start, one.machines))))


def _widened(schedule: Schedule, machines: Sequence[Machine]) -> Schedule:
    """More GPUs than tasks: those that have nothing to do join the longest job of their host that can use them."""
    idle = [i for i, machine in enumerate(machines) if machine.kind == "gpu" and not schedule.of(i)]
    placed = list(schedule.placed)
    while idle:
        able = [(one, i) for one in placed for i in idle if _may_join(one, i, machines, schedule)]
        if not able:
            break
        one, chosen = max(able, key=lambda pair: pair[0].end)
        together = (*one.machines, chosen)
        speed = machines[one.machines[0]].speed + WIDE_EFFICIENCY * sum(machines[i].speed for i in together[1:])
        placed[placed.index(one)] = Placed(one.job, together, one.start, one.start + one.job.work / speed)
        idle.remove(chosen)
    return Schedule(tuple(placed), schedule.exact and all(len(one.machines) == 1 for one in placed))


def _may_join(one: Placed, extra: int, machines: Sequence[Machine], schedule: Schedule) -> bool:
    first, other = machines[one.machines[0]], machines[extra]
    alone = len(schedule.of(one.machines[0])) == 1  # else the jobs behind it would have to be timed anew
    waited_for = any(one.job.name in rival.job.after for rival in schedule.placed)
    fits = (other.host, other.model) == (first.host, first.model) and other.memory_bytes >= one.job.memory_bytes
    return fits and alone and not waited_for and len(one.machines) < one.job.max_gpus
