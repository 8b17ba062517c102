"""Fully connected network without biases, ReLU between its layers, in plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def split_weights(weights: Tensor, dims: Sequence[int]) -> list[Tensor]:
    """Flat weights -> one [out, in] view a layer; dims = [in, hidden..., out] (padded sizes)."""
    shapes = [(dims[i + 1], dims[i]) for i in range(len(dims) - 1)]
    parts = torch.split(weights, [rows * columns for rows, columns in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def n_weights(dims: Sequence[int]) -> int:
    return sum(dims[i] * dims[i + 1] for i in range(len(dims) - 1))


def mlp(x: Tensor, weights: Tensor, dims: Sequence[int]) -> Tensor:
    """[n, dims[0]] -> [n, dims[-1]]."""
    layers = split_weights(weights, dims)
    for layer in layers[:-1]:
        x = torch.relu(x @ layer.t())
    return x @ layers[-1].t()
