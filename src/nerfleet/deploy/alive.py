"""Whether this container's main process works: ``python -m nerfleet.deploy.alive`` (probes, health check). Exit code 0 or 1."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

SIGN = Path(os.environ.get("NERFLEET_SIGN", Path(tempfile.gettempdir()) / "nerfleet-alive"))
"""Touched every few seconds by the main process."""
PERIOD_SECONDS = 2.0
OLD_SECONDS = 30.0


def give_sign() -> None:
    SIGN.touch()


def is_alive() -> bool:
    try:
        return time.time() - SIGN.stat().st_mtime < OLD_SECONDS
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not is_alive())
