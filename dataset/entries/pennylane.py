# SPDX-License-Identifier: Apache-2.0
"""Quantum circuits simulated by pennylane's default device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pennylane as qml

from hloenv_cases import Lower, case, floats, uniform


def _entangled(weights, wires):
    qml.StronglyEntanglingLayers(weights, wires=range(wires))


def _basic(weights, wires):
    qml.BasicEntanglerLayers(weights[..., 0], wires=range(wires))


_LAYERS = {"entangled": _entangled, "basic": _basic}


@case(layers=list(_LAYERS), size=[(2, 2), (4, 2), (6, 3)])
def classifier(lower: Lower, layers: str, size) -> None:
    wires, depth = size
    device = qml.device("default.qubit", wires=wires)

    @qml.qnode(device, interface="jax", diff_method="backprop")
    def circuit(weights, x):
        qml.AngleEmbedding(x, wires=range(wires))
        _LAYERS[layers](weights, wires)
        return qml.expval(qml.PauliZ(0))

    weights = uniform(0.0, 3.0, depth, wires, 3)
    x, y = uniform(0.0, 3.0, 8, wires), floats(8)
    predict = jax.vmap(circuit, (None, 0))
    lower("one", lambda w, x: circuit(w, x[0]), weights, x)
    lower.loss(lambda w, x, y: jnp.mean((predict(w, x) - y) ** 2), weights, x, y)


@case(wires=[3, 5])
def energy(lower: Lower, wires: int) -> None:
    device = qml.device("default.qubit", wires=wires)
    terms = [qml.PauliZ(i) @ qml.PauliZ(i + 1) for i in range(wires - 1)]
    terms += [qml.PauliX(i) for i in range(wires)]
    hamiltonian = qml.Hamiltonian([1.0] * (wires - 1) + [0.5] * wires, terms)

    @qml.qnode(device, interface="jax", diff_method="backprop")
    def circuit(angles):
        for i in range(wires):
            qml.RY(angles[i], wires=i)
        for i in range(wires - 1):
            qml.CNOT(wires=[i, i + 1])
            qml.RZ(angles[wires + i], wires=i + 1)
        return qml.expval(hamiltonian)

    angles = uniform(0.0, 3.0, 2 * wires - 1)
    lower("value", lambda a: circuit(a), angles)
    lower("grad", jax.grad(circuit), angles)


@case(wires=[3, 5])
def states(lower: Lower, wires: int) -> None:
    device = qml.device("default.qubit", wires=wires)

    @qml.qnode(device, interface="jax")
    def fourier(angles):
        for i in range(wires):
            qml.RY(angles[i], wires=i)
        qml.QFT(wires=range(wires))
        return qml.probs(wires=range(wires))

    @qml.qnode(device, interface="jax")
    def state(angles):
        for i in range(wires):
            qml.Hadamard(wires=i)
            qml.RZ(angles[i], wires=i)
        return qml.state()

    angles = uniform(0.0, 3.0, wires)
    lower("fourier", lambda a: fourier(a), angles)
    lower("state", lambda a: state(a), angles)
    lower("jacobian", jax.jacobian(fourier), angles)
