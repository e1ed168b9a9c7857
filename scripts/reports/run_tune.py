#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tunes programs by stages alone, in sequence and jointly, and writes the page.

Four experiments: the modes on programs of the dataset; options of the compiler alone by
Optuna; the speed-up over the time of the tuning, cold and warm; and what was found for
one size of a network, at others. Each
tuning runs in a process of its own on its own cores, and keeps nothing for the user.
Rows are appended to a JSONL file; a repeated run continues.

    python scripts/reports/run_tune.py --split test --extent real \
        --doc docs/results/tune.md
    python scripts/reports/run_tune.py --modules 2 --seconds 20 --only modes
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hloenv
from hloenv._markdown import table
from hloenv.bench.entries import entry_point, sample
from hloenv.bench.rows import geometric_mean
from hloenv.measurement.store import Store
from hloenv.tune import Configuration, Space, State, TuneOptions, Tuner
from hloenv.tune.build import Candidate, build_candidate
from hloenv.tune.measuring import Measuring
from hloenv.tune.program import Program, program_of_function, program_of_module
from reporting import (
    Row,
    Rows,
    count_of,
    head,
    interval_text,
    mean_by_entry_point,
    parser_of,
    run_again,
    version_of_rows,
    write_page,
)

_EXPERIMENTS = ("modes", "flags", "curves", "transfer")
_MODES = ("alone", "sequence", "jointly")
# Seconds of a tuning at which a curve is read.
_READ_AT = (10, 30, 60, 300, 1800)
# Of images, and of batches; the one that is tuned comes first.
_SIZES = {"resnet": (64, 32, 48, 96, 128), "gpt2": (4, 1, 2, 8, 16)}
_FOLDER = Path(__file__).resolve().parents[1] / "examples"


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--split", default="test")
    parser.add_argument("--extent", default="real", choices=("real", "small"))
    parser.add_argument("--match", default="", help="only programs with this text")
    parser.add_argument("--modules", type=int, help="size of a random sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=300.0, help="of each tuning")
    parser.add_argument("--curve-seconds", type=float, default=1800.0)
    parser.add_argument("--curve-modules", type=int, default=6)
    parser.add_argument("--only", nargs="+", choices=_EXPERIMENTS, default=_EXPERIMENTS)
    parser.add_argument("--rows", type=Path, default=Path("build/tune.jsonl"))
    parser.add_argument("--journals", type=Path, default=Path("build/tune_journals"))
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


# --- in the child process ------------------------------------------------------------


def tuned(program: Program, options: TuneOptions) -> tuple[Row, Configuration]:
    """One tuning, with its curve; and the best configuration."""
    curve: list[tuple[float, float]] = []
    started = time.monotonic()

    def note(state: State) -> None:
        speedup = 1.0 if state.best is None else state.best.speedup
        if not curve or curve[-1][1] != speedup:
            curve.append((time.monotonic() - started, speedup))

    with Store() as store:
        tuner = Tuner(program, options, store=store, on_change=note)
        entry = tuner.run()
    single = {
        each.text: result.speedup
        for each, result in tuner.state.results.items()
        if len(each.choices) == 1 and result.is_ok and not each.graph
    }
    best = tuner.state.best
    row = {
        "speedup": entry.speedup,
        "interval": list(entry.interval),
        "label": entry.label,
        "reason": entry.reason,
        "stages": [dict(each) for each in entry.stages],
        "measured": tuner.state.num_measured,
        "control": list(tuner.state.control.interval) if tuner.state.control else None,
        "baseline_s": entry.baseline_s,
        "single": single,
        "curve": curve,
    }
    return row, Configuration() if best is None else best.configuration


def program_of_dataset(name: dict[str, str]) -> Program:
    """A program of the dataset, on its own inputs."""
    records = hloenv.dataset.load(name["split"], extent=name["extent"])
    (record,) = [each for each in records if each.fingerprint == name["fingerprint"]]
    return program_of_module(record.module, inputs=record.inputs())


def network(name: str, size: int) -> Program:
    """A network of scripts/examples at one size."""
    sys.path.insert(0, str(_FOLDER))
    import importlib

    jax: Any = importlib.import_module("jax")
    code: Any = importlib.import_module(name)
    params = code.init(jax.random.key(0))
    if name == "resnet":
        images = jax.random.normal(jax.random.key(1), (2, size, size, 3))
        return program_of_function(code.forward, (params, images), {}, {})
    shape = size, code.LENGTH
    tokens = jax.random.randint(jax.random.key(1), shape, 0, code.VOCABULARY)
    return program_of_function(jax.grad(code.loss), (params, tokens, tokens), {}, {})


def transfer(name: str, options: TuneOptions) -> Row:
    """Tunes a network at one size, and measures the result at all."""
    sizes = _SIZES[name]
    row, found = tuned(network(name, sizes[0]), options)
    space = Space(options.stages, numerics=options.numerics)
    at: dict[str, Any] = {}
    for size in sizes:
        program = network(name, size)
        own = space.canonical(Configuration(found.choices))
        with Measuring(
            program.module,
            program.inputs,
            engine=program.engine,
            threads=options.cores,
        ) as measuring:
            try:
                candidate = build_candidate(space, own, program.module)
                result = measuring.again(candidate, round_=1)
                at[str(size)] = [result.speedup, *result.speedup_interval]
            except hloenv.HloEnvError as error:
                at[str(size)] = str(error)
    return {**row, "applied": found.text, "at": at}


def by_flags(program: Program, options: TuneOptions) -> Row:
    """Options of jaxlib's compiler alone, by Optuna, and the best of them again."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = Space(numerics=options.numerics)
    names = {
        each.name: ["xla", *(c.name for c in each.choices if c.option is not None)]
        for each in space.decisions
    }
    domain = {
        name: optuna.distributions.CategoricalDistribution(labels)
        for name, labels in names.items()
        if len(labels) > 1
    }
    sampler = optuna.samplers.TPESampler(seed=options.seed, multivariate=True)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    end = time.monotonic() + options.seconds
    best = 1.0, Configuration()
    row: Row = {"measured": 0}
    with Measuring(
        *(program.module, program.inputs),
        engine=program.engine,
        threads=options.cores,
    ) as measuring:

        def built(configuration: Configuration) -> Candidate:
            own = space.canonical(configuration)
            return build_candidate(space, own, program.module)

        while time.monotonic() < end:
            trial = study.ask(domain)
            chosen = [(k, v) for k, v in trial.params.items() if v != "xla"]
            configuration = Configuration(tuple(sorted(chosen)))
            try:
                found = dict(measuring.measure({0: built(configuration)}, until=end))
                row["measured"] += 1
                if 0 not in found:
                    break
                found[0].check()
            except hloenv.HloEnvError:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            study.tell(trial, found[0].speedup)
            best = max(best, (found[0].speedup, configuration), key=lambda b: b[0])
        row |= {"label": best[1].text, "speedup": 1.0}
        if best[1].choices:
            again = measuring.again(built(best[1]), round_=1)
            if again.is_ok and again.speedup_interval[0] > 1:
                row["speedup"] = again.speedup
                row["interval"] = list(again.speedup_interval)
    return row


def run_one(what: dict[str, Any]) -> Row:
    """The tuning that the parent has asked for, with its own store."""
    options = TuneOptions(seconds=what["seconds"], mode=what["mode"], seed=what["seed"])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HLOENV_STORE"] = str(Path(folder, "store.sqlite"))
        if what["journals"]:  # those of other programs
            shutil.copytree(what["journals"], Path(folder, "tuned"))
        if what["kind"] == "transfer":
            return transfer(what["name"], options)
        if what["kind"] == "flags":
            return by_flags(program_of_dataset(what), options)
        row, _ = tuned(program_of_dataset(what), options)
        if what["keep"]:
            kept = Path(what["keep"])
            kept.mkdir(parents=True, exist_ok=True)
            for path in Path(folder, "tuned").glob("*.journal"):
                shutil.copy(path, kept / path.name)
        return row


# --- in the parent -------------------------------------------------------------------


class Runs:
    """Tunings in child processes, or their rows of an earlier run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Reads the rows."""
        self._arguments = arguments
        self._version = version_of_rows()
        self._known = Rows(arguments.rows, "key", "version")
        # What was asked for.
        self.used: list[Row] = []

    def get(self, cores: int, **what: Any) -> Row:
        """The row of a tuning."""
        arguments = self._arguments
        seconds = what.setdefault("seconds", arguments.seconds)
        what = {"mode": "jointly", "seed": arguments.seed, "journals": ""} | what
        key = json.dumps([cores, {**what, "journals": bool(what["journals"])}])
        row = self._known.get(key, self._version)
        if row is None:
            found = run_again(
                ["--one", json.dumps({"keep": "", **what})],
                num_cores=cores,
                timeout_s=3 * seconds + 600,
            )
            row = {
                "key": key,
                "version": self._version,
                "cores": cores,
                **what,
                **found,
            }
            self._known.add(row)
        self.used.append(row)
        print(json.dumps({name: row.get(name) for name in ("key", "speedup", "error")}))
        return row


def modes(records: list[Any], runs: Runs, arguments: argparse.Namespace) -> list[str]:
    """Stages alone, in sequence and jointly."""
    lines = ["## Stages alone, in sequence and jointly", ""]
    for cores in arguments.cores:
        found: dict[str, list[Row]] = defaultdict(list)
        for record in records:
            for mode in _MODES:
                found[mode].append(
                    runs.get(cores, kind="modes", mode=mode, **named(record, arguments))
                )
        lines += [f"On {count_of(cores, 'core')}, {len(records)} programs:", ""]
        columns = "", "mean", "95 %", "worst", "best", "above 1.02", "failed"
        cells = [summary(mode, found[mode], records) for mode in _MODES]
        lines += [
            "Geometric means by entry point, with intervals by repository.",
            "",
            *table(columns, cells),
            "",
        ]
        lines += [
            "The same by the measurements of the search, before the last check; one "
            "choice fixed for all programs was never checked:",
            "",
        ]
        cells = [summary(mode, found[mode], records, searched) for mode in _MODES]
        cells.append(best_flags([row for some in found.values() for row in some]))
        lines += [*table(columns, cells), ""]
        lines += stage_lines(found["alone"])
        lines += program_lines(records, found)
    return lines


def flags(records: list[Any], runs: Runs, arguments: argparse.Namespace) -> list[str]:
    """Options of the compiler alone by Optuna, beside all stages jointly."""
    lines = ["## Options of the compiler alone, by Optuna", ""]
    for cores in arguments.cores:
        found: dict[str, list[Row]] = {"options": [], "jointly": []}
        for record in records:
            what = named(record, arguments)
            found["options"].append(runs.get(cores, kind="flags", **what))
            found["jointly"].append(runs.get(cores, kind="modes", **what))
        columns = "", "mean", "95 %", "worst", "best", "above 1.02", "failed"
        lines += [
            "Optuna's TPE over the options that hloenv tunes for jaxlib's compiler, in "
            f"the same time, on {count_of(cores, 'core')}, {len(records)} programs:",
            "",
            *table(columns, [summary(k, rows, records) for k, rows in found.items()]),
            "",
        ]
    return lines


def checked(row: Row) -> float:
    """The speed-up in the last check; 1 where it failed."""
    return float(row.get("speedup", 1.0))


def searched(row: Row) -> float:
    """The speed-up of the best as the search has measured it; 1 where it failed."""
    return at(row, math.inf)


def summary(
    name: str,
    rows: list[Row],
    records: list[Any],
    of: Callable[[Row], float] = checked,
) -> tuple[object, ...]:
    """A line of the table of modes; failures count as 1."""
    speedups = [of(row) for row in rows]
    mean, low, high, _ = mean_by_entry_point(
        (record.repository, entry_point(record.source, record.name), speedup)
        for record, speedup in zip(records, speedups, strict=True)
    )
    return (
        name,
        f"{mean:.3f}",
        interval_text(low, high),
        f"{min(speedups):.3f}",
        f"{max(speedups):.3f}",
        sum(each > 1.02 for each in speedups),
        sum("error" in row for row in rows),
    )


def best_flags(rows: list[Row]) -> tuple[object, ...]:
    """The one choice that is best for all programs, where it was measured."""
    logs: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        for text, speedup in row.get("single", {}).items():
            logs[text][row["fingerprint"]] = math.log(max(speedup, 1e-6))
    count = len({row["fingerprint"] for row in rows})
    full = {text: list(each.values()) for text, each in logs.items()}
    full = {text: each for text, each in full.items() if len(each) == count}
    if not full:
        return ("best fixed choice", *6 * ["-"])
    text = max(full, key=lambda each: sum(full[each]))
    values = [math.exp(each) for each in full[text]]
    return (
        f"best fixed choice, by program: {text}",
        f"{geometric_mean(values):.3f}",
        "-",
        f"{min(values):.3f}",
        f"{max(values):.3f}",
        sum(each > 1.02 for each in values),
        0,
    )


def stage_lines(rows: list[Row]) -> list[str]:
    """What each stage gains alone."""
    by_stage: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for each in row.get("stages", []):
            by_stage[each["stage"]].append(each["alone"][0] if each["alone"] else 1.0)
    cells = []
    for stage, values in by_stage.items():
        values += [1.0] * (len(rows) - len(values))  # of programs that failed
        cells.append((stage, f"{geometric_mean(values):.3f}", f"{max(values):.3f}"))
    if not cells:
        return []
    return [
        *table(("stage alone, measured again", "geometric mean", "best"), cells),
        "",
    ]


def program_lines(records: list[Any], found: dict[str, list[Row]]) -> list[str]:
    """A line for each program, the largest joint speed-up first."""
    cells = []
    for index, record in enumerate(records):
        rows = [found[mode][index] for mode in _MODES]
        joint = rows[-1]
        cells.append(
            (
                f"{record.source}/{record.name}",
                *(f"{row.get('speedup', 1.0):.3f}" for row in rows),
                joint.get("label") or joint.get("reason") or joint.get("error"),
            )
        )
    cells.sort(key=lambda cell: -float(cell[3]))
    return [*table(("program", *_MODES, "decided jointly"), cells, "lrrrl"), ""]


def curves(records: list[Any], runs: Runs, arguments: argparse.Namespace) -> list[str]:
    """The speed-up over the time, cold and warm."""
    cores, seconds = arguments.cores[0], arguments.curve_seconds
    chosen = sample(records, arguments.curve_modules, arguments.seed)
    folder = arguments.journals / f"{cores}"
    rows = {
        "cold": [
            runs.get(
                cores,
                kind="cold",
                seconds=seconds,
                keep=str(folder / record.fingerprint),
                **named(record, arguments),
            )
            for record in chosen
        ]
    }
    rows["warm"] = []
    for record in chosen:
        with tempfile.TemporaryDirectory() as others:
            gather(folder, record.fingerprint, Path(others))
            what = named(record, arguments)
            rows["warm"].append(
                runs.get(cores, kind="warm", seconds=seconds, journals=others, **what)
            )
    read_at = [each for each in _READ_AT if each <= seconds]
    cells = [
        (
            name,
            *(
                f"{geometric_mean([at(row, end) for row in some]):.3f}"
                for end in read_at
            ),
        )
        for name, some in rows.items()
    ]
    return [
        "## Speed-up over the time of the tuning",
        "",
        f"Geometric mean of the best so far, before the last check, of {len(chosen)} "
        f"programs on {count_of(cores, 'core')}. Warm: with what was measured for the "
        "other programs.",
        "",
        *table(("", *(f"{each} s" for each in read_at)), cells),
        "",
    ]


def gather(folder: Path, own: str, target: Path) -> None:
    """Copies the journals of all programs but one."""
    for path in sorted(folder.glob("*/*.journal")):
        if path.parent.name != own:
            shutil.copy(path, target / path.name)


def at(row: Row, seconds: float) -> float:
    """The speed-up of a curve at a time; 1 before the first result."""
    value = 1.0
    for moment, speedup in row.get("curve", []):
        if moment <= seconds:
            value = max(value, speedup)
    return value


def transfers(runs: Runs, arguments: argparse.Namespace) -> list[str]:
    """What was found for one size, at others."""
    cores = arguments.cores[0]
    lines = [
        "## Transfer between sizes",
        "",
        "The decisions for the first size, applied to all by the same policies and "
        "settings; decisions of a search over single rewrites are left out.",
        "",
    ]
    for name, sizes in _SIZES.items():
        row = runs.get(cores, kind="transfer", name=name)
        cells = []
        for size in sizes:
            values = row.get("at", {}).get(str(size), row.get("error", "-"))
            is_text = isinstance(values, str)
            low, high = (
                ("", "") if is_text else (f"{values[1]:.3f}", f"{values[2]:.3f}")
            )
            cells.append((size, values if is_text else f"{values[0]:.3f}", low, high))
        lines += [f"{name}, tuned at {sizes[0]}: {row.get('applied', '-')}", ""]
        lines += [*table(("size", "speed-up", "low", "high"), cells), ""]
    return lines


def named(record: Any, arguments: argparse.Namespace) -> dict[str, str]:
    """What finds a record in the child process."""
    return {
        "split": arguments.split,
        "extent": arguments.extent,
        "fingerprint": record.fingerprint,
    }


def main() -> int:
    """Tunes what is missing and writes the page."""
    arguments = parse_arguments()
    if arguments.one:
        print(json.dumps(run_one(arguments.one)))
        return 0
    records = [
        each
        for each in hloenv.dataset.load(arguments.split, extent=arguments.extent)
        if arguments.match in each.name
    ]
    if arguments.modules is not None:
        records = sample(records, arguments.modules, arguments.seed)
    if not records:
        raise SystemExit(f"no program of {arguments.split} has {arguments.match!r}")
    runs = Runs(arguments)
    parts: dict[str, Callable[[], Iterable[str]]] = {
        "modes": lambda: modes(records, runs, arguments),
        "flags": lambda: flags(records, runs, arguments),
        "curves": lambda: curves(records, runs, arguments),
        "transfer": lambda: transfers(runs, arguments),
    }
    parts_of_page = [line for name in arguments.only for line in parts[name]()]
    lines = [
        *head("Joint tuning across the stages", runs.used),
        f"* {arguments.seconds:g} s for each tuning; speed-up: time of what plain "
        "jax.jit compiles over that of the result, in the last check; where nothing is "
        "faster, and for failures, it is 1",
        "",
    ]
    write_page([*lines, *parts_of_page], arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
