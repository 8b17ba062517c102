"""The field's networks on the CPU: BLAS through torch, in blocks of rows that stay in cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nerfleet.kernels.field.reference import pad_features
from nerfleet.kernels.mlp.reference import n_weights, split_weights
from nerfleet.kernels.sphere_harmonics.reference import sphere_harmonics

ROWS = 4096


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS))


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
    for rows in _blocks(len(features)):
        inputs = _hidden(pad_features(features[rows], density_dims[0]), layers)
        torch.mm(inputs[-1], layers[-1].t(), out=out[rows])
    return out


def colour(outputs: Tensor, directions: Tensor, mlp: Tensor, density_dims: Sequence[int], rgb_dims: Sequence[int]) -> Tensor:
    """Density outputs [n, 16] and unit directions [n, 3] -> rgb [n, 3]."""
    layers = split_weights(mlp[n_weights(density_dims) :], rgb_dims)
    rgb = torch.empty(len(outputs), 3)
    for rows in _blocks(len(outputs)):
        inputs = _hidden(torch.cat([outputs[rows], sphere_harmonics(directions[rows])], -1), layers)
        torch.sigmoid(torch.mm(inputs[-1], layers[-1][:3].t()), out=rgb[rows])
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
    grad_density, grad_rgb = split_weights(grad_mlp[:n_density], density_dims), split_weights(grad_mlp[n_density:], rgb_dims)
    rgb[-1], grad_rgb[-1] = rgb[-1][:3], grad_rgb[-1][:3]  # the other rows are padding
    for rows in _blocks(len(features)):
        density_inputs = _hidden(pad_features(features[rows], density_dims[0]), density)
        outputs = torch.mm(density_inputs[-1], density[-1].t())
        rgb_inputs = _hidden(torch.cat([outputs, sphere_harmonics(directions[rows])], -1), rgb)
        colours = torch.sigmoid(torch.mm(rgb_inputs[-1], rgb[-1].t()))
        grad = d_rgb[rows] * colours * (1 - colours)
        grad = _backward_layers(grad, rgb_inputs, rgb, grad_rgb)[:, : density_dims[-1]].contiguous()
        grad[:, 0] += d_raw[rows]
        grad = _backward_layers(grad, density_inputs, density, grad_density)
        grad_features[rows] = grad[:, : grad_features.shape[1]]
