# SPDX-License-Identifier: Apache-2.0
"""The paper's network and ours on substitutions."""

from __future__ import annotations

import pytest
import torch

import hloenv
from hloenv.envs import GraphVectorEnv, SubstitutionEnv
from hloenv.errors import ArgumentError
from hloenv.learn.graph_ppo import GraphPPO, PPOConfig
from hloenv.learn.networks import RewriteNetwork
from hloenv.learn.xrlflow import XRLflowNetwork
from substitution.modules import sum_of_products

MODEL = "hloenv://dataset/test/flax/flax/rnn[cell=MGUCell,size=16x1]/loss"


def envs(observation: str) -> GraphVectorEnv:
    return GraphVectorEnv(
        [
            lambda: SubstitutionEnv(
                sum_of_products(), observation=observation, max_steps=3
            )
        ]
        * 2
    )


@pytest.mark.parametrize("name", ["candidate_graphs", "substitution_graph"])
def test_both_networks_train(name) -> None:
    torch.manual_seed(0)
    paper = name == "candidate_graphs"
    network = XRLflowNetwork(16) if paper else RewriteNetwork(16, 1)
    before = [each.clone() for each in network.parameters()]
    config = PPOConfig(num_steps=4, minibatch_size=4, num_epochs=1)
    ppo = GraphPPO(network, envs(name), config, seed=0, scalar_actions=True)
    updates = []
    ppo.train(8, report=updates.append)
    assert updates[0].step == 8
    assert updates[0].bad_rewards == 0
    after = list(network.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_candidates_that_do_not_fit_are_never_chosen() -> None:
    env = SubstitutionEnv(sum_of_products(), observation="candidate_graphs")
    observation, _ = env.reset()
    scores = XRLflowNetwork(2)([observation, observation])
    count = len(observation.graphs)
    assert scores.logits.shape == (2 * count,)
    assert torch.isfinite(scores.logits[:3]).all()
    assert torch.isinf(scores.logits[3:count]).all()
    with pytest.raises(ArgumentError):
        XRLflowNetwork(0)


def test_candidates_are_encoded_as_their_whole_graphs() -> None:
    env = SubstitutionEnv(MODEL, observation="candidate_graphs", max_candidates=40)
    observation, _ = env.reset()
    torch.manual_seed(0)
    network = XRLflowNetwork(40)

    def whole(module: hloenv.HloModule) -> torch.Tensor:
        data = hloenv.to_pyg(module)
        nodes = network.first(data.opcode)
        for layer in network.layers:
            nodes = torch.relu(layer(nodes, data.edge_index, data.edge_attr))
        return torch.relu(network.pool(nodes.mean(0)))

    for _ in range(2):
        modules = [env.module, *(each.module for each in env.candidates())]
        assert len(modules) > 2
        # In parts, some of which do not have the module that the others refer to.
        graphs = observation.graphs
        for part in (slice(None), slice(1, None), slice(2, 3)):
            expected = torch.stack([whole(each) for each in modules[part]])
            (found,) = network._encode(graphs[part])
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        gradients = [
            torch.autograd.grad(made.square().sum(), [*network.layers.parameters()])
            for made in (
                network._encode(graphs)[0],
                torch.stack([whole(each) for each in modules]),
            )
        ]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
        observation, *_ = env.step(1)


def test_a_network_for_too_many_candidates_raises() -> None:
    with pytest.raises(ArgumentError, match="1 to 4096"):
        XRLflowNetwork(10**9)
