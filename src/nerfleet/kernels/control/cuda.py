"""Launchers of control.cu, one thread each; arguments as in control/op.py."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from nerfleet.kernels.rtc.launch import Program

SOURCE = Path(__file__).with_name("control.cu")


def begin(
    state: Tensor, hyper: Tensor, step_ratio: float, learning_rate: float, decay_start: int, decay_interval: int, decay_base: float, ema_decay: float
) -> None:
    arguments = (state, hyper, step_ratio, learning_rate, decay_start, decay_interval, decay_base, ema_decay)
    Program(SOURCE).launch("begin", (1,), 1, *arguments, device=state.device)


def advance(state: Tensor, counters: Tensor, hyper: Tensor, loss_sum: Tensor, stats: Tensor, target_samples: int, max_rays: int) -> None:
    Program(SOURCE).launch("advance", (1,), 1, state, counters, hyper, loss_sum, stats, target_samples, max_rays, device=state.device)
