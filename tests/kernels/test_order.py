"""The sequence of samples: ray after ray whatever the slots, on the CPU, on a GPU and emulated."""

from __future__ import annotations

import pytest
import torch
from tests.support.backends import EMULATED, GPU, Backend
from tests.support.compare import MARK, check_op, marked, untouched
from torch import Tensor

import nerfleet.kernels.order.op  # noqa: F401  (registers the op)
from nerfleet.kernels.control.op import COUNT_ORDERED, N_STATE, STATE_RAYS

CPU = "cpu"


class Records:
    """Random samples of rays in random slots; the rays past those of the step hold garbage."""

    def __init__(self, n_rays: int, n_rows: int, most: int, spare: int = 7) -> None:
        generator = torch.Generator().manual_seed(n_rays)
        kept = torch.randint(0, most + 1, (n_rays,), generator=generator)
        n = self.n = int(kept.sum())
        rays, starts = torch.arange(n_rays).repeat_interleave(kept), torch.cumsum(kept, 0) - kept
        self.slots = torch.randperm(n, generator=generator)  # of the i-th sample
        self.ray_indices, self.ranks = marked(n + spare, dtype=torch.int32), marked(n + spare, dtype=torch.int32)
        self.ray_indices[self.slots] = rays.int()
        self.ranks[self.slots] = (torch.arange(n) - starts[rays]).int()
        self.kept = torch.cat([kept, torch.full((n_rows - n_rays,), 1000)]).int()
        self.state = torch.zeros(N_STATE, dtype=torch.int64)
        self.state[STATE_RAYS] = n_rays

    def counters(self) -> Tensor:
        return torch.tensor([self.n, 0, 0, 0, 0, 0, MARK, 0], dtype=torch.int32)

    def order(self, run: Backend | str, capacity: int | None = None) -> tuple[Tensor, int]:
        """The sequence and its length."""
        order, counters = marked(capacity or len(self.ranks), dtype=torch.int32), self.counters()
        records = (self.ray_indices[: len(order)], self.ranks[: len(order)], self.kept, self.state, counters, order)
        if isinstance(run, Backend):
            run("sample_order", *records)
        else:
            torch.ops.nerfleet.sample_order(*records)
        return order, int(counters[COUNT_ORDERED])


@pytest.fixture(params=[CPU, EMULATED, GPU])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend | str:
    return CPU if request.param == CPU else Backend(request.param, monkeypatch)


@pytest.mark.parametrize("n_rays, n_rows, most", [(0, 1, 3), (1, 40, 9), (1024, 1024, 2), (1025, 3000, 3), (5000, 5000, 1)])
def test_ray_after_ray(n_rays: int, n_rows: int, most: int, run: Backend | str) -> None:
    records = Records(n_rays, n_rows, most)
    order, length = records.order(run)
    assert length == records.n
    assert torch.equal(order[: records.n].long(), records.slots)
    assert untouched(order[records.n :])


def test_more_samples_than_slots(run: Backend | str) -> None:
    """Then there is no sequence, and nothing is written past the end."""
    records = Records(100, 128, 5)
    assert records.order(run, records.n)[1] == records.n
    order, length = records.order(run, records.n - 1)
    assert length == 0
    assert untouched(order)


@pytest.mark.gpu
def test_as_many_rays_as_there_can_be() -> None:
    records = Records(1 << 18, 1 << 18, 2)
    moved = [x.cuda() for x in (records.ray_indices, records.ranks, records.kept, records.state, records.counters())]
    order = torch.zeros(len(records.ranks), dtype=torch.int32, device="cuda")
    torch.ops.nerfleet.sample_order(*moved, order)
    assert torch.equal(order[: records.n].cpu().long(), records.slots)


def test_schema_and_fake() -> None:
    r = Records(5, 5, 3)
    arguments = (r.ray_indices, r.ranks, r.kept, r.state, r.counters(), torch.zeros_like(r.ranks))
    check_op(torch.ops.nerfleet.sample_order.default, arguments)
