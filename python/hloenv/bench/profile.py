# SPDX-License-Identifier: Apache-2.0
"""Time of a module by kind of kernel, and its distance from the machine's peak.

The kernel cache gives the share of each kind of kernel, for XLA's default. The lower
bound is the larger of two times: of all floating-point operations at the peak of matrix
products, and of the inputs and outputs at the memory bandwidth.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..cost.kernel_cache import KernelCache
from ..cost.roofline import Rates, estimate_seconds
from ..errors import HloEnvError
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from ..hlo.pipeline import finish
from ..measurement.store import RecordKey, Store
from ..process.cpu_affinity import CoreLease
from ..process.forkserver import run_jobs
from ..runtime.machine import this_machine
from .entries import Entry
from .flags import use
from .runner import Plan, version_store

KINDS = ("dot", "convolution", "fusion or loop", "reduce", "other")
_OF_OPCODE = {
    "dot": "dot",
    "convolution": "convolution",
    "reduce": "reduce",
    "reduce-window": "reduce",
    **dict.fromkeys(
        (
            *("custom-call", "fft", "sort", "topk", "cholesky", "triangular-solve"),
            *("rng-bit-generator", "copy", "scatter", "infeed", "outfeed"),
        ),
        "other",
    ),
}
# By part of a fusion's name, which lists opcodes of its body.
_OF_FUSION = (("convolution", "convolution"), ("dot", "dot"), ("reduce", "reduce"))
_INF = math.inf
_COUNT_FLOPS = Rates(1.0, 1.0, 1.0, _INF, 0.0, _INF, _INF, 0.0)
_COUNT_BYTES = Rates(_INF, _INF, _INF, _INF, 0.0, _INF, 1.0, 0.0)
_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Profile:
    """Profile of a module with XLA's default.

    Attributes:
        module: its name.
        shares: share of the kernels' time by kind; the sum is 1.
        flops: floating-point operations of a run, with all iterations of loops.
        moved_bytes: bytes that all kernels read and write.
        argument_bytes: bytes of the module's inputs and outputs.
        error: the error message, or "".
    """

    module: str
    shares: dict[str, float] = field(default_factory=dict)
    flops: float = 0.0
    moved_bytes: float = 0.0
    argument_bytes: float = 0.0
    error: str = ""

    def floor_s(self, rates: Rates) -> float:
        """Approximate lower bound of the run time, in seconds."""
        return max(
            self.flops / rates.dot_flops_per_s,
            self.argument_bytes / rates.memory_bytes_per_s,
        )


def kind_of(opcode: str, name: str) -> str:
    """The kind of a kernel.

    Args:
        opcode: of its instruction.
        name: of its instruction.
    """
    if opcode == "fusion":
        for part, kind in _OF_FUSION:
            if part in name:
                return kind
    return _OF_OPCODE.get(opcode, "fusion or loop")


def profile_module(
    name: str, text: str, flags: str, threads: int, store: str
) -> Profile:
    """The profile of a module; for a child process.

    Args:
        name: of the module in the report.
        text: of the module.
        flags: of XLA.
        threads: cores that it runs on.
        store: path of the store of kernel times.
    """
    use(flags)
    lease = CoreLease(threads)
    try:
        os.sched_setaffinity(0, lease.cores)
        module = HloModule.from_text(text)
        final = finish(module)
    except HloEnvError as error:
        return Profile(name, error=f"{type(error).__name__}: {error}")
    finally:
        lease.release()
    times: Counter[str] = Counter()
    with KernelCache(threads=threads, store=Store(store)) as cache:
        # Not of `final`: XLA's passes may fail on what they have finished.
        for row in cache.kernels(module):
            if not math.isnan(row["seconds"]):
                kind = kind_of(row["opcode"], row["name"])
                times[kind] += row["runs"] * row["seconds"]
    total = times.total() or 1.0
    graph = HloGraph.from_module(final)
    specs = [*module.input_specs(), *module.output_specs()]
    return Profile(
        name,
        {kind: times[kind] / total for kind in KINDS},
        estimate_seconds(graph, _COUNT_FLOPS),
        estimate_seconds(graph, _COUNT_BYTES),
        float(
            sum(
                math.prod(each.shape) * each.dtype.itemsize
                for each in specs
                if each.hlo_dtype != "token"
            )
        ),
    )


def profiles(
    entries: Sequence[Entry], plan: Plan, store: Store, *, workers: int = 1
) -> list[Profile]:
    """The profiles of all modules; those in the store are reused."""
    keys = {each.name: _key(each, plan) for each in entries}
    by_name: dict[str, Profile] = {}
    for entry, value in zip(entries, store.get_many(keys.values()), strict=True):
        if value is not None and not plan.again:
            by_name[entry.name] = Profile(**{**value, "module": entry.name})
    missing = [each for each in entries if each.name not in by_name]
    path = str(version_store(store.path, plan.version))
    jobs = [
        (each.name, each.text, plan.flags, plan.settings.threads, path)
        for each in missing
    ]
    outcomes = run_jobs(
        "hloenv.bench.profile:profile_module",
        jobs,
        workers=workers,
        timeout=_TIMEOUT_S,
    )
    for outcome in outcomes if jobs else ():
        name = missing[outcome.index].name
        if outcome.error:
            by_name[name] = Profile(name, error=outcome.last_line)
            continue
        by_name[name] = outcome.value
        if not outcome.value.error:
            store.put(keys[name], asdict(outcome.value))
    return [by_name[each.name] for each in entries]


@functools.cache
def _own_version() -> str:
    """Of this file, which the version of the rows does not include."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


def _key(entry: Entry, plan: Plan) -> RecordKey:
    return RecordKey(
        kind="bench-profile",
        fingerprint=entry.fingerprint,
        finish="",
        flags=plan.flags,
        target="cpu",
        machine=this_machine().id,
        variant=f"{plan.version}, threads {plan.settings.threads}, {_own_version()}",
    )
