"""Training that takes a second: a small network, small steps, 32x32 photographs of the built-in scene."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import FileSystemReader

from nerfleet.config import EncodingConfig, MLPConfig, NetworkConfig, TrainConfig
from nerfleet.train.checkpoint import CheckpointStore

SIZE = 32
NETWORK = NetworkConfig(encoding=EncodingConfig(n_levels=4, log2_hashmap_size=12), density=MLPConfig(32, 1), rgb=MLPConfig(32, 1))
STEPS = 40
CONFIG = TrainConfig(network=NETWORK, steps=STEPS, batch_size=1 << 12, max_rays=1 << 12, initial_rays=1 << 12)


def config(**changes: Any) -> TrainConfig:
    """The small configuration with other knobs."""
    return dataclasses.replace(CONFIG, **changes)


def read_checkpoint(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a checkpoint."""
    stored = FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    tensors = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in stored.items()}
    CheckpointStore(folder.parent.parent).load(folder, tensors)
    return tensors
