# SPDX-License-Identifier: Apache-2.0
"""Estimates by the learned cost model, alone or together with the kernel cache."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..._optional import needed_by
from ...errors import ArgumentError, HloEnvError
from ...hlo.module import HloModule
from ...measurement.store import Store
from ...runtime.executable import Engine
from ..base import Estimate
from ..kernel_cache import KernelCache
from ..kernels import KernelSplit
from .checkpoint import DEFAULT_CHECKPOINT, CostModel, load_cost_model
from .threads import one_thread

_OPTION = "measure-above="
# Kernels whose predictions are kept.
_MAX_KNOWN = 1_000_000


@dataclass(frozen=True)
class Prediction:
    """What the members of the ensemble estimate for one module.

    Attributes:
        seconds: [M] of one run, by each member; NaN with an error.
        num_kernels: different kernels in the module.
        num_timed: those of them that the kernel cache timed for this prediction.
        error: why there is no prediction, "" if there is one.
    """

    seconds: npt.NDArray[np.float64]
    num_kernels: int = 0
    num_timed: int = 0
    error: str = ""

    @property
    def mean_s(self) -> float:
        """Geometric mean over the members; 0 for a module without kernels."""
        if not self.seconds.all():
            return 0.0
        return float(np.exp(np.log(self.seconds).mean()))

    @property
    def spread(self) -> float:
        """Standard deviation of the log times: 0.1 means about 10 %."""
        if not self.seconds.all():
            return 0.0
        return float(np.log(self.seconds).std())

    def to_estimate(self) -> Estimate:
        """As other estimators give it."""
        if self.error:
            return Estimate(math.nan, self.num_kernels, error=self.error)
        return Estimate(self.mean_s, self.num_kernels, self.num_timed)


class LearnedCost:
    """Estimates modules by networks that were trained on timed kernels.

    A module is split into its kernels; those that are new go through the networks, all
    new kernels of a call in one batch. The estimate is the sum of the kernels as the
    kernel cache adds them up. Nothing is compiled or run, unless `measure_above` is
    given: then kernels are timed where the members of the ensemble disagree.

    The times are those of the machine, the engine and the number of threads of the
    training; on others, the order of the estimates is meaningful.

    Attributes:
        model: the networks, and what is known of their training.
        threads: cores that the modules will run on.
        measure_above: spread of a module above which kernels are timed; None for never.
        num_new: kernels that have gone through the networks so far.
        num_timed: kernels that were timed so far.
        network_s: seconds that the features and the networks took so far.
    """

    def __init__(
        self,
        model: CostModel | str | os.PathLike[str] | None = None,
        *,
        threads: int = 1,
        store: Store | None = None,
        engine: Engine = "wheel",
        measure_above: float | None = None,
        max_nodes: int | None = None,
        device: str | None = None,
    ) -> None:
        """Reads a checkpoint.

        Args:
            model: a model or the path of a checkpoint; by default, the one in the
                package.
            threads: cores that the modules will run on.
            store: cache of kernel times, for `measure_above`.
            engine: the XLA that runs the timed kernels.
            measure_above: time the kernels that contribute most to the spread of a
                module, until it is at most this; 0.1 is about 10 %.
            max_nodes: limit on the instructions in the kernels of one call.
            device: of torch; by default a GPU if torch has one.

        Raises:
            FileNotFoundError: there is no such checkpoint.
            CostCheckpointError: it is damaged, or for other features.
            ArgumentError: `measure_above` is negative or NaN, or the model was trained
                for another number of threads than it is to be mixed with.
            ImportError: torch, torch-geometric or safetensors is not installed.
        """
        if measure_above is not None and not measure_above >= 0:
            raise ArgumentError(
                f"measure_above must be None or a number >= 0, got {measure_above}"
            )
        with needed_by("the learned cost model", "torch and torch-geometric", "learn"):
            import torch

            from .features import MAX_NODES
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if not isinstance(model, CostModel):
            path = DEFAULT_CHECKPOINT if model is None else model
            model = load_cost_model(path, device=self._device)
        self.model = model
        self.threads = threads
        self.measure_above = measure_above
        self.num_new = self.num_timed = 0
        self.network_s = 0.0
        self._max_nodes = MAX_NODES if max_nodes is None else max_nodes
        self._cache: KernelCache | None = None
        if measure_above is not None:
            if model.threads != threads:
                raise ArgumentError(
                    f"the model was trained on kernels that ran on {model.threads} "
                    f"cores, which do not mix with times on {threads}; leave "
                    f"measure_above out, or give threads={model.threads}"
                )
            self._cache = KernelCache(threads=threads, store=store, engine=engine)
        # By fingerprint: [M] log ns, and [M, width] embeddings.
        self._known: dict[str, tuple[_Array, _Array]] = {}

    def estimate(self, module: HloModule) -> Estimate:
        """Estimated time of one run of `module`."""
        return self.estimate_many([module])[0]

    def estimate_many(self, modules: Sequence[HloModule]) -> list[Estimate]:
        """One estimate for each module; a failure is the error of its estimate.

        A model with attention takes them for variants of one module.
        """
        return [each.to_estimate() for each in self.predict_many(modules)]

    def predict_many(self, modules: Sequence[HloModule]) -> list[Prediction]:
        """The estimates of all members, whose spread says how much is unknown."""
        with one_thread() if self._device == "cpu" else nullcontext():
            return self._predict_many(modules)

    def _predict_many(self, modules: Sequence[HloModule]) -> list[Prediction]:
        splits = [self._split(module) for module in modules]
        good = [each for each in splits if isinstance(each, KernelSplit)]
        errors = self._look_up(good)
        found: list[Prediction] = []
        usable = [each for each in good if id(each) not in errors]
        predicted = dict(zip(map(id, usable), self._predict(usable), strict=True))
        for split in splits:
            if isinstance(split, str):
                found.append(self._failed(split))
            elif id(split) in errors:
                found.append(self._failed(errors[id(split)], len(split)))
            else:
                seconds, timed = predicted[id(split)]
                found.append(Prediction(seconds, len(split), timed))
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        return found

    def _split(self, module: HloModule) -> KernelSplit | str:
        try:
            return KernelSplit(module, threads=self.threads)
        except HloEnvError as error:
            return str(error)

    def _failed(self, error: str, num_kernels: int = 0) -> Prediction:
        nothing = np.full(self.model.ensemble.shape.members, math.nan)
        return Prediction(nothing, num_kernels, error=error)

    # --- kernels

    def _look_up(self, splits: Iterable[KernelSplit]) -> dict[int, str]:
        """Runs the networks on all new kernels; errors by the id of their split."""
        from .features import Kernels, kernels_of

        started = time.perf_counter()
        parts: list[Kernels] = []
        names: list[str] = []
        errors: dict[int, str] = {}
        pending: set[str] = set()
        num_nodes = 0
        for split in splits:
            new = [
                i
                for i, name in enumerate(split.fingerprints)
                if name not in self._known and name not in pending
            ]
            if not new:
                continue
            try:
                part = kernels_of(split.extract(new), max_nodes=self._max_nodes)
            except HloEnvError as error:
                errors[id(split)] = str(error)
                continue
            if num_nodes + part.num_nodes > self._max_nodes:
                self._run(names, parts)
                names, parts, num_nodes = [], [], 0
            parts.append(part)
            num_nodes += part.num_nodes
            own = [split.fingerprints[i] for i in new]
            names += own
            pending.update(own)
        self._run(names, parts)
        self.network_s += time.perf_counter() - started
        # A kernel of a module that failed may be in one that did not.
        for split in splits:
            if id(split) not in errors and not all(
                name in self._known for name in split.fingerprints
            ):
                errors[id(split)] = "the networks give NaN for one of its kernels"
        return errors

    def _run(self, names: list[str], parts: Sequence[object]) -> None:
        if not names:
            return
        import torch

        from .features import Kernels
        from .network import KernelTensors

        kernels = Kernels.concatenate(parts)  # type: ignore[arg-type]
        with torch.inference_mode():
            logs, embeddings = self.model.ensemble(KernelTensors(kernels, self._device))
        log_ns = logs.cpu().double().numpy()
        embedded = embeddings.cpu().numpy()
        self.num_new += len(names)
        for i, name in enumerate(names):
            if np.isfinite(log_ns[:, i]).all():
                self._known[name] = log_ns[:, i], embedded[:, i]

    # --- modules

    def _predict(
        self, splits: Sequence[KernelSplit]
    ) -> list[tuple[npt.NDArray[np.float64], int]]:
        """[M] seconds of each module, and how many kernels were timed for it."""
        found = []
        for split in splits:
            kernels_s = self._kernels_s(split)
            timed = 0
            if self._cache is not None:
                kernels_s, timed = self._timed(split, kernels_s)
            totals = np.array([split.total_s(each) for each in kernels_s])
            found.append((totals, timed))
        if not self.model.ensemble.shape.has_attention or not found:
            return found
        corrected = self._corrected(splits, np.stack([each for each, _ in found]))
        return [(c, timed) for c, (_, timed) in zip(corrected, found, strict=True)]

    def _kernels_s(self, split: KernelSplit) -> npt.NDArray[np.float64]:
        """[M, K] predicted seconds of each kernel."""
        members = self.model.ensemble.shape.members
        if not len(split):
            return np.zeros((members, 0))
        logs = np.stack([self._known[name][0] for name in split.fingerprints], axis=1)
        seconds: npt.NDArray[np.float64] = np.exp(logs) * 1e-9
        return seconds

    def _timed(
        self, split: KernelSplit, kernels_s: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], int]:
        """Replaces predictions by times, the most uncertain first."""
        assert self._cache is not None
        assert self.measure_above is not None
        spent = kernels_s * split.num_runs
        order = np.argsort(-spent.std(axis=0), kind="stable")
        # [M, K + 1] seconds, where the first k kernels of the order are certain.
        gain = spent.mean(axis=0) - spent
        totals = spent.sum(axis=1, keepdims=True) + np.cumsum(
            np.pad(gain[:, order], ((0, 0), (1, 0))), axis=1
        )
        spread = np.log(np.maximum(totals + split.overhead_s, 1e-12)).std(axis=0)
        # Always reached: with all kernels certain, nothing is left but rounding.
        enough = np.flatnonzero(spread <= self.measure_above + 1e-9)
        count = int(enough[0]) if len(enough) else len(order)
        chosen = order[:count].tolist()
        before = self._cache.num_timed
        times = self._cache.times(split, chosen) if chosen else []
        replaced = kernels_s.copy()
        for kernel, seconds in zip(chosen, times, strict=True):
            if not isinstance(seconds, str):  # else the prediction stays
                replaced[:, kernel] = seconds
        timed = self._cache.num_timed - before
        self.num_timed += timed
        return replaced, timed

    def _corrected(
        self, splits: Sequence[KernelSplit], totals: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """[V, M] `totals` with the corrections of attention."""
        import torch

        from .network import Uses

        counts = [len(split) for split in splits]
        names = [name for split in splits for name in split.fingerprints]
        if not names:
            return totals
        known = [self._known[name] for name in names]
        uses = Uses(
            torch.from_numpy(np.repeat(np.arange(len(splits)), counts)),
            torch.arange(len(names)),
            torch.from_numpy(
                np.concatenate([split.num_runs for split in splits]).astype(np.float32)
            ),
            torch.tensor([split.overhead_s * 1e9 for split in splits]).float(),
        )
        logs = torch.from_numpy(np.stack([each for each, _ in known], axis=1)).float()
        embeddings = torch.from_numpy(np.stack([each for _, each in known], axis=1))
        ensemble = self.model.ensemble
        with torch.inference_mode():
            inputs = Uses(
                *(
                    each.to(self._device)
                    for each in (uses.variant, uses.kernel, uses.runs, uses.overhead_ns)
                )
            )
            corrections = ensemble.corrections(
                torch.exp(logs.to(self._device)) * inputs.runs,
                torch.from_numpy(np.log(totals.T * 1e9 + 1)).float().to(self._device),
                embeddings.to(self._device),
                inputs,
            )
        corrected: npt.NDArray[np.float64] = totals * np.exp(
            corrections.cpu().double().numpy().T
        )
        return corrected

    def close(self) -> None:
        """Ends the process that times kernels, if there is one; any number of calls."""
        if self._cache is not None:
            self._cache.close()

    def __enter__(self) -> LearnedCost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_Array = npt.NDArray[np.floating]


def make_learned(
    *,
    threads: int = 1,
    store: Store | None = None,
    engine: Engine = "wheel",
    spec: str = "",
) -> LearnedCost:
    """The estimator of a specification: "CHECKPOINT,measure-above=SPREAD".

    Both parts may be missing.

    Raises:
        ArgumentError: the spread is not a number >= 0.
        FileNotFoundError, CostCheckpointError, ImportError: as `LearnedCost`.
    """
    path, measure_above = spec, None
    head, comma, last = spec.rpartition(",")
    if last.startswith(_OPTION):
        path = head if comma else ""
        text = last.removeprefix(_OPTION)
        try:
            measure_above = float(text)
        except ValueError:
            raise ArgumentError(
                f"{_OPTION}{text} must have a number >= 0, such as {_OPTION}0.1"
            ) from None
    return LearnedCost(
        path or None,
        threads=threads,
        store=store,
        engine=engine,
        measure_above=measure_above,
    )
