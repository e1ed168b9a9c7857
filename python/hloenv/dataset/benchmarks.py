# SPDX-License-Identifier: Apache-2.0
"""Benchmarks by URI: modules of the dataset, of files, of the fuzzer.

    hloenv://dataset/SPLIT                  all modules of a split, sorted
    hloenv://dataset/SPLIT/SOURCE           those of one source
    hloenv://dataset/SPLIT/SOURCE/NAME      one module
    hloenv://SET/SPLIT                      a benchmark set: gpt2-train, diverse, all
    hloenv://file/PATH                      HLO text or a proto; all of a folder
    hloenv://generated/SEED                 a random module of the fuzzer

The first four take conditions, as in `hloenv://dataset/train?max_instructions=600`:
`min_instructions`, `max_instructions` and `extent` (small, real, all).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

from .._registry import load_attribute
from ..errors import ArgumentError
from ..hlo.module import HloModule
from .reader import load

SCHEME = "hloenv://"
# Of modules that were given as objects.
MODULE_SCHEME = f"{SCHEME}module/"
_CONDITIONS = ("min_instructions", "max_instructions", "extent")
# What the names of a set's modules match. The splits are those of the dataset, which
# are split by repository.
_SETS = {
    "all": "",
    "gpt2-train": r"(gpt2|gpt_neo|gptj|\[name=gpt,).*/(grad|train_step)$",
    "diverse": r"(gpt|bert|resnet).*/",
}


@dataclass(frozen=True)
class Benchmark:
    """One module.

    Attributes:
        uri: with which `find_benchmarks` finds it again.
        is_trusted: whether XLA's passes are known not to crash on it.
        load: reads it.
    """

    uri: str
    is_trusted: bool
    load: Callable[[], HloModule] = field(compare=False, repr=False)


def list_benchmark_sets() -> tuple[str, ...]:
    """Names of the benchmark sets."""
    return tuple(sorted(_SETS))


def find_benchmarks(source: str | HloModule) -> Sequence[Benchmark]:
    """The benchmarks of a URI, in the order of the dataset; at least one.

    A module, too, is a benchmark; its URI cannot be found again.

    Raises:
        ArgumentError: the URI has another form, or there is no such module.
        DatasetError: there is no such split.
        FileNotFoundError: there is no such file.
    """
    if isinstance(source, HloModule):
        uri = f"{MODULE_SCHEME}{source.fingerprint()}"
        return [Benchmark(uri, False, lambda: source)]
    if not isinstance(source, str) or not source.startswith(SCHEME):
        raise ArgumentError(
            "a benchmark must be an HloModule or a URI such as "
            f"hloenv://dataset/train/brax or hloenv://file/model.hlo, got {source!r}"
        )
    kind, _, rest = source.removeprefix(SCHEME).partition("/")
    if kind == "file":
        return _of_path(source, Path(rest))
    if kind == "generated":
        return [_generated(source, rest)]
    if kind in _SETS or kind == "dataset":
        return _of_dataset(source, kind, rest)
    raise ArgumentError(
        f"no benchmarks are at {source!r}; after {SCHEME} must come one of dataset, "
        f"{', '.join(list_benchmark_sets())}, file, generated"
    )


def _of_path(uri: str, path: Path) -> list[Benchmark]:
    """A file, or those of a folder that have no hidden name, sorted."""
    if not uri.removeprefix(f"{SCHEME}file/"):
        raise ArgumentError(f"{uri!r} has no path; it is {SCHEME}file/PATH")
    if not path.is_dir():
        return [_of_file(uri, path)]
    files = sorted(each for each in path.iterdir() if each.is_file())
    found = [each for each in files if not each.name.startswith(".")]
    if not found:
        raise ArgumentError(f"there is no file in the folder {str(path)!r} ({uri})")
    return [_of_file(f"{SCHEME}file/{each}", each) for each in found]


def _of_file(uri: str, path: Path) -> Benchmark:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r} ({uri})")
    return Benchmark(uri, False, lambda: HloModule.from_file(path))


def _generated(uri: str, seed: str) -> Benchmark:
    if not (seed.isascii() and seed.isdecimal()):
        raise ArgumentError(f"the seed must be an integer >= 0, got {seed!r} ({uri})")
    random_module = load_attribute("hloenv.fuzz.generator.module:random_module")
    return Benchmark(uri, False, lambda: HloModule.from_text(random_module(int(seed))))


def _of_dataset(uri: str, kind: str, rest: str) -> list[Benchmark]:
    path, _, query = rest.partition("?")
    split, _, path = path.partition("/")
    source, _, name = path.partition("/")
    conditions = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := set(conditions) - set(_CONDITIONS):
        raise ArgumentError(
            f"{uri!r} has the condition {sorted(unknown)[0]!r}; allowed are "
            f"{', '.join(_CONDITIONS)}"
        )
    # One module is found at every extent.
    extent = conditions.get("extent", "all" if name or kind != "dataset" else "small")
    try:
        limits = {
            key: int(value) for key, value in conditions.items() if key != "extent"
        }
    except ValueError as error:
        raise ArgumentError(
            f"{uri!r} has a limit that is no integer: {error}"
        ) from None
    pattern = re.compile(_SETS.get(kind, ""))
    records = load(split, extent=extent).select(
        source=source or None,
        **limits,  # type: ignore[arg-type]
    )
    found = [
        Benchmark(
            f"{SCHEME}dataset/{record.split}/{record.source}/{record.name}",
            True,
            lambda record=record: record.module,  # type: ignore[misc]
        )
        for record in records
        if name in ("", record.name) and pattern.search(record.name)
    ]
    if not found:
        raise ArgumentError(
            f"no module of the dataset is at {uri!r}; `hloenv dataset show` lists them"
        )
    return found
