"""One rank of unequal speed: a stub step that sleeps for every ray, shares that follow the measured speeds. Prints what it reached."""

from __future__ import annotations

import json
import sys
import time

import torch

from nerfleet.kernels.control.op import N_STATE, STATE_RAYS
from nerfleet.parallel.data_parallel import DataParallel
from nerfleet.parallel.ranks import joined

RAYS = 5_000
SETTLE_STEPS, STEPS = 4, 10
SECONDS_A_RAY = 1e-3
"""Of a rank of speed 1."""


def main() -> None:
    speeds = [float(word) for word in sys.argv[1].split(",")]
    with joined("cpu", timeout_seconds=240) as ranks:
        n = ranks.world_size
        parallel = DataParallel(ranks, [1 / n] * n, [1 / n] * n, measured=True)
        state = torch.zeros(N_STATE, dtype=torch.int64)
        state[STATE_RAYS] = RAYS
        own = parallel.rank_state(state)
        begin, done = 0.0, 0
        for step in range(SETTLE_STEPS + STEPS):
            if step == SETTLE_STEPS:
                begin = time.perf_counter()
            parallel.divide(state, own)
            started = time.perf_counter()
            time.sleep(int(own[STATE_RAYS]) * SECONDS_A_RAY / speeds[ranks.rank])
            if step < SETTLE_STEPS:
                parallel.balance(own, time.perf_counter() - started)
            ranks.exchange(None)  # the reduction: all wait for the slowest
            done += RAYS * (step >= SETTLE_STEPS)
        rate = done / (time.perf_counter() - begin)
        if ranks.rank == 0:
            print(json.dumps({"rays_per_s": rate, "own": [speed / SECONDS_A_RAY for speed in speeds], "shares": parallel.shares}))
        ranks.exchange(None)


if __name__ == "__main__":
    main()
