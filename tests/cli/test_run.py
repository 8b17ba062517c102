"""``nerfleet run`` and ``plan --tasks``: task files, processes, failures, what is done already."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nerfleet.cli import task_runner
from nerfleet.cli.main import main
from nerfleet.cli.task_runner import Result, TaskRunner
from nerfleet.data.synthetic import write_scene
from nerfleet.errors import NerfleetError
from nerfleet.planner.assign import Job, Machine, assign
from nerfleet.planner.tasks import TASKS_EXAMPLE, Task, read_tasks

VERBS = ("train", "render", "convert", "info", "demo")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_example_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--example"]) == 0
    tasks = read_tasks(write(tmp_path / "tasks.yaml", capsys.readouterr().out), VERBS)
    assert [task.device for task in tasks] == ["gpu", "gpu", "gpu", "cpu"]
    assert tasks[1].max_gpus == 2
    assert (tasks[2].after, tasks[2].minutes, tasks[2].memory_bytes) == (("fox",), 2, 3e9)
    assert tasks[3].words == ("convert", "runs/fox", "fox.ingp")


@pytest.mark.parametrize(
    "text, line",
    [
        ("- run: rm -rf /\n", "line 2, run: 'rm' is not a command of nerfleet that a task can use: use one of train"),
        ("- run: trian a\n", "line 2, run: 'trian' is not a command"),
        ("- run: train 'a\n", "line 2, run: no closing quotation"),
        ("- run: train a\n    device: tpu\n", "line 3, device: 'tpu' is no kind of device"),
        ("- run: train a\n    after: b\n", "line 3, after: there is no task 'b'"),
        ("- run: info a\n  - run: info a\n", "line 3, name: 'info a' is also the name of the task at"),
        ("- run: render a\n    max_gpus: 2\n", "line 3, max_gpus: only trainings run on several GPUs"),
        ("- run: train a\n    minutes: 0\n", "line 3, minutes: 0 is out of range"),
        ("- run: train a\n    memory_gb: [1]\n", "line 3, memory_gb: [1] is not a number"),
        ("- name: ../x\n    run: info a\n", "line 2, name: '../x' is no name"),
        ("- name: x\n", "line 2, run: is missing"),
    ],
)
def test_what_is_wrong_with_a_task_is_named_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(NerfleetError) as error:
        read_tasks(write(tmp_path / "tasks.yaml", f"tasks:\n  {text}"), VERBS)
    assert line in str(error.value)


def test_plan_of_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_scene(tmp_path / "scene", n_train=3, n_val=0, n_test=1, width=16, height=12, supersample=1)
    text = TASKS_EXAMPLE.replace("data/fox", str(tmp_path / "scene")).replace("data/lego", str(tmp_path / "scene"))
    file = str(write(tmp_path / "tasks.yaml", text))
    assert main(["plan", "--tasks", file, "--gpus", "2 x RTX 3090, 1 x RTX 3060", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    by_name = {task["name"]: task for task in found["tasks"]}
    assert by_name["fox video"]["start_seconds"] >= by_name["fox"]["end_seconds"]
    assert by_name["fox for instant-ngp"]["machines"][0].startswith("CPU")
    assert 0.5e9 < by_name["fox"]["memory_bytes"] < 2e9
    assert found["makespan_seconds"] == max(task["end_seconds"] for task in found["tasks"])
    assert main(["plan", "--tasks", file, "--gpus", "2 x RTX 3090"]) == 0
    assert "4 tasks, done after" in capsys.readouterr().out
    huge = write(tmp_path / "huge.yaml", "tasks:\n  - run: train x --out y\n    minutes: 3\n    memory_gb: 30\n")
    assert main(["plan", "--tasks", str(huge), "--gpus", "RTX 3060"]) == 2
    assert "needs 30.0 GB; the largest, GPU 0, RTX 3060, has 11.4 GB" in capsys.readouterr().err


class Fake:
    """Tasks whose process is a script: it notes what it sees and when, sleeps, and ends with a code."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.said = tmp_path, list[str]()
        note = "import json, os, sys, time; name, seconds, code = sys.argv[3:6]; begin = time.time(); time.sleep(float(seconds)); "
        note += "seen = [begin, time.time(), os.environ.get('CUDA_VISIBLE_DEVICES'), sys.argv]; "
        note += f"open({str(tmp_path)!r} + '/' + name + '.json', 'w').write(json.dumps(seen)); "
        script = tmp_path / "python"
        script.write_text(f"#!{sys.executable}\n{note}\nprint('last words of', name)\nsys.exit(int(code))\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(task_runner.sys, "executable", str(script))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def runner(self, jobs: list[Job], machines: list[Machine], codes: dict[str, int] | None = None, again: bool = False) -> TaskRunner:
        tasks = [
            Task(job.name, (job.name, str(job.work), str((codes or {}).get(job.name, 0))), job.needs, job.after, 1, 0, job.max_gpus, "") for job in jobs
        ]
        return TaskRunner(tasks, machines, assign(jobs, machines), self.folder / "logs", again, self.said.append)

    def noted(self, name: str) -> list[Any]:
        return json.loads((self.folder / f"{name}.json").read_text())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(tmp_path, monkeypatch)


def statuses(results: list[Result]) -> dict[str, str]:
    return {result.name: result.status for result in results}


def test_one_process_a_gpu(fake: Fake) -> None:
    machines = [Machine("GPU 0"), Machine("GPU 1"), Machine("CPU 0", kind="cpu")]
    jobs = [Job("a", 0.4), Job("b", 0.4), Job("c", 0.3), Job("d", 0.1, after=("a",)), Job("e", 0.1, needs="cpu")]
    assert set(statuses(fake.runner(jobs, machines).run()).values()) == {"done"}
    noted = {job.name: fake.noted(job.name) for job in jobs}
    assert {noted[name][2] for name in "abcd"} == {"0", "1"}
    assert noted["e"][2] == ""
    for a in "abcd":
        for b in "abcd":
            if a < b and noted[a][2] == noted[b][2]:
                assert noted[a][1] <= noted[b][0] or noted[b][1] <= noted[a][0]
    assert noted["d"][0] >= noted["a"][1]
    assert (fake.folder / "logs" / "a.log").read_text() == "last words of a\n"


def test_a_training_on_two_gpus(fake: Fake) -> None:
    machines = [Machine("GPU 0", model="A"), Machine("GPU 1", model="A")]
    fake.runner([Job("a", 0.1, max_gpus=2)], machines).run()
    assert fake.noted("a")[2] == "0,1"
    assert fake.noted("a")[3][-2:] == ["--gpus", "2"]


def test_a_failure_stops_only_those_that_wait_for_it(fake: Fake) -> None:
    jobs = [Job("a", 0.1), Job("b", 0.1, after=("a",)), Job("c", 0.1, after=("b",)), Job("d", 0.1)]
    results = fake.runner(jobs, [Machine("m")], {"a": 3}).run()
    assert statuses(results) == {"a": "failed", "b": "skipped", "c": "skipped", "d": "done"}
    assert results[0].reason == "ended with exit code 3 (last words of a)"
    assert results[1].reason == "was not started: a failed"
    again = fake.runner(jobs, [Machine("m")]).run()
    assert set(statuses(again).values()) == {"done"}
    assert "d: was done before" in fake.said
    fake.said.clear()
    fake.runner(jobs, [Machine("m")], again=True).run()
    assert not any("was done before" in line for line in fake.said)


def test_a_signal_ends_what_runs(fake: Fake) -> None:
    runner = fake.runner([Job("a", 60.0)], [Machine("m")])
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert time.monotonic() - began < 20
    assert not (fake.folder / "a.json").exists()


def test_real_tasks_on_this_machines_cpus(tmp_path: Path) -> None:
    write_scene(tmp_path / "scene", n_train=3, n_val=0, n_test=1, width=16, height=12, supersample=1)
    good = f"tasks:\n  - name: look\n    run: info {tmp_path}/scene\n  - name: nowhere\n    run: info {tmp_path}/nowhere\n    minutes: 0.1\n"
    file = write(tmp_path / "tasks.yaml", good)
    command = [sys.executable, "-m", "nerfleet", "run", str(file), "--logs", str(tmp_path / "logs"), "--device", "cpu", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 2
    found = json.loads(ended.stdout)
    assert {task["name"]: task["status"] for task in found["tasks"]} == {"look": "done", "nowhere": "failed"}
    assert "frames" in (tmp_path / "logs" / "look.log").read_text()
    assert "nerfleet: error: task nowhere: ended with exit code 2" in ended.stderr.splitlines()[-1]


def test_nothing_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run"]) == 2
    assert "run: needs a file of tasks: `nerfleet run --example` prints one" in capsys.readouterr().err
