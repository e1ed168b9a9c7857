# SPDX-License-Identifier: Apache-2.0
"""Proximal policy optimization in one file, on the order of XLA's passes.

python scripts/examples/09_ppo.py [STEPS]
"""

import sys

import gymnasium
import numpy as np
import torch
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
ROLLOUT, EPOCHS, BATCH, GAMMA, LAMBDA, CLIP = 256, 4, 64, 0.99, 0.95, 0.2

torch.manual_seed(0)
env = gymnasium.make(
    "hloenv.envs:hloenv/PassOrder-v0",
    benchmark="hloenv://dataset/train?max_instructions=150",
)
size, num_actions = env.observation_space.shape[0], env.action_space.n
body = nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
actor, critic = nn.Linear(64, num_actions), nn.Linear(64, 1)
parameters = [*body.parameters(), *actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=3e-4, eps=1e-5)


def evaluate(observations, masks):
    """The policy and the values; masked actions have no probability."""
    hidden = body(observations * 10)
    logits = actor(hidden).masked_fill(~masks, -1e9)
    return torch.distributions.Categorical(logits=logits), critic(hidden).squeeze(-1)


observation, info = env.reset(seed=0)
returns, episode_return = [], 0.0
for start in range(0, STEPS, ROLLOUT):
    rows = []
    for _ in range(ROLLOUT):
        seen = torch.tensor(observation), torch.tensor(info["action_mask"] > 0)
        with torch.no_grad():
            policy, value = evaluate(*seen)
        action = policy.sample()
        observation, reward, terminated, truncated, info = env.step(int(action))
        episode_return += reward
        is_over = terminated or truncated
        rows.append((*seen, action, policy.log_prob(action), value, reward, is_over))
        if is_over:
            returns.append(episode_return)
            episode_return = 0.0
            observation, info = env.reset()
    observations, masks, actions, log_probs, values = map(
        torch.stack, list(zip(*rows, strict=True))[:5]
    )
    with torch.no_grad():
        mask = torch.tensor(info["action_mask"] > 0)
        following = evaluate(torch.tensor(observation), mask)[1]
    advantages, advantage = torch.zeros(ROLLOUT), torch.tensor(0.0)
    for i in reversed(range(ROLLOUT)):
        reward, goes_on = rows[i][5], 1.0 - rows[i][6]
        delta = reward + GAMMA * following * goes_on - values[i]
        advantage = delta + GAMMA * LAMBDA * goes_on * advantage
        advantages[i], following = advantage, values[i]
    targets = advantages + values
    for _ in range(EPOCHS):
        for batch in torch.randperm(ROLLOUT).split(BATCH):
            policy, value = evaluate(observations[batch], masks[batch])
            ratio = (policy.log_prob(actions[batch]) - log_probs[batch]).exp()
            scaled = advantages[batch] / (advantages.std() + 1e-8)
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP) * scaled
            loss = -torch.min(ratio * scaled, clipped).mean()
            loss = loss + 0.5 * (value - targets[batch]).square().mean()
            loss = loss - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
    if returns:
        print(f"{start + ROLLOUT:7d} steps: return {np.mean(returns[-50:]):.4f}")
