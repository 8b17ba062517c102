"""Induced faults: each is named with its remedy, exit code 1."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.doctor.hosts import doctor, free_port

from nerfleet.doctor import collectives, examine, facts, gpus, machine, meeting, names
from nerfleet.doctor.check import Check

HERE, THERE = "127.0.0.1", "127.0.0.2"
Play = Callable[..., meeting.Listener]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "MEET_SECONDS", 0.5)
    monkeypatch.setattr(collectives, "LINGER_SECONDS", 0.1)
    monkeypatch.setattr(machine, "DISK_BYTES", 1 << 20)
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def play(port: int) -> Iterator[Play]:
    """Plays the host 127.0.0.2: ``play(clock, **facts)``."""
    made: list[meeting.Listener] = []

    def start(clock: Callable[[], float] = time.time, **changes: Any) -> meeting.Listener:
        said = {**facts.own_facts("", ""), "ranks": 1, "device": "cpu", "board": 0, **changes}
        made.append(meeting.Listener(THERE, port, said, clock))
        return made[-1]

    yield start
    for listener in made:
        listener.close()


def examined(capsys: pytest.CaptureFixture[str], port: int, hosts: str = f"{HERE},{THERE}", rank: int = 0) -> tuple[int, dict[str, Check]]:
    return doctor(capsys, "--cluster", hosts, "--rank", rank, "--port", port, "--device", "cpu")


def test_a_closed_port(capsys: pytest.CaptureFixture[str], port: int) -> None:
    code, checks = examined(capsys, port)
    found = checks[f"port {port}"]
    assert (code, found.status) == (1, "fail")
    assert f"{THERE}: closed" in found.found
    assert f"ufw allow from PEERS to any port {port}" in found.remedy
    assert checks["collectives"].status == "skip"


def test_the_rule_that_keeps_others_out_is_named(capsys: pytest.CaptureFixture[str], port: int, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other host answers, but its questions do not arrive here."""
    monkeypatch.setattr(examine.firewall, "blocking_rule", lambda _: "nftables: table inet filter, chain input: policy drop")
    play()
    code, checks = examined(capsys, port)
    found = checks["reached by others"]
    assert (code, found.status) == (1, "fail")
    assert found.found == f"{THERE} could not reach port {port} here: nftables: table inet filter, chain input: policy drop"
    assert found.remedy.startswith("open it here: ufw allow")


def test_a_firewall_that_drops(capsys: pytest.CaptureFixture[str], port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full backlog answers no more than a dropped packet."""
    monkeypatch.setattr(meeting, "CONNECT_SECONDS", 0.3)
    with socket.socket() as deaf, socket.socket() as one, socket.socket() as two:
        deaf.bind((THERE, port))
        deaf.listen(0)
        for other in (one, two):
            other.setblocking(False)
            other.connect_ex((THERE, port))
        code, checks = examined(capsys, port)
    assert code == 1
    assert "no answer (a firewall drops the packets" in checks[f"port {port}"].found


def test_a_port_in_use(capsys: pytest.CaptureFixture[str], port: int) -> None:
    with socket.create_server((HERE, port)):
        code, checks = examined(capsys, port)
    assert code == 1
    assert checks[f"port {port}"].found == f"in use by another program on {HERE}"


def test_a_wrong_host_name(capsys: pytest.CaptureFixture[str], port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = names.address_of
    monkeypatch.setattr(names, "address_of", lambda host: None if host == "nowhere.invalid" else real(host))
    code, checks = examined(capsys, port, f"{HERE},nowhere.invalid")
    assert (code, checks["host names"].status) == (1, "fail")
    assert checks["host names"].found == "no address for nowhere.invalid"
    assert "/etc/hosts" in checks["host names"].remedy


def test_a_name_that_is_another_host(capsys: pytest.CaptureFixture[str], port: int) -> None:
    code, checks = examined(capsys, port, f"192.0.2.1,{THERE}")
    assert code == 1
    assert checks["own name"].found == "192.0.2.1 is 192.0.2.1, which is no address of this host"


def test_a_name_that_is_loopback(capsys: pytest.CaptureFixture[str], port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "address_of", lambda host: "127.0.1.1" if host == "gpu0" else host)
    code, checks = examined(capsys, port, f"gpu0,{THERE}", rank=1)
    assert code == 1
    assert checks["host names"].found == "gpu0 is 127.0.1.1: no other host gets there"


@pytest.mark.parametrize("offset, status", [(0.0, "ok"), (4.0, "warn"), (-20.0, "fail"), (20.0, "fail")])
def test_a_clock_that_is_off(capsys: pytest.CaptureFixture[str], port: int, play: Play, offset: float, status: str) -> None:
    play(clock=lambda: time.time() + offset)
    _, checks = examined(capsys, port)
    assert checks["clocks"].status == status
    if offset:
        assert checks["clocks"].found == f"{THERE} is {abs(offset):.1f} s {'ahead' if offset > 0 else 'behind'}"
        assert "chrony" in checks["clocks"].remedy


def test_other_versions(capsys: pytest.CaptureFixture[str], port: int, play: Play) -> None:
    """Asked from the second host: the first has other versions."""
    listener = play(PyTorch="2.10.0", board=free_port())
    code, checks = examined(capsys, port, f"{THERE},{HERE}", rank=1)
    assert (code, checks["versions"].status) == (1, "fail")
    assert f"on {THERE} 2.10.0" in checks["versions"].found
    assert "PyTorch" in checks["versions"].found
    assert checks["versions"].remedy == facts.REMEDY
    assert listener.asked_by == {HERE}
    assert checks["collectives"].found.endswith("is closed, and collectives use any")


def test_tiny_shared_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil._ntuple_diskusage(1 << 20, 0, 1 << 20)  # type: ignore[attr-defined]
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage if Path(path) == tmp_path else real(path))
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path)
    code, checks = doctor(capsys, "--device", "cpu", "--out", Path.cwd())
    assert (code, checks["shared memory"].status) == (1, "fail")
    assert checks["shared memory"].found == f"{tmp_path}: 1 MB, 1 MB free; needed 1.0 GB"
    assert "--shm-size" in checks["shared memory"].remedy


def test_a_real_file_system_of_one_megabyte(tmp_path: Path) -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        assert machine.shared_memory(tmp_path).status == "fail"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs an ``nvidia-smi`` that prints the given lines."""

    def install(text: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return install


def test_a_missing_gpu(capsys: pytest.CaptureFixture[str], smi: Callable[[str], None]) -> None:
    smi("0, NVIDIA GeForce RTX 4090, 580.65.06, 8.9, 24564, 12, 41, 0\n1, NVIDIA GeForce RTX 4090, 580.65.06, 8.9, 24564, 12, 44, 0")
    code, checks = doctor(capsys, "--gpus", 4)
    assert (code, checks["GPUs"].status) == (1, "fail")
    assert checks["GPUs"].found == "2 x NVIDIA GeForce RTX 4090; 4 wanted"
    assert checks["driver"].status == "ok"


def test_no_gpu_where_one_is_needed(capsys: pytest.CaptureFixture[str], smi: Callable[[str], None]) -> None:
    smi("No devices were found")
    code, checks = doctor(capsys, "--device", "cuda")
    assert (code, checks["GPUs"].found) == (1, "none (No devices were found); one wanted")


def test_the_driver_of_the_article_is_too_old(capsys: pytest.CaptureFixture[str], smi: Callable[[str], None]) -> None:
    smi("0, Tesla V100-SXM2-32GB, 510.47.03, 7.0, 32768, 4, 35, 3")
    code, checks = doctor(capsys)
    assert code == 1
    assert checks["driver"].found.startswith("510.47.03 is too old: CUDA 12.x needs 525, CUDA 13.x 580")
    assert checks["compute capability"].status == "fail"
    assert checks["GPU health"].found == "GPU 0: 3 uncorrectable memory errors"


@pytest.mark.parametrize(
    "version, cuda, status", [("580.65.06", "13.0", "ok"), ("575.1", "13.0", "fail"), ("525.60", "12.8", "ok"), ("510.47.03", "12.4", "fail")]
)
def test_drivers(version: str, cuda: str, status: str) -> None:
    found = gpus.driver(version, cuda)
    assert found.status == status
    assert status == "ok" or "install driver" in found.remedy
    assert "PyTorch for CUDA 12" in found.remedy if (version, cuda) == ("575.1", "13.0") else True


STALLS = """
import datetime, os, time
from torch.distributed import TCPStore
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, datetime.timedelta(seconds=9), wait_for_workers=False)
store.set("stage/" + os.environ["RANK"], "0")
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stalled", [False, True])
def test_three_hosts(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stalled: bool) -> None:
    """Three hosts of this process: all is well, or the rank of the third does nothing."""
    monkeypatch.setattr(examine, "MEET_SECONDS", 10.0)
    monkeypatch.setattr(collectives, "LINGER_SECONDS", 3.0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    real = subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        is_third = stalled and options.get("env", {}).get("RANK") == "2"
        return real([sys.executable, "-c", STALLS] if is_third else command, **options)

    monkeypatch.setattr(collectives.subprocess, "Popen", popen)
    hosts = [HERE, THERE, "127.0.0.3"]
    wishes = examine.Wishes("cpu", 0, port, tmp_path, 8.0 if stalled else 30.0)
    answers: dict[int, list[Check]] = {}
    begin = time.monotonic()
    threads = [threading.Thread(target=lambda own=own: answers.update({own: examine.examine_host(hosts, own, wishes)})) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    for own in range(3):
        checks = {check.name: check for check in answers[own]}
        assert checks[f"port {port}"].status == checks["clocks"].status == checks["versions"].status == "ok", checks
        if stalled:
            assert checks["collectives"].status == "fail"
            assert "rank 2 on host 127.0.0.3: stalled in start" in checks["collectives"].found
        else:
            assert checks["collectives"].found.startswith("gloo, 3 ranks: all-reduce right")
            assert ("between hosts" in checks) == (own == 0)
    assert seconds < (30 if stalled else 90)
