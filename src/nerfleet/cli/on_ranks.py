"""A verb on several ranks: starting those of this machine, and being one."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.data.part import Part
    from nerfleet.parallel.launch import Machines
    from nerfleet.parallel.ranks import Ranks

PRELOAD = ("nerfleet.train.trainer", "nerfleet.data.transforms", "nerfleet.snapshot.load", "nerfleet.parallel.ranks")
"""What a rank imports sooner or later: done once for all ranks, and before a loss rather than after it."""


def wanted(gpus: int) -> bool:
    """Whether there is more to it than one device: ranks are asked for, or this process is one."""
    from nerfleet.parallel.environment import inside

    return gpus != 1 or inside()


def run(verb: str, arguments: Any, work: Callable[[Ranks], None]) -> None:
    """Start ``arguments.gpus`` ranks of this same command, or be one of them and ``work``."""
    from nerfleet.parallel.environment import inside

    if inside():
        be_rank(arguments.device, "2m", lambda ranks: ranks.together(lambda: work(ranks)))
    else:
        start(verb, arguments, PRELOAD)


def start(verb: str, arguments: Any, preload: Sequence[str], max_restarts: int = 0, together: Machines | None = None) -> None:
    """Run this machine's ranks to their end; exits with their code if it is not 0."""
    from nerfleet.cli.main import main
    from nerfleet.parallel import launch

    launch.check_gpus(arguments.gpus, "cpu")
    launch.warm_up(arguments.gpus, preload)
    from nerfleet.train.trainer import choose_device

    device_type = choose_device(arguments.device).type
    code = launch.start(arguments.gpus, main, [verb, *words(arguments)], device_type, max_restarts=max_restarts, together=together)
    if code:
        sys.exit(code)


def words(arguments: Any) -> list[str]:
    """Flags that give these arguments again; the first field is the positional one."""
    positional, *flags = dataclasses.fields(arguments)
    found = [str(getattr(arguments, positional.name))]
    for field in flags:
        value = getattr(arguments, field.name)
        if value == field.default:
            continue
        flag = field.name.replace("_", "-")
        if isinstance(value, tuple):
            found += [f"--{flag}", *map(str, value)]
            continue
        found += ([f"--{flag}"] if value else [f"--no-{flag}"]) if isinstance(value, bool) else [f"--{flag}", str(value)]
    return found


def be_rank(device: str, collective_timeout: str, work: Callable[[Ranks], None]) -> None:
    """Be one rank. An error that all ranks share is said by the first; under our launcher it is no reason to start again."""
    from nerfleet.cli.flags import say
    from nerfleet.cli.train import seconds
    from nerfleet.parallel.launch import has_launcher, leave_outcome
    from nerfleet.parallel.ranks import RankLost, SharedError, exit_lost, joined
    from nerfleet.train.trainer import choose_device

    rank = -1
    try:
        timeout = seconds(collective_timeout, "collective-timeout")
        with joined(choose_device(device).type, timeout, say) as ranks:
            rank = ranks.rank
            work(ranks)
    except RankLost as error:
        exit_lost(error)
    except (NerfleetError, KeyboardInterrupt) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        leave_outcome(max(rank, 0), 130 if interrupted else 2)
        if not has_launcher():
            raise
        if interrupted or (isinstance(error, SharedError) and rank > 0):
            return
        say(f"nerfleet: error: {error}")


def equal_part(ranks: Ranks) -> Part:
    """This rank's part of a scene's pixels where all have the same."""
    from nerfleet.data.part import Part

    def gather(failed: dict[str, str]) -> dict[str, str]:
        return {name: reason for some in ranks.exchange(failed) for name, reason in some.items()}

    return Part(ranks.rank / ranks.world_size, (ranks.rank + 1) / ranks.world_size, gather=gather)
