"""One rank of a test: ``python -m tests.parallel.worker FOLDER CASE...`` under RANK, WORLD_SIZE, ...; results go to FOLDER/<case>.<rank>.pt."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from tests.parallel.cases import CASES

from nerfleet.parallel.ranks import RankLost, exit_lost, joined


def main() -> None:
    folder, *names = sys.argv[1:]
    try:
        with joined(os.environ.get("TEST_DEVICE", "cpu"), timeout_seconds=float(os.environ.get("TEST_TIMEOUT", "240"))) as ranks:
            for name in names:
                torch.save(CASES[name](ranks, Path(folder)), Path(folder) / f"{name}.{ranks.rank}.pt")
            ranks.exchange(None)
    except RankLost as error:
        exit_lost(error)


if __name__ == "__main__":
    main()
