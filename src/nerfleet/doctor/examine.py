"""The whole examination: of this machine, as one of several, or of all of them from here."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nerfleet.doctor import collectives, facts, firewall, gpus, interfaces, meeting, names
from nerfleet.doctor.check import Check
from nerfleet.doctor.machine import machine_checks

MEET_SECONDS = 10.0


@dataclass(frozen=True)
class Wishes:
    """Attributes:
    device: "auto", "cpu" or "cuda". gpus: that should be on each host; 0: any number. port: of the rendezvous. folder: where runs are written.
    seconds: time limit of the collectives.
    """

    device: str
    gpus: int
    port: int
    folder: Path
    seconds: float


def examine_machine(wishes: Wishes) -> list[Check]:
    """This machine alone; with several GPUs also their collectives."""
    checks = [*gpus.gpu_checks(wishes.device, wishes.gpus), *machine_checks(wishes.folder), own_name(), *interfaces.infiniband_checks()]
    n = _n_usable(wishes.device)
    if n < 2:
        return [*checks, Check(collectives.NAME, "skip", "one rank has nobody to talk to")]
    seat = collectives.Seat([socket.gethostname()], [n], 0, "cuda")
    store = collectives.host_store("127.0.0.1", wishes.seconds)
    return [*checks, *collectives.run(seat, store, "127.0.0.1", store.port, wishes.seconds)]


def own_name() -> Check:
    """Whether this machine's name has an address; what gloo listens on."""
    name = socket.gethostname()
    address = names.address_of(name)
    if address is None:
        return Check("own name", "warn", f"{name} has no address", f"add a line to /etc/hosts: ADDRESS {name}")
    return Check("own name", "ok", f"{name} is {address}")


def examine_host(hosts: list[str], own: int, wishes: Wishes) -> list[Check]:
    """This machine as host ``own`` of the list, while the same command runs on all others."""
    checks = [*gpus.gpu_checks(wishes.device, wishes.gpus), *machine_checks(wishes.folder), *interfaces.infiniband_checks()]
    checks += _together(hosts, own, wishes)
    return [dataclasses.replace(check, host=hosts[own]) for check in checks]


def _together(hosts: list[str], own: int, wishes: Wishes) -> list[Check]:
    """Names, port, clocks, versions, interface, collectives."""
    checks, addresses = names.name_checks(hosts)
    mine = hosts[own]
    if mine not in addresses:
        return checks
    elsewhere = meeting.not_here(mine, addresses[mine], wishes.port)
    if elsewhere is not None:
        return [*checks, elsewhere]
    routes = {host: interfaces.route_to(address, interfaces.addresses()) for host, address in addresses.items() if host != mine}
    interface_check, interface = interfaces.choose(routes, os.environ)
    facts_here: dict[str, Any] = _own_facts(interface)
    facts_here["ranks"] = max(_n_usable(wishes.device), 1)
    facts_here["device"] = "cuda" if _n_usable(wishes.device) else "cpu"
    store = collectives.host_store(addresses[mine], wishes.seconds) if own == 0 and len(hosts) > 1 else None
    facts_here["board"] = store.port if store else 0
    try:
        listener = meeting.Listener(addresses[mine], wishes.port, facts_here)
    except OSError as error:
        return [*checks, meeting.listening_failure(mine, addresses[mine], wishes.port, error)]
    try:
        peers = {host: address for host, address in addresses.items() if host != mine}
        greetings = meeting.ask_all(peers, wishes.port, mine, MEET_SECONDS)
        _let_others_ask(listener, peers)
        rule = firewall.blocking_rule(wishes.port)
        checks += [meeting.port_check(greetings, wishes.port, rule), meeting.incoming_check(greetings, listener.asked_by, wishes.port, rule)]
        checks += [meeting.clock_check(greetings), interface_check]
        heard = {greeting.host: greeting.facts for greeting in greetings if greeting.facts is not None}
        if own > 0 and hosts[0] in heard:
            checks.append(facts.agreement(_versions(facts_here), _versions(heard[hosts[0]] or {}), hosts[0]))
        elif own == 0:
            checks.append(facts.agreement(_versions(facts_here), _versions(facts_here), mine))
        everyone = heard | {mine: facts_here}
        missing = [host for host in hosts if host not in everyone]
        return [*checks, *_collectives(hosts, own, addresses, everyone, missing, interface, store, wishes)]
    finally:
        listener.close()


def _collectives(
    hosts: list[str], own: int, addresses: dict[str, str], everyone: dict[str, Any], missing: list[str],
    interface: str | None, store: Any, wishes: Wishes,
) -> list[Check]:  # fmt: skip
    if len(hosts) < 2:
        return [Check(collectives.NAME, "skip", "one host")]
    if hosts[0] in missing:
        return [Check(collectives.NAME, "skip", f"{hosts[0]}, where all meet, was not reached")]
    devices = {host: everyone[host]["device"] for host in everyone}
    device = "cuda" if set(devices.values()) == {"cuda"} else "cpu"
    seat = collectives.Seat(hosts, [everyone.get(host, {}).get("ranks", 1) if device == "cuda" else 1 for host in hosts], own, device, interface)
    port = int(everyone[hosts[0]]["board"])
    if store is None and not meeting.is_open(addresses[hosts[0]], port):
        return [Check(collectives.NAME, "fail", f"port {port} of {hosts[0]} is closed, and collectives use any", firewall.opening(port))]
    try:
        board = store or collectives.join_store(addresses[hosts[0]], port, wishes.seconds)
        board.set(f"reached/{own}", ",".join(missing) or "-")
    except Exception as error:
        return [Check(collectives.NAME, "fail", f"{hosts[0]} port {port}: {' '.join(str(error).split())[:120]}", firewall.opening(port))]
    try:
        apart = _who_is_apart(board, hosts)
        if apart:
            return [Check(collectives.NAME, "skip", f"not all hosts reach each other: {apart}")]
        return collectives.run(seat, board, addresses[hosts[0]], port, wishes.seconds)
    finally:
        collectives.leave(board, seat)


def _who_is_apart(board: Any, hosts: list[str]) -> str:
    """ "b misses c": all must have reached all, or a collective would only hang."""
    until = time.monotonic() + MEET_SECONDS
    while time.monotonic() < until and not all(board.check([f"reached/{i}"]) for i in range(len(hosts))):
        time.sleep(0.1)
    parts = []
    for i, host in enumerate(hosts):
        if not board.check([f"reached/{i}"]):
            parts.append(f"{host} did not come")
        elif (missed := board.get(f"reached/{i}").decode()) != "-":
            parts.append(f"{host} misses {missed}")
    return "; ".join(parts)


def _let_others_ask(listener: meeting.Listener, peers: dict[str, str]) -> None:
    """Stay until all have asked, or the time in which they would have is over."""
    until = time.monotonic() + MEET_SECONDS
    while time.monotonic() < until and not set(peers) <= listener.asked_by:
        time.sleep(0.05)


def _own_facts(interface: str | None) -> dict[str, Any]:
    found, _ = gpus.query()
    return {**facts.own_facts(found[0].driver if found else "", interfaces.rdma_version()), "MTU": str(interfaces.mtu(interface) or "")}


def _versions(everything: dict[str, Any]) -> dict[str, str]:
    return {key: str(everything[key]) for key in (*facts.MUST_AGREE, *facts.SHOULD_AGREE) if key in everything}


def _n_usable(device: str) -> int:
    """GPUs that PyTorch can use; 0 with ``cpu``."""
    if device == "cpu":
        return 0
    import torch

    return torch.cuda.device_count()
