"""Host names, in both directions."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import TypeVar

from nerfleet.doctor.check import Check
from nerfleet.errors import NerfleetError

LOOKUP_SECONDS = 4.0

_Value = TypeVar("_Value")


def read_hosts(text: str) -> list[str]:
    """Host names of ``--cluster``: a file with one a line (``#`` begins a comment, words after the name are left out), or names with commas.

    Raises:
        NerfleetError: no such file, no names, a name twice, or something that is no name.
    """
    path = Path(text)
    if path.is_file():
        lines = [line.split("#")[0].split() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        hosts = [words[0] for words in lines if words]
    elif "/" in text or text.endswith(".txt"):
        raise NerfleetError(f"--cluster {text}", "is not there", "name a file with one host a line, or hosts with commas")
    else:
        hosts = [word.strip() for word in text.split(",") if word.strip()]
    if not hosts:
        raise NerfleetError(f"--cluster {text}", "names no host", "write one host a line")
    for host in hosts:
        if not all(c.isalnum() or c in "-._:" for c in host) or host.startswith("-"):
            raise NerfleetError(f"--cluster {text}", f"{host!r} is no host name", "write one host a line")
        if hosts.count(host) > 1:
            raise NerfleetError(f"--cluster {text}", f"{host} is there twice", "name every host once")
    return hosts


def address_of(host: str) -> str | None:
    """The IP address of a name; None if there is none (in time)."""
    found = _in_time(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    if not found:
        return None
    ordered = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(ordered[0][4][0])


def name_of(address: str) -> list[str]:
    """Names that the reverse direction gives; none if there are none (in time)."""
    found = _in_time(lambda: socket.gethostbyaddr(address))
    return [found[0], *found[1]] if found else []


def name_checks(hosts: list[str]) -> tuple[list[Check], dict[str, str]]:
    """(checks, host -> address of those that have one)."""
    with ThreadPoolExecutor(max_workers=min(len(hosts), 16)) as pool:
        addresses = dict(zip(hosts, pool.map(address_of, hosts)))
        known = {host: address for host, address in addresses.items() if address}
        backwards = dict(zip(known, pool.map(name_of, known.values())))
    unknown = [host for host, address in addresses.items() if not address]
    if unknown:
        remedy = "correct hosts.txt, /etc/hosts or DNS; Kubernetes: headless Service with publishNotReadyAddresses, and its name as subdomain"
        return [Check("host names", "fail", f"no address for {', '.join(unknown)}", remedy)], known
    loopback = [host for host, address in known.items() if address.startswith("127.") and not host[:1].isdigit()]
    if loopback and len(hosts) > 1:
        found = ", ".join(f"{host} is {known[host]}" for host in loopback)
        return [Check("host names", "fail", f"{found}: no other host gets there", "let the name stand for the real address in /etc/hosts")], known
    checks = [Check("host names", "ok", ", ".join(f"{host} {address}" for host, address in known.items()))]
    strange = [host for host, names in backwards.items() if known[host] != host and not any(_same(host, name) for name in names)]
    if strange:
        found = "; ".join(f"{known[host]} is {', '.join(backwards[host]) or 'nameless'}, not {host}" for host in strange)
        checks.append(Check("reverse names", "warn", found, "reverse DNS or /etc/hosts should lead back to the name; logs and some launchers show it"))
    else:
        checks.append(Check("reverse names", "ok", "addresses lead back to the names"))
    return checks, known


def _same(one: str, other: str) -> bool:
    return one == other or one.split(".")[0] == other.split(".")[0]


def _in_time(look_up: Callable[[], _Value]) -> _Value | None:
    """The system's resolver has no time limit of its own that a program could set."""
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        return pool.submit(look_up).result(timeout=LOOKUP_SECONDS)
    except (OSError, UnicodeError, FutureTimeout):
        return None
    finally:
        pool.shutdown(wait=False)
