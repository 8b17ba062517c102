"""A checkpoint is complete or not there; what is damaged or cannot be written is said in one line."""

from __future__ import annotations

import json
import resource
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.train.small import read_checkpoint
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.train import checkpoint
from nerfleet.train.checkpoint import MARKER, CheckpointStore


def tensors(value: float, n: int = 1000) -> dict[str, Tensor]:
    return {"weights": torch.full((n,), value), "steps": torch.full((n,), int(value), dtype=torch.int16)}


def save(store: CheckpointStore, step: int, value: float = 1.0) -> Path:
    store.save(tensors(value), {"step": step})
    store.wait()
    return store.folder / f"step_{step:09d}"


def one_line(error: pytest.ExceptionInfo[NerfleetError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_saved_is_what_it_was_when_asked(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    values = tensors(3.0, n=2_000_000)
    store.save(values, {"step": 7, "train_seconds": 0.5})
    values["weights"].fill_(-1)
    store.wait()
    found = store.latest()
    assert found is not None
    assert found[1] == {"step": 7, "train_seconds": 0.5}
    read = read_checkpoint(found[0])
    assert set(read) == set(values)
    assert torch.equal(read["weights"], torch.full((2_000_000,), 3.0))
    assert torch.equal(read["steps"], values["steps"])


def test_the_marker_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data: Future = Future()
    monkeypatch.setattr(dcp, "async_save", lambda *_, **__: data)
    store = CheckpointStore(tmp_path)
    store.save(tensors(1.0), {"step": 1})
    assert (store.folder / "step_000000001").is_dir()
    assert store.latest() is None
    data.set_result(None)
    store.wait()
    assert store.latest() == (store.folder / "step_000000001", {"step": 1})
    assert [p.name for p in (store.folder / "step_000000001").iterdir()] == [MARKER]


def test_training_goes_on_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    complete = checkpoint._complete
    monkeypatch.setattr(checkpoint, "_complete", lambda *arguments: (go_on.wait(20), complete(*arguments)))
    store = CheckpointStore(tmp_path)
    store.save(tensors(1.0), {"step": 1})
    assert store.complete() == []
    go_on.set()
    store.wait()
    assert len(store.complete()) == 1


def test_two_are_kept_and_leftovers_go(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    left = store.folder / "step_000000002"
    left.mkdir(parents=True)
    (left / "__0_0.distcp").write_bytes(b"half")
    for step in (1, 3, 5):
        save(store, step)
    assert [p.name for p in sorted(store.folder.iterdir())] == ["step_000000003", "step_000000005"]


def test_an_incomplete_one_is_ignored_and_replaced(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    before = save(store, 1)
    left = store.folder / "step_000000002"
    left.mkdir()
    (left / "__0_0.distcp").write_bytes(b"half")
    (left / (MARKER + ".part")).write_text("{")
    found = CheckpointStore(tmp_path).latest()
    assert found is not None
    assert found[0] == before
    assert torch.equal(read_checkpoint(save(store, 2, 9.0))["weights"], torch.full((1000,), 9.0))
    assert not (left / (MARKER + ".part")).exists()


def test_an_existing_one_stays(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1, 1.0)
    assert float(read_checkpoint(save(store, 1, 2.0))["weights"][0]) == 1.0


def cut(folder: Path) -> None:
    (file,) = folder.glob("*.distcp")
    file.write_bytes(file.read_bytes()[:-1500])


def remove_data(folder: Path) -> None:
    (file,) = folder.glob("*.distcp")
    file.unlink()


def remove_metadata(folder: Path) -> None:
    (folder / ".metadata").unlink()


@pytest.mark.parametrize("damage", [cut, remove_data, remove_metadata])
def test_damaged_data_is_named(damage: Any, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    older, newest = save(store, 1), save(store, 2)
    damage(newest)
    found = store.latest()
    assert found is not None
    assert found[0] == newest
    with pytest.raises(NerfleetError) as error:
        store.load(newest, tensors(0.0))
    assert one_line(error).startswith(f"{newest}: cannot be read (")
    assert "delete this folder to use the checkpoint before it" in one_line(error)
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    assert store.latest() == (older, {"step": 1})


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"step": "x"}', '{"step": -5}'])
def test_a_damaged_marker_is_named(text: str, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1)
    newest = save(store, 2)
    (newest / MARKER).write_text(text)
    with pytest.raises(NerfleetError) as error:
        store.latest()
    assert one_line(error).startswith(f"{newest}: cannot be read ({MARKER}: ")


def test_other_sizes_are_an_error(tmp_path: Path) -> None:
    folder = save(CheckpointStore(tmp_path), 1)
    with pytest.raises(NerfleetError, match="cannot be read"):
        CheckpointStore(tmp_path).load(folder, tensors(0.0, n=10))


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    before = save(store, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        store.save(tensors(2.0, n=1_000_000), {"step": 2})
        with pytest.raises(NerfleetError) as error:
            store.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert one_line(error) == f"{store.folder}: cannot be written (File too large): free space, then run the same command again"
    assert list(store.folder.iterdir()) == [before]  # nothing half-written goes on filling the disk
    assert store.latest() == (before, {"step": 1})
    assert store.latest() != (save(store, 2, 4.0), {"step": 1})


def test_what_went_wrong_is_told_once_at_the_next_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        store.save(tensors(1.0), {"step": 1})
        with pytest.raises(NerfleetError, match=r"cannot be written \(No space left on device\)"):
            store.save(tensors(1.0), {"step": 2})
    store.wait()
    save(store, 3)
    assert [p.name for p in store.complete()] == ["step_000000003"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    store = CheckpointStore(tmp_path / "file")
    assert store.latest() is None
    with pytest.raises(NerfleetError) as error:
        store.save(tensors(1.0), {"step": 1})
    assert one_line(error) == f"{store.folder}: Not a directory: choose another --out"
