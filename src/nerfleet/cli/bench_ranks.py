"""``nerfleet bench collectives``: starts the ranks and prints what they measured."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerfleet.cli.flags import print_json, say
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.cli.bench import Arguments


def run(arguments: Arguments) -> None:
    """Start ``arguments.gpus`` ranks, or be one of them."""
    import sys

    from nerfleet.cli.main import main
    from nerfleet.parallel.environment import inside
    from nerfleet.parallel.launch import start, warm_up
    from nerfleet.train.trainer import choose_device

    if inside():
        _measure(choose_device(arguments.device).type, arguments.json, arguments.save)
        return
    if arguments.gpus < 2:
        raise NerfleetError(f"--gpus {arguments.gpus}", "one rank exchanges nothing", "use 2 or more")
    warm_up(arguments.gpus, ("nerfleet.parallel.bench", "nerfleet.train.trainer"))
    device_type = choose_device(arguments.device).type
    words = ["bench", "collectives", "--gpus", str(arguments.gpus), "--device", device_type, *(["--json"] if arguments.json else [])]
    words += ["--save", str(arguments.save)] if arguments.save else []
    code = start(arguments.gpus, main, words, device_type, max_restarts=0)
    if code:
        sys.exit(code)


def _measure(device_type: str, as_json: bool, file: Path | None) -> None:
    from nerfleet.cli.calibration_file import save
    from nerfleet.parallel.bench import measure
    from nerfleet.parallel.ranks import RankLost, exit_lost, joined

    try:
        with joined(device_type) as ranks:
            rows = measure(ranks)
            hosts = ranks.exchange(socket.gethostname())
            if ranks.rank == 0:
                report = {"collectives": rows, "world_size": ranks.world_size, "hosts": sorted(set(hosts)), "device": str(ranks.device.type)}
                if file is not None:
                    save(file, report)
                _print(report, as_json)
            ranks.exchange(None)
    except RankLost as error:
        exit_lost(error)


def _print(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    say(f"{report['world_size']} ranks on {', '.join(report['hosts'])} ({report['device']})")
    for row in report["collectives"]:
        say(f"{row['operation']:16s}{row['bytes']:>12,} bytes {row['ms']:10.3f} ms {row['bus_bytes_per_s'] / 1e9:10.2f} GB/s")
