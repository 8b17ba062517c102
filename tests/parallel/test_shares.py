"""Shares of ranks: proportions, limits, and which flags are refused."""

from __future__ import annotations

import pytest

from nerfleet.errors import NerfleetError
from nerfleet.parallel.mesh import Degrees, degrees
from nerfleet.parallel.shares import MAX_OVERLOAD, edges, limited, parse_speeds, rebalanced, shares


def test_shares_follow_speeds() -> None:
    assert shares((3, 3, 1)) == pytest.approx([3 / 7, 3 / 7, 1 / 7])
    assert edges(shares((3, 3, 1)))[0] == 0.0
    assert edges(shares((3, 3, 1)))[-1] == 1.0
    assert parse_speeds("3, 3,1", 3) == (3, 3, 1)
    assert parse_speeds("", 3) == (1, 1, 1)


@pytest.mark.parametrize("text", ["1,2", "1,0,1", "1,-1,1", "a,b,c", "1,nan,1", "1,inf,1"])
def test_bad_speeds_are_named(text: str) -> None:
    with pytest.raises(NerfleetError, match="--rank-speed"):
        parse_speeds(text, 3)


@pytest.mark.parametrize("parts", [[1.0, 0.0, 0.0, 0.0], [0.97, 0.01, 0.01, 0.01], [0.25] * 4, [0.4, 0.4, 0.1, 0.1]])
def test_limits_hold_and_the_sum_stays(parts: list[float]) -> None:
    found = limited(parts)
    assert sum(found) == pytest.approx(1)
    assert max(found) <= MAX_OVERLOAD / 4 + 1e-9
    assert min(found) > 0
    assert sorted(found, reverse=True) == found


def test_small_drifts_change_nothing() -> None:
    before = [0.5, 0.5]
    assert rebalanced(before, [100.0, 105.0]) == before
    assert rebalanced(before, [300.0, 100.0]) == pytest.approx([0.75, 0.25])


def test_degrees() -> None:
    assert degrees("data", 4, 0, 8) == Degrees(4, 1)
    assert degrees("grid", 4, 0, 8) == Degrees(1, 4)
    assert degrees("hybrid", 4, 0, 8) == Degrees(2, 2)
    assert degrees("hybrid", 8, 4, 8) == Degrees(2, 4)
    assert degrees("auto", 4, 0, 8, needed_bytes=79, free_bytes=100) == Degrees(4, 1)
    assert degrees("auto", 4, 0, 8, needed_bytes=81, free_bytes=100) == Degrees(1, 4)
    assert [degrees("hybrid", n, g, 8).strategy for n, g in ((4, 2), (4, 4), (4, 1))] == ["hybrid", "grid", "data"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("hybrid", 3, 2, 8), "3 ranks are not a multiple of 2"),
        (("hybrid", 3, 0, 8), "--parallel hybrid: 3 ranks are not a multiple of 2"),
        (("grid", 4, 2, 8), "leaves 2 groups"),
        (("grid", 16, 0, 8), "the grid has 8 feature columns for 16 ranks"),
        (("data", 4, 2, 8), "has no meaning with --parallel data"),
        (("grid", 4, -1, 8), "--grid-degree -1"),
    ],
)
def test_degrees_that_do_not_fit(arguments: tuple, words: str) -> None:
    with pytest.raises(NerfleetError, match=words):
        degrees(*arguments)
