"""A training step as CUDA graphs: captured once, replayed with one launch a step."""

from __future__ import annotations

from collections.abc import Callable

import torch

from nerfleet.train.step import WARM_UP_STEPS, TrainStep, refresh_period


class GraphedStep:
    """Drop-in for :class:`TrainStep` on CUDA.

    The first step runs as it is (kernels are compiled and loaded, buffers of the allocator settle); then the step and
    the two kinds of occupancy refresh are captured when first needed.

    A replay ends with the rays of the next step: those need no new weights, which other ranks send meanwhile.
    """

    def __init__(self, step: TrainStep) -> None:
        self._step = step
        self._graphs: dict[str, torch.cuda.CUDAGraph] = {}
        self._ran_eagerly: set[str] = set()

    def __call__(self, step: int) -> None:
        self._step.parallel.settle()  # of a step outside of the graph: a replay waits for nothing
        if step % refresh_period(step, self._step.config.reference_step_ratio) == 0:
            kind = "first refreshes" if step < WARM_UP_STEPS else "refresh"
            self._run(kind, lambda: self._step.refresh_occupancy(step))
        if not self._step.drawn:  # the first, or after one that ran outside of the graph
            self._step.draw()
        self._run("step", self._learn_update_draw)

    def _learn_update_draw(self) -> None:
        self._step.learn()
        self._step.update()
        self._step.draw()
        self._step.parallel.settle()

    def _run(self, kind: str, work: Callable[[], None]) -> None:
        if kind not in self._ran_eagerly:
            self._ran_eagerly.add(kind)
            work()
            return
        if kind not in self._graphs:
            torch.cuda.synchronize(self._step.device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads watch collectives and write checkpoints
                work()
            self._graphs[kind] = graph
        self._graphs[kind].replay()
