#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many workers tune 10,000 modules, and how often they meet kernels again.

Modules of the dataset are drawn at random. Of each, the kernels of XLA's own version
and of some random variants (forms of operations, then fusions) are found, as a tuning
asks the kernel cache for them; nothing but a sample of the kernels is timed. Which of
them are known, from the module's other variants or from earlier modules, is counted
with the modules in random order. From that, workers with a common store are simulated:
each takes the next module, and a kernel that another one is timing at that moment is
timed twice.

    python scripts/reports/run_fleet.py
    python scripts/reports/run_fleet.py --modules 1500 --doc docs/design/fleet.md
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.cost.kernel_cache import KernelCache
from hloenv.cost.kernels import KernelSplit
from hloenv.dataset.reader import Record
from hloenv.errors import HloEnvError
from hloenv.measurement.store import RecordKey, Store
from reporting import Row, Rows, head, parser_of, version_of_rows, write_page
from run_estimates import versions

# Modules whose kernels are timed, and which are measured, for the seconds of each.
_TIMED = 12
# Measurements of the best of a module's variants, as a tuning makes them.
_MEASURED = 5
_FLEET = 10_000
_WORKERS = 1, 4, 16, 64, 256, 1024
_RECORDS = 2_000  # for the speed of the store


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--splits", default="train,validation", help="of the dataset")
    parser.add_argument("--modules", type=int, default=600, help="to draw")
    parser.add_argument("--variants", type=int, default=9, help="of each module")
    parser.add_argument("--max-instructions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path, default=Path("build/fleet.jsonl"))
    return parser.parse_args()


def kernels_of(record: Record, count: int, seed: int) -> Row:
    """The kernels of each version of a module, and the seconds that finding took."""
    variants, seconds = [], []
    began = time.perf_counter()
    for module in itertools.chain(
        [record.module], versions(record.module, count - 1, seed)
    ):
        variants.append(list(KernelSplit(module).fingerprints))
        now = time.perf_counter()
        seconds.append(now - began)
        began = now
    return {"variants": variants, "seconds": seconds}


def costs_of(records: Sequence[Record]) -> dict[str, float]:
    """Seconds of timing a kernel, of a measurement, and of a record of the store."""
    kernel_s, measure_s = [], []
    with KernelCache(threads=1) as cache:
        for record in records:
            before = cache.num_timed, cache.timing_s
            cache.estimate(record.module)
            if cache.num_timed > before[0]:
                found = cache.timing_s - before[1], cache.num_timed - before[0]
                kernel_s.append(found[0] / found[1])
            began = time.perf_counter()
            hloenv.measure([record.module], baseline=record.module)
            measure_s.append((time.perf_counter() - began) / 2)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s") as store:
        keys = [
            RecordKey("kernel", f"{number:032x}", "", "", "cpu", "here", "fleet")
            for number in range(_RECORDS)
        ]
        began = time.perf_counter()
        for key in keys:
            store.put_many([(key, {"ns": 1.0, "error": None})])
        put_s = (time.perf_counter() - began) / len(keys)
        began = time.perf_counter()
        for key in keys:
            store.get_many([key])
        get_s = (time.perf_counter() - began) / len(keys)
    return {
        "kernel": float(np.median(kernel_s)),
        "measurement": float(np.median(measure_s)),
        "put": put_s,
        "get": get_s,
    }


def reuse(rows: Sequence[Row]) -> list[dict[str, int]]:
    """Of each module in order: kernels asked for, known in it, known before, new."""
    known: set[str] = set()
    found = []
    for row in rows:
        own: set[str] = set()
        counts = dict.fromkeys(("asked", "within", "before", "new"), 0)
        for variant in row["variants"]:
            for kernel in variant:
                counts["asked"] += 1
                if kernel in own:
                    counts["within"] += 1
                elif kernel in known:
                    counts["before"] += 1
                else:
                    counts["new"] += 1
                own.add(kernel)
        known |= own
        found.append(counts)
    return found


def simulate(
    rows: Sequence[Row], costs: dict[str, float], workers: int
) -> dict[str, float]:
    """Workers with a common store that take the modules in order.

    A kernel is known from the moment on at which the first of its timings ends.
    """
    known_at: dict[str, float] = {}
    free = [(0.0, number) for number in range(workers)]
    heapq.heapify(free)
    timed = twice = 0
    busy = end = 0.0
    for row in rows:
        now, number = heapq.heappop(free)
        began = now
        own: set[str] = set()
        for variant, seconds in zip(row["variants"], row["seconds"], strict=True):
            now += seconds + costs["get"]
            for kernel in variant:
                if kernel in own:
                    continue
                own.add(kernel)
                if known_at.get(kernel, np.inf) <= now:
                    continue
                twice += kernel in known_at
                timed += 1
                now += costs["kernel"] + costs["put"]
                known_at[kernel] = min(now, known_at.get(kernel, np.inf))
        now += _MEASURED * costs["measurement"]
        busy += now - began
        end = max(end, now)
        heapq.heappush(free, (now, number))
    return {
        "seconds": end,
        "busy": busy / (workers * end),
        "timed": timed,
        "twice": twice,
        "puts_per_s": timed / end,
    }


def growth(counts: Sequence[dict[str, int]]) -> tuple[float, float]:
    """Scale and power of scale n^power, the number of kernels of n modules."""
    total = np.cumsum([each["new"] for each in counts])
    numbers = np.arange(1, len(total) + 1)
    late = numbers >= max(len(total) // 10, 1)
    slope, start = np.polyfit(np.log(numbers[late]), np.log(total[late]), 1)
    return float(np.exp(start)), float(slope)


def report(
    rows: list[Row], costs: dict[str, float], arguments: argparse.Namespace
) -> list[str]:
    """The page."""
    done = [row for row in rows if "variants" in row]
    rng = np.random.default_rng(arguments.seed)
    mixed = [done[index] for index in rng.permutation(len(done))]
    counts = reuse(mixed)
    tenth = max(len(mixed) // 10, 1)
    cells = []
    for name, part in (
        ("first tenth", counts[:tenth]),
        ("half", counts[: len(counts) // 2]),
        ("all", counts),
        ("last tenth", counts[-tenth:]),
    ):
        sums = {key: sum(each[key] for each in part) for key in counts[0]}
        shares = [sums[key] / sums["asked"] for key in ("within", "before", "new")]
        cells.append(
            (name, len(part), sums["asked"], *(f"{share:.1%}" for share in shares))
        )
    scale, power = growth(counts)
    fleet_new = scale * _FLEET**power
    per_module = float(np.mean([each["asked"] for each in counts]))
    passes = float(np.mean([sum(row["seconds"]) for row in mixed]))
    work_s = (
        passes
        + fleet_new / _FLEET * (costs["kernel"] + costs["put"])
        + _MEASURED * costs["measurement"]
    )
    without = passes + per_module * costs["kernel"] + _MEASURED * costs["measurement"]
    simulated = [(count, simulate(mixed, costs, count)) for count in _WORKERS]
    return [
        *head("A fleet that tunes 10,000 modules", rows),
        f"* {len(done)} modules of the splits {arguments.splits}, small extents, at "
        f"most {arguments.max_instructions} instructions, drawn with seed "
        f"{arguments.seed}; "
        f"{arguments.variants} versions of each; one thread",
        f"* measured here, medians of {_TIMED} modules: {1e3 * costs['kernel']:.1f} ms "
        f"for a new kernel (compiled and timed in batches), "
        f"{costs['measurement']:.2f} s for a measurement with its baseline; "
        f"{1e6 * costs['put']:.0f} us to write a record of the store and "
        f"{1e6 * costs['get']:.0f} us to read one",
        "",
        "How many workers does a cluster need to tune a company's programs, and what "
        "is a common store of kernels worth to it? A tuning here asks for the kernels "
        f"of {arguments.variants} versions of a module (XLA's own, and random forms "
        f"and fusions) and measures {_MEASURED}. The kernels are those that XLA really "
        "makes of the versions; only the clock of the workers is simulated.",
        "",
        "## Reuse of kernels",
        "",
        "Modules in random order. *Within*: known from another version of the module; "
        "*before*: from an earlier module.",
        "",
        *table(
            ("modules", "number", "kernels asked for", "within", "before", "new"),
            cells,
            "lrrrrr",
        ),
        "",
        f"The number of different kernels of n modules grows as {scale:.0f} "
        f"n^{power:.2f} (fitted to all but the first tenth): some {fleet_new:,.0f} for "
        f"{_FLEET:,} modules, which ask {per_module * _FLEET:,.0f} times.",
        "",
        "## Workers",
        "",
        f"The {len(mixed)} modules above, simulated. *Twice*: kernels that several "
        "workers timed at once. *Rate*: records that all write in a second; one file "
        f"of SQLite on one machine takes {1 / costs['put']:,.0f}.",
        "",
        *table(
            ("workers", "time", "busy", "kernels timed", "twice", "rate"),
            [
                (
                    count,
                    _duration(each["seconds"]),
                    f"{each['busy']:.0%}",
                    int(each["timed"]),
                    int(each["twice"]),
                    f"{each['puts_per_s']:.1f}/s",
                )
                for count, each in simulated
            ],
            "rrrrrr",
        ),
        "",
        f"For {_FLEET:,} modules, by the growth above: {work_s:.1f} s of one worker "
        f"for each module, {passes:.1f} of them for passes; {without:.1f} s if no "
        "kernel were ever reused.",
        "",
        *table(
            ("workers", f"{_FLEET:,} modules", "records in a second"),
            [
                (
                    count,
                    _duration(work_s * _FLEET / count),
                    f"{fleet_new / (work_s * _FLEET / count):.1f}",
                )
                for count in _WORKERS
            ],
            "rrr",
        ),
    ]


def _duration(seconds: float) -> str:
    for limit, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= limit:
            return f"{seconds / limit:.1f} {unit}"
    return f"{seconds:.0f} s"


def main() -> int:
    """Finds the kernels of what is missing, times a sample, and writes the page."""
    arguments = parse_arguments()
    records = [
        record
        for split in arguments.splits.split(",")
        for record in hloenv.dataset.load(split)
        if record.instruction_count <= arguments.max_instructions
    ]
    rng = np.random.default_rng(arguments.seed)
    drawn = rng.permutation(len(records))[: arguments.modules]
    version = version_of_rows(variants=arguments.variants, seed=arguments.seed)
    known = Rows(arguments.rows, "fingerprint", "version")
    rows = []
    for index in drawn:
        record = records[index]
        row = known.get(record.fingerprint, version)
        if row is None:
            row = {"fingerprint": record.fingerprint, "version": version}
            try:
                row |= kernels_of(record, arguments.variants, arguments.seed)
            except HloEnvError as error:
                row["error"] = f"{type(error).__name__}: {error}"[:200]
            known.add(row)
        rows.append(row)
    costs = known.get("costs", version)
    if costs is None:
        sample = [records[index] for index in drawn[:_TIMED]]
        costs = {"fingerprint": "costs", "version": version} | costs_of(sample)
        known.add(costs)
        print(json.dumps(costs), flush=True)
    write_page(report(rows, costs, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
