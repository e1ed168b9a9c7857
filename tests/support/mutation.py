# SPDX-License-Identifier: Apache-2.0
"""Random changes of JSON, for readers that must reject invalid input."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 2**70, float("nan")),
    *("", "fusion", "x" * 50, "\ud800"),
    *([], [1], [[]], [None], {}, {"a": 1}),
)


def mutated_json(text: str, rng: random.Random) -> str:
    """A change at one place: another value, none, one more, or another character."""
    if rng.random() < 0.1:
        position = rng.randrange(len(text))
        return text[:position] + chr(rng.randrange(32, 127)) + text[position + 1 :]
    data = json.loads(text)
    paths = [path for path in _paths(data) if path]
    path = rng.choice(paths)
    parent = _at(data, path[:-1])
    kind = rng.choice(("replace", "remove", "insert", "copy"))
    if kind == "replace":
        parent[path[-1]] = rng.choice(_VALUES)
    elif kind == "remove":
        del parent[path[-1]]
    elif kind == "copy":
        parent[path[-1]] = copy.deepcopy(_at(data, rng.choice(paths)))
    elif isinstance(parent, list):
        parent.insert(path[-1], rng.choice(_VALUES))
    else:
        parent["extra"] = rng.choice(_VALUES)
    return json.dumps(data)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        inside: Any = value.items()
    else:
        inside = enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from _paths(each, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value
