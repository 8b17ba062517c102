"""What a reader noticed: frames left out, what looks wrong, what is merely worth knowing."""

from __future__ import annotations

from nerfleet.data.scene import SkippedFrame
from nerfleet.errors import NerfleetError


class Findings:
    """Collects while a scene is read; ``strict`` turns skipped frames and warnings into one error at the end."""

    def __init__(self) -> None:
        self.skipped: list[SkippedFrame] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def skip(self, frame: str, reason: str) -> None:
        self.skipped.append(SkippedFrame(frame, reason))

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn_counted(self, items: list[str], total: int, text: str) -> None:
        """One line for many: ``3 of 50 <text> (a.png, b.png, c.png)``; nothing when there are none."""
        if items:
            shown = ", ".join(items[:3]) + (", ..." if len(items) > 3 else "")
            self.warn(f"{len(items)} of {total} {text} ({shown})")

    def raise_if_strict(self, where: str) -> None:
        """Raises NerfleetError with the first finding and the number of the others, if there are any."""
        listed = [*self.warnings, *(f"{s.frame}: {s.reason}" for s in self.skipped if s.reason != MISSING)]
        if listed:
            more = f" (and {len(listed) - 1} more)" if len(listed) > 1 else ""
            raise NerfleetError(where, listed[0] + more, "correct the scene, or leave out --strict")


MISSING = "image is missing"
"""Reason of frames that one counted warning already speaks for."""
