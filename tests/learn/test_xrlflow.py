# SPDX-License-Identifier: Apache-2.0
"""The paper's network and ours on substitutions."""

from __future__ import annotations

import pytest
import torch

from hloenv.envs import GraphVectorEnv, SubstitutionEnv
from hloenv.errors import ArgumentError
from hloenv.learn.graph_ppo import GraphPPO, PPOConfig
from hloenv.learn.networks import RewriteNetwork
from hloenv.learn.xrlflow import XRLflowNetwork
from substitution.modules import sum_of_products


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
