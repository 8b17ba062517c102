"""Ranks that are slow, stalled, lost or of two minds, and how a run of them ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.parallel.spawn import NETWORK_JSON, REPOSITORY, environment, finish, free_port, outside, ranks_of, result, run_cases, start

from nerfleet.data.synthetic import write_scene
from nerfleet.errors import NerfleetError
from nerfleet.parallel import ranks as ranks_module
from nerfleet.parallel.heartbeat import EXIT_LOST, ended
from nerfleet.parallel.launch import OUTCOME_FOLDER, check_gpus, leave_outcome, own_address, read_outcomes


def test_more_ranks_than_gpus_is_refused_before_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(NerfleetError, match=r"--gpus 4: there are 2 GPUs on .*: use --gpus 2"):
        check_gpus(4, "cuda")
    with pytest.raises(NerfleetError, match="3 ranks on .*: there are 2 GPUs: use --gpus 2"):
        ranks_module.own_device("cuda", 0, 3)
    with pytest.raises(NerfleetError, match="--gpus 0"):
        check_gpus(0, "cpu")


def test_port_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        with pytest.raises(NerfleetError, match=r"port \d+: is in use"):
            ranks_module._store(0, 2)


def test_only_the_last_start_decides_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTCOME_FOLDER, str(tmp_path))
    assert read_outcomes(tmp_path) == []
    for port, codes in (("5001", (130, 130)), ("5002", (0, 2)), ("5003", (0, 0))):
        monkeypatch.setenv("MASTER_PORT", port)
        for rank, code in enumerate(codes):
            leave_outcome(rank, code)
        assert read_outcomes(tmp_path) == list(codes)


def test_an_address_that_others_can_reach() -> None:
    assert own_address("127.0.0.1:29400") == "127.0.0.1"
    assert own_address("localhost:29400") == "127.0.0.1"


@pytest.mark.slow
def test_a_slow_rank_gets_fewer_rays(tmp_path: Path) -> None:
    run_cases(tmp_path, 3, "speed_balanced", "speed_equal")
    balanced, equal = (result(tmp_path, name, 0) for name in ("speed_balanced", "speed_equal"))
    assert balanced["samples_per_s"] > 1.5 * equal["samples_per_s"]
    assert equal["shares"] == pytest.approx([1 / 3] * 3)
    assert balanced["shares"][2] < 0.25
    assert [result(tmp_path, "speed_balanced", rank)["shares"] for rank in (1, 2)] == [balanced["shares"]] * 2


@pytest.mark.slow
def test_a_stalled_rank_is_named_within_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TIMEOUT", "6")
    processes = start(2, "tests.parallel.worker", str(tmp_path), "stall")
    ended = finish(processes, timeout=120)
    assert [code for code, _, _ in ended] == [EXIT_LOST, EXIT_LOST]
    for _, _, err in ended:
        assert "rank 1 on host " in err.splitlines()[-1]
        assert "stalled at step 5" in err.splitlines()[-1]


@pytest.mark.slow
def test_an_evaluation_may_take_longer_than_a_collective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TIMEOUT", "6")
    run_cases(tmp_path, 2, "slow_evaluation")
    assert [result(tmp_path, "slow_evaluation", rank)["views"] for rank in (0, 1)] == [4, 4]


@pytest.mark.slow
def test_a_rank_that_starts_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a collective may take: ranks that are started again come at different moments."""
    monkeypatch.setenv("TEST_TIMEOUT", "5")
    worker = ["-m", "tests.parallel.worker", str(tmp_path), "refuse"]
    port, processes = free_port(), []
    for rank in range(2):
        time.sleep(20.0 * rank)
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([sys.executable, *worker], env=environment(rank, 2, port), cwd=REPOSITORY, **pipes))
    assert [code for code, _, _ in finish(processes, 120)] == [0, 0]


@pytest.mark.slow
def test_versions_must_agree(tmp_path: Path) -> None:
    port = free_port()
    script = "import sys, torch; torch.__version__ = sys.argv[1]; from tests.parallel.worker import main; sys.argv[1:] = [sys.argv[2]]; main()"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, ("2.13.0", "2.12.0")[rank], str(tmp_path)],
            env=environment(rank, 2, port), cwd=REPOSITORY, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for code, _, err in finish(processes, 120):
        assert code == 1
        assert "rank 1 on" in err.splitlines()[-1]
        assert "PyTorch 2.12.0; rank 0 on" in err.splitlines()[-1]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scene")
    write_scene(folder, 7, 2, 5, 32, 32, supersample=1)
    (folder / "small.json").write_text(json.dumps(NETWORK_JSON))
    return folder


class Command:
    """``nerfleet train --gpus 2`` as a person starts it."""

    def __init__(self, scene: Path, out: Path) -> None:
        self.out, self.log = out, out.with_suffix(".log")
        flags = "--device cpu --gpus 2 --steps 100000 --batch-size 1024 --checkpoint-every 1s --collective-timeout 20s --max-restarts 2"
        words = ["-m", "nerfleet", "train", str(scene), "--out", str(out), "--network", str(scene / "small.json"), *flags.split()]
        with self.log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, *words], env=outside(), stderr=log, stdout=log, cwd=REPOSITORY)

    def ranks(self) -> list[int]:
        return ranks_of(self.process.pid)

    def newest_step(self) -> int:
        return max((int(p.parent.name[5:]) for p in self.out.glob("checkpoints/*/complete.json")), default=0)

    def until(self, condition: object, seconds: float) -> float:
        begin = time.monotonic()
        while not condition():  # type: ignore[operator]
            assert time.monotonic() - begin < seconds, self.log.read_text()[-2000:]
            time.sleep(0.2)
        return time.monotonic() - begin


@pytest.fixture
def command(small_run: Path, tmp_path: Path) -> Iterator[Command]:
    running = Command(small_run, tmp_path / "run")
    running.until(lambda: running.newest_step() > 0, 120)
    yield running
    running.process.kill()
    running.process.wait()


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if not ended(pid)]


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_signal_saves_and_leaves_nothing_behind(command: Command, number: signal.Signals, code: int) -> None:
    ranks, before = command.ranks(), command.newest_step()
    assert len(ranks) == 2
    command.process.send_signal(number)
    assert command.process.wait(timeout=30) == code
    command.until(lambda: not alive(ranks), 10)
    assert command.newest_step() >= before
    assert "stopped by a signal" in command.log.read_text()


@pytest.mark.slow
def test_a_killed_rank_is_replaced(command: Command) -> None:
    ranks, before = command.ranks(), command.newest_step()
    os.kill(ranks[1], signal.SIGKILL)
    command.until(lambda: len(set(command.ranks()) - set(ranks)) == 2, 30)
    command.until(lambda: command.newest_step() > before + 20, 60)
    assert "continues at step" in command.log.read_text()


@pytest.mark.slow
def test_ranks_do_not_outlive_a_killed_launcher(command: Command) -> None:
    ranks = command.ranks()
    command.process.kill()
    command.until(lambda: not alive(ranks), 10)
