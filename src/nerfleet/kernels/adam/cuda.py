"""Launcher of adam.cu; arguments as in adam/op.py."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.kernels.rtc.launch import Program

SOURCE = Path(__file__).with_name("adam.cu")
BLOCK, EIGHT = 128, 8


def adam(
    master: Tensor, weights: Tensor, ema: Tensor, gradient: Tensor, first_moment: Tensor, second_moment: Tensor, steps: Tensor, hyper: Tensor,
    counters: Tensor, beta1: float, beta2: float, epsilon: float, l2_reg: float, loss_scale: float, skip_zero: bool,
) -> None:  # fmt: skip
    arrays = (master, weights, ema, first_moment, second_moment, steps)
    dtypes = (torch.float32, torch.float16, torch.float16, torch.float32, torch.float32, torch.int16)
    if tuple(x.dtype for x in arrays) != dtypes or any(x.data_ptr() % 16 for x in (*arrays, gradient)):
        raise NerfleetError("adam", "arrays of another type, or not at a multiple of 16 bytes", "use the types of adam/op.py and slices of whole sectors")
    constants = struct.pack("<7f", beta1, beta2, math.log2(beta1), math.log2(beta2), epsilon, l2_reg, 1 / loss_scale)
    pointers = struct.pack("<6Q", *(x.data_ptr() for x in arrays))
    n = master.numel()
    kernel = {torch.int64: "adam_fixed", torch.float32: "adam_float"}[gradient.dtype]
    arguments = (pointers, gradient, n, hyper, counters, int(skip_zero), constants)
    Program(SOURCE).launch(kernel, (-(-n // (BLOCK * EIGHT)),), BLOCK, *arguments, device=master.device)
