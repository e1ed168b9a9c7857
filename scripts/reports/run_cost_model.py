#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well cost models rank the variants of a module of an unseen repository.

    python scripts/reports/run_cost_model.py --runs runs/cost_model
    python scripts/reports/run_cost_model.py --runs runs/cost_model --split test \
        --measure --doc docs/results/cost_model.md

Makes the training data and trains one model for each seed, as `hloenv train cost-model`
does; what is in the folder is not made again. Then, for modules of the split, variants
by random decisions and rules, and their estimates: of the roofline, of the kernel
cache, of each model. The true order is that of a second kernel cache, which times every
kernel anew, and with --measure that of the measured variants. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hloenv._markdown import table
from hloenv.bench.version import bench_version
from hloenv.cost import Estimator, KernelCache, Roofline
from hloenv.cost.learned.estimator import LearnedCost
from hloenv.cost.learned.ranking import TOP, Ranking, mean_ranking, rank
from hloenv.errors import HloEnvError
from hloenv.hlo.module import HloModule
from hloenv.learn.cost_model import CostModelConfig, make_data, make_variants, train
from hloenv.learn.cost_model.data import draw_benchmarks
from hloenv.measurement.measurer import Measurer
from hloenv.measurement.store import Store
from reporting import Row, Rows, head, parser_of, write_page

CACHE, ROOFLINE = "kernel cache", "roofline"
# The first model, with times of the kernels on which its networks disagree.
UNSURE, MEASURE_ABOVE = "learned, timed where unsure", 0.1
# Modules whose slowest variant is less than this slower than the best are not ranked.
MIN_SPREAD = 0.02
# Nor those with a variant of less, by the times of its kernels, than these can tell.
MIN_TRUTH_S = 1e-7
# Of the modules that are ranked, other than those of training.
EVALUATION_SEED = 1


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="of training")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of training")
    parser.add_argument("--steps", type=int, help="of training, in place of CONFIG's")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--modules", type=int, default=60, help="that are ranked")
    parser.add_argument("--max-instructions", type=int, default=500, help="of these")
    parser.add_argument("--variants", type=int, default=16, help="of each module")
    parser.add_argument("--measure", action="store_true", help="time the variants, too")
    return parser.parse_args()


def main() -> None:
    """Trains, estimates, measures and writes what the arguments ask for."""
    args = parse_arguments()
    args.runs.mkdir(parents=True, exist_ok=True)
    config = CostModelConfig()
    if args.config is not None:
        config = CostModelConfig.read(args.config)
    if args.steps is not None:
        config = dataclasses.replace(config, steps=args.steps)
    models = [train_seed(args, config, seed) for seed in range(args.seeds)]
    # What the rows are of: code, checkpoints and settings.
    made_by = json.dumps(
        [
            bench_version(),
            *(hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in models),
            *(args.variants, args.measure),
        ]
    )
    rows = Rows(args.runs / f"{args.split}.jsonl", "uri", "made_by")
    source = (
        f"hloenv://dataset/{args.split}?min_instructions=10"
        f"&max_instructions={args.max_instructions}"
    )
    own = []
    for benchmark in draw_benchmarks(source, args.modules, seed=EVALUATION_SEED):
        row = rows.get(benchmark.uri, made_by)
        if row is None:
            row = evaluate(args, benchmark.load(), models)
            row |= {"uri": benchmark.uri, "made_by": made_by}
            rows.add(row)
            print(benchmark.uri, row.get("error", ""), flush=True)
        own.append(row)
    write_page(page(args, config, own), args.doc)


def train_seed(args: argparse.Namespace, config: CostModelConfig, seed: int) -> Path:
    """The checkpoint of a seed; trained if it is not there."""
    folder = args.runs / f"seed{seed}"
    data = args.runs / "data" if args.data is None else args.data
    last = folder / "curve.csv"
    own = dataclasses.replace(config, seed=seed)
    if (folder / "config.json").exists():
        own.check_folder(folder, resume=True)  # it is of this configuration
    if last.exists():
        steps = int(last.read_text().splitlines()[-1].partition(",")[0])
        if steps >= own.steps:
            return folder / "best.safetensors"
    with Store(args.runs / "store.sqlite") as store:
        make_data(own, data, store=store)
    train(own, data, folder, resume=(folder / "config.json").exists())
    print(f"trained seed {seed}", flush=True)
    return folder / "best.safetensors"


def evaluate(
    args: argparse.Namespace, module: HloModule, models: Sequence[Path]
) -> Row:
    """The estimates of the variants of one module, and what each took."""
    rng = np.random.default_rng([EVALUATION_SEED, int(module.fingerprint(), 16)])
    try:
        variants = [
            each.module for each in make_variants(module, args.variants, rng=rng)
        ]
        found: dict[str, Any] = {"estimates": {}, "seconds": {}, "kernels": {}}
        # New ones: without kernels of earlier modules, and without a store.
        with KernelCache() as truth:
            found["truth"] = times_of(truth, variants)[0]
        with KernelCache() as cache:
            note(found, CACHE, cache, variants)
            found["kernels"][CACHE] = cache.num_timed, cache.timing_s
        note(found, ROOFLINE, Roofline(), variants)
        for path in models:
            with LearnedCost(path) as learned:
                note(found, str(path), learned, variants)
                found["kernels"][str(path)] = learned.num_new, learned.network_s
        with LearnedCost(models[0], measure_above=MEASURE_ABOVE) as learned:
            note(found, UNSURE, learned, variants)
            timed = learned.num_new, learned.num_timed
            found["timed"] = timed[1] / max(timed[0], 1)
        if args.measure:
            with Measurer() as measurer:
                measured = measurer.measure(variants, baseline=module)
            found["measured"] = [
                each.median_ns / each.baseline_median_ns if each.is_ok else math.nan
                for each in measured
            ]
    except HloEnvError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return found


def note(
    found: dict[str, Any], name: str, estimator: Estimator, variants: list[HloModule]
) -> None:
    """Adds the estimates of one estimator."""
    found["estimates"][name], found["seconds"][name] = times_of(estimator, variants)


def times_of(
    estimator: Estimator, variants: list[HloModule]
) -> tuple[list[float], float]:
    """Estimates, and the seconds that they took."""
    started = time.perf_counter()
    estimates = estimator.estimate_many(variants)
    return [each.seconds for each in estimates], time.perf_counter() - started


def rankings(rows: Iterable[Row], name: str, truth: str) -> list[Ranking]:
    """How well an estimator ranks the variants of each module."""
    found = []
    for row in rows:
        times = np.array(row.get(truth, ()), np.float64)
        if "error" in row or name not in row["estimates"] or not len(times):
            continue
        estimates = np.array(row["estimates"][name])
        # Of the same variants for all estimators.
        every = np.array([times, *row["estimates"].values()], np.float64)
        is_good = np.isfinite(every).all(axis=0)
        times, estimates = times[is_good], estimates[is_good]
        if truth == "truth" and len(times) and times.min() < MIN_TRUTH_S:
            continue
        if len(times) > 2 and times.max() > (1 + MIN_SPREAD) * times.min():
            found.append(rank(estimates, times))
    return found


def line(name: str, several: Sequence[Sequence[Ranking]]) -> tuple[str, ...]:
    """A row of the table: means over modules; over seeds mean, least and largest."""
    means = [mean_ranking(each) for each in several]
    columns = [
        [each.kendall for each in means],
        [each.spearman for each in means],
        *([100 * each.slowdown[i] for each in means] for i in range(len(TOP))),
    ]
    formats = ("{:.3f}", "{:.3f}", *["{:.1f} %"] * len(TOP))
    texts = []
    for values, form in zip(columns, formats, strict=True):
        text = form.format(np.mean(values))
        if len(values) > 1:
            low, high = form.format(min(values)), form.format(max(values))
            text += f" ({low} to {high})"
        texts.append(text)
    return (name, *texts)


def agreement(rows: list[Row], models: Sequence[str], truth: str) -> list[str]:
    """The table of the agreement with one truth."""
    names = {name: [name] for name in (ROOFLINE, CACHE, UNSURE)} | {"learned": models}
    lines = [
        line(name, [rankings(rows, each, truth) for each in members])
        for name, members in names.items()
    ]
    count = len(rankings(rows, ROOFLINE, truth))
    top = [f"top-{k} slowdown" for k in TOP]
    least = " and take 0.1 us or more" if truth == "truth" else ""
    return [
        f"{count} modules, the variants of which differ by more than 2 %{least}:",
        "",
        *table(("estimator", "Kendall's tau", "Spearman", *top), lines, "lrrrr"),
        "",
    ]


def costs(rows: list[Row], models: Sequence[str]) -> list[str]:
    """The table of what a candidate and a new kernel take."""
    good = [row for row in rows if "error" not in row]
    if not good:
        return []
    candidates = sum(len(row["truth"]) for row in good)

    def per_candidate(names: Sequence[str]) -> float:
        total = sum(row["seconds"][name] for row in good for name in names)
        return total / (candidates * len(names))

    def per_kernel(names: Sequence[str]) -> float:
        pairs = [row["kernels"][name] for row in good for name in names]
        return sum(each[1] for each in pairs) / max(sum(each[0] for each in pairs), 1)

    cache = per_kernel([CACHE])
    lines = [
        (ROOFLINE, f"{per_candidate([ROOFLINE]) * 1e3:.2f} ms", "", ""),
        (
            *(CACHE, f"{per_candidate([CACHE]) * 1e3:.2f} ms"),
            *(f"{cache * 1e3:.3f} ms", "1"),
        ),
        (
            *("learned", f"{per_candidate(models) * 1e3:.2f} ms"),
            f"{per_kernel(models) * 1e3:.3f} ms",
            f"{cache / per_kernel(models):.1f}",
        ),
        (UNSURE, f"{per_candidate([UNSURE]) * 1e3:.2f} ms", "", ""),
    ]
    share = float(np.mean([row["timed"] for row in good]))
    columns = "estimator", "per candidate", "per new kernel", "kernels in the same time"
    return [
        "Each module's variants in one call, without kernels of earlier modules. A "
        "candidate includes the rest of XLA's passes; a new kernel is compiled and "
        "timed by the kernel cache, and goes through the networks of the ensemble by "
        "the learned model.",
        "",
        *table(columns, lines, "lrrr"),
        "",
        f"Where the spread of a module was above {MEASURE_ABOVE}, kernels were timed: "
        f"{share:.0%} of all (mean over modules).",
    ]


def page(
    args: argparse.Namespace, config: CostModelConfig, own: list[Row]
) -> list[str]:
    """The page."""
    models = [
        str(args.runs / f"seed{seed}/best.safetensors") for seed in range(args.seeds)
    ]
    failed = sum("error" in row for row in own)
    lines = [
        *head("Cost models that rank"),
        f"* modules: {len(own)} of the {args.split} split, whose repositories are not "
        f"those of training; {args.variants} variants of each; one thread",
        f"* trained: {config.max_modules} modules at most, {config.steps} steps, "
        f"{config.members} networks, {args.seeds} seeds (mean, least and largest)",
        "",
        "Agreement of the estimates with true times within the variants of one module, "
        "mean over modules. Top-k slowdown: the best of the k variants with the least "
        "estimates against the best of all.",
        "",
        "## Against the times of the kernels",
        "",
        "The truth is a kernel cache that times each kernel anew; so the row of the "
        "kernel cache is the repeatability of the times.",
        "",
        *agreement(own, models, "truth"),
    ]
    if any("measured" in row for row in own):
        lines += [
            *("## Against measured variants", ""),
            *agreement(own, models, "measured"),
        ]
    lines += ["## Cost", "", *costs(own, models)]
    if failed:
        lines += ["", f"{failed} modules failed."]
    return lines


if __name__ == "__main__":
    main()
