"""The writing process: arrays arrive as they were when they were handed over, errors come back, a lost process is replaced."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nerfleet.pipeline import writer as writer_module
from nerfleet.pipeline.writer import Writer, WriterLost
from nerfleet.render.pictures import write_png

PATIENCE_SECONDS = 120.0


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def writer(said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    """With slots so small that arrays take many of them."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.setattr(writer_module, "SLOT_BYTES", 1 << 12)
    one = Writer(said.append)
    yield one
    one.close()
    assert not list(Path("/dev/shm").glob(f"nerfleet-{os.getpid()}-*"))


def keep(path: str, note: str, **arrays: Any) -> int:
    """Called in the other process."""
    np.savez(path, **arrays)
    Path(path).with_suffix(".txt").write_text(f"{note} {os.getpid()}")
    return len(arrays)


def fail(**_: Any) -> None:
    raise ValueError("no room")


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def test_arrays_are_those_of_the_moment(writer: Writer, tmp_path: Path) -> None:
    tensors = {
        "a.b": torch.randn(3, 5000), "half": torch.randn(777).half(), "counts": torch.arange(9, dtype=torch.int16), "bits": torch.arange(256).to(torch.uint8),
        "one": torch.tensor(3.5), "none": torch.zeros(0, 4), "turned": torch.randn(4, 300).T,
    }  # fmt: skip
    before = {name: tensor.clone().numpy() for name, tensor in tensors.items()}
    done = writer.submit(keep, tensors, str(tmp_path / "kept.npz"), "said")
    for tensor in tensors.values():
        tensor.zero_()
    assert done.result(PATIENCE_SECONDS) == len(tensors)
    with np.load(tmp_path / "kept.npz") as kept:
        for name, values in before.items():
            assert kept[name].dtype == values.dtype
            assert np.array_equal(kept[name], values)
    note, pid = (tmp_path / "kept.txt").read_text().split()
    assert note == "said"
    assert int(pid) == writer.pid != os.getpid()


def test_pictures(writer: Writer, tmp_path: Path) -> None:
    from PIL import Image

    pictures = [torch.randint(0, 256, (20, 30, 3), dtype=torch.uint8) for _ in range(12)]
    futures = [writer.submit(write_png, {"picture": picture}, tmp_path / f"{i}.png") for i, picture in enumerate(pictures)]
    writer.close()
    assert all(future.done() for future in futures)
    for i, picture in enumerate(pictures):
        assert np.array_equal(np.asarray(Image.open(tmp_path / f"{i}.png")), picture.numpy())


def test_errors_come_back_and_the_next_task_is_done(writer: Writer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no room"):
        writer.submit(fail, {"a": torch.zeros(5000)}).result(PATIENCE_SECONDS)
    assert writer.submit(keep, {}, str(tmp_path / "k.npz"), "x").result(PATIENCE_SECONDS) == 0


def test_a_lost_process_is_told_and_replaced(writer: Writer, said: list[str], tmp_path: Path) -> None:
    lost = writer.submit(sleep, {}, 60.0)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    with pytest.raises(WriterLost, match="SIGKILL"):
        lost.result(PATIENCE_SECONDS)
    assert writer.submit(keep, {"a": torch.ones(3)}, str(tmp_path / "k.npz"), "x").result(PATIENCE_SECONDS) == 1
    assert len(said) == 1
    assert said[0].endswith("what it was writing is dropped")


def test_checkpoints(writer: Writer, tmp_path: Path, said: list[str]) -> None:
    from tests.train.small import read_checkpoint

    from nerfleet.train.checkpoint import CheckpointStore

    store = CheckpointStore(tmp_path, writer.submit, said.append)
    tensors = {"table.master": torch.randn(5000), "state": torch.arange(4)}
    for step in (10, 20, 30):
        store.save(tensors, {"step": step})
        assert store.wait()
    folders = store.complete()
    assert [folder.name for folder in folders] == ["step_000000020", "step_000000030"]
    assert json.loads((folders[-1] / "complete.json").read_text()) == {"step": 30}
    found = read_checkpoint(folders[-1])
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
    store.save(tensors, {"step": 40})
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    assert not store.wait()
    assert [folder.name for folder in store.complete()] == ["step_000000020", "step_000000030"]
    store.save(tensors, {"step": 50})
    assert store.wait()
    assert store.complete()[-1].name == "step_000000050"
