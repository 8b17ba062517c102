"""Entries that a step touches, against counting them one by one; nothing of the training is moved."""

from __future__ import annotations

import dataclasses

import torch
from tests.train.small import SIZE, config

from nerfleet.data.synthetic import synthetic_scene
from nerfleet.kernels.control.op import COUNT_KEPT
from nerfleet.train.step import SingleDevice, TrainStep
from nerfleet.train.touched import SECTOR_PARAMS, touched


def test_counts_are_those_of_a_loop() -> None:
    scene = synthetic_scene("train", n_views=4, width=SIZE, height=SIZE, supersample=1)
    step = TrainStep(scene, config(batch_size=256, max_rays=256, initial_rays=256), torch.device("cpu"), SingleDevice())
    for number in range(2):
        step(number)
    before = {name: tensor.clone() for name, tensor in step.state_tensors().items()}
    found = touched(step)
    assert all(torch.equal(tensor, before[name]) for name, tensor in step.state_tensors().items() if name != "hyper")  # of the step now begun
    assert not step.control.counters.any()
    assert not step.table.gradient.any()
    assert len(found) == step.spec.grid.n_levels

    step.forward_backward()
    n = min(int(step.control.counters[COUNT_KEPT]), len(step.samples.positions))
    entries = SECTOR_PARAMS // step.spec.grid.n_features
    for level, scale in zip(found, step.spec.grid.scales):
        sectors = set()
        for x, y, z in (step.samples.positions[:n] * scale + 0.5).floor().int().tolist():
            sectors |= {((x + a) // entries, y + b, z + c) for a in (0, 1) for b in (0, 1) for c in (0, 1)}
        assert level.read == len(sectors)
        assert level.cells == scale
        assert 0 < level.read_half <= level.read
        assert 0 < level.updated <= level.read
        assert 0 < level.updated_half <= level.updated
    assert [level.read for level in found] == sorted(level.read for level in found)
    assert dataclasses.astuple(found[0])[0] == step.spec.grid.scales[0]
