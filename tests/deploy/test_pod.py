"""The main process of a container: exit codes, SIGTERM passed on, signs of life, the page of a finished run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.doctor.hosts import free_port
from tests.parallel.spawn import outside

from nerfleet.deploy import alive, pod
from nerfleet.deploy.doctor_pod import command
from nerfleet.deploy.finished import metrics


@pytest.fixture(autouse=True)
def sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(alive, "SIGN", tmp_path / "sign")
    return tmp_path / "sign"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("end, code", [("0", 0), ("2", 2), ("75", 75), ("1", 1)])
def test_the_exit_code_is_the_programs(end: str, code: int, sign: Path) -> None:
    assert pod.run(python(f"raise SystemExit({end})"), threading.Event()) == code
    assert sign.exists()
    assert alive.is_alive()


def test_a_signal_is_told_as_a_shell_does() -> None:
    assert pod.run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), threading.Event()) == 137


def start(*words: str, sign: Path) -> subprocess.Popen[str]:
    variables = {**outside(), "NERFLEET_SIGN": str(sign)}
    return subprocess.Popen([sys.executable, "-m", "nerfleet.deploy.pod", *words], env=variables, stderr=subprocess.PIPE, text=True)


def test_sigterm_reaches_the_program_and_gives_143(tmp_path: Path, sign: Path) -> None:
    saved = tmp_path / "saved"
    code = f"""
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path({str(saved)!r}).write_text("checkpoint")
    sys.exit(130)
signal.signal(signal.SIGTERM, save)
pathlib.Path({str(tmp_path / "ready")!r}).touch()
time.sleep(60)
"""
    process = start("--run", str(tmp_path), "--", *python(code), sign=sign)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 143
    assert saved.read_text() == "checkpoint"
    assert not (tmp_path / pod.MARKER).exists()
    assert process.stderr is not None
    assert "a checkpoint is being written" in process.stderr.read()
    process.stderr.close()


def test_ranks_are_asked_before_their_launcher(tmp_path: Path) -> None:
    """A launcher that would fail on SIGTERM, with a rank below a server process."""
    rank = f"""
import ctypes, os, pathlib, signal, sys, time
ctypes.CDLL(None).prctl(15, b"nerfleet 0", 0, 0, 0)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
pathlib.Path({str(tmp_path / "ready")!r}).touch()
time.sleep(60)
"""
    server = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {rank!r}])"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {server!r}]); sys.exit(130)"
    leave = threading.Event()
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(pod.run(python(launcher), leave)))
    thread.start()
    begin = time.monotonic()
    while not (tmp_path / "ready").exists():
        assert time.monotonic() - begin < 30
        time.sleep(0.05)
    leave.set()
    thread.join(timeout=pod.RANKS_SECONDS)
    assert codes == [143]


def test_a_finished_run_is_shown_and_not_trained_again(tmp_path: Path, sign: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"steps": 1000, "psnr_mean": 31.5, "train_seconds": 12.5, "model": "x"}))
    (tmp_path / "report.html").write_text("<title>fox</title>")
    counter = tmp_path / "count"
    program = python(f"open({str(counter)!r}, 'a').write('x')")
    for _ in range(2):
        port = free_port()
        process = start("--after", "serve", "--listen", f"127.0.0.1:{port}", "--run", str(tmp_path), "--", *program, sign=sign)
        page = _get(f"http://127.0.0.1:{port}/", process)
        assert page == "<title>fox</title>"
        assert "nerfleet_psnr_decibels 31.5" in _get(f"http://127.0.0.1:{port}/metrics", process)
        for path in ("/report.json", "/../count", "/count", "/%2e%2e/etc/passwd"):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        process.stderr.close()
    assert counter.read_text() == "x"


def _get(url: str, process: subprocess.Popen[str]) -> str:
    begin = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.URLError:
            assert process.poll() is None
            assert time.monotonic() - begin < 30
            time.sleep(0.1)


def test_other_words_are_another_training(tmp_path: Path) -> None:
    pod._mark(tmp_path / pod.MARKER, ["nerfleet", "train", "--steps=1000"])
    assert pod._is_complete(tmp_path / pod.MARKER, ["nerfleet", "train", "--steps=1000"])
    assert not pod._is_complete(tmp_path / pod.MARKER, ["nerfleet", "train", "--steps=2000"])
    (tmp_path / pod.MARKER).write_text("{")
    assert not pod._is_complete(tmp_path / pod.MARKER, [])


def test_the_probe(sign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not alive.is_alive()
    alive.give_sign()
    assert alive.is_alive()
    os.utime(sign, (time.time() - 60, time.time() - 60))
    assert not alive.is_alive()


def test_metrics_of_a_run_without_report(tmp_path: Path) -> None:
    assert metrics(tmp_path).splitlines()[-1] == "nerfleet_run_complete 1"


def test_hosts_of_the_regular_examination() -> None:
    words = command(["--pods=2", "--service=nerfleet-doctor", "--device=cuda"], "nerfleet-doctor-29381-1", "1")
    assert words[3:] == [
        "doctor",
        "--cluster",
        "nerfleet-doctor-29381-0.nerfleet-doctor,nerfleet-doctor-29381-1.nerfleet-doctor",
        "--rank",
        "1",
        "--out",
        "/tmp",
        "--device=cuda",
    ]


def test_pods_that_stay_go_on_when_another_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod, "AGAIN_SECONDS", 0.01)
    tried = tmp_path / "tried"
    program = python(f"import os; there = os.path.exists({str(tried)!r}); open({str(tried)!r}, 'w'); raise SystemExit(0 if there else 130)")
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert pod.main(["--run", str(tmp_path), "--", *program]) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (tmp_path / pod.MARKER).exists()
