"""Training state on disk: written asynchronously, complete or not there, the last two kept.

A checkpoint is a ``torch.distributed.checkpoint`` folder ``checkpoints/step_<n>``. It counts only once its marker
``complete.json`` has been renamed into place, after all of its data. The marker also holds what is not a tensor.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from nerfleet.errors import NerfleetError

MARKER = "complete.json"
KEPT = 2
Write = Callable[..., Future]
"""``write(function, tensors, *arguments)``: calls ``function(*arguments, **arrays)`` later, with copies of the tensors (nerfleet.pipeline.writer)."""


class CheckpointStore:
    """The checkpoints of one run folder."""

    def __init__(self, run: Path, write: Write | None = None, say: Callable[[str], None] | None = None) -> None:
        """Args: write: writes in another process; None: a thread of this one writes. say: hears of checkpoints that were lost there."""
        self.folder = run / "checkpoints"
        self._write, self._say = write, say or (lambda _: None)
        self._pending: Future | None = None
        self._target = self.folder  # of the save that is pending

    def save(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Start writing; the tensors are copied before this returns. Waits for a save that is still running.

        Args:
            progress: plain values for the marker; must hold ``step``.
        """
        self.wait()
        target = self.folder / f"step_{progress['step']:09d}"
        if (target / MARKER).exists():
            return
        shutil.rmtree(target, ignore_errors=True)
        try:
            target.mkdir(parents=True)
        except OSError as error:
            raise NerfleetError(str(self.folder), error.strerror or "cannot be written", "choose another --out") from None
        self._target = target
        if self._write is not None:
            self._pending = self._write(write_checkpoint, tensors, target, progress)
            return
        _one_process_is_fine()
        written = dcp.async_save(dict(tensors), checkpoint_id=str(target), no_dist=True)
        assert isinstance(written, Future)
        self._pending = _then(written, lambda: _complete(target, progress))

    def wait(self) -> bool:
        """Until the running save is complete; raises what went wrong in it.

        Returns:
            False if it was lost with the process that was writing it: a later one may succeed.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            try:
                pending.result()
            except ChildProcessError as error:
                shutil.rmtree(self._target, ignore_errors=True)
                self._say(f"{self._target.name} is not saved: {error}")
                return False
            except (Exception, CheckpointException) as error:
                shutil.rmtree(self._target, ignore_errors=True)  # a full disk would stay full
                raise NerfleetError(str(self.folder), f"cannot be written ({_reason(error)})", "free space, then run the same command again") from None

        return True

    def complete(self) -> list[Path]:
        """Folders of complete checkpoints, oldest first."""
        return _complete_ones(self.folder)

    def latest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest complete checkpoint and its marker's values.

        Raises:
            NerfleetError: its marker is damaged.
        """
        folders = self.complete()
        if not folders:
            return None
        try:
            progress = json.loads((folders[-1] / MARKER).read_text())
            if not isinstance(progress, dict) or not isinstance(progress["step"], int) or progress["step"] < 0:
                raise ValueError("it names no step")
        except (OSError, ValueError, KeyError) as error:
            raise unreadable(folders[-1], f"{MARKER}: {error}") from None
        return folders[-1], progress

    def load(self, folder: Path, tensors: dict[str, Tensor]) -> None:
        """Read a complete checkpoint into ``tensors``, in place."""
        _one_process_is_fine()
        try:
            dcp.load(dict(tensors), checkpoint_id=str(folder), no_dist=True)
        except (Exception, CheckpointException) as error:
            raise unreadable(folder, _reason(error)) from None


def write_checkpoint(target: Path, progress: dict[str, Any], **arrays: Any) -> None:
    """Writes a checkpoint from numpy arrays, in a process that trains nothing.

    Raises:
        RuntimeError: what went wrong, in a line.
    """
    _one_process_is_fine()
    try:
        dcp.save({name: torch.from_numpy(array) for name, array in arrays.items()}, checkpoint_id=str(target), no_dist=True)
        _complete(target, progress)
    except (Exception, CheckpointException) as error:
        raise RuntimeError(_reason(error)) from None


def _complete(target: Path, progress: dict[str, Any]) -> None:
    """The marker, once all else is there; then older checkpoints go."""
    temporary = target / (MARKER + ".part")
    temporary.write_text(json.dumps(progress))
    os.replace(temporary, target / MARKER)
    kept = _complete_ones(target.parent)[-KEPT:]
    for folder in target.parent.glob("step_*"):  # older ones, and what an interruption left half-written
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def _complete_ones(folder: Path) -> list[Path]:
    return sorted(marker.parent for marker in folder.glob(f"step_*/{MARKER}"))


def unreadable(folder: Path, why: str) -> NerfleetError:
    """The error of a checkpoint that is damaged."""
    return NerfleetError(str(folder), f"cannot be read ({why})", "delete this folder to use the checkpoint before it")


def _reason(error: BaseException) -> str:
    """What went wrong, in a line: the operating system's words if it was its refusal."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return " ".join((str(error) or type(error).__name__).split())


def _one_process_is_fine() -> None:
    """torch warns of a save without other processes; it does so in its own thread, where no ``catch_warnings`` holds."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def _then(future: Future, action: Any) -> Future:
    """A future that is done when ``future`` is and ``action`` has run after it."""
    following: Future = Future()

    def run(done: Future) -> None:
        try:
            done.result()
            action()
            following.set_result(None)
        except BaseException as error:
            following.set_exception(error)

    future.add_done_callback(run)
    return following
