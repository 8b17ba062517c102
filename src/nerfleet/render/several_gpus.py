"""A shot rendered by several processes, one a GPU: picture i by process i mod n. A video has one encoder, here.

Frames come through pipes, so a process that is ahead waits until its frame is taken.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nerfleet.errors import NerfleetError
from nerfleet.nn.model import Model
from nerfleet.render.background import Background
from nerfleet.render.sequence import FrameRenderer, Job, Layers, Shot, picture_writer
from nerfleet.render.video import video_encoder

STOP_SECONDS = 5.0
DONE, END, ERROR, DEFECT = "done", "end", "error", "defect"
"""First word of a message: a picture is finished (a video's frame follows as bytes); all are; what went wrong."""


@dataclass(frozen=True)
class Worker:
    process: Any
    connection: Connection
    device: str

    def receive(self) -> tuple[str, Any]:
        """The next message. Raises NerfleetError if the process has failed or is gone."""
        try:
            word, value = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join(STOP_SECONDS)
            code = self.process.exitcode
            how = f"was ended by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
            raise NerfleetError(f"the process rendering on {self.device}", how, "see above; is there enough memory?") from None
        if word == ERROR:
            raise NerfleetError(*value)
        if word == DEFECT:
            raise RuntimeError(f"rendering on {self.device}: {value}")
        return word, value


def devices(device_type: str, n: int) -> list[str]:
    """``cuda:0`` ... or n times ``cpu``. Raises NerfleetError where there are fewer GPUs."""
    if n < 1:
        raise NerfleetError(f"--gpus {n}", "is no number of GPUs", "use 1 or more")
    if device_type != "cuda":
        return ["cpu"] * n
    n_gpus = torch.cuda.device_count()
    if n > n_gpus:
        raise NerfleetError(f"--gpus {n}", f"there are {n_gpus} GPUs here", f"use --gpus {n_gpus}")
    return [f"cuda:{i}" for i in range(n)]


def render_video_on(
    names: list[str], load: Callable[[], Model], shot: Shot, job: Job, path: Path, finished: Callable[[int], object], fps: float = 30.0, crf: int = 18
) -> bool:
    """As :func:`nerfleet.render.sequence.render_video`, on the devices ``names``; ``load`` is called in each process and must be picklable."""
    n_frames = len(shot.names)
    with _workers(names, load, shot, job, None) as workers:
        with video_encoder(path, fps, crf) as encoder, Background(encoder.write) as writer:
            for i in range(n_frames):
                worker = workers[i % len(workers)]
                _, shape = worker.receive()
                writer.put(np.frombuffer(worker.connection.recv_bytes(), np.uint8).reshape(shape))
                finished(i + 1)
        covered = [worker.receive()[1] for worker in workers]
    return any(covered)


def render_pictures_on(names: list[str], load: Callable[[], Model], shot: Shot, job: Job, folder: Path, finished: Callable[[int], object]) -> bool:
    """As :func:`nerfleet.render.sequence.render_pictures`, on the devices ``names``; each process writes its own files."""
    n_done, covered = 0, False
    with _workers(names, load, shot, job, folder) as workers:
        running = {worker.connection: worker for worker in workers}
        while running:
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                word, value = running[ready].receive()
                if word == END:
                    covered = covered or value
                    del running[ready]
                    continue
                n_done += 1
                finished(n_done)
    return covered


@contextlib.contextmanager
def _workers(names: list[str], load: Callable[[], Model], shot: Shot, job: Job, folder: Path | None) -> Iterator[list[Worker]]:
    """Starts the processes; none of them outlives the block."""
    context = multiprocessing.get_context("spawn")
    workers = []
    try:
        for i, name in enumerate(names):
            ours, theirs = context.Pipe(duplex=False)
            indices = range(i, len(shot.names), len(names))
            process = context.Process(target=_work, args=(theirs, load, name, len(names), shot, indices, job, folder), daemon=True)
            process.start()
            theirs.close()
            workers.append(Worker(process, ours, name))
        yield workers
        for worker in workers:
            worker.process.join(STOP_SECONDS)
    finally:
        for worker in workers:
            worker.connection.close()
            worker.process.terminate()
            worker.process.join(STOP_SECONDS)


def _work(connection: Connection, load: Callable[[], Model], device: str, n_workers: int, shot: Shot, indices: range, job: Job, folder: Path | None) -> None:
    """One process: renders its pictures, then tells whether anything of the model was in them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts the whole group; the first process ends this one
    try:
        if device == "cpu":
            _share_cores(n_workers)
        else:
            torch.cuda.set_device(device)
        renderer = FrameRenderer(load().to(device), shot, job)
        if folder is None:
            with Background(partial(_send_planes, connection), capacity=2) as sender:
                for frame in renderer.frames(indices):
                    sender.put(frame)
        else:
            with picture_writer(folder, shot, job) as writer:
                for frame in renderer.frames(indices):
                    writer.put(frame)
                    connection.send((DONE, frame[0]))
        connection.send((END, renderer.covered))
    except (BrokenPipeError, ConnectionError):
        return
    except NerfleetError as error:
        connection.send((ERROR, error.args))
    except Exception as error:
        traceback.print_exc()
        connection.send((DEFECT, f"{type(error).__name__}: {error}"))


def _send_planes(connection: Connection, frame: tuple[int, Layers]) -> None:
    planes = frame[1]["planes"]
    connection.send((DONE, planes.shape))
    connection.send_bytes(planes.tobytes())


def _share_cores(n_workers: int) -> None:
    import numba

    n_threads = max(min(torch.get_num_threads(), numba.get_num_threads()) // n_workers, 1)
    torch.set_num_threads(n_threads)
    numba.set_num_threads(n_threads)
