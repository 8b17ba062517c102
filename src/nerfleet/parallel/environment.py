"""What a launcher tells a process, in a module that costs nothing to import."""

from __future__ import annotations

import os


def inside() -> bool:
    """Whether a launcher (ours or torchrun) started this process as one of several ranks."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"))
