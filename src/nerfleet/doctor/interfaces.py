"""Network interfaces: which one reaches the peers, its size of packets, InfiniBand."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from nerfleet.doctor.check import Check
from nerfleet.doctor.machine import INFINIBAND

NET = Path("/sys/class/net")
PEER_MEMORY = (Path("/sys/module/nvidia_peermem"), Path("/sys/module/nv_peer_mem"))
VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
LOCAL_ONLY = ("lo", "docker", "veth", "virbr", "br-")
_SIOCGIFADDR = 0x8915


def addresses() -> dict[str, str]:
    """Interface -> its IPv4 address (Linux)."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                import fcntl

                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except (OSError, ImportError):
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def route_to(address: str, table: Mapping[str, str]) -> str | None:
    """The interface that packets to ``address`` leave by, as the system would route them; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            mine = probe.getsockname()[0]
    except OSError:
        return None
    if mine.startswith("127."):
        return "lo"
    return next((name for name, own in table.items() if own == mine), None)


def choose(routes: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[Check, str | None]:
    """(the check, the interface for collectives) from the interface that reaches each peer.

    NCCL takes a name as a prefix (``eth0`` also means ``eth0.2093``), ``=eth0`` as that name alone, ``^docker`` as all others.
    """
    name = "interface"
    lost = [peer for peer, interface in routes.items() if interface is None]
    if lost:
        return Check(name, "fail", f"no route to {', '.join(lost)}", "add a route, or bring the interface up: ip route get ADDRESS"), None
    used = list(dict.fromkeys(str(interface) for interface in routes.values()))
    if not used:
        return Check(name, "skip", "no peers"), None
    suggestion = f"{VARIABLES[0]}={','.join(used)} {VARIABLES[1]}={used[0]}"
    for variable in VARIABLES:
        value = environment.get(variable, "")
        if value and not all(_matches(value, interface) for interface in used):
            return Check(name, "fail", f"{variable}={value}, but the peers are reached by {', '.join(used)}", f"set {suggestion}"), used[0]
    local = [interface for interface in used if interface.startswith(LOCAL_ONLY[1:])]
    if local:
        return Check(
            name, "fail", f"peers are reached by {', '.join(local)}, which does not leave this host", "use the hosts' real addresses in hosts.txt"
        ), used[0]
    if len(used) > 1:
        return Check(name, "warn", f"peers are reached by several: {', '.join(used)}", f"set {suggestion}"), used[0]
    return Check(name, "ok", f"{used[0]} (MTU {mtu(used[0]) or 'unknown'}) reaches all peers"), used[0]


def _matches(value: str, interface: str) -> bool:
    if value.startswith("^"):
        return not any(interface.startswith(part) for part in value[1:].split(","))
    if value.startswith("="):
        return interface in value[1:].split(",")
    return any(interface.startswith(part.split(":")[0]) for part in value.split(","))


def mtu(interface: str | None) -> int:
    """Bytes of the largest packet; 0 if unknown."""
    try:
        return int((NET / (interface or "") / "mtu").read_text())
    except (OSError, ValueError):
        return 0


def infiniband_checks() -> list[Check]:
    """InfiniBand devices and whether GPUs and network cards exchange data without the host's memory."""
    devices = sorted(path.name for path in INFINIBAND.iterdir()) if INFINIBAND.is_dir() else []
    if not devices:
        return [Check("InfiniBand", "skip", "no devices")]
    states = {f"{port.parent.parent.name}:{port.name}": _state(port) for device in devices for port in (INFINIBAND / device / "ports").glob("*")}
    down = [name for name, state in states.items() if "ACTIVE" not in state]
    found = ", ".join(f"{name} {state}" for name, state in states.items())
    remedy = "check the cable and the subnet manager: ibstat, sminfo" if down else ""
    checks = [Check("InfiniBand", "warn" if down else "ok", found, remedy)]
    direct = any(path.is_dir() for path in PEER_MEMORY)
    if direct:
        return [*checks, Check("GPUDirect RDMA", "ok", "nvidia-peermem is loaded")]
    return [*checks, Check("GPUDirect RDMA", "warn", "nvidia-peermem is not loaded", "modprobe nvidia-peermem (or a driver and kernel with DMA-BUF)")]


def _state(port: Path) -> str:
    try:
        return (port / "state").read_text().split(":")[-1].strip()
    except OSError:
        return "unknown"


def rdma_version() -> str:
    """Of rdma-core or OFED; empty if there is none."""
    for command in (["ofed_info", "-s"], ["dpkg-query", "-W", "-f", "${Version}", "rdma-core"], ["rpm", "-q", "--qf", "%{VERSION}", "rdma-core"]):
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=5, env={**os.environ, "LC_ALL": "C"})
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.strip().rstrip(":")
    return ""
