"""The examination of all hosts from here: the same command on each, started through ssh or whatever reaches them."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from nerfleet.doctor.check import Check
from nerfleet.errors import NerfleetError

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=5 {host} nerfleet"
SPARE_SECONDS = 60.0


def examine_fleet(hosts: list[str], launch: str, flags: Sequence[str], seconds: float) -> list[Check]:
    """The checks of all hosts, in their order.

    Args:
        launch: a command line that runs nerfleet on ``{host}``; ``{short}`` is its name up to the first dot, which is the name of a pod:
            "kubectl exec {short} -- nerfleet".
        flags: further flags of ``nerfleet doctor``.
    """
    if "{host}" not in launch and "{short}" not in launch:
        raise NerfleetError(f"--launch {launch}", "does not say where the host's name goes", "write for example: --launch 'ssh {host} nerfleet'")
    tasks = [(shlex.split(launch.replace("{host}", host).replace("{short}", host.split(".")[0])), host, index) for index, host in enumerate(hosts)]

    def one(task: tuple[list[str], str, int]) -> list[Check]:
        program, host, index = task
        return _examine(host, [*program, "doctor", "--cluster", ",".join(hosts), "--rank", str(index), "--json", *flags], seconds)

    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        return [check for checks in pool.map(one, tasks) for check in checks]


def _examine(host: str, command: list[str], seconds: float) -> list[Check]:
    limit = seconds + SPARE_SECONDS
    remedy = f"see that this works without a question: {shlex.join(command[:-6])} --version"
    try:
        answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=limit)
    except subprocess.TimeoutExpired:
        return [Check("start", "fail", f"no answer within {limit:.0f} s", remedy, host)]
    except OSError as error:
        return [Check("start", "fail", f"{command[0]}: {error.strerror}", remedy, host)]
    try:
        values = json.loads(answer.stdout.splitlines()[-1])
        return [Check(**{key: str(check[key]) for key in ("name", "found", "remedy")}, status=check["status"], host=host) for check in values["checks"]]
    except (ValueError, KeyError, IndexError, TypeError):
        said = " ".join(answer.stderr.split())[-200:] or f"exit code {answer.returncode}"
        return [Check("start", "fail", said, remedy, host)]
