"""The captured step on a GPU: the same bits as the plain one and as every other run of the seed, and not one wait of the host."""

from __future__ import annotations

import warnings

import pytest
import torch

from nerfleet.config import TrainConfig
from nerfleet.data.synthetic import synthetic_scene
from nerfleet.kernels.control.op import STAT_KEPT, STAT_LOSS, STAT_SKIPPED, STAT_STEP
from nerfleet.presets import load_network
from nerfleet.train.graph import GraphedStep
from nerfleet.train.step import SingleDevice, TrainStep

pytestmark = pytest.mark.gpu
STEPS = 40
LONG = 200


def new_step(seed: int = 3) -> TrainStep:
    scene = synthetic_scene(n_views=6, width=64, height=48)
    config = TrainConfig(network=load_network("small"), batch_size=1 << 16, max_rays=1 << 14, seed=seed)
    return TrainStep(scene, config, torch.device("cuda", torch.cuda.current_device()), SingleDevice())


def test_graph_and_plain_steps_agree() -> None:
    graphed, plain = new_step(), new_step()
    advance = GraphedStep(graphed)
    for number in range(STEPS):
        advance(number)
        plain(number)
    ours = graphed.control.stats[:STEPS].cpu()
    assert ours[:, STAT_STEP].tolist() == list(range(STEPS))
    assert not ours[:, STAT_SKIPPED].any()
    assert float(ours[-5:, STAT_LOSS].mean()) < 0.7 * float(ours[:5, STAT_LOSS].mean())
    assert_same_bits(graphed, plain)


def assert_same_bits(first: TrainStep, second: TrainStep) -> None:
    ours, theirs = first.state_tensors(), second.state_tensors()
    assert [name for name, tensor in ours.items() if not torch.equal(tensor, theirs[name])] == []


def test_same_seed_same_bits() -> None:
    first, second, other = new_step(), new_step(), new_step(seed=4)
    for step in (first, second, other):
        advance = GraphedStep(step)
        for number in range(LONG):
            advance(number)
    assert_same_bits(first, second)
    assert not torch.equal(first.table.master, other.table.master)


def test_ten_steps_without_a_wait() -> None:
    step = new_step()
    advance = GraphedStep(step)
    for number in range(10):  # what runs for the first or second time is compiled or captured
        advance(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mode announces itself as a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(10, 20):
            advance(number)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("default")
    assert int(step.control.state[0]) == 20


def test_rays_follow_the_samples() -> None:
    step = new_step()
    advance = GraphedStep(step)
    for number in range(STEPS):
        advance(number)
    kept = step.control.stats[STEPS - 10 : STEPS, STAT_KEPT].cpu()
    assert float(kept.mean()) == pytest.approx(1 << 16, rel=0.15)
