"""The field's networks on the CPU: BLAS through torch, in blocks of rows that stay in cache, a thread a block."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nerfleet.kernels.field.reference import pad_features
from nerfleet.kernels.mlp.reference import n_weights, split_weights
from nerfleet.kernels.sphere_harmonics.cpu import sphere_harmonics
from nerfleet.kernels.sphere_harmonics.reference import N_COEFFICIENTS
from nerfleet.kernels.threads import over_blocks

ROWS = 4096
"""Rows of a block."""


def _hidden(x: Tensor, layers: Sequence[Tensor]) -> list[Tensor]:
    """Inputs of every layer: x, then the activations."""
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(torch.mm(inputs[-1], layer.t()).relu_())
    return inputs


def _colour_input(outputs: Tensor, directions: Tensor) -> Tensor:
    """[n, 16 + 16]: density outputs, then the harmonics of unit directions."""
    both = torch.empty(len(outputs), outputs.shape[1] + N_COEFFICIENTS)
    both[:, : outputs.shape[1]] = outputs
    sphere_harmonics(directions.contiguous().numpy(), both[:, outputs.shape[1] :].numpy())
    return both


def density_outputs(features: Tensor, mlp: Tensor, density_dims: Sequence[int]) -> Tensor:
    """[n, L * F] -> [n, 16]."""
    layers = split_weights(mlp[: n_weights(density_dims)], density_dims)
    out = torch.empty(len(features), density_dims[-1])

    def block(rows: slice) -> None:
        inputs = _hidden(pad_features(features[rows], density_dims[0]), layers)
        torch.mm(inputs[-1], layers[-1].t(), out=out[rows])

    over_blocks(len(features), ROWS, block)
    return out


def colour(outputs: Tensor, directions: Tensor, mlp: Tensor, density_dims: Sequence[int], rgb_dims: Sequence[int]) -> Tensor:
    """Density outputs [n, 16] and unit directions [n, 3] -> rgb [n, 3]."""
    layers = split_weights(mlp[n_weights(density_dims) :], rgb_dims)
    rgb = torch.empty(len(outputs), 3)

    def block(rows: slice) -> None:
        inputs = _hidden(_colour_input(outputs[rows], directions[rows]), layers)
        torch.sigmoid(torch.mm(inputs[-1], layers[-1][:3].t()), out=rgb[rows])

    over_blocks(len(outputs), ROWS, block)
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
        rgb_inputs = _hidden(_colour_input(outputs, directions[rows]), rgb)
        colours = torch.sigmoid(torch.mm(rgb_inputs[-1], rgb[-1].t()))
        grad = d_rgb[rows] * colours * (1 - colours)
        grad = _backward_layers(grad, rgb_inputs, rgb, grad_rgb)[:, : density_dims[-1]].contiguous()
        grad[:, 0] += d_raw[rows]
        grad = _backward_layers(grad, density_inputs, density, grad_density)
        grad_features[rows] = grad[:, : grad_features.shape[1]]
        return own

    for own in over_blocks(len(features), ROWS, block):
        grad_mlp += own
