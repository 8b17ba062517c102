"""Assignment of tasks: against brute force, memory, dependencies, more GPUs than tasks."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from nerfleet.errors import NerfleetError
from nerfleet.planner.assign import Job, Machine, Schedule, assign

GB = 1e9


def random_case(seed: int) -> tuple[list[Job], list[Machine]]:
    """2 to 3 unequal GPUs and 3 to 7 tasks, each of which fits at least one."""
    chance = random.Random(seed)
    machines = [Machine(f"m{i}", chance.choice([0.3, 0.5, 0.8, 1.0]), GB * chance.choice([8, 12, 24])) for i in range(chance.choice([2, 3]))]
    most = max(machine.memory_bytes for machine in machines)
    jobs = [Job(f"j{i}", chance.uniform(1, 20), chance.uniform(0.5, 1.0) ** 2 * most) for i in range(chance.randint(3, 7))]
    return jobs, machines


def brute_force(jobs: list[Job], machines: list[Machine]) -> float:
    best = math.inf
    for owners in itertools.product(range(len(machines)), repeat=len(jobs)):
        if all(machines[owner].memory_bytes >= job.memory_bytes for job, owner in zip(jobs, owners)):
            busy = [0.0] * len(machines)
            for job, owner in zip(jobs, owners):
                busy[owner] += job.work / machines[owner].speed
            best = min(best, max(busy))
    return best


def check(schedule: Schedule, jobs: list[Job], machines: list[Machine]) -> None:
    """Every job once, nothing at the same time on one machine, within memory, after what it waits for."""
    assert sorted(one.job.name for one in schedule.placed) == sorted(job.name for job in jobs)
    ends = {one.job.name: one.end for one in schedule.placed}
    for i, machine in enumerate(machines):
        own = sorted(schedule.of(i), key=lambda one: one.start)
        assert all(a.end <= b.start + 1e-9 for a, b in zip(own, own[1:]))
        assert all(one.job.memory_bytes <= machine.memory_bytes and one.job.needs == machine.kind for one in own)
    assert all(ends[name] <= one.start + 1e-9 for one in schedule.placed for name in one.job.after)


def test_against_brute_force() -> None:
    """Without the exact search: at most 1.05 times the optimum on average, 1.25 times at worst; with it: the optimum."""
    ratios = []
    for seed in range(200):
        jobs, machines = random_case(seed)
        best = brute_force(jobs, machines)
        found, proven = assign(jobs, machines, exact=False), assign(jobs, machines)
        check(found, jobs, machines)
        check(proven, jobs, machines)
        ratios.append(found.makespan / best)
        assert proven.exact
        assert proven.makespan == pytest.approx(best)
    assert sum(ratios) / len(ratios) <= 1.05
    assert max(ratios) <= 1.25


def test_many_tasks_come_near_the_bound() -> None:
    chance = random.Random(3)
    machines = [Machine(f"m{i}", speed) for i, speed in enumerate((1.0, 1.0, 0.6, 0.3))]
    jobs = [Job(f"j{i}", chance.uniform(1, 10)) for i in range(60)]
    bound = sum(job.work for job in jobs) / sum(machine.speed for machine in machines)
    assert assign(jobs, machines).makespan < 1.03 * bound


def test_a_task_that_fits_nowhere_is_named() -> None:
    machines = [Machine("GPU 0, RTX 3060", 1.0, 12 * GB), Machine("GPU 1, RTX 3090", 1.0, 24 * GB)]
    with pytest.raises(NerfleetError, match=r"task huge: needs 30.0 GB; the largest, GPU 1, RTX 3090, has 24.0 GB"):
        assign([Job("huge", 1.0, 30 * GB)], machines)
    with pytest.raises(NerfleetError, match="task a: needs a cpu"):
        assign([Job("a", 1.0, needs="cpu")], machines)


def test_dependencies() -> None:
    machines = [Machine("m0"), Machine("m1", 0.5), Machine("c", kind="cpu")]
    jobs = [Job("render", 4, after=("train",)), Job("train", 10), Job("convert", 1, needs="cpu", after=("train",)), Job("other", 9)]
    jobs.append(Job("last", 1, after=("render", "convert")))
    schedule = assign(jobs, machines)
    check(schedule, jobs, machines)
    assert schedule.makespan == pytest.approx(18)  # other on the slow one
    with pytest.raises(NerfleetError, match="a, b wait for one another"):
        assign([Job("a", 1, after=("b",)), Job("b", 1, after=("a",))], machines)
    with pytest.raises(NerfleetError, match="task a: waits for x, which is not there"):
        assign([Job("a", 1, after=("x",))], machines)


def test_more_gpus_than_tasks() -> None:
    machines = [Machine(f"m{i}", host=i // 4, model="A") for i in range(8)]
    jobs = [Job("long", 100, max_gpus=8), Job("short", 10, max_gpus=2), Job("single", 50)]
    schedule = assign(jobs, machines)
    check(schedule, jobs, machines)
    by_name = {one.job.name: one for one in schedule.placed}
    assert len(by_name["single"].machines) == 1
    assert len(by_name["long"].machines) == 2  # the four of its host, less those that the others have
    assert by_name["long"].end == pytest.approx(100 / 1.9)
    assert {machines[i].host for i in by_name["long"].machines} == {0}
    other = [Machine("a", model="A"), Machine("b", model="B")]
    assert assign([Job("long", 100, max_gpus=2)], other).placed[0].machines == (0,)


def test_equal_tasks_on_equal_gpus_are_shared_out_evenly() -> None:
    schedule = assign([Job(f"j{i}", 2) for i in range(8)], [Machine(f"m{i}") for i in range(4)])
    assert schedule.makespan == 4
    assert schedule.exact
