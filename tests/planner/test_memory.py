"""Predicted bytes against what a training step really allocates."""

from __future__ import annotations

import torch
from torch import Tensor

from nerfleet.config import EncodingConfig, NetworkConfig, TrainConfig
from nerfleet.data.synthetic import synthetic_scene
from nerfleet.planner.calibration import REFERENCE
from nerfleet.planner.memory import rank_memory
from nerfleet.planner.workload import SceneFacts, adapted, workload
from nerfleet.train.step import SingleDevice, TrainStep


def bytes_on_cuda(step: TrainStep) -> float:
    """Of the step's tensors, those once that share memory, with the sizes that CUDA's half precision gives them."""
    found: dict[int, float] = {}
    half = {"weights", "ema", "features", "d_features"}
    groups = [step.mlp, step.owned, step.rays, step.samples, step.occupancy]
    named = [(name, value) for group in groups for name, value in vars(group).items() if isinstance(value, Tensor)]
    named += [(name, value) for name, value in vars(step).items() if isinstance(value, Tensor)]
    for name, tensor in named:
        size = tensor.numel() * (2 if name in half else tensor.element_size())
        if name == "weights":  # on the CPU the master itself
            found[-id(tensor)] = size
        else:
            found[tensor.data_ptr()] = max(size, found.get(tensor.data_ptr(), 0))
    return sum(found.values())


def test_counted_bytes_are_those_that_a_step_allocates() -> None:
    scene = synthetic_scene("train", n_views=4, width=64, height=64, supersample=1)
    config = TrainConfig(network=NetworkConfig(encoding=EncodingConfig(log2_hashmap_size=16)), batch_size=1 << 15, max_rays=1 << 14)
    step = TrainStep(scene, config, torch.device("cpu"), SingleDevice())
    facts = SceneFacts(scene.name, scene.aabb_scale, len(scene), len(scene.pixels))
    load = workload(facts, config, adapted(REFERENCE.load.profile, facts))
    memory = rank_memory(load, 1, load.n_params, 1.0, 1.0, 1.0, set_up_bytes=0.0)
    counted = memory.table + memory.pixels + memory.buffers
    assert abs(counted / bytes_on_cuda(step) - 1) < 0.15
