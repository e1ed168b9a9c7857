# SPDX-License-Identifier: Apache-2.0
"""Makes the data of a cost model: variants of modules, and times of their kernels.

Interrupted, they are complete up to the module in work; `shards` has their files.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..._version import __version__
from ...cost import KernelCache, KernelSplit, Roofline
from ...cost.roofline import estimate_seconds
from ...dataset.benchmarks import SCHEME, Benchmark, find_benchmarks
from ...errors import ArgumentError, HloEnvError
from ...graph.hlo_graph import HloGraph
from ...hlo.module import HloModule
from ...measurement.measurer import Measurer
from ...measurement.record import Measurement
from ...measurement.store import Store
from ...runtime.machine import this_machine
from .config import CostModelConfig
from .shards import FORMAT, SETTINGS, Shard, read_json, write_json, write_shard
from .variants import Variant, make_variants

# A module that ends the process this often is left out.
_MAX_TRIES = 2


@dataclass(frozen=True)
class Made:
    """How far the data are.

    Attributes:
        step: modules that are done, also those of earlier processes.
        steps: modules in all.
        kernels: timed by this process.
        uri: of the last module.
        error: why the last module has no data, "" if it has.
    """

    step: int
    steps: int
    kernels: int
    uri: str
    error: str


def make_data(
    config: CostModelConfig,
    folder: str | os.PathLike[str],
    *,
    splits: Sequence[tuple[str, str, int]] | None = None,
    store: Store | None = None,
    report: Callable[[Made], None] = lambda _: None,
) -> None:
    """Makes the data of a configuration; what is in the folder already is kept.

    Args:
        config: which modules and variants.
        folder: made if it does not exist.
        splits: name, URI of the modules, and how many are drawn, of each split; by
            default "train" and "validation", as `config` has them.
        store: cache of kernel times and measurements.
        report: called after each module.

    Raises:
        ArgumentError: the folder has data of other settings, or `config.train` or
            `config.validation` names no modules.
        OSError: a file cannot be written.
    """
    base = Path(folder)
    _check_settings(base, config)
    if splits is None:
        splits = _splits_of(config)
    wanted = [
        (split, benchmark)
        for split, source, count in splits
        for benchmark in draw_benchmarks(source, count, seed=config.data_seed)
    ]
    with ExitStack() as stack:
        cache = stack.enter_context(KernelCache(threads=config.threads, store=store))
        measurer = None
        if config.measured == "all":
            measurer = stack.enter_context(Measurer(store=store))
        maker = _Maker(config, cache, measurer, store)
        for step, (split, benchmark) in enumerate(wanted, 1):
            error = maker.make(base / split, split, benchmark)
            report(Made(step, len(wanted), cache.num_timed, benchmark.uri, error))


def _splits_of(config: CostModelConfig) -> tuple[tuple[str, str, int], ...]:
    return (
        ("train", config.train, config.max_modules),
        ("validation", config.validation, config.max_validation),
    )


def fingerprints_of(config: CostModelConfig) -> dict[str, set[str]]:
    """Those of the modules that a configuration draws, by split.

    Raises:
        ArgumentError: a module is in both splits.
    """
    found: dict[str, dict[str, str]] = {}
    for split, source, count in _splits_of(config):
        drawn = draw_benchmarks(source, count, seed=config.data_seed)
        found[split] = {each.load().fingerprint(): each.uri for each in drawn}
    if both := found["train"].keys() & found["validation"].keys():
        raise ArgumentError(
            f"{len(both)} modules are in train and in validation, such as "
            f"{found['train'][min(both)]}; give other URIs"
        )
    return {split: set(each) for split, each in found.items()}


def draw_benchmarks(source: str, count: int, *, seed: int) -> list[Benchmark]:
    """At most `count` modules of a URI, in turn from each of its repositories."""
    rng = np.random.default_rng(seed)
    found = find_benchmarks(source)
    by_source: dict[str, list[Benchmark]] = {}
    for index in rng.permutation(len(found)):
        by_source.setdefault(_source_of(found[index].uri), []).append(found[index])
    sources = sorted(by_source)
    order = [sources[i] for i in rng.permutation(len(sources))]
    rounds = max(len(each) for each in by_source.values())
    drawn = [
        by_source[name][i]
        for i in range(rounds)
        for name in order
        if i < len(by_source[name])
    ]
    return drawn[:count]


def _source_of(uri: str) -> str:
    """The repository of a module of the dataset; of others, the URI."""
    kind, _, rest = uri.removeprefix(SCHEME).partition("/")
    return rest.split("/")[1] if kind == "dataset" else uri


class _Maker:
    """Makes the file of one module after the other."""

    def __init__(
        self,
        config: CostModelConfig,
        cache: KernelCache,
        measurer: Measurer | None,
        store: Store | None,
    ) -> None:
        self._config = config
        self._cache = cache
        self._measurer = measurer
        self._store = store
        self._roofline = Roofline(threads=config.threads)

    def make(self, folder: Path, split: str, benchmark: Benchmark) -> str:
        """Writes the file of a module, if it is not there.

        Returns:
            Why there is none, or "".
        """
        folder.mkdir(parents=True, exist_ok=True)
        module = benchmark.load()
        name = module.fingerprint()
        path, note = folder / f"{name}.npz", folder / f"{name}.failed.json"
        if path.exists():
            return ""
        tries = 0
        if note.exists():
            noted = read_json(note)
            tries = int(noted.get("tries", 0))
            error = str(noted.get("error", ""))
            if error or tries >= _MAX_TRIES:
                return error or "it ended the process"
        write_json(note, {"uri": benchmark.uri, "tries": tries + 1, "error": ""})
        try:
            shard = self._shard(split, benchmark, module)
        except HloEnvError as error:
            text = f"{type(error).__name__}: {error}"
            write_json(note, {"uri": benchmark.uri, "tries": tries, "error": text})
            return text
        except KeyboardInterrupt:
            note.unlink()
            raise
        write_shard(path, shard)
        note.unlink()
        return ""

    def _shard(self, split: str, benchmark: Benchmark, module: HloModule) -> Shard:
        # The same variants in any order of the modules.
        seeds = [self._config.data_seed, int(module.fingerprint(), 16) % 2**63]
        variants = list(
            make_variants(
                module,
                self._config.variants,
                rng=np.random.default_rng(seeds),
                threads=self._config.threads,
            )
        )
        known: dict[str, int] = {}
        modules, times = [], list[float]()
        for variant in variants:
            kernels = variant.split
            new = [i for i, f in enumerate(kernels.fingerprints) if f not in known]
            if not new:
                continue
            modules.append(kernels.extract(new).to_bytes())
            for i, time in zip(new, self._cache.times(kernels, new), strict=True):
                known[kernels.fingerprints[i]] = len(known)
                times.append(math.nan if isinstance(time, str) else time)
        splits = [variant.split for variant in variants]
        uses = [known[name] for each in splits for name in each.fingerprints]
        return Shard(
            benchmark.uri,
            _source_of(benchmark.uri),
            split,
            tuple(modules),
            tuple(known),
            np.array(times, np.float64),
            np.cumsum([0, *(len(each) for each in splits)]),
            np.array(uses, np.int64),
            np.concatenate([each.num_runs for each in splits]),
            np.array([each.overhead_s for each in splits]),
            np.array([self._roofline_s(each) for each in splits]),
            np.array(self._measured(module, variants), np.float64),
            tuple(variant.space for variant in variants),
        )

    def _roofline_s(self, split: KernelSplit) -> float:
        return estimate_seconds(
            HloGraph.from_module(split.module), self._roofline.rates
        )

    def _measured(self, module: HloModule, variants: Sequence[Variant]) -> list[float]:
        """[V] measured time over that of XLA's default."""
        modules = [variant.module for variant in variants]
        if self._measurer is not None:
            measured = self._measurer.measure(modules, baseline=module)
            return [_relative([each]) for each in measured]
        if self._store is None or self._config.measured == "none":
            return [math.nan] * len(modules)
        default = module.fingerprint()
        return [
            _relative(
                [
                    each
                    for each in self._stored(variant)
                    if each.baseline == default and each.threads == self._config.threads
                ]
            )
            for variant in modules
        ]

    def _stored(self, module: HloModule) -> Iterator[Measurement]:
        assert self._store is not None
        for _, _, value in self._store.records(
            "measurement", this_machine().id, fingerprint=module.fingerprint()
        ):
            found = Measurement.from_json(value)
            if found.is_ok and found.engine == "wheel" and found.finish == "legalize":
                yield found


def _relative(measured: Sequence[Measurement]) -> float:
    ratios = [
        each.median_ns / each.baseline_median_ns for each in measured if each.is_ok
    ]
    return statistics.median(ratios) if ratios else math.nan


def _check_settings(folder: Path, config: CostModelConfig) -> None:
    """Compares the settings of the folder, or writes them."""
    path = folder / SETTINGS
    given = {"format": FORMAT, **config.data}
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        machine = this_machine().to_json()
        write_json(path, {**given, "version": __version__, "machine": machine})
        return
    noted = read_json(path)
    for name, value in given.items():
        if noted.get(name) != value:
            raise ArgumentError(
                f"the data in {folder} have {name} {noted.get(name)!r}, not {value!r}; "
                "give another folder"
            )
    own = this_machine().id
    if noted.get("machine", {}).get("id", own) != own:
        raise ArgumentError(
            f"the data in {folder} are of another machine; times of two machines do "
            "not mix: give another folder"
        )
