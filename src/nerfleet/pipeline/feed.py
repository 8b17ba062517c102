"""Photographs that arrive while training runs: what the progressive start and the pixel pool have in common."""

from __future__ import annotations

import abc
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerfleet.data.on_demand import OnDemandScene, ViewShare
from nerfleet.data.plan import photograph_files
from nerfleet.errors import NerfleetError
from nerfleet.pipeline.loader import Arrived, Loader, ring_size
from nerfleet.pipeline.messages import Failed, Job, Layout
from nerfleet.pipeline.uploads import Copy, CudaUploads, HostUploads

FIRST_SHARE = 0.1
"""Of the photographs, with which training begins."""
POLL_SECONDS = 0.05
THREAD_SECONDS = 0.01
FAILURES_TOLD = 5


def _silent(*_: str) -> None:
    return None


@dataclass(frozen=True)
class FeedOptions:
    """How photographs are fed.

    Attributes:
        n_workers: decoding processes. seed: of the order and of the pool's random pixels.
        strict: a photograph that cannot be used is an error.
        with_depth: depth maps are read too.
        say: told of lost workers and of photographs that cannot be used.
        alive: called now and then while training waits for the first photographs.
    """

    n_workers: int
    seed: int = 0
    strict: bool = False
    with_depth: bool = False
    say: Callable[[str], None] = _silent
    alive: Callable[[], None] = _silent


class Feed(abc.ABC):
    """Pixels on the device, filled by decoding processes. Implements :class:`nerfleet.train.photographs.Photographs`.

    Each view has a range of its own, in proportion to its pixels, in the order of the scene. Views that have arrived are drawn from,
    all their pixels with equal chances; those that have not, or that cannot be decoded, are not.

    Until :meth:`wait`, while the model is made and kernels are compiled, a thread takes in what arrives; nothing is drawn yet.
    Subclasses say what is decoded next (``_next_job``), and call ``_begin`` when they can.
    """

    path = ""

    def __init__(
        self, scene: OnDemandScene, device: torch.device, counts: list[int], layout: Layout, how: FeedOptions,
    ) -> None:  # fmt: skip
        """Allocates, and starts the workers.

        Args:
            counts: pixels that are kept of each of the scene's shares.

        Raises:
            NerfleetError: not enough memory on the device or in /dev/shm.
        """
        self.scene, self.layout, self._how = scene, layout, how
        per_view = torch.zeros(len(scene), dtype=torch.int64)
        self._share_of = {share.view: (share, count) for share, count in zip(scene.shares, counts)}
        for view, (_, count) in self._share_of.items():
            per_view[view] = count
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), per_view.cumsum(0)])
        self._starts = starts.tolist()
        self._allocate(device, starts)
        ring = ring_size(how.n_workers, max(counts) * layout.pixel_bytes)
        self._uploads: HostUploads | CudaUploads = CudaUploads(device, ring.slot_bytes, layout.has_places) if device.type == "cuda" else HostUploads()
        self._loader = Loader(how.n_workers, scene.plan.decoding(scene.downscale), layout, ring, how.say, self._uploads.pin)
        self.ready: set[int] = set()
        self._decoded: set[int] = set()  # all pieces have come; some may be on their way to the device
        self._landing: Counter[int] = Counter()
        self.failed: dict[int, str] = {}
        self._waiting: list[Arrived] = []
        self._ring = ring
        self._began = time.perf_counter()
        self._first_share_seconds = self._all_seconds = self._waited = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._thread_stops = threading.Event()
        self._thread_error: Exception | None = None

    def _allocate(self, device: torch.device, starts: Tensor) -> None:
        n = self._starts[-1]
        try:
            self.pixels = torch.zeros(n, 4, dtype=torch.uint8, device=device)
            self.places = torch.zeros(n if self.layout.has_places else 0, dtype=torch.int32, device=device)
            self.depth = torch.zeros(n, dtype=torch.float16, device=device) if self.layout.has_depth else None
        except (RuntimeError, MemoryError) as error:
            needed = n * self.layout.pixel_bytes / 1e9
            raise NerfleetError("image memory", f"{needed:.1f} GB cannot be had on {device}", "use a smaller --image-memory, or --downscale") from error
        self.offsets, self.drawable = self._offsets(starts).to(device), torch.zeros_like(starts, device=device)

    def _offsets(self, starts: Tensor) -> Tensor:
        return starts

    @abc.abstractmethod
    def _next_job(self) -> Job | None:
        """The next photograph to decode; None: none for now."""

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._take_in, daemon=True, name="photographs")
        self._thread.start()

    def _take_in(self) -> None:
        """The thread's work. It must not change what is drawn: a step may be looking."""
        device = self.pixels.device
        try:
            with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
                while not self._thread_stops.is_set():
                    self._move_on(THREAD_SECONDS)
        except Exception as error:  # raised where somebody waits for it
            self._thread_error = error

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._thread_stops.set()
            thread.join()

    def wait(self) -> None:
        begin = time.perf_counter()
        self._end_thread()
        if self._thread_error is not None:
            raise self._thread_error
        wanted = max(1, round(FIRST_SHARE * len(self._share_of)))
        while len(self.ready) < wanted and len(self.ready) + len(self.failed) < len(self._share_of):
            self._pump(POLL_SECONDS)
            self._how.alive()
        if not self.ready:
            name, reason = next(iter(self.failures().items()))
            raise NerfleetError(str(self.scene.path), "no photograph can be used", f"first reason: {name}: {reason}")
        self._waited += time.perf_counter() - begin
        self._first_share_seconds = time.perf_counter() - self._began

    def before_step(self, rays: int) -> None:
        self._pump(0.0)

    def _pump(self, seconds: float) -> None:
        """Moves everything on by what is possible now; between two steps, which may draw from what is there from then on."""
        self._move_on(seconds)
        landed = {view for view in self._decoded if not self._landing[view]}
        if landed:
            self._decoded -= landed
            self._draw_from(landed)

    def _move_on(self, seconds: float) -> None:
        self._loader.give(self._next_job)
        for message in self._loader.poll(seconds):
            if isinstance(message, Arrived):
                self._waiting.append(message)
                self._landing[message.piece.view] += 1
            elif isinstance(message, Failed):
                self._note_failure(message)
            else:
                self._decoded.add(message.view)
        while self._waiting and self._uploads.ready():
            arrived = self._waiting.pop(0)
            self._uploads.put(arrived, self._copies(arrived))
            self._release()
        self._release()

    def _release(self) -> None:
        for arrived in self._uploads.finished():
            self._loader.release(arrived)
            self._landing[arrived.piece.view] -= 1

    def _draw_from(self, views: set[int]) -> None:
        """Views that are there from now on; in the stream of the training, so between two of its steps."""
        if views <= self.ready:
            return
        self.ready |= views
        counts = torch.zeros(len(self._starts), dtype=torch.int64)
        for view in self.ready:
            counts[view + 1] = self._starts[view + 1] - self._starts[view]
        drawable = counts.cumsum(0)
        if self.drawable.device.type == "cuda":
            drawable = drawable.pin_memory()
        self.drawable.copy_(drawable, non_blocking=True)
        self._note_ready()

    def _copies(self, arrived: Arrived) -> list[Copy]:
        piece, n = arrived.piece, arrived.piece.n
        begin = self._starts[piece.view] + piece.first
        slot, span, copies, at = arrived.slot, slice(begin, begin + n), [], 0
        for target in (self.pixels, self.places if self.layout.has_places else None, self.depth):
            if target is not None:
                size = n * target.element_size() * (4 if target is self.pixels else 1)
                copies.append(Copy(slot[at : at + size], target[span]))
                at += size
        return copies

    def _note_failure(self, message: Failed) -> None:
        """Tells of it, of a few at most: a disk that is gone takes all photographs with it."""
        if message.view in self.failed:
            return
        name = self.scene.names[message.view]
        if self._how.strict:
            raise NerfleetError(name, message.reason, "correct the scene, or leave out --strict")
        self.failed[message.view] = message.reason
        if len(self.failed) <= FAILURES_TOLD:
            kept = "its pixels are not renewed" if message.view in self.ready else "training goes on without it"
            self._how.say(f"{name}: {message.reason}; {kept}")
        elif len(self.failed) == FAILURES_TOLD + 1:
            self._how.say("further photographs cannot be used: report.json names them")
        self._note_ready()

    def _note_ready(self) -> None:
        if not self._all_seconds and len(self.ready | self.failed.keys()) == len(self._share_of):
            self._all_seconds = time.perf_counter() - self._began

    def failures(self) -> dict[str, str]:
        """Name -> reason of photographs that cannot be used."""
        return {self.scene.names[view]: reason for view, reason in sorted(self.failed.items())}

    def report(self) -> dict[str, Any]:
        counts, elapsed = self._loader.counts, time.perf_counter() - self._began
        return {
            "images": self.path,
            "image_workers": self._how.n_workers,
            "replaced_workers": counts.replaced_workers,
            "views_ready": len(self.ready),
            "views": len(self._share_of),
            "failed_photographs": self.failures(),
            "first_share_seconds": self._first_share_seconds,
            "all_views_seconds": self._all_seconds or None,
            "gpu_wait_seconds": self._waited,
            "decoded_photographs": counts.decoded,
            "decoded_photographs_per_s": counts.decoded / max(elapsed, 1e-9),
            "decoding_seconds_each": counts.decoding_seconds / max(counts.decoded, 1),
            "ring_fill": counts.slots_filled / max(counts.polls * self._how.n_workers * self._ring.n_slots, 1),
            "ring_bytes": self._ring.n_bytes * self._how.n_workers,
            "image_bytes_on_device": self.pixels.numel() + 4 * self.places.numel() + (0 if self.depth is None else 2 * self.depth.numel()),
        }

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._end_thread()
            if self.pixels.device.type == "cuda":
                torch.cuda.synchronize(self.pixels.device)
            self._waiting.clear()
            self._loader.close()


def random_order(scene: OnDemandScene, seed: int) -> list[ViewShare]:
    """The scene's shares in the random order in which they are visited."""
    return [scene.shares[i] for i in np.random.default_rng(seed).permutation(len(scene.shares))]


def job_for(scene: OnDemandScene, share: ViewShare, **sampling: int) -> Job:
    return Job(share.view, photograph_files(scene.plan.frames[share.view]), share.first, share.last, **sampling)
