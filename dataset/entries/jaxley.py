# SPDX-License-Identifier: Apache-2.0
"""Biophysical neurons with jaxley: cells and small networks, simulated and fitted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxley as jx
from jaxley.channels import HH, Leak
from jaxley.synapses import IonotropicSynapse

from hloenv_cases import Lower, case, uniform

STEPS = 40


def _cell(branches: int, compartments: int):
    branch = jx.Branch(jx.Compartment(), ncomp=compartments)
    parents = [-1, *((i - 1) // 2 for i in range(1, branches))]
    return jx.Cell(branch, parents=parents)


def _simulate(module, name: str, trainable: str):
    """A function of parameters and a current that returns recorded voltages."""
    module.make_trainable(trainable)
    params = module.get_parameters()

    def run(params, current):
        stimuli = module.cell(0).branch(0).comp(0) if name == "network" else (
            module.branch(0).comp(0))  # fmt: skip
        data = stimuli.data_stimulate(current)
        return jx.integrate(module, params=params, data_stimuli=data, delta_t=0.025)

    return run, params


@case(size=[(1, 2), (3, 2), (7, 4)], channel=["hh", "leak"])
def cell(lower: Lower, size, channel: str) -> None:
    made = _cell(*size)
    made.insert(HH() if channel == "hh" else Leak())
    made.branch(0).comp(0).record(verbose=False)
    trainable = "HH_gNa" if channel == "hh" else "Leak_gLeak"
    run, params = _simulate(made, "cell", trainable)
    params = jax.tree.map(lambda a: uniform(0.05, 0.2, *a.shape), params)
    current = uniform(0.0, 1.0, STEPS)
    loss = lambda p, c: jnp.mean(run(p, c) ** 2)
    lower("simulate", run, params, current)
    lower("grad", jax.grad(loss), params, current)
    lower("many", jax.vmap(run, (None, 0)), params, uniform(0.0, 1.0, 4, STEPS))


@case(num=[2, 4])
def network(lower: Lower, num: int) -> None:
    net = jx.Network([_cell(3, 2) for _ in range(num)])
    net.insert(HH())
    for pre in range(num - 1):
        jx.connect(
            net.cell(pre).branch(0).comp(0),
            net.cell(pre + 1).branch(0).comp(0),
            IonotropicSynapse(),
        )
    net.cell(num - 1).branch(0).comp(0).record(verbose=False)
    run, params = _simulate(net, "network", "IonotropicSynapse_gS")
    params = jax.tree.map(lambda a: uniform(1e-4, 1e-3, *a.shape), params)
    current = uniform(0.0, 1.0, STEPS)
    lower("simulate", run, params, current)
    lower("grad", jax.grad(lambda p, c: jnp.mean(run(p, c) ** 2)), params, current)
