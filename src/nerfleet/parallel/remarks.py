"""What looks wrong about the machines of a run: said once, by the first rank, before it costs an evening."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

MAX_SKEW_SECONDS = 5.0
"""Between machines' clocks: the rendezvous takes machines for lost by their clocks."""
MIN_SHARED_BYTES = 1 << 30
"""Of /dev/shm for several GPUs of a machine; containers have 64 MiB unless told otherwise."""


def of_this_machine(environment: Mapping[str, str], several_hosts: bool, n_local_gpus: int) -> list[str]:
    """Remarks about one machine's environment.

    Args:
        environment: its variables. several_hosts: whether ranks are elsewhere too. n_local_gpus: ranks here that use one.
    """
    found = []
    if environment.get("TORCHELASTIC_RUN_ID") == "none":
        found.append("the run's id is the word none, as that of every run that names none: give torchrun a --rdzv-id of its own")
    restarts = environment.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    if restarts and environment.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1":
        found.append("restarted ranks would read the addresses of those before them: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun")
    if several_hosts and not environment.get("GLOO_SOCKET_IFNAME") and _own_address().startswith("127."):
        name = socket.gethostname()
        found.append(f"{name} is {_own_address()} to itself, which others cannot reach: set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME), or correct /etc/hosts")
    for variable, lost in (("NCCL_P2P_DISABLE", "NVLink"), ("NCCL_IB_DISABLE", "InfiniBand"), ("NCCL_SHM_DISABLE", "shared memory")):
        if n_local_gpus and environment.get(variable) == "1":
            found.append(f"{variable}=1: {lost} is not used, which is slower")
    if n_local_gpus > 1 and (size := shared_bytes()) is not None and size < MIN_SHARED_BYTES:
        found.append(f"/dev/shm has {size >> 20} MiB, GPUs of one machine may need {MIN_SHARED_BYTES >> 20}: docker run --shm-size 1g, or a memory volume")
    return found


def of_clocks(clocks: Sequence[tuple[str, float]]) -> list[str]:
    """Machines (name, seconds since the epoch, read at the same moment) whose clock is off the first one's."""
    host, reference = clocks[0]
    off = {name: seconds - reference for name, seconds in clocks if abs(seconds - reference) > MAX_SKEW_SECONDS}
    side = {True: "ahead of", False: "behind"}
    return [f"the clock of {name} is {abs(skew):.0f} s {side[skew > 0]} that of {host}: let both follow a time server" for name, skew in off.items()]


def shared_bytes(folder: Path = Path("/dev/shm")) -> int | None:
    """Size of the shared memory's file system; None where there is none."""
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def _own_address() -> str:
    """What this machine's own name means to itself; empty if nothing."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return ""
