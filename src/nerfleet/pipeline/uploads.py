"""From slots in shared memory to the training's device: on CUDA one copy by the GPU itself, beside the training's own work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nerfleet.pipeline.loader import Arrived, Pin

N_STAGES = 4


@dataclass(frozen=True)
class Copy:
    """Bytes of a slot and where they belong on the device, a contiguous tensor."""

    source: memoryview
    target: Tensor


class HostUploads:
    """Training on the CPU: copied at once."""

    pin: Pin | None = None

    def __init__(self) -> None:
        self._done: list[Arrived] = []

    def ready(self) -> bool:
        return True

    def put(self, arrived: Arrived, copies: list[Copy]) -> None:
        for copy in copies:
            _bytes_of(copy.target).copy_(_tensor(copy.source))
        self._done.append(arrived)

    def finished(self) -> list[Arrived]:
        """Pieces whose slots have been read."""
        done, self._done = self._done, []
        return done


@dataclass
class _Stage:
    """Device memory for one slot, and when it may be written again."""

    memory: Tensor
    free: torch.cuda.Event | None = None


@dataclass
class _InFlight:
    arrived: Arrived
    copied: torch.cuda.Event
    moves: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # (staged, target) bytes
    stage: _Stage | None = None


class CudaUploads:
    """Copies by a stream of its own from pinned slots.

    Where a pixel's colour and place must change together (``staged``), the slot first goes to device memory beside the pool, and
    from there, in the training's own stream, between two steps: a move of a megabyte within the device takes a few microseconds.
    """

    def __init__(self, device: torch.device, slot_bytes: int, staged: bool) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._stages = [_Stage(torch.empty(slot_bytes, dtype=torch.uint8, device=device)) for _ in range(N_STAGES)] if staged else []
        self._staged = staged
        self._flying: deque[_InFlight] = deque()
        self.pin: Pin | None = pin

    def ready(self) -> bool:
        """Whether one more piece can be put."""
        return bool(self._stages) or not self._staged

    def put(self, arrived: Arrived, copies: list[Copy]) -> None:
        stage = self._stages.pop(0) if self._staged else None
        flight = _InFlight(arrived, torch.cuda.Event(), stage=stage)
        with torch.cuda.stream(self._stream):
            if stage is not None and stage.free is not None:
                self._stream.wait_event(stage.free)
            begin = 0
            for copy in copies:
                target = _bytes_of(copy.target)
                if stage is not None:
                    staged = stage.memory[begin : begin + len(target)]
                    flight.moves.append((staged, target))
                    begin, target = begin + len(target), staged
                target.copy_(_tensor(copy.source), non_blocking=True)
            flight.copied.record(self._stream)
        self._flying.append(flight)

    def finished(self) -> list[Arrived]:
        """Pieces whose slots have been read; moves them into place in the current stream. Waits for nothing."""
        done = []
        while self._flying and self._flying[0].copied.query():
            flight = self._flying.popleft()
            done.append(flight.arrived)
            if flight.stage is not None:
                for staged, target in flight.moves:
                    target.copy_(staged)
                flight.stage.free = torch.cuda.Event()
                flight.stage.free.record()
                self._stages.append(flight.stage)
        return done


def pin(buffer: memoryview) -> Callable[[], None]:
    """Lets the GPU read shared memory directly; where the driver refuses, copies go through its own staging and stay correct."""
    runtime = torch.cuda.cudart()
    address = _tensor(buffer).data_ptr()
    if int(runtime.cudaHostRegister(address, buffer.nbytes, 0)) != 0:
        return lambda: None

    def unpin() -> None:
        runtime.cudaHostUnregister(address)

    return unpin


def _tensor(buffer: memoryview) -> Tensor:
    return torch.frombuffer(buffer, dtype=torch.uint8)


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)
