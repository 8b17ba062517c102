"""Work on the CPU in blocks of rows, a thread a block.

torch's and numba's own threads meet at a barrier after every small operation, and a step has hundreds: with two of them it
took longer than with one. Here a thread takes a block through all of its operations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")


@functools.cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="nerfleet")


def over_blocks(n: int, rows: int, work: Callable[[slice], Result]) -> list[Result]:
    """Run ``work`` on ``rows`` of n rows at a time, on as many threads as torch may use -> what it returned, in order; no rows are one empty block.

    A block that calls this again has one thread.
    """
    blocks = [slice(start, min(start + rows, n)) for start in range(0, n, rows)] or [slice(0, 0)]
    n_threads = torch.get_num_threads()

    def run(block: slice) -> Result:
        with torch.no_grad():
            return work(block)

    if n_threads == 1 or len(blocks) < 2:
        return [run(block) for block in blocks]
    torch.set_num_threads(1)  # of the pool's threads: a new one takes the number that is set when it first works
    try:
        return list(_pool(n_threads).map(run, blocks))
    finally:
        torch.set_num_threads(n_threads)
