"""Starting the ranks of this machine through torch elastic, alone or together with other machines, and ending them in good order.

Ranks are forked from a server process that has imported everything already: a start, and a restart after a loss, waits for
no interpreter and no import.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import multiprocessing
import multiprocessing.forkserver
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

Entry = Callable[[Sequence[str]], int]
"""What a rank runs: the words of a command line -> exit code. A function of a module, so that other processes find it."""
OUTCOME_FOLDER = "NERFLEET_OUTCOME_FOLDER"
"""Environment variable: where ranks leave the exit code that the command should end with."""
FINISHED_SECONDS = 2.0
"""A rank that is done waits so long for its launcher to take notice; one that is being stopped takes none."""
JOIN_SECONDS = 600
LAST_CALL_SECONDS = 2
"""With the least number of machines there, others may still join for so long."""
KEEP_ALIVE_SECONDS, KEEP_ALIVE_ATTEMPTS = 1, 5
"""A machine that has not been heard of for the product is lost (torch's own: 15 s)."""
_PR_SET_NAME = 15


@dataclass(frozen=True)
class Machines:
    """The machines of a run: how many at least and at most, where they meet (``host:port``, on one of them) and the run's own word."""

    least: int
    most: int
    endpoint: str
    run_id: str


def machines(nnodes: str, endpoint: str, run_id: str) -> Machines | None:
    """``--nnodes 2:4 --rdzv-endpoint host:port --rdzv-id word`` -> checked; None: this machine alone.

    Raises:
        NerfleetError: no such numbers, or nowhere to meet.
    """
    try:
        least, most = (int(part) for part in (nnodes.split(":") if ":" in nnodes else (nnodes, nnodes)))
    except ValueError:
        least = most = 0
    if not 1 <= least <= most:
        raise NerfleetError(f"--nnodes {nnodes}", "is no number of machines", "write 2, or 1:4 for least:most")
    if most == 1 and not endpoint:
        return None
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise NerfleetError(f"--rdzv-endpoint {endpoint}".rstrip(), "is not host:port", "name one of the machines and a free port there, the same on all")
    if not run_id:
        raise NerfleetError("--rdzv-id", "is missing", "choose a word for this run, the same on all machines and another for every run")
    return Machines(least, most, endpoint, run_id)


def warm_up(n_ranks: int, preload: Sequence[str]) -> None:
    """Let the server that ranks are forked from import what they need, beside whatever this process does until :func:`start`."""
    threads = str(max((os.cpu_count() or 1) // max(n_ranks, 1), 1))
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, threads)
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else restarted ranks read the addresses of those before them
    multiprocessing.set_forkserver_preload(list(preload))
    multiprocessing.forkserver.ensure_running()


def start(
    n_ranks: int, entry: Entry, words: Sequence[str], device_type: str, *, max_restarts: int = 3, debug: bool = False,
    together: Machines | None = None,
) -> int:  # fmt: skip
    """Run ``entry(words)`` as ``n_ranks`` ranks on this machine until they are done; returns the exit code.

    After the loss of a rank or of a machine all start again, at most ``max_restarts`` times, and continue from the last checkpoint.
    If the machine where all meet is lost, the others wait for it to come back.

    Args:
        together: other machines that run the same command; None: none.

    Raises:
        NerfleetError: more ranks than GPUs, or a rank failed for good.
    """
    check_gpus(n_ranks, device_type)
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.launcher.api import elastic_launch

    if not debug:
        _silence()
    _wait_for_server()  # the others pause as soon as this machine joins
    outcomes = Path(tempfile.mkdtemp(prefix="nerfleet-"))
    try:
        for attempt in range(max_restarts + 1):
            try:
                elastic_launch(_config(n_ranks, max_restarts, together), entrypoint=_rank)(entry, tuple(words), str(outcomes))
                break
            except RendezvousError as error:
                _meet_again(error, together, attempt == max_restarts)
        return max(read_outcomes(outcomes), default=0)
    except ChildFailedError as error:
        raise NerfleetError(_first_failure(error), f"{max_restarts} restarts did not help" if max_restarts else "it was not restarted", "see above") from None
    except SignalException as stop:
        if stop.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        return max([128 + stop.sigval, *read_outcomes(outcomes)])
    finally:
        shutil.rmtree(outcomes, ignore_errors=True)


def _wait_for_server() -> None:
    """Until the server has imported everything: it can fork."""
    probe = multiprocessing.get_context("forkserver").Process(target=_ready)
    probe.start()
    probe.join()


def _ready() -> None:
    return None


def _config(n_ranks: int, max_restarts: int, together: Machines | None) -> LaunchConfig:
    from torch.distributed.launcher.api import LaunchConfig

    address = own_address(together.endpoint) if together else "127.0.0.1"
    together = together or Machines(1, 1, f"127.0.0.1:{free_port()}", uuid.uuid4().hex)  # the default id is the same word for every job
    rendezvous: dict[str, Any] = {"join_timeout": JOIN_SECONDS, "last_call_timeout": LAST_CALL_SECONDS}
    rendezvous |= {"keep_alive_interval": KEEP_ALIVE_SECONDS, "keep_alive_max_attempt": KEEP_ALIVE_ATTEMPTS}
    return LaunchConfig(
        min_nodes=together.least,
        max_nodes=together.most,
        nproc_per_node=n_ranks,
        run_id=together.run_id,
        rdzv_backend="c10d",
        rdzv_endpoint=together.endpoint,
        rdzv_configs=rendezvous,
        max_restarts=max_restarts,
        monitor_interval=0.1,
        start_method="forkserver",
        local_addr=address,
    )


def own_address(endpoint: str) -> str | None:
    """This machine's address on the way to ``host:port``, which others can reach; None: what its own name means has to do.

    Waits until the name can be resolved. Raises NerfleetError if it cannot within JOIN_SECONDS.
    """
    host, _, port = endpoint.rpartition(":")
    begin = time.monotonic()
    while True:
        try:
            address = _address_towards(host, int(port))
            break
        except OSError as error:
            if time.monotonic() - begin > JOIN_SECONDS:
                raise NerfleetError(f"--rdzv-endpoint {endpoint}", error.strerror or "cannot be reached", "check the name") from None
            time.sleep(1.0)
    if not address.startswith("127.") or host == "localhost" or host.startswith("127."):
        return address
    with contextlib.suppress(OSError):  # the endpoint is here: others come over the way out (nothing is sent)
        return _address_towards("192.0.2.1", 9)
    return None


def _address_towards(host: str, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])


def _meet_again(error: Exception, together: Machines | None, last: bool) -> None:
    """After the place where machines meet is gone: say so, wait a moment. Raises NerfleetError if it is of no use."""
    where = together.endpoint if together else "127.0.0.1"
    reason = type(error).__name__.removeprefix("Rendezvous").removesuffix("Error").lower() or "error"
    if last or together is None:
        raise NerfleetError(where, f"the machines do not meet there ({reason})", "check that the first machine runs, its name and the firewall") from None
    sys.stderr.write(f"nerfleet: {where} does not answer ({reason}): waiting for it to come back\n")
    time.sleep(1.0)


def _end_with_launcher() -> None:
    """A rank does not outlive its launcher; its parent in the system's eyes is the server."""
    launcher = multiprocessing.parent_process()
    if launcher is not None:
        launcher.join()
        os.kill(os.getpid(), signal.SIGKILL)


def _rank(entry: Entry, words: Sequence[str], outcomes: str) -> None:
    """A rank's process, forked by the server."""
    os.environ[OUTCOME_FOLDER] = outcomes  # the server may have begun before it was known
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    os.setsid()  # Ctrl-C reaches the launcher alone, which passes it on
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"nerfleet {os.environ['RANK']}".encode(), 0, 0, 0)
    leave_outcome(int(os.environ["RANK"]), 0)
    code = entry(words)
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        os._exit(code)
    end = threading.Timer(FINISHED_SECONDS, os._exit, (0,))
    end.daemon = True
    end.start()


def check_gpus(n_ranks: int, device_type: str) -> None:
    """One rank a GPU. Raises NerfleetError."""
    if n_ranks < 1:
        raise NerfleetError(f"--gpus {n_ranks}", "is no number of GPUs", "use 1 or more")
    if device_type != "cuda":
        return
    import torch

    n_gpus = torch.cuda.device_count()
    if n_ranks > n_gpus:
        raise NerfleetError(f"--gpus {n_ranks}", f"there are {n_gpus} GPUs on {socket.gethostname()}", f"use --gpus {n_gpus}" if n_gpus else "use --device cpu")


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def leave_outcome(rank: int, code: int) -> None:
    """For a rank: the exit code that the whole command should end with; the rank itself then ends with 0, so that it is not restarted."""
    folder = os.environ.get(OUTCOME_FOLDER)
    if folder:
        with contextlib.suppress(OSError):
            (Path(folder) / f"{os.environ.get('MASTER_PORT')}.{rank}").write_text(json.dumps(code))


def has_launcher() -> bool:
    """Whether :func:`start` of this module started this process (else torchrun, which knows nothing of outcomes)."""
    return OUTCOME_FOLDER in os.environ


def read_outcomes(folder: Path) -> list[int]:
    """Of the ranks that were started last: every start meets at another port."""
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    return [int(json.loads(file.read_text())) for file in files if file.stem == files[-1].stem]


def _silence() -> None:
    """What torch's launcher says of a loss is said by the ranks, shorter."""
    noisy = ("torch.distributed.elastic", "torch.distributed.launcher", "torch.multiprocessing")
    for name in [name for name in logging.root.manager.loggerDict if name.startswith(noisy)]:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _first_failure(error: Exception) -> str:
    """"rank 1 on host a: ended by SIGKILL": the first that failed."""
    failures = getattr(error, "failures", {})
    if not failures:
        return "a rank"
    failure = min(failures.values(), key=lambda f: f.timestamp)
    code = failure.exitcode
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"rank {failure.global_rank} on {socket.gethostname()}: {how}"
