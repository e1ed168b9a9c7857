# SPDX-License-Identifier: Apache-2.0
"""Reads damaged modules in child processes and writes a table of the outcomes.

    python scripts/reports/run_mutants.py --texts 10000 --protos 10000 \
        --doc docs/mutants.md

Rows are appended to OUTPUT/rows.jsonl; a repeated run continues, and other runs can do
a part (--first). Mutants that end the process are saved next to it.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hloenv
from hloenv._markdown import table
from hloenv.fuzz.mutants import Kind, Mutant, make_mutants, run_mutants
from reporting import Row, Rows, head, parser_of, write_page

# Limit of a module's text, as large modules take long and find no more.
_MAX_BYTES = 20_000
_ROOT = Path(__file__).resolve().parents[2]


def _texts(folders: list[Path]) -> list[bytes]:
    """Returns the corpus: small modules of the dataset, and those of folders."""
    texts = {
        record.module.to_text().encode()
        for record in hloenv.dataset.load("train")
        if record.instruction_count <= 150
    }
    for folder in folders:
        texts |= {path.read_bytes() for path in folder.rglob("*.hlo")}
    return sorted(text for text in texts if len(text) <= _MAX_BYTES)


def _corpus(kind: Kind, texts: list[bytes]) -> list[bytes]:
    if kind == "text":
        return texts
    protos = []
    for text in texts:
        with contextlib.suppress(hloenv.HloEnvError):
            protos.append(hloenv.HloModule.from_text(text.decode()).to_proto())
    return protos


def _left(mutants: Iterator[Mutant], rows: Rows) -> Iterator[Mutant]:
    for mutant in mutants:
        if rows.get(mutant.kind, mutant.seed, mutant.number) is None:
            yield mutant


def _run(args: argparse.Namespace) -> list[Row]:
    rows = Rows(args.output / "rows.jsonl", "kind", "seed", "number")
    texts = _texts([_ROOT / "tests", *args.folder])
    print(f"{len(texts)} modules, seed {args.seed}", file=sys.stderr)
    for kind, count in (("text", args.texts), ("proto", args.protos)):
        if not count:
            continue
        mutants = make_mutants(
            kind, _corpus(kind, texts), seed=args.seed, count=count, first=args.first
        )
        for result in run_mutants(_left(mutants, rows), workers=args.jobs):
            mutant = result.mutant
            row = {
                "kind": mutant.kind,
                "seed": mutant.seed,
                "number": mutant.number,
                "outcome": result.outcome,
                "is_isolated": result.is_isolated,
            }
            if result.is_failure:
                row["detail"] = result.detail
                saved = args.output / (mutant.name + mutant.suffix)
                saved.write_bytes(mutant.content)
                print(f"{saved}: {result.detail}", file=sys.stderr)
            rows.add(row)
    return rows.all()


_MEANING = {
    "module": "read, used, and captured",
    "death": "**the process ended**",
    "late": "**did not finish**",
    "foreign": "**another exception, or the text reads as another module**",
}


def _page(rows: list[Row]) -> list[str]:
    seeds = sorted({(row["kind"], row["seed"]) for row in rows}, reverse=True)
    by_kind = {
        kind: Counter(row["outcome"] for row in rows if row["kind"] == kind)
        for kind in ("text", "proto")
    }
    isolated = Counter(row["kind"] for row in rows if row["is_isolated"])
    totals = {kind: counter.total() for kind, counter in by_kind.items()}
    counts = {"mutants": totals, "of these read by a child process first": isolated}
    names = [*_MEANING, *sorted(set().union(*by_kind.values()) - set(_MEANING))]
    for name in names:
        title = _MEANING.get(name, f"`{name}`")
        counts[title] = {kind: counter[name] for kind, counter in by_kind.items()}
    return [
        *head("Damaged modules"),
        f"* seeds: {', '.join(f'{seed} ({kind})' for kind, seed in seeds)}",
        "",
        "Each mutant is a small module of the dataset or of the tests with one to "
        "three changes: to numbers, types, shapes, operations, attributes, names, "
        "lines, brackets or bytes of text, or to any field of a proto. A process reads "
        "the mutant through the public interface. If it is a valid module, the process "
        "prints it, reads the text and the proto again, and captures two passes.",
        "",
        *table(
            ("", "text", "proto"),
            [
                (what, f"{each['text']:,}", f"{each['proto']:,}")
                for what, each in counts.items()
            ],
        ),
    ]


def main() -> None:
    """Runs missing mutants and writes the page."""
    parser = parser_of(__doc__)
    parser.add_argument("--texts", type=int, default=0, metavar="N")
    parser.add_argument("--protos", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, action="append", default=[])
    parser.add_argument("-o", "--output", type=Path, default=Path("mutants"))
    args = parser.parse_args()
    rows = _run(args)
    write_page(_page(rows), args.doc)
    failures = [row for row in rows if "detail" in row]
    print(f"{len(rows)} mutants, {len(failures)} failures", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
