"""Comparisons with an oracle: tolerances from the dtype and the number of operations, gradients as vectors, marked memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor

MARK = -12345
"""What integer buffers are filled with to see what a kernel writes (float buffers hold NaN)."""


def marked(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Tensor:
    """A buffer full of a value that no kernel writes."""
    return torch.full(shape, float("nan") if dtype.is_floating_point else MARK, dtype=dtype, device=device)


def untouched(values: Tensor) -> bool:
    """Whether every element still holds the mark."""
    return bool((torch.isnan(values) if values.dtype.is_floating_point else values == MARK).all())


def tolerance(dtype: torch.dtype, depth: int) -> float:
    """Relative error of a sum of ``depth`` rounded terms: errors add up like a random walk; times 8 to be safe."""
    return 8 * torch.finfo(dtype).eps * math.sqrt(depth)


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype, depth: int = 1) -> None:
    """Equal within the tolerance of ``dtype`` and ``depth``, relative to the largest expected value; NaN never passes."""
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} is not {tuple(expected.shape)}"
    if expected.numel() == 0:
        return
    expected = expected.double().cpu()
    error = (actual.double().cpu() - expected).abs()
    allowed = tolerance(dtype, depth) * float(expected.abs().max().clamp_min(1e-30))
    worst = float(error.nan_to_num(nan=math.inf).max())
    assert worst <= allowed, f"off by {worst:.3g}, allowed {allowed:.3g}"


def assert_same_gradient(actual: Tensor, expected: Tensor, dtype: torch.dtype, depth: int = 1) -> None:
    """The same vector: direction, length and which elements are zero."""
    a, e = actual.double().cpu().flatten(), expected.double().cpu().flatten()
    assert bool(torch.isfinite(a).all()), "not finite"
    norm = float(e.norm())
    assert norm > 0, "the expected gradient is zero: the test would show nothing"
    allowed = tolerance(dtype, depth)
    cosine, ratio = float(a @ e / (a.norm() * e.norm()).clamp_min(1e-300)), float(a.norm()) / norm
    assert cosine > 1 - max(allowed**2, 1e-10), f"cosine {cosine}"
    assert abs(ratio - 1) < allowed, f"ratio of norms {ratio}"
    assert not bool((a[e == 0] != 0).any()), "non-zero where the gradient is zero"
    large = e.abs() > allowed * float(e.abs().max())
    assert not bool((a[large] == 0).any()), "zero where the gradient is not"


def check_op(op: object, arguments: tuple) -> None:
    """torch's own checks of an op's schema (what it writes to) and of its fake version (shapes, dtypes)."""
    results = torch.library.opcheck(op, arguments, test_utils=("test_schema", "test_faketensor"))  # type: ignore[arg-type]
    assert set(results.values()) == {"SUCCESS"}, results
