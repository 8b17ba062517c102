"""What one check found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Check:
    """One row of the answer.

    Attributes:
        name: what was looked at.
        found: what is there, with figures and units.
        remedy: what to do; empty if nothing.
        host: where; empty on this machine alone.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""
    host: str = ""


def failed(checks: Iterable[Check]) -> bool:
    return any(check.status == "fail" for check in checks)
