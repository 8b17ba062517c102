"""Hosts meet over plain TCP: is the port reachable, how far are the clocks apart, what do the others run.

Every host listens on the port, on its own address of the list only, and asks every other one. A greeting is one JSON line each way:
the asker's wall clock out; the answerer's facts and its wall clock at arrival and departure back. The difference of the clocks is
((arrival - asked) + (departure - answered)) / 2 (RFC 5905, section 8).
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from nerfleet.doctor import firewall
from nerfleet.doctor.check import Check

CONNECT_SECONDS = 2.0
CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS = 1.0, 5.0
"""The rendezvous takes a host for lost whose last sign of life, stamped by that host's clock, is older than 5 s."""
MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class Greeting:
    """What became of asking a host.

    Attributes:
        failure: empty, "refused" or "silent".
        offset_seconds: its clock ahead of ours.
        facts: what it says of itself.
    """

    host: str
    failure: str
    offset_seconds: float = 0.0
    facts: dict[str, Any] | None = None


class Listener:
    """Answers greetings in a thread until closed."""

    def __init__(self, address: str, port: int, facts: dict[str, Any], clock: Callable[[], float] = time.time) -> None:
        """Raises OSError if it cannot listen there."""
        self.facts, self._clock = facts, clock
        self.asked_by: set[str] = set()
        self._socket = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=64)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, name="doctor-listener", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            connection.settimeout(CONNECT_SECONDS)
            question = json.loads(_line(connection))
            arrived = self._clock()
            connection.sendall(json.dumps({"facts": self.facts, "arrived": arrived, "departed": self._clock()}).encode() + b"\n")
            self.asked_by.add(str(question["host"]))


def ask(host: str, address: str, port: int, own: str, until: float) -> Greeting:
    """Greet a host, again and again until the monotonic time ``until`` while nobody listens there."""
    while True:
        greeting = _ask_once(host, address, port, own)
        if not greeting.failure or time.monotonic() > until:
            return greeting
        time.sleep(0.2)


def _ask_once(host: str, address: str, port: int, own: str) -> Greeting:
    try:
        with socket.create_connection((address, port), timeout=CONNECT_SECONDS) as connection:
            asked = time.time()
            connection.sendall(json.dumps({"host": own}).encode() + b"\n")
            answer = json.loads(_line(connection))
            answered = time.time()
            offset = ((answer["arrived"] - asked) + (answer["departed"] - answered)) / 2
            return Greeting(host, "", offset, dict(answer["facts"]))
    except ConnectionRefusedError:
        return Greeting(host, "refused")
    except (OSError, ValueError, KeyError, TypeError):
        return Greeting(host, "silent")


def is_open(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((address, port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def ask_all(peers: dict[str, str], port: int, own: str, seconds: float) -> list[Greeting]:
    """Greet all at once; ``peers``: host -> address."""
    if not peers:
        return []
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(max_workers=min(len(peers), 64)) as pool:
        return list(pool.map(lambda peer: ask(peer[0], peer[1], port, own, until), peers.items()))


def not_here(host: str, address: str, port: int) -> Check | None:
    """A complaint if the address is none of this host's."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return listening_failure(host, address, port, error)
    return None


def listening_failure(host: str, address: str, port: int, error: OSError) -> Check:
    """Why this host cannot listen."""
    if error.errno == errno.EADDRINUSE:
        return Check(
            f"port {port}", "fail", f"in use by another program on {address}", f"ss -ltnp 'sport = :{port}' names it; end it, or choose another --port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        remedy = "correct the name's address in /etc/hosts or DNS, or the order of hosts in --cluster and --rank"
        return Check("own name", "fail", f"{host} is {address}, which is no address of this host", remedy)
    return Check(f"port {port}", "fail", f"cannot listen on {address}: {error.strerror}", "choose a port above 1023")


def port_check(greetings: list[Greeting], port: int, own_rule: str) -> Check:
    """Whether every other host was reached; ``own_rule``: what this host's own firewall keeps out."""
    name = f"port {port}"
    refused = [g.host for g in greetings if g.failure == "refused"]
    silent = [g.host for g in greetings if g.failure == "silent"]
    if refused or silent:
        parts = [f"{', '.join(refused)}: closed (nobody listens, or a firewall rejects)"] if refused else []
        parts += [f"{', '.join(silent)}: no answer (a firewall drops the packets, or the host is down)"] if silent else []
        return Check(name, "fail", "; ".join(parts), f"see that the command runs on that host and {firewall.opening(port)}")
    if own_rule:
        return Check(name, "warn", f"reached on {len(greetings)} hosts, but {own_rule}", firewall.opening(port))
    return Check(name, "ok", f"reached on {', '.join(g.host for g in greetings)}")


def incoming_check(greetings: list[Greeting], asked_by: set[str], port: int, own_rule: str) -> Check:
    """Whether the hosts that we reached reached us too; if not, this host's firewall is the reason, and its rule is named."""
    name = "reached by others"
    answered = [g.host for g in greetings if not g.failure]
    if not answered:
        return Check(name, "skip", "no other host was reached")
    silent = [host for host in answered if host not in asked_by]
    if not silent:
        return Check(name, "ok", ", ".join(answered))
    found = f"{', '.join(silent)} could not reach port {port} here: {own_rule or 'no rule of ufw or nftables found (root may see more)'}"
    return Check(name, "fail", found, firewall.opening(port).replace("open it there", "open it here"))


def clock_check(greetings: list[Greeting]) -> Check:
    """The largest difference to this host's clock."""
    heard = [g for g in greetings if not g.failure]
    if not heard:
        return Check("clocks", "skip", "no other host was reached")
    worst = max(heard, key=lambda g: abs(g.offset_seconds))
    apart = abs(worst.offset_seconds)
    found = f"{worst.host} is {apart:.1f} s {'ahead' if worst.offset_seconds > 0 else 'behind'}"
    if apart <= CLOCK_WARN_SECONDS:
        return Check("clocks", "ok", f"at most {1e3 * apart:.0f} ms apart")
    remedy = "synchronise both: timedatectl set-ntp true, or chrony; the rendezvous drops a host whose clock is 5 s off"
    return Check("clocks", "fail" if apart > CLOCK_FAIL_SECONDS else "warn", found, remedy)


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(4096)
        if not part or len(data) > MAX_BYTES:
            raise ValueError("no line")
        data += part
    return data
