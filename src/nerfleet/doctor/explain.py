"""What the errors in a log mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nerfleet.doctor.known_errors import KNOWN_ERRORS, KnownError
from nerfleet.errors import NerfleetError

MAX_LINE = 2000
_ANSI = re.compile(r"\x1b\[[0-9;]*[a-zA-Z]")


@dataclass(frozen=True)
class Explanation:
    """A known error in a log.

    Attributes:
        line: of its first appearance, from 1.
        text: that line, shortened.
        count: lines with it.
    """

    error: KnownError
    line: int
    text: str
    count: int


def explain(lines: Iterable[str]) -> list[Explanation]:
    """Known errors in the order of their first appearance: the first is mostly the cause of the others."""
    found: dict[int, Explanation] = {}
    for number, raw in enumerate(lines, 1):
        line = _ANSI.sub("", raw[:MAX_LINE]).strip()
        for index, error in enumerate(KNOWN_ERRORS):
            if error.pattern.search(line):
                before = found.get(index)
                found[index] = Explanation(error, before.line, before.text, before.count + 1) if before else Explanation(error, number, line[:200], 1)
                break
    return sorted(found.values(), key=lambda one: one.line)


def explain_file(path: Path) -> list[Explanation]:
    """Raises NerfleetError if it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return explain(file)
    except OSError as error:
        raise NerfleetError(str(path), error.strerror or "cannot be read", "name the file that the output of the run went to") from None
