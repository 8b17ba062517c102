"""One pod of the regular examination: the hosts are the pods of its own Indexed Job, whose names end in their index."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence


def command(argv: Sequence[str] | None, host_name: str, index: str) -> list[str]:
    """``nerfleet doctor`` for this pod. ``host_name``: JOB-INDEX; pods answer to JOB-INDEX.SERVICE."""
    parser = argparse.ArgumentParser(prog="python -m nerfleet.deploy.doctor_pod")
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--service", required=True)
    flags, rest = parser.parse_known_args(argv)
    job = host_name.split(".")[0].removesuffix(f"-{index}")
    hosts = ",".join(f"{job}-{i}.{flags.service}" for i in range(flags.pods))
    return [sys.executable, "-m", "nerfleet", "doctor", "--cluster", hosts, "--rank", index, "--out", "/tmp", *rest]


if __name__ == "__main__":
    words = command(None, socket.gethostname(), os.environ["JOB_COMPLETION_INDEX"])
    os.execv(words[0], words)
