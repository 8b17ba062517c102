"""A progress bar for reading photographs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nerfleet.data import decode


@contextmanager
def progress_bar(label: str = "photographs") -> Iterator[decode.Progress]:
    """A callback for ``load_scene(progress=...)`` that draws a bar on stderr, if stderr is a terminal, and removes it at the end.

    Example:
        with progress_bar() as progress:
            scene = load_scene("data/fox", progress=progress)
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
