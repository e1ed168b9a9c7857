#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The networks of networks.py in jax and in PyTorch, with the same parameters.

The layers call PyTorch's own functions, as its users would. Kernels have its layout
[outputs, inputs, height, width]. The call does two things that a network written for
PyTorch would not need: images are padded where stride 2 needs another zero on one side
than on the other, and kernels of transposed convolutions are flipped.

    python scripts/examples/torch_networks.py U-Net    # those whose name has this text
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from networks import NETWORKS, PROGRAMS, Network
from operations import IMAGES, KERNEL, Operation, compare
from torch.nn import functional

_LEARNING_RATE, _MOMENTUM = 0.01, 0.9  # as in `unseen.training_step`
# Of gradients: last bits decide which of some ReLUs pass.
_OFF = 0.05


class TorchNetwork(Network):
    """Layers by PyTorch; images [N, H, W, C] are views of [N, C, H, W]."""

    relu, relu6 = staticmethod(functional.relu), staticmethod(functional.relu6)
    silu = staticmethod(functional.silu)
    gelu = staticmethod(partial(functional.gelu, approximate="tanh"))  # jax's default
    sigmoid, tanh = staticmethod(torch.sigmoid), staticmethod(torch.tanh)

    @staticmethod
    def convolve(x: Any, kernel: Any, stride: int, groups: int) -> Any:
        """As in `Network`."""
        images, window = x.permute(*IMAGES), kernel.shape[-1]
        sides = []
        for size in images.shape[2:]:
            missing = max((-(-size // stride) - 1) * stride + window - size, 0)
            sides.append((missing // 2, missing - missing // 2))
        if all(low == high for low, high in sides):
            padding = tuple(low for low, _ in sides)
        else:
            images, padding = functional.pad(images, (*sides[1], *sides[0])), (0, 0)
        y = functional.conv2d(
            images, kernel, stride=stride, padding=padding, groups=groups
        )
        return y.permute(0, 2, 3, 1)

    @staticmethod
    def convolve_up(x: Any, kernel: Any) -> Any:
        """As in `Network`."""
        flipped = kernel.transpose(0, 1).flip(2, 3)
        padding = kernel.shape[-1] // 2 - 1
        y = functional.conv_transpose2d(
            x.permute(*IMAGES), flipped, stride=2, padding=padding
        )
        return y.permute(0, 2, 3, 1)

    @staticmethod
    def standardized(x: Any, axes: int | tuple[int, ...]) -> Any:
        """As in `Network`."""
        if axes == -1:
            return functional.layer_norm(x, x.shape[-1:])
        images = x.permute(*IMAGES)
        y = functional.batch_norm(images, None, None, training=True)
        return y.permute(0, 2, 3, 1)

    @staticmethod
    def largest(x: Any, axes: tuple[int, ...]) -> Any:
        """As in `Network`."""
        return x.amax(axes)

    @staticmethod
    def joined(parts: Sequence[Any]) -> Any:
        """As in `Network`."""
        return torch.cat(list(parts), -1)


def _by_torch(
    network: Callable[[Network, Any], Any],
    names: Sequence[Sequence[str]],
    is_step: bool,
    *tensors: Any,
) -> Any:
    """A network, or its training step, on the leaves of its arguments.

    Args:
        network: of `NETWORKS`.
        names: of the parameters of each layer.
        is_step: whether it is a training step.
        tensors: as `jax.tree.leaves` of the program's arguments.
    """
    flat = [(layer, name) for layer, each in enumerate(names) for name in each]

    def run(given: Sequence[Any], x: Any) -> Any:
        layers: list[dict[str, Any]] = [{} for _ in names]
        for (layer, name), tensor in zip(flat, given, strict=True):
            layers[layer][name] = tensor
        return network(TorchNetwork(layers), x.permute(0, 2, 3, 1) if _has(x) else x)

    if not is_step:
        y = run(tensors[:-1], tensors[-1])
        return y.permute(*IMAGES) if _has(y) else y
    params = [each.detach().requires_grad_() for each in tensors[: len(flat)]]
    velocity, (x, target) = tensors[len(flat) : -2], tensors[-2:]
    y = run(params, x)
    if y.ndim == 2:
        loss = functional.cross_entropy(y, target.long())
    else:
        loss = ((y - target.permute(0, 2, 3, 1)) ** 2).mean()
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        velocity = [_MOMENTUM * v + g for v, g in zip(velocity, grads, strict=True)]
        params = [p - _LEARNING_RATE * v for p, v in zip(params, velocity, strict=True)]
    return loss.detach(), *params, *velocity


def _has(array: Any) -> bool:
    """Whether an array has images."""
    return array.ndim == 4


def operation(name: str, network: Callable[[Network, Any], Any]) -> Operation:
    """A program of networks.py, of the leaves of its arguments."""
    kind, make = PROGRAMS[name]
    run, args = make()
    is_step = kind == "training step"
    leaves, tree = jax.tree.flatten(args)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(args)]

    def by_jax(*arrays: Any) -> Any:
        return tuple(jax.tree.leaves(run(*jax.tree.unflatten(tree, arrays))))

    def layout(path: Any, ndim: int) -> Any:
        is_kernel = jax.tree_util.DictKey("kernel") in path
        return (KERNEL if is_kernel else IMAGES) if ndim == 4 else None

    layouts = [
        layout(path, leaf.ndim) for path, leaf in zip(paths, leaves, strict=True)
    ]
    result = jax.eval_shape(run, *args)
    results = [
        layout(path, leaf.ndim)
        for path, leaf in jax.tree_util.tree_leaves_with_path(result)
    ]
    names = [sorted(each) for each in args[0]]
    return Operation(
        by_jax,
        partial(_by_torch, network, names, is_step),
        tuple(np.array(each) for each in leaves),
        tuple(layouts),
        tuple(results),
        _OFF if is_step else None,
    )


OPERATIONS: dict[str, Callable[[], Operation]] = {
    name: partial(operation, name, NETWORKS[name.rsplit(", ", 1)[0]][0])
    for name in PROGRAMS
}


if __name__ == "__main__":
    compare(OPERATIONS)
