"""Blocks of rows on threads: all of them, in order, whatever the number of threads."""

from __future__ import annotations

import pytest
import torch

from nerfleet.kernels.threads import over_blocks


@pytest.fixture(params=[1, 2, 3])
def n_threads(request: pytest.FixtureRequest) -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 20])
def test_blocks_cover_all_rows_in_order(n_threads: int, n: int) -> None:
    blocks = over_blocks(n, 4, lambda rows: list(range(rows.start, rows.stop)))
    assert [row for block in blocks for row in block] == list(range(n))
    assert all(len(block) == 4 for block in blocks[:-1])
    assert torch.get_num_threads() == n_threads


def test_a_block_has_one_thread(n_threads: int) -> None:
    inner = over_blocks(6, 2, lambda _: torch.get_num_threads())
    assert inner == [1, 1, 1]


def test_an_error_in_a_block_is_raised(n_threads: int) -> None:
    def fail(rows: slice) -> None:
        if rows.start == 4:
            raise ValueError("third block")

    with pytest.raises(ValueError, match="third block"):
        over_blocks(6, 2, fail)
    assert torch.get_num_threads() == n_threads
