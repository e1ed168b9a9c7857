# SPDX-License-Identifier: Apache-2.0
"""Measures the constants of the roofline on this machine."""

from __future__ import annotations

import os
import pickle
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from ..errors import StoreError
from ..measurement.store import RecordKey, Store
from ..process.child import Child
from ..process.cpu_affinity import CoreLease, turn_to_time
from ..runtime.executable import compile
from ..runtime.machine import this_machine
from ..runtime.random_inputs import random_inputs
from .roofline import Rates, Roofline

_MIN_RUNS, _MAX_RUNS = 5, 20_000
# Disturbances only lengthen a run.
_QUANTILE = 10
_TIMEOUT_S = 120.0

_DOT_SIZES = (64, 128, 256, 512)
_DOTS = 4
# Batch, spatial dimensions, their size, input features, output features. XLA calls a
# library for the first two, and emits a loop nest for the last.
_CONVOLUTIONS = ((4, 2, 16, 8, 16), (1, 2, 8, 3, 32), (1, 3, 8, 3, 4))
_ELEMENTS = 16_384
_ELEMENTWISE_OPS = 64
_TRANSCENDENTALS = ("exponential", "log", "tanh")
_FEW_KERNELS, _MANY_KERNELS = 4, 100
# A sum reads two arrays and writes one.
_BYTES_OF_A_SUM = 12
# Larger than a core's share of the last-level cache on a shared machine.
_MEMORY_BYTES = 192 * 2**20
_CACHE_BYTES = 2**20

# Number of timed modules, for progress bars.
NUM_STEPS = len(_DOT_SIZES) + len(_CONVOLUTIONS) + len(_TRANSCENDENTALS) + 5


def calibrate(
    *,
    threads: int = 1,
    store: Store | None = None,
    seconds: float = 0.3,
    progress: Callable[[], None] | None = None,
) -> Rates:
    """Measures the rates of this machine with small modules, in a child process.

    Takes about 20 s.

    Args:
        threads: number of cores.
        store: where to save the rates, for `load_rates`.
        seconds: total run time of each module.
        progress: called `NUM_STEPS` times.

    Raises:
        ArgumentError: the process has fewer cores than `threads`.
        HloEnvError: a module could not be timed.
    """
    lease = CoreLease(threads)
    try:
        with Child(cores=lease.cores) as child:
            rates = _measure(child, seconds, progress or (lambda: None))
    finally:
        lease.release()
    if store is not None:
        store.put(_key(threads), asdict(rates))
    return rates


def load_rates(store: Store, threads: int = 1) -> Rates | None:
    """The rates that `calibrate` saved for this kind of machine, or None.

    Raises:
        StoreError: the record cannot be read.
    """
    record = store.get(_key(threads))
    if record is None:
        return None
    try:
        return Rates(**{each.name: float(record[each.name]) for each in fields(Rates)})
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"the calibration in {store.path} cannot be read ({error!r}); run "
            "`hloenv calibrate` again"
        ) from None


def calibrated_roofline(*, threads: int = 1, store: Store | None = None) -> Roofline:
    """A roofline with the rates of `calibrate`; with the default rates without them.

    Args:
        threads: cores that the modules will run on.
        store: where the rates are.

    Raises:
        StoreError: the record cannot be read.
    """
    rates = None if store is None else load_rates(store, threads)
    return Roofline(rates, threads=threads)


def _key(threads: int) -> RecordKey:
    machine = this_machine()
    return RecordKey(
        kind="calibration",
        fingerprint="",
        finish="",
        flags=machine.flags,
        target="cpu",
        machine=machine.id,
        variant=f"threads {threads}",
    )


def _measure(child: Child, seconds: float, progress: Callable[[], None]) -> Rates:
    def time_of(text: str) -> float:
        _, (result,) = child.request(
            {"do": "call", "function": "hloenv.cost.calibration:time_module"},
            pickle.dumps(((text, seconds), {})),
            timeout_s=_TIMEOUT_S,
        )
        progress()
        return float(pickle.loads(result))

    few, many = (time_of(_kernels(count)) for count in (_FEW_KERNELS, _MANY_KERNELS))
    s_per_kernel = max((many - few) / (_MANY_KERNELS - _FEW_KERNELS), 1e-9)

    def rate(work: float, text: str, kernels: int = 1) -> float:
        total = time_of(text)
        return work / max(total - kernels * s_per_kernel, total / 10)

    cache_bytes = _cache_bytes()
    return Rates(
        dot_flops_per_s=statistics.median(
            rate(_DOTS * 2.0 * size**3, _dots(size), _DOTS) for size in _DOT_SIZES
        ),
        convolution_flops_per_s=statistics.geometric_mean(
            rate(flops, text) for flops, text in map(_convolution, _CONVOLUTIONS)
        ),
        flops_per_s=rate(_ELEMENTS * _ELEMENTWISE_OPS, _elementwise()),
        transcendentals_per_s=statistics.harmonic_mean(
            [rate(_ELEMENTS, _unary(opcode)) for opcode in _TRANSCENDENTALS]
        ),
        cache_bytes=float(cache_bytes),
        # Half of it, since the cache also contains other data.
        cache_bytes_per_s=rate(*_sum(cache_bytes // 2)),
        memory_bytes_per_s=rate(*_sum(_MEMORY_BYTES)),
        s_per_kernel=s_per_kernel,
    )


def time_module(text: str, seconds: float) -> float:
    """Seconds of one undisturbed run of a module; for the child process.

    Args:
        text: HLO text.
        seconds: approximate total run time.
    """
    executable = compile(text, isolate=False)
    inputs = random_inputs(executable.module)
    with turn_to_time(sorted(os.sched_getaffinity(0))):
        first_ns = max(int(executable.run(2, inputs=inputs).min()), 1)
        runs = np.clip(seconds * 1e9 / first_ns, _MIN_RUNS, _MAX_RUNS)
        durations_ns = executable.run(int(runs), inputs=inputs)
    return float(np.percentile(durations_ns, _QUANTILE)) * 1e-9


def _cache_bytes() -> int:
    """Size of a core's largest private cache; a default if unknown."""
    path = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    try:
        return int(path.read_text().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return _CACHE_BYTES


def _module(parameters: Sequence[str], lines: Sequence[str]) -> str:
    inputs = [
        f"{name} = {shape} parameter({i})"
        for i, (name, shape) in enumerate(each.split(": ") for each in parameters)
    ]
    body = "\n".join(f"  {line}" for line in (*inputs, *lines))
    return f"HloModule calibration\n\nENTRY entry {{\n{body}\n}}\n"


def _dots(size: int) -> str:
    shape = f"f32[{size},{size}]"
    lines = [
        f"{'ROOT ' * (i == _DOTS)}x{i} = {shape} dot(x{i - 1}, y), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        for i in range(1, _DOTS + 1)
    ]
    return _module([f"x0: {shape}", f"y: {shape}"], lines)


def _convolution(sizes: tuple[int, int, int, int, int]) -> tuple[float, str]:
    """The flops of a convolution with windows of size 3, and its module."""
    batch, rank, size, features_in, features_out = sizes
    spatial, window = ",".join([f"{size}"] * rank), "3," * rank
    result = f"f32[{batch},{spatial},{features_out}]"
    digits = "012"[:rank]
    attributes = (
        f"window={{size={'x'.join('3' * rank)} pad={'x'.join(['1_1'] * rank)}}}, "
        f"dim_labels=b{digits}f_{digits}io->b{digits}f"
    )
    text = _module(
        [
            f"x: f32[{batch},{spatial},{features_in}]",
            f"y: f32[{window}{features_in},{features_out}]",
        ],
        [f"ROOT r = {result} convolution(x, y), {attributes}"],
    )
    # Windows at the border have fewer products.
    products = (3 * size - 2) ** rank
    return 2.0 * batch * products * features_in * features_out, text


def _elementwise() -> str:
    shape = f"f32[{_ELEMENTS}]"
    lines = [
        f"{'ROOT ' * (i == _ELEMENTWISE_OPS)}x{i} = {shape} "
        f"{('add', 'multiply')[i % 2]}(x{i - 1}, y)"
        for i in range(1, _ELEMENTWISE_OPS + 1)
    ]
    return _module([f"x0: {shape}", f"y: {shape}"], lines)


def _unary(opcode: str) -> str:
    shape = f"f32[{_ELEMENTS}]"
    return _module([f"x: {shape}"], [f"ROOT r = {shape} {opcode}(x)"])


def _sum(size_bytes: int) -> tuple[float, str]:
    """The bytes that a sum of two arrays moves, and its module."""
    count = size_bytes // _BYTES_OF_A_SUM
    shape = f"f32[{count}]"
    text = _module([f"x: {shape}", f"y: {shape}"], [f"ROOT r = {shape} add(x, y)"])
    return float(count * _BYTES_OF_A_SUM), text


def _kernels(count: int) -> str:
    """A module with `count` kernels of negligible work."""
    shape = "f32[8]"
    names = [f"r{i}" for i in range(count)]
    lines = [f"r{i} = {shape} negate(x{i})" for i in range(count)]
    shapes = ", ".join([shape] * count)
    lines.append(f"ROOT r = ({shapes}) tuple({', '.join(names)})")
    return _module([f"x{i}: {shape}" for i in range(count)], lines)


def rows(rates: Rates) -> list[tuple[str, float, str]]:
    """Name, value and unit of each rate, for tables."""
    return [
        ("matrix products", rates.dot_flops_per_s, "flop/s"),
        ("small convolutions", rates.convolution_flops_per_s, "flop/s"),
        ("other arithmetic", rates.flops_per_s, "flop/s"),
        ("exp, log, tanh", rates.transcendentals_per_s, "/s"),
        ("cache of a core", rates.cache_bytes, "B"),
        ("from and to the cache", rates.cache_bytes_per_s, "B/s"),
        ("from and to the memory", rates.memory_bytes_per_s, "B/s"),
        ("start of a kernel", rates.s_per_kernel, "s"),
    ]


__all__ = [
    "NUM_STEPS",
    "calibrate",
    "calibrated_roofline",
    "load_rates",
    "rows",
    "time_module",
]
