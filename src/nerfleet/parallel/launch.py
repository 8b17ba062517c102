"""Starting the ranks of one machine through torch elastic, and ending them in good order."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from nerfleet.errors import NerfleetError

OUTCOME_FOLDER = "NERFLEET_OUTCOME_FOLDER"
"""Environment variable: where ranks leave the exit code that the command should end with."""


def start(n_ranks: int, words: Sequence[str], device_type: str, max_restarts: int = 3, debug: bool = False) -> int:
    """Run ``python -m nerfleet WORDS`` as ``n_ranks`` ranks on this machine until they are done; returns the exit code.

    After the loss of a rank all start again, at most ``max_restarts`` times, and continue from the last checkpoint.

    Raises:
        NerfleetError: more ranks than GPUs, or a rank failed for good.
    """
    check_gpus(n_ranks, device_type)
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    outcomes = Path(tempfile.mkdtemp(prefix="nerfleet-"))
    _prepare_environment(n_ranks, outcomes, debug)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=n_ranks,
        run_id=uuid.uuid4().hex,  # the default is the same word for every job
        rdzv_backend="c10d",
        rdzv_endpoint=f"127.0.0.1:{free_port()}",
        max_restarts=max_restarts,
        monitor_interval=0.2,
        local_addr="127.0.0.1",
    )
    try:
        elastic_launch(config, entrypoint=sys.executable)("-m", "nerfleet", *words)
        return max(read_outcomes(outcomes), default=0)
    except ChildFailedError as error:
        raise NerfleetError(_first_failure(error), f"{max_restarts} restarts did not help" if max_restarts else "it was not restarted", "see above") from None
    except SignalException as stop:
        if stop.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        return max([128 + stop.sigval, *read_outcomes(outcomes)])
    finally:
        shutil.rmtree(outcomes, ignore_errors=True)


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
            (Path(folder) / str(rank)).write_text(json.dumps(code))


def has_launcher() -> bool:
    """Whether :func:`start` of this module started this process (else torchrun, which knows nothing of outcomes)."""
    return OUTCOME_FOLDER in os.environ


def read_outcomes(folder: Path) -> list[int]:
    return [int(json.loads(file.read_text())) for file in folder.iterdir()]


def _prepare_environment(n_ranks: int, outcomes: Path, debug: bool) -> None:
    """For this process and the ranks, which inherit it."""
    os.environ[OUTCOME_FOLDER] = str(outcomes)
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else restarted ranks read the addresses of those before them
    threads = str(max((os.cpu_count() or 1) // n_ranks, 1))
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, threads)
    if not debug:
        for name in [name for name in logging.root.manager.loggerDict if name.startswith(("torch.distributed.elastic", "torch.distributed.launcher"))]:
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
