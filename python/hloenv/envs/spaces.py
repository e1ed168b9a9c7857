# SPDX-License-Identifier: Apache-2.0
"""Named observation spaces, computed only when asked for.

    register_observation("size", "Number of instructions.", space, observe)

`space(env)` gives the Gymnasium space and `observe(env)` the value, both of an
environment, an `Episode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

from .._registry import Registry
from ..errors import ArgumentError
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from .pass_memo import opcode_index

if TYPE_CHECKING:
    from .episode import Episode

# Declared largest number of instructions of one opcode.
MAX_COUNT = 1_000_000
# Declared largest cost of a module.
MAX_COST = 1e18
# Sizes of `graph_padded`; of a larger module, the beginning is cut off.
MAX_NODES = 2048
MAX_EDGES = 4096


@dataclass(frozen=True)
class ObservationSpace:
    """One way to observe an environment."""

    space: Callable[[Episode], gymnasium.Space[Any]]
    observe: Callable[[Episode], Any]


_REGISTRY: Registry[ObservationSpace] = Registry(
    "observation", "observations", ArgumentError
)


def register_observation(
    name: str,
    summary: str,
    space: Callable[[Episode], gymnasium.Space[Any]],
    observe: Callable[[Episode], Any],
) -> None:
    """Registers an observation.

    Raises:
        ValueError: the name is taken.
    """
    _REGISTRY.add(name, summary, ObservationSpace(space, observe))


def get_observation(name: str) -> ObservationSpace:
    """The observation of a name, or a dictionary of several: "op_counts+cost".

    Raises:
        ArgumentError: no observation has this name.
    """
    names = name.split("+") if isinstance(name, str) else [name]
    if len(names) == 1:
        return _REGISTRY.find(name)[0]
    parts = {each: _REGISTRY.find(each)[0] for each in names}

    def space(env: Episode) -> spaces.Dict:
        return spaces.Dict(_flat((k, part.space(env)) for k, part in parts.items()))

    def observe(env: Episode) -> dict[str, Any]:
        return _flat((key, part.observe(env)) for key, part in parts.items())

    return ObservationSpace(space, observe)


def _flat(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary without dictionaries in it, which few libraries take."""
    result: dict[str, Any] = {}
    for name, value in items:
        if isinstance(value, (dict, spaces.Dict)):
            result |= {f"{name}.{key}": each for key, each in value.items()}
        else:
            result[name] = value
    return result


def list_observations() -> dict[str, str]:
    """Names and summaries of all observations."""
    return _REGISTRY.summaries()


class HloGraphSpace(gymnasium.Space[Any]):
    """PyTorch Geometric data of any module; cannot be sampled or batched."""

    def __eq__(self, other: object) -> bool:
        """Whether it is such a space too."""
        return isinstance(other, HloGraphSpace)

    def __hash__(self) -> int:
        return hash(type(self))

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Raises: there is no distribution over modules."""
        raise NotImplementedError("graphs of modules cannot be sampled; reset an env")

    def contains(self, x: Any) -> bool:
        """Whether `x` is PyTorch Geometric data."""
        from torch_geometric.data import Data, HeteroData

        return isinstance(x, (Data, HeteroData))


def _counts_space(_: Episode) -> spaces.Box:
    return spaces.Box(0, MAX_COUNT, (len(opcode_index()),), np.int64)


def _unit_space(_: Episode) -> spaces.Box:
    return spaces.Box(0, 1, (len(opcode_index()),), np.float32)


def _observe_counts(env: Episode) -> Any:
    return np.minimum(env.node.counts, MAX_COUNT)


def _observe_normalized(env: Episode) -> Any:
    counts = np.log1p(_observe_counts(env)) / np.log1p(MAX_COUNT)
    return counts.astype(np.float32)


def _observe_cost(env: Episode) -> Any:
    cost = env.cost_of(env.node)
    values = [cost.flops, cost.transcendentals, cost.bytes]
    return np.clip(np.array(values, np.float64), 0, MAX_COST)


def _num_actions(env: Episode) -> int:
    if not env.num_actions:
        raise ArgumentError(
            "the observations pass_history and pass_counts need actions that are "
            f"numbers, which those of {type(env).__name__} are not"
        )
    return env.num_actions


def _history_space(env: Episode) -> spaces.Box:
    return spaces.Box(0, _num_actions(env), (env.max_steps,), np.int64)


def _observe_history(env: Episode) -> Any:
    history = np.zeros(env.max_steps, np.int64)
    actions = env.actions[-env.max_steps :]
    history[: len(actions)] = np.array(actions, np.int64) + 1
    return history


def _observe_pass_counts(env: Episode) -> Any:
    actions = np.array(env.actions, np.int64)
    counts = np.bincount(actions, minlength=_num_actions(env))
    return (counts / env.max_steps).astype(np.float32)


def _observe_lookahead(env: Episode) -> Any:
    size = max(env.node.op_count, 1)
    result = np.zeros((2, len(env.passes)), np.float32)
    for number in range(len(env.passes)):
        following = env.following(number)
        result[0, number] = following is not env.node
        result[1, number] = (env.node.op_count - following.op_count) / size
    return np.clip(result, -1, 1)


def _observe_graph(env: Episode) -> Any:
    from ..graph import to_pyg

    # A copy, of which the tensors may be changed.
    return env.memo.observed(env.node, "graph", lambda: to_pyg(env.module)).clone()


def _padded_space(_: Episode) -> spaces.Dict:
    num_features = len(_NODE_COLUMNS)
    return spaces.Dict(
        {
            "opcode": spaces.Box(0, len(opcode_index()), (MAX_NODES,), np.int64),
            "nodes": spaces.Box(
                0, np.log1p(MAX_COST), (MAX_NODES, num_features), np.float32
            ),
            "node_mask": spaces.Box(0, 1, (MAX_NODES,), np.int8),
            "edges": spaces.Box(0, MAX_NODES - 1, (2, MAX_EDGES), np.int64),
            "edge_mask": spaces.Box(0, 1, (MAX_EDGES,), np.int8),
        }
    )


# Columns of `HloGraph` that `graph_padded` has, as log(1 + x).
_NODE_COLUMNS = (
    "element_count",
    "input_bytes",
    "output_bytes",
    "flops",
    "transcendentals",
    "user_count",
    "operand_count",
)


def _observe_padded(env: Episode) -> Any:
    name = f"padded to {MAX_NODES} nodes and {MAX_EDGES} edges"
    made = env.memo.observed(env.node, name, lambda: _padded(env.module))
    return {name: array.copy() for name, array in made.items()}


def _padded(module: HloModule) -> dict[str, Any]:
    graph = HloGraph.from_module(module)
    # The end of a larger graph, which has the entry computation's root.
    first = max(graph.num_nodes - MAX_NODES, 0)
    num_nodes = graph.num_nodes - first
    opcode = np.zeros(MAX_NODES, np.int64)
    opcode[:num_nodes] = graph.opcode[first:] + 1  # 0 pads
    nodes = np.zeros((MAX_NODES, len(_NODE_COLUMNS)), np.float32)
    for column, name in enumerate(_NODE_COLUMNS):
        values = np.clip(getattr(graph, name)[first:], 0, MAX_COST)
        nodes[:num_nodes, column] = np.log1p(values)
    sources, targets = graph.edge_sources - first, graph.edge_targets - first
    kept = np.flatnonzero((sources >= 0) & (targets >= 0))[-MAX_EDGES:]
    edges = np.zeros((2, MAX_EDGES), np.int64)
    edges[0, : len(kept)] = sources[kept]
    edges[1, : len(kept)] = targets[kept]
    return {
        "opcode": opcode,
        "nodes": nodes,
        "node_mask": (np.arange(MAX_NODES) < num_nodes).astype(np.int8),
        "edges": edges,
        "edge_mask": (np.arange(MAX_EDGES) < len(kept)).astype(np.int8),
    }


register_observation(
    "op_counts", "Instructions by opcode.", _counts_space, _observe_counts
)
register_observation(
    "op_counts_normalized",
    "Instructions by opcode, as log(1 + count) between 0 and 1.",
    _unit_space,
    _observe_normalized,
)
register_observation(
    "cost",
    "Flops, transcendentals and bytes of XLA's cost analysis.",
    lambda _: spaces.Box(0, MAX_COST, (3,), np.float64),
    _observe_cost,
)
register_observation(
    "pass_history",
    "Numbers of the passes so far, from 1, oldest first; 0 pads.",
    _history_space,
    _observe_history,
)
register_observation(
    "pass_counts",
    "How often each action was taken, as a share of the longest episode.",
    lambda env: spaces.Box(0, 1, (_num_actions(env),), np.float32),
    _observe_pass_counts,
)
register_observation(
    "lookahead",
    "Of each pass: whether it changes the module, and the share of instructions that "
    "it removes. Runs all passes on each new module.",
    lambda env: spaces.Box(-1, 1, (2, len(env.passes)), np.float32),
    _observe_lookahead,
)
register_observation(
    "graph",
    "The module as PyTorch Geometric data.",
    lambda _: HloGraphSpace(),
    _observe_graph,
)
register_observation(
    "graph_padded",
    "The module as arrays of fixed shape with masks, for libraries that need those.",
    _padded_space,
    _observe_padded,
)
