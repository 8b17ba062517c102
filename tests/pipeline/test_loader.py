"""Decoding processes: what they send, what happens when they die, when /dev/shm is full, and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.scenes import PATIENCE_SECONDS, cube_scene, on_demand
from tests.support.scenes import edit

from nerfleet.data import load_scene
from nerfleet.data.on_demand import OnDemandScene
from nerfleet.errors import NerfleetError
from nerfleet.pipeline import loader as loader_module
from nerfleet.pipeline import segment
from nerfleet.pipeline.feed import job_for
from nerfleet.pipeline.loader import Arrived, Loader, RingSize, ring_size
from nerfleet.pipeline.messages import Done, Failed, Layout
from nerfleet.pipeline.segment import FOLDER, Segment

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="shared memory is only seen as files on Linux")


def segments() -> set[str]:
    return {path.name for path in FOLDER.glob("nerfleet-*")}


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    mine = f"nerfleet-{os.getpid()}-"
    yield
    assert not {name for name in segments() if name.startswith(mine)}


def run(loader: Loader, scene: OnDemandScene, n_samples: int = 0) -> tuple[dict[int, np.ndarray], list[Done | Failed]]:
    """All shares of the scene through a loader -> colours of each view, and how its job ended."""
    jobs = iter([job_for(scene, share, n_samples=n_samples) for share in scene.shares])
    colours: dict[int, np.ndarray] = {}
    ended: list[Done | Failed] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(ended) < len(scene.shares):
        assert time.monotonic() < deadline
        loader.give(lambda: next(jobs, None))
        for message in loader.poll(0.05):
            if isinstance(message, Arrived):
                piece = message.piece
                plane = loader.layout.planes(message.slot, piece.n)[0]
                colours.setdefault(piece.view, np.zeros(32 * 24, np.uint32))[piece.first : piece.first + piece.n] = plane
                loader.release(message)
            else:
                ended.append(message)
    return colours, ended


@pytest.mark.parametrize("slot_pixels", [32 * 24, 100], ids=["whole photographs", "pieces"])
def test_photographs_arrive_as_they_are(slot_pixels: int, tmp_path: Path) -> None:
    path = cube_scene(tmp_path, rgba=True)
    scene, expected = on_demand(path), load_scene(path, train_on_all=True)
    loader = Loader(2, scene.plan.decoding(1), Layout(), RingSize(4 * slot_pixels, 2), print)
    try:
        colours, ended = run(loader, scene)
    finally:
        loader.close()
    assert all(isinstance(message, Done) for message in ended)
    for view, values in colours.items():
        assert np.array_equal(values.view(np.uint8).reshape(24, 32, 4), expected.image(view).numpy())
    assert len(colours) == len(scene) == loader.counts.decoded


def test_a_killed_worker_is_replaced_and_told(tmp_path: Path) -> None:
    scene, said = on_demand(cube_scene(tmp_path)), []
    loader = Loader(2, scene.plan.decoding(1), Layout(), RingSize(4 * 32 * 24, 2), said.append)
    try:
        os.kill(loader.workers[0], signal.SIGKILL)
        colours, _ = run(loader, scene)
        assert len(loader.workers) == 2
    finally:
        loader.close()
    assert len(colours) == len(scene)
    assert loader.counts.replaced_workers == 1
    assert said == ["an image worker was lost (signal SIGKILL, perhaps for memory) and is replaced"]


def test_workers_that_always_die_end_the_run_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = on_demand(cube_scene(tmp_path))
    monkeypatch.setattr(loader_module, "start_process", lambda module, connection: _ending_at_once(connection))
    loader = Loader(1, scene.plan.decoding(1), Layout(), RingSize(4096, 2), lambda _: None)
    try:
        with pytest.raises(NerfleetError, match="image workers: 5 were lost, the last one exit code 3: memory may be short"):
            run(loader, scene)
    finally:
        loader.close()


def _ending_at_once(connection: object) -> subprocess.Popen:
    connection.close()  # type: ignore[attr-defined]
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(3)"])


def test_damaged_and_vanished_photographs_are_told(tmp_path: Path) -> None:
    scene = on_demand(cube_scene(tmp_path, extension="jpg"))
    whole = (tmp_path / "images/0003.jpg").read_bytes()
    (tmp_path / "images/0003.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "images/0005.jpg").unlink()
    loader = Loader(1, scene.plan.decoding(1), Layout(), RingSize(4 * 32 * 24, 2), print)
    try:
        colours, ended = run(loader, scene)
    finally:
        loader.close()
    failed = {message.view: message.reason for message in ended if isinstance(message, Failed)}
    assert set(failed) == {2, 4}
    assert "cannot be decoded" in failed[2]
    assert set(colours) == set(range(12)) - {2, 4}


def test_a_photograph_with_a_damaged_mask_is_left_out(tmp_path: Path) -> None:
    path = cube_scene(tmp_path)
    (tmp_path / "mask.png").write_bytes((tmp_path / "images/0001.png").read_bytes())
    edit(path, lambda root: root["frames"][1].update(mask_path="mask.png"))
    scene = on_demand(path)
    (tmp_path / "mask.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    loader = Loader(1, scene.plan.decoding(1), Layout(), RingSize(4 * 32 * 24, 2), print)
    try:
        _, ended = run(loader, scene)
    finally:
        loader.close()
    assert [message.view for message in ended if isinstance(message, Failed)] == [1]
    assert "mask.png" in next(message.reason for message in ended if isinstance(message, Failed))


def test_too_little_shared_memory_is_told_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_module, "free_bytes", lambda: 100_000)
    monkeypatch.setattr(segment, "free_bytes", lambda: 100_000)
    with pytest.raises(NerfleetError, match=r"/dev/shm: 4 image workers need 2 MB of shared memory, 0 MB are free: enlarge it"):
        ring_size(4, 8_000_000)


def test_little_shared_memory_gives_smaller_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for free in (10_000_000_000, 64 << 20, 6 << 20):
        monkeypatch.setattr(loader_module, "free_bytes", lambda free=free: free)
        monkeypatch.setattr(segment, "free_bytes", lambda free=free: free)
        size = ring_size(2, 33_177_600)
        assert 2 * size.n_bytes <= max(free // 2, 1 << 20)
        sizes.append(size.slot_bytes)
    assert sizes[0] == 33_177_600
    assert sizes[0] > sizes[1] > sizes[2]


def test_memory_is_reserved_when_it_is_created() -> None:
    """Otherwise a full /dev/shm would end a process with SIGBUS in the middle of a run."""
    with pytest.raises(NerfleetError, match="shared memory"):
        Segment(1 << 50)


def test_segments_of_dead_processes_are_removed() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    left = FOLDER / f"nerfleet-{process.pid}-abcd"
    left.write_bytes(b"x")
    alive = FOLDER / f"nerfleet-{os.getppid()}-abcd"
    alive.write_bytes(b"x")
    try:
        assert left.name in segment.remove_stale()
        assert not left.exists()
        assert alive.exists()
    finally:
        alive.unlink()


PARENT = """
import sys, time
from pathlib import Path
from nerfleet.data.on_demand import open_scene
from nerfleet.data.plan import plan_scene
from nerfleet.pipeline.loader import Loader, RingSize
from nerfleet.pipeline.messages import Layout
scene = open_scene(plan_scene(Path(sys.argv[1]), train_on_all=True))
loader = Loader(2, scene.plan.decoding(1), Layout(), RingSize(4096, 2), print)
print(*loader.workers, flush=True)
if sys.argv[2] == "opened":
    while any(Path("/dev/shm", worker.segment.name).exists() for worker in loader._by_descriptor.values()):
        loader.poll(0.1)
    print("opened", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("moment", ["starting", "opened"])
def test_nothing_is_left_when_the_trainer_is_killed(moment: str, tmp_path: Path) -> None:
    path = cube_scene(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(path), moment], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    if moment == "opened":
        assert parent.stdout.readline() == "opened\n"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + PATIENCE_SECONDS
    mine = f"nerfleet-{parent.pid}-"
    while any(_runs(pid) for pid in workers) or any(name.startswith(mine) for name in segments()):
        assert time.monotonic() < deadline, "workers or segments outlive a killed trainer"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
