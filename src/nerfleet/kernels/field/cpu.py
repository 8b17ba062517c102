"""The field's networks on the CPU: BLAS through torch, in blocks of rows that stay in cache, a thread a block."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from nerfleet.kernels.field.reference import pad_features
from nerfleet.kernels.mlp.reference import n_weights, split_weights
from nerfleet.kernels.sphere_harmonics.reference import sphere_harmonics

ROWS = 4096
"""Rows of a block at most."""


@functools.cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="field")


def _blocks(n: int, n_threads: int) -> list[slice]:
    """Rows 0 .. n in blocks of equal size, as many for each thread."""
    n_blocks = -(-max(-(-n // ROWS), 1) // n_threads) * n_threads
    rows = max(-(-n // n_blocks), 1)
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def _over_blocks(n: int, work: Callable[[slice], Tensor | None]) -> list[Tensor | None]:
    """Run ``work`` on blocks of n rows -> what it returned, in order.

    torch's own threads would meet at a barrier after each of a block's small operations: with two of them this file takes
    longer than with one. Here every thread has blocks of its own.
    """
    n_threads = torch.get_num_threads()
    blocks = _blocks(n, n_threads)

    def run(rows: slice) -> Tensor | None:
        with torch.no_grad():
            return work(rows)

    if n_threads == 1 or len(blocks) < 2:
        return [run(rows) for rows in blocks]
    torch.set_num_threads(1)
    try:
        return list(_pool(n_threads).map(run, blocks))
    finally:
        torch.set_num_threads(n_threads)


def _hidden(x: Tensor, layers: Sequence[Tensor]) -> list[Tensor]:
    """Inputs of every layer: x, then the activations."""
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(torch.mm(inputs[-1], layer.t()).relu_())
    return inputs


def density_outputs(features: Tensor, mlp: Tensor, density_dims: Sequence[int]) -> Tensor:
    """[n, L * F] -> [n, 16]."""
    layers = split_weights(mlp[: n_weights(density_dims)], density_dims)
    out = torch.empty(len(features), density_dims[-1])

    def block(rows: slice) -> None:
        inputs = _hidden(pad_features(features[rows], density_dims[0]), layers)
        torch.mm(inputs[-1], layers[-1].t(), out=out[rows])

    _over_blocks(len(features), block)
    return out


def colour(outputs: Tensor, directions: Tensor, mlp: Tensor, density_dims: Sequence[int], rgb_dims: Sequence[int]) -> Tensor:
    """Density outputs [n, 16] and unit directions [n, 3] -> rgb [n, 3]."""
    layers = split_weights(mlp[n_weights(density_dims) :], rgb_dims)
    rgb = torch.empty(len(outputs), 3)

    def block(rows: slice) -> None:
        inputs = _hidden(torch.cat([outputs[rows], sphere_harmonics(directions[rows])], -1), layers)
        torch.sigmoid(torch.mm(inputs[-1], layers[-1][:3].t()), out=rgb[rows])

    _over_blocks(len(outputs), block)
    return rgb


def _backward_layers(grad: Tensor, inputs: list[Tensor], layers: Sequence[Tensor], grad_layers: Sequence[Tensor]) -> Tensor:
    """Gradient of a network's output -> gradient of its input; weight gradients are added in place."""
    for i in reversed(range(len(layers))):
        grad_layers[i].addmm_(grad.t(), inputs[i])
        grad = torch.mm(grad, layers[i])
        if i > 0:
            grad = torch.ops.aten.threshold_backward(grad, inputs[i], 0)
    return grad


def field_backward(
    features: Tensor,
    directions: Tensor,
    mlp: Tensor,
    density_dims: Sequence[int],
    rgb_dims: Sequence[int],
    d_rgb: Tensor,
    d_raw: Tensor,
    grad_mlp: Tensor,
    grad_features: Tensor,
) -> None:
    """Adds to ``grad_mlp``, writes ``grad_features`` [n, L * F]; the hidden layers are computed again from the features."""
    n_density = n_weights(density_dims)
    density, rgb = split_weights(mlp[:n_density], density_dims), split_weights(mlp[n_density:], rgb_dims)
    rgb[-1] = rgb[-1][:3]  # the other rows are padding

    def block(rows: slice) -> Tensor:
        own = torch.zeros(mlp.numel())
        grad_density, grad_rgb = split_weights(own[:n_density], density_dims), split_weights(own[n_density:], rgb_dims)
        grad_rgb[-1] = grad_rgb[-1][:3]
        density_inputs = _hidden(pad_features(features[rows], density_dims[0]), density)
        outputs = torch.mm(density_inputs[-1], density[-1].t())
        rgb_inputs = _hidden(torch.cat([outputs, sphere_harmonics(directions[rows])], -1), rgb)
        colours = torch.sigmoid(torch.mm(rgb_inputs[-1], rgb[-1].t()))
        grad = d_rgb[rows] * colours * (1 - colours)
        grad = _backward_layers(grad, rgb_inputs, rgb, grad_rgb)[:, : density_dims[-1]].contiguous()
        grad[:, 0] += d_raw[rows]
        grad = _backward_layers(grad, density_inputs, density, grad_density)
        grad_features[rows] = grad[:, : grad_features.shape[1]]
        return own

    for own in _over_blocks(len(features), block):
        assert own is not None
        grad_mlp += own
