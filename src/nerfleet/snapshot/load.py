"""What users name when they say MODEL: a snapshot file, or a run folder that holds one."""

from __future__ import annotations

from pathlib import Path

from nerfleet.errors import NerfleetError
from nerfleet.nn.model import Model
from nerfleet.snapshot.document import SUFFIXES
from nerfleet.snapshot.ingp import read_snapshot

RUN_MODEL = "model.ingp"
"""Name of the model in a run folder."""


def model_file(path: Path) -> Path:
    """The snapshot that ``path`` stands for.

    Raises:
        NerfleetError: nothing is there, or no model.
    """
    if path.is_dir():
        if (path / RUN_MODEL).is_file():
            return path / RUN_MODEL
        if any(path.glob("transforms*.json")):
            raise NerfleetError(str(path), "is a scene, not a model", "name an .ingp or .msgpack file or a run folder")
        raise NerfleetError(str(path), f"holds no {RUN_MODEL}", "name an .ingp file or a run folder with a finished checkpoint")
    if not path.exists():
        raise NerfleetError(str(path), "does not exist", "name an .ingp or .msgpack file or a run folder")
    if path.suffix.lower() not in SUFFIXES:
        raise NerfleetError(str(path), "is not a model", "name an .ingp or .msgpack file or a run folder")
    return path


def load_model(path: Path | str) -> Model:
    """The model of a snapshot file or run folder, on the CPU. Errors as :func:`model_file` and :func:`read_snapshot`."""
    return read_snapshot(model_file(Path(path))).model
