"""``nerfleet doctor``: what keeps training from starting or makes it slow, and what to do about it."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerfleet.cli.flags import Device, print_json
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.doctor.check import Check
    from nerfleet.doctor.explain import Explanation

SUMMARY = "what keeps training from starting, and what to do"
COLORS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
PIPE_WIDTH = 200


@dataclass(frozen=True)
class Arguments:
    """Check this machine, or all hosts of a cluster: GPUs, driver, compiler, links, names, ports, clocks, limits, disk, versions, collectives.

    Exit code 1 if something fails. hosts.txt holds one host name a line; the first is where ranks meet.

    Examples:
        nerfleet doctor
        nerfleet doctor --cluster hosts.txt
        nerfleet doctor --cluster nerfleet-0.nerfleet,nerfleet-1.nerfleet --launch "kubectl exec {short} -- nerfleet" --port 29600
        nerfleet doctor --explain train.log

    Attributes:
        cluster: file of host names, or names with commas: run on all of them, one table.
        rank: this machine is that host of the list (from 0), and the same command runs on the others: nothing is started elsewhere.
        launch: how to run nerfleet on {host} ({short}: its name up to the first dot); empty: ssh.
        port: of the rendezvous, that must be reachable on every host.
        gpus: GPUs that every host should have; 0: any number.
        device: cpu: GPUs are not looked at; cuda: their absence is a failure.
        out: where runs are written (disk checks).
        timeout: seconds without progress after which the collectives are given up.
        explain: a log of a failed run: what its errors mean.
        json: print one JSON object.
    """

    cluster: str = ""
    rank: int = -1
    launch: str = ""
    port: int = 29500
    gpus: int = 0
    device: Device = "auto"
    out: Path = Path("runs")
    timeout: int = 15
    explain: Path | None = None
    json: bool = False


def run(arguments: Arguments) -> None:
    if arguments.explain is not None:
        _explain(arguments.explain, arguments.json)
        return
    from nerfleet.doctor.check import failed

    _check_flags(arguments)
    checks = _examine(arguments)
    if arguments.json:
        print_json({"checks": [dataclasses.asdict(check) for check in checks]})
    else:
        _print(checks)
    if failed(checks):
        sys.exit(1)


def _check_flags(arguments: Arguments) -> None:
    if not 0 < arguments.port < 1 << 16:
        raise NerfleetError(f"--port {arguments.port}", "is no port", "use 1024 to 65535")
    for name in ("gpus", "timeout"):
        if getattr(arguments, name) < 0:
            raise NerfleetError(f"--{name} {getattr(arguments, name)}", "is negative", "use 0 or more")
    if (arguments.rank >= 0 or arguments.launch) and not arguments.cluster:
        raise NerfleetError("--rank and --launch", "have no meaning alone", "add --cluster hosts.txt")


def _examine(arguments: Arguments) -> list[Check]:
    from nerfleet.doctor.examine import Wishes, examine_host, examine_machine
    from nerfleet.doctor.fleet import SSH, examine_fleet
    from nerfleet.doctor.names import read_hosts

    wishes = Wishes(arguments.device, arguments.gpus, arguments.port, arguments.out, float(arguments.timeout))
    if not arguments.cluster:
        return examine_machine(wishes)
    hosts = read_hosts(arguments.cluster)
    if arguments.rank >= len(hosts):
        raise NerfleetError(f"--rank {arguments.rank}", f"there are {len(hosts)} hosts", f"use 0 to {len(hosts) - 1}")
    if arguments.rank >= 0:
        return examine_host(hosts, arguments.rank, wishes)
    flags = ["--port", str(arguments.port), "--gpus", str(arguments.gpus), "--device", arguments.device, "--timeout", str(arguments.timeout)]
    return examine_fleet(hosts, arguments.launch or SSH, [*flags, "--out", str(arguments.out)], wishes.seconds)


def _print(checks: list[Check]) -> None:
    """One table; what is wrong is said again below, with its remedy."""
    from rich import box
    from rich.table import Table

    console = _console()
    several = any(check.host for check in checks)
    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("check", "", *(("where",) if several else ()), "found"):
        table.add_column(title, overflow="fold")
    for row in _rows(checks):
        name, status, where, found = row
        table.add_row(name, f"[{COLORS[status]}]{status}[/]", *((where,) if several else ()), _plain(found))
    console.print(table)
    wrong = [check for check in checks if check.status in ("fail", "warn")]
    for check in sorted(wrong, key=lambda one: one.status):
        where = f" on {check.host}" if check.host else ""
        console.print(f"[{COLORS[check.status]}]{check.status}[/] {check.name}{where}: {_plain(check.found)}", f"  -> {_plain(check.remedy)}", sep="\n")
    if not wrong:
        console.print("nothing is wrong")


def _rows(checks: list[Check]) -> list[tuple[str, str, str, str]]:
    """Name, status, hosts, what was found: one row for all hosts where a check came to the same end; found on the first of them."""
    hosts = dict.fromkeys(check.host for check in checks)
    grouped: dict[tuple[str, str], list[Check]] = {}
    for name in dict.fromkeys(check.name for check in checks):
        for check in checks:
            if check.name == name:
                grouped.setdefault((name, check.status), []).append(check)
    return [(name, status, _where(same, len(hosts)), same[0].found) for (name, status), same in grouped.items()]


def _where(same: list[Check], n_hosts: int) -> str:
    return "all" if len(same) == n_hosts else ", ".join(check.host for check in same)


def _explain(log: Path, as_json: bool) -> None:
    from nerfleet.doctor.explain import explain_file

    found = explain_file(log)
    if as_json:
        print_json({"explanations": [_values(one) for one in found]})
        return
    console = _console()
    for one in found:
        times = f", {one.count} lines" if one.count > 1 else ""
        console.print(f"line {one.line}{times}: {_plain(one.text)}", f"  {one.error.meaning}", f"  -> {one.error.remedy}", f"  {one.error.link}", sep="\n")
    if found:
        console.print("The first is mostly the cause of the others.")
    else:
        console.print("No known error in it. Try NCCL_DEBUG=INFO, nerfleet --debug, and nerfleet doctor.")


def _values(one: Explanation) -> dict[str, Any]:
    return {"line": one.line, "text": one.text, "count": one.count, "meaning": one.error.meaning, "remedy": one.error.remedy, "link": one.error.link}


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
