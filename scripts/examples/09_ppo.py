# SPDX-License-Identifier: Apache-2.0
"""PPO in 60 lines, on the order of XLA's passes: scripts/examples/09_ppo.py [STEPS]."""

import sys

import gymnasium
import numpy as np
import torch
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
ROLLOUT, EPOCHS, BATCH, GAMMA, CLIP = 256, 4, 64, 0.99, 0.2
torch.manual_seed(0)
where = "hloenv://dataset/train?max_instructions=150"
env = gymnasium.make("hloenv.envs:hloenv/PassOrder-v0", benchmark=where)
size, num_actions = env.observation_space.shape[0], env.action_space.n
body = nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
network = nn.Sequential(body, nn.Linear(64, num_actions + 1))
optimizer = torch.optim.Adam(network.parameters(), lr=3e-4, eps=1e-5)


def evaluate(observations, masks):
    """The policy and the values; masked actions have no probability."""
    outputs = network(observations * 10)
    logits = outputs[..., 1:].masked_fill(~masks, -1e9)
    return torch.distributions.Categorical(logits=logits), outputs[..., 0]


(observation, info), returns = env.reset(seed=0), [0.0]
for start in range(0, STEPS, ROLLOUT):
    rows = []
    for _ in range(ROLLOUT):
        seen = torch.tensor(observation), torch.tensor(info["action_mask"] > 0)
        with torch.no_grad():
            policy, value = evaluate(*seen)
        action = policy.sample()
        observation, reward, terminated, truncated, info = env.step(int(action))
        ends = torch.tensor([reward, terminated or truncated])
        rows.append((*seen, action, policy.log_prob(action), value, ends))
        returns[-1] += reward
        if ends[1]:
            returns.append(0.0)
            observation, info = env.reset()
    seen, masks, actions, logs, values, ends = map(torch.stack, zip(*rows, strict=True))
    targets, mask = values * 0, torch.tensor(info["action_mask"] > 0)
    ahead = evaluate(torch.tensor(observation), mask)[1].detach()
    for i in reversed(range(ROLLOUT)):
        ahead = targets[i] = ends[i, 0] + GAMMA * ahead * (1 - ends[i, 1])
    advantages = (targets - values) / (targets - values).std()
    for batch in torch.randperm(ROLLOUT).repeat(EPOCHS).split(BATCH):
        policy, value = evaluate(seen[batch], masks[batch])
        ratio = (policy.log_prob(actions[batch]) - logs[batch]).exp()
        clipped, gain = ratio.clamp(1 - CLIP, 1 + CLIP), advantages[batch]
        loss = 0.5 * (value - targets[batch]).square()
        loss = loss - torch.min(ratio * gain, clipped * gain)
        optimizer.zero_grad()
        (loss - 0.01 * policy.entropy()).mean().backward()
        nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimizer.step()
    print(f"{start + ROLLOUT:7d} steps: return {np.mean(returns[-51:-1]):.4f}")
