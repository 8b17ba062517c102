"""The devices that the kernels' tests run on."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device in turn; "cuda" is skipped with its reason where there is none (tests/conftest.py)."""
    return torch.device(request.param)
