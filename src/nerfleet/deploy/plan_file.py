"""What ``nerfleet plan --json`` or ``nerfleet cost --json`` says about a deployment."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nerfleet.errors import NerfleetError

NOT_PASSED_ON = ("--gpus", "--steps")
"""Flags of the plan that the manifests set themselves."""


@dataclass(frozen=True)
class PlannedPods:
    """Attributes:
    pods, gpus_per_pod: equal pods of which whole ones fit every host.
    steps: 0: not said. checkpoint_seconds: 0: not said. flags: further ones of ``nerfleet train``.
    """

    pods: int
    gpus_per_pod: int
    steps: int
    checkpoint_seconds: float
    flags: tuple[str, ...]


def read_plan(path: Path) -> PlannedPods:
    """Raises NerfleetError if it is no plan."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NerfleetError(str(path), error.strerror or "cannot be read", "write it with nerfleet plan SCENE --json > plan.json") from None
    except ValueError as error:
        raise NerfleetError(str(path), f"is no JSON: {error}", "write it with nerfleet plan SCENE --json > plan.json") from None
    try:
        chosen: dict[str, Any] = values["chosen"]
        n_gpus = int(chosen["n_gpus"])
        hosts = [str(rank["host"]) for rank in values.get("ranks", [])]
        n_machines = int(chosen.get("n_machines") or 1)
        per_host = [hosts.count(host) for host in dict.fromkeys(hosts)] or [n_gpus // n_machines] * n_machines
        steps, checkpoint = int(chosen.get("steps") or 0), float(chosen.get("checkpoint_every_seconds") or 0)
        flags = _passed_on(shlex.split(str(values.get("flags", ""))))
    except (KeyError, TypeError, ValueError) as error:
        raise NerfleetError(str(path), f"is no plan ({type(error).__name__}: {error})", "write it with nerfleet plan SCENE --json > plan.json") from None
    if n_gpus < 1 or sum(per_host) != n_gpus:
        raise NerfleetError(
            f"{path}, chosen.n_gpus", f"{n_gpus} GPUs, but {sum(per_host)} on the hosts", "write it with nerfleet plan SCENE --json > plan.json"
        )
    each = math.gcd(*per_host)
    return PlannedPods(n_gpus // each, each, steps, checkpoint, flags)


def _passed_on(words: list[str]) -> tuple[str, ...]:
    """``--flag value`` pairs without those that the manifests set; as ``--flag=value``."""
    pairs = zip(words[::2], words[1::2])
    return tuple(f"{flag}={value}" for flag, value in pairs if flag not in NOT_PASSED_ON)
