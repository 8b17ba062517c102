"""Which rank of a grid group holds which levels of the hash grid, and how rays are shared out among unequal ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """Feature columns first .. first + n of a level."""

    level: int
    first: int
    n: int


@dataclass(frozen=True)
class Holder:
    """A rank that can hold levels: bytes that are free for them, and its speed (any unit)."""

    free_bytes: float
    speed: float


def place(column_bytes: Sequence[float], n_features: int, holders: Sequence[Holder]) -> tuple[tuple[Piece, ...], ...] | None:
    """Levels to ranks: dearest first, each to the rank that would be done first and has room (Graham 1969, longest processing time first).

    Every column takes the same time (every level encodes every sample). Levels are split by columns where there are more ranks than levels,
    or where whole ones do not fit.

    Args:
        column_bytes: of one feature column of each level, with its optimiser.

    Returns:
        The pieces of each rank, ascending; None if they do not fit.
    """
    pieces = [Piece(level, 0, n_features) for level in range(len(column_bytes))]
    while True:
        if len(pieces) >= len(holders):
            for by_room in (False, True):
                found = _packed(pieces, column_bytes, holders, by_room)
                if found is not None:
                    return found
        widest = max(pieces, key=lambda piece: (piece.n > 1, piece.n * column_bytes[piece.level]))
        if widest.n == 1:
            return None
        half = widest.n // 2
        pieces.remove(widest)
        pieces += [Piece(widest.level, widest.first, half), Piece(widest.level, widest.first + half, widest.n - half)]


def _packed(pieces: Sequence[Piece], column_bytes: Sequence[float], holders: Sequence[Holder], by_room: bool) -> tuple[tuple[Piece, ...], ...] | None:
    """``by_room``: the emptiest rank takes a piece, instead of the one that is done first."""
    owned: list[list[Piece]] = [[] for _ in holders]
    room = [holder.free_bytes for holder in holders]
    for piece in sorted(pieces, key=lambda one: (-one.n * column_bytes[one.level], -one.n, one.level, one.first)):
        size = piece.n * column_bytes[piece.level]
        able = [r for r in range(len(holders)) if room[r] >= size]
        if not able:
            return None

        def done(rank: int, piece: Piece = piece) -> tuple[float, float]:
            columns = sum(one.n for one in owned[rank]) + piece.n
            return (-room[rank], 0.0) if by_room else (columns / holders[rank].speed, -room[rank])

        chosen = min(able, key=done)
        owned[chosen].append(piece)
        room[chosen] -= size
    if any(not own for own in owned):
        return None
    return tuple(tuple(sorted(own, key=lambda one: (one.level, one.first))) for own in owned)


def level_parts(pieces: Sequence[Piece], n_levels: int, n_features: int) -> tuple[float, ...]:
    """Part of each level that the pieces are."""
    parts = [0.0] * n_levels
    for piece in pieces:
        parts[piece.level] += piece.n / n_features
    return tuple(parts)


def balanced(times: Sequence[Callable[[float], float]], counts: Sequence[int], n_rounds: int = 6) -> list[float]:
    """Share of a rank of each kind, with which all ranks need about the same time; together they are 1.

    Args:
        times: seconds of a rank of each kind as a function of its share (rising, and nearly straight). counts: ranks of each kind.
    """
    n = sum(counts)
    shares = [1.0 / n] * len(times)
    for _ in range(n_rounds):
        low = [time(0.5 * share) for time, share in zip(times, shares)]
        high = [time(share) for time, share in zip(times, shares)]
        slopes = [max(2 * (b - a) / share, 1e-12) for a, b, share in zip(low, high, shares)]
        fixed = [max(b - slope * share, 0.0) for b, slope, share in zip(high, slopes, shares)]
        together = (1.0 + sum(k * f / s for k, f, s in zip(counts, fixed, slopes))) / sum(k / s for k, s in zip(counts, slopes))
        new = [max((together - f) / s, 0.02 / n) for f, s in zip(fixed, slopes)]
        total = sum(k * share for k, share in zip(counts, new))
        new = [share / total for share in new]
        if max(abs(a - b) for a, b in zip(new, shares)) < 1e-4 / n:
            return new
        shares = new
    return shares
