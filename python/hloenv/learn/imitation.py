# SPDX-License-Identifier: Apache-2.0
"""Imitation: what searches and fixed rules found, as examples for a network.

A search of the decisions of one module starts from XLA's own and from those of the
fixed rules (`hloenv.search.starting_points`), so that its best is at least as fast as
theirs, by the estimate. The network learns to repeat the best decisions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from .._checkpoints import damage_as
from .._files import replacing
from .._typing import BoolArray, Int64Array
from ..cost.registry import open_estimator
from ..dataset.benchmarks import find_benchmarks
from ..envs.candidates import Candidates
from ..envs.rewrite import RewriteAllEnv
from ..envs.rewrite_base import RewriteBase
from ..errors import ArgumentError
from ..measurement.store import Store
from ..rewrite.game import Game
from ..search import get_search
from ..search.driver import Budget, run_search
from ..search.spaces import get_space
from .agent import CheckpointError
from .demonstrations import returns_of
from .scores import Decisions, TrainingError

_T = TypeVar("_T")


@dataclass(frozen=True)
class DemonstrationTask:
    """What is to be searched.

    Attributes:
        uri: of the module.
        space: name of the space.
        estimator: name of the estimator.
        search: name of the search.
        estimates: its budget.
        seed: of the search.
    """

    uri: str
    space: str
    estimator: str
    search: str
    estimates: int
    seed: int


@dataclass(frozen=True)
class Demonstration:
    """The best decisions that were found on one module.

    Attributes:
        uri: of the module.
        decisions: at each decision point, without irrelevant ones.
        relevant: which of them affect the module.
        default_s: estimate of XLA's own decisions, in seconds.
    """

    uri: str
    decisions: tuple[tuple[int, ...], ...]
    relevant: tuple[tuple[bool, ...], ...]
    default_s: float


def demonstrate(task: DemonstrationTask) -> Demonstration:
    """Searches the decisions of one module.

    Raises:
        HloEnvError: the module cannot be read, or has nothing to decide; all estimates
            fail.
    """
    module = find_benchmarks(task.uri)[0].load()
    game = Game(module, get_space(task.space).stops)
    search = get_search(task.search, game, seed=task.seed)
    with Store() as store, open_estimator(task.estimator, store=store) as estimator:
        found = run_search(search, estimator, budget=Budget(task.estimates, 0))
    if search.best is None or not math.isfinite(found.default_s):
        raise ArgumentError(f"{task.uri} has no estimate of XLA's own decisions")
    prefix = game.canonical(search.best[0])
    return Demonstration(
        task.uri,
        tuple(tuple(each.tolist()) for each in prefix),
        tuple(
            tuple(game.alternatives(prefix[:stop]).relevant(each).tolist())
            for stop, each in enumerate(prefix)
        ),
        found.default_s,
    )


def write_demonstrations(path: Path, found: Iterable[Demonstration]) -> None:
    """Writes demonstrations, one line each, over what the file holds."""
    with replacing(path) as draft:
        lines = [json.dumps(vars(each)) + "\n" for each in found]
        draft.write_text("".join(lines), encoding="utf-8")


def read_demonstrations(path: Path) -> dict[str, Demonstration]:
    """The demonstrations of a file, by URI; none where there is no file.

    Raises:
        CheckpointError: as `read_lines`.
    """
    found = read_lines(
        path,
        lambda row: Demonstration(
            row["uri"],
            tuple(tuple(map(int, each)) for each in row["decisions"]),
            tuple(tuple(map(bool, each)) for each in row["relevant"]),
            float(row["default_s"]),
        ),
    )
    return {each.uri: each for each in found}


def read_lines(path: Path, parse: Callable[[Any], _T]) -> list[_T]:
    """What the lines of a file of JSON hold; nothing where there is no file.

    A last line that is cut is left out.

    Args:
        path: of the file.
        parse: makes a value from the data of a line.

    Raises:
        CheckpointError: another line is damaged.
    """
    if not path.exists():
        return []
    found = []
    *lines, _ = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        message = (
            f"line {number} of {path} is damaged; delete the file, and the modules are "
            "searched again"
        )
        with damage_as(CheckpointError, message):
            found.append(parse(json.loads(line)))
    return found


@dataclass(frozen=True)
class Example:
    """One state, and which candidates are right there.

    Attributes:
        observation: of the state.
        right: [candidates] of the network's scores, in their order.
        weights: [groups] of the groups' losses; 0 where the decision is irrelevant.
        value: sum of the rewards that follow, discounted.
    """

    observation: Any
    right: BoolArray
    weights: Int64Array
    value: float


def examples_of(
    env: RewriteBase,
    shown: Demonstration,
    rng: np.random.Generator,
    gamma: float = 1.0,
) -> list[Example]:
    """The states that lead to the decisions of a demonstration.

    Where one alternative is decided after the other, their order is drawn; in each
    state all decisions that are left are right, and No-Op when none is. Later rewards
    are discounted by `gamma`.

    Raises:
        HloEnvError: the decisions do not fit the module.
    """
    observation, _ = env.reset(options={"benchmark": shown.uri})
    states, rewards = [], []
    while not env.is_over:
        rows = env.candidates()
        if rows is None:
            break
        wanted = np.array(shown.decisions[env.round], np.int64)
        if len(wanted) != len(rows.first):
            raise ArgumentError(
                f"the demonstration of {shown.uri} has {len(wanted)} decisions where "
                f"there are {len(rows.first)}: it is of another version of hloenv; "
                "delete its file"
            )
        action: Any
        if isinstance(env, RewriteAllEnv):
            action, right = _all(rows, wanted)
            weights = np.array(shown.relevant[env.round], np.int64)
        else:
            action, right = _one(rows, wanted, rng)
            weights = np.ones(1, np.int64)
        states.append((observation, right, weights))
        observation, reward, *_ = env.step(action)
        rewards.append(reward)
    values = returns_of(rewards, gamma)
    return [Example(*state, value) for state, value in zip(states, values, strict=True)]


def _all(rows: Candidates, wanted: Int64Array) -> tuple[Int64Array, BoolArray]:
    positions = rows.positions(wanted)
    positions[~rows.allowed[rows.first + positions]] = 0
    right = np.zeros(len(rows), np.bool_)
    right[rows.first + positions] = True
    return positions, right


def _one(
    rows: Candidates, wanted: Int64Array, rng: np.random.Generator
) -> tuple[int, BoolArray]:
    is_wanted = (rows.choice == wanted[rows.alternative]) & rows.allowed
    differs = wanted != rows.default
    left = np.flatnonzero(is_wanted & differs[rows.alternative])
    right = np.zeros(1 + len(rows), np.bool_)
    if not len(left):
        right[0] = True
        return 0, right
    right[1 + left] = True
    return 1 + int(rng.choice(left)), right


def imitate(
    network: nn.Module,
    examples: Sequence[Example],
    *,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    batch_size: int = 16,
    unit: float = 1.0,
) -> float:
    """One pass over the examples; the mean loss.

    Args:
        network: its scores and values are fitted.
        examples: of good decisions.
        optimizer: of its parameters.
        generator: of the order of the examples.
        batch_size: examples in a step.
        unit: of the network's values, in that of the rewards.

    Raises:
        TrainingError: the loss is not finite.
    """
    network.train()
    order = torch.randperm(len(examples), generator=generator).tolist()
    losses = []
    for begin in range(0, len(order), batch_size):
        part = [examples[i] for i in order[begin : begin + batch_size]]
        loss = _loss(network, part, unit)
        if not math.isfinite(loss.item()):
            raise TrainingError("the loss is not finite; lower imitation_rate")
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return float(np.mean(losses)) if losses else math.nan


def _loss(network: nn.Module, examples: Sequence[Example], unit: float) -> Tensor:
    """Cross entropy of the right candidates, and the squared error of the values."""
    scores = network([each.observation for each in examples])
    decisions = Decisions(scores)

    def joined(arrays: Iterable[npt.NDArray[Any]]) -> Tensor:
        return torch.from_numpy(np.concatenate(list(arrays))).to(scores.values.device)

    right = joined(each.right for each in examples)
    weights = joined(each.weights for each in examples).to(scores.values)
    masked = decisions.log_probs.masked_fill(~right, -torch.inf)
    likely = Decisions(scores._replace(logits=masked)).log_normalizers
    values = torch.tensor([each.value / unit for each in examples]).to(scores.values)
    value_loss: Tensor = (scores.values - values).square().mean()
    return decisions.per_observation(-likely * weights) + 0.5 * value_loss
