"""Known errors: there are enough, each is found in a real line, and a log is read in order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nerfleet.cli.main import main
from nerfleet.doctor.explain import explain
from nerfleet.doctor.known_errors import KNOWN_ERRORS

LINES = {
    "too old|older than": "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
    "compute capability": "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "build for the CPU": "AssertionError: Torch not compiled with CUDA enabled",
    "kernel module": "Failed to initialize NVML: Driver/library version mismatch",
    "lost its GPUs": "Failed to initialize NVML: Unknown Error",
    "switches": "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
    "no longer answers on PCIe": "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.",
    "memory cell": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "cannot be initialised": "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment",
    "memory is full": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    "outside its memory": "RuntimeError: CUDA error: an illegal memory access was encountered",
    "NVRTC": "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.",
    "64 MB by default": "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
    "no network interface": "Bootstrap : no socket interface found",
    "same GPU": "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000",
    "lock enough": "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    "lost the connection": "NET/IB : Got completion from peer 7.6.13.83<36315> with status=12 opcode=1 len=0 vendor err 129 (Send)",
    "never came": "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8) ran for 600020 milliseconds before timing out.",
    "another rank died": "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "different programs": "init.cc:1247 NCCL WARN Mismatched collective detected",
    "cannot reach another host": "misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed",
    "IOMMU": "RuntimeError: peer access is not supported between these two devices",
    "a system call": "ncclSystemError: System call (socket, malloc, munmap, etc) failed.",
    "CUDA call inside": "ncclUnhandledCudaError: Call to CUDA function failed.",
    "listens on that port": "RuntimeError: The server socket has failed to listen on any local network address. code: -98, name: EADDRINUSE",
    "host of the rendezvous": "RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
    "too few hosts": "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
    "loopback": "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: remote=[127.0.0.1]:4000",
    "has no address": "ValueError: host not found: Name or service not known",
    "packets to that host": "DistNetworkError: The client socket has timed out after 10000ms while trying to connect to (node0, 29500).",
    "memory was short": "failed (exitcode: -9) local_rank: 0 (pid: 1322) of binary: python",
    "has no room": "RuntimeError: DataLoader worker (pid 3216) is killed by signal: Bus error.",
    "open files": "OSError: [Errno 24] Too many open files",
    "no runtime for NVIDIA": 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    "device plugin": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    "ReadWriteOnce": 'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node',
}


def test_there_are_enough_and_all_lead_somewhere() -> None:
    assert len(KNOWN_ERRORS) >= 25
    assert len(LINES) == len(KNOWN_ERRORS)
    assert all(error.link.startswith("https://") and error.meaning and error.remedy for error in KNOWN_ERRORS)


@pytest.mark.parametrize("words, line", LINES.items(), ids=lambda text: text[:30])
def test_each_is_found_in_its_line(words: str, line: str) -> None:
    (found,) = explain([f"[rank1]:[E321 02:07:08] {line}"])
    assert any(word in found.error.meaning for word in words.split("|")), found.error.meaning


def test_a_training_log_without_errors() -> None:
    assert (
        explain(["step 1,000/20,000  loss 0.00079  PSNR ~31.0 dB", "2 ranks, gloo; a rank that does not answer for 120 s ends the run", "3 minutes left"]) == []
    )


def test_the_verb_names_the_first_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"\x1b[31mstart\x1b[0m \xff\n" + (LINES["64 MB by default"] + "\n" + LINES["another rank died"] + "\n").encode() * 2)
    assert main(["doctor", "--explain", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["explanations"]
    assert [(one["line"], one["count"]) for one in found] == [(2, 2), (3, 2)]
    assert main(["doctor", "--explain", str(log)]) == 0
    assert "--shm-size" in capsys.readouterr().out


def test_a_log_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--explain", str(tmp_path / "none.log")]) == 2
    assert "none.log" in capsys.readouterr().err
