# SPDX-License-Identifier: Apache-2.0
"""Tests that reading damaged modules does not crash the process.

    for result in run_mutants(make_mutants("text", texts, seed=1, count=1000)):
        ...

A mutant is a function of the corpus, its kind, the seed and its number, so any range of
numbers can be repeated. A child process reads each through the public interface and
uses the result: prints and parses it, and takes its fingerprint, cost and captures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from ..errors import HloEnvError
from ..hlo.module import HloModule, read_text_or_proto
from ..hlo.passes import as_pipeline
from ..process import child
from ..process.forkserver import TIMEOUT, Job, Pool, note
from ..rewrite.alternatives import capture
from .damage import damage_proto, damage_text

Kind = Literal["text", "proto"]

# Two of these passes are captured on each mutant.
_PASSES = (
    "algsimp",
    "cse",
    "dce",
    "fusion",
    "reassociate",
    "reshape-mover",
    "simplify-fp-conversions",
    "transpose-folding",
    "tuple-simplifier",
)
_BATCH = 100
_USE = f"{__name__}:use_all"
_TIMEOUT_S = 400.0
# Number of changes per mutant with weights; with one change many stay nearly valid.
_DAMAGES, _WEIGHTS = (1, 2, 3), (7, 2, 1)


@dataclass(frozen=True)
class Mutant:
    """One damaged module.

    Attributes:
        kind: "text" or "proto".
        seed: seed of its run.
        number: its number in the run.
        content: its bytes.
    """

    kind: Kind
    seed: int
    number: int
    content: bytes

    @property
    def name(self) -> str:
        """File name without the suffix."""
        return f"{self.kind}-{self.seed}-{self.number}"

    @property
    def suffix(self) -> str:
        """Suffix of a file with its content."""
        return ".hlo" if self.kind == "text" else ".pb"


@dataclass(frozen=True)
class Result:
    """The result of one mutant.

    Attributes:
        mutant: the damaged module.
        outcome: "module"; the name of the exception that rejected it; "death" for a
            crash; "late" for a timeout; "foreign" for an exception that is not
            hloenv's.
        detail: the exception's message, or XLA's last log lines.
        is_isolated: whether a nested child process read it first.
    """

    mutant: Mutant
    outcome: str
    detail: str = ""
    is_isolated: bool = False

    @property
    def is_failure(self) -> bool:
        """Whether the process crashed or raised an undocumented exception."""
        return self.outcome in ("death", "late", "foreign")


def make_mutants(
    kind: Kind,
    corpus: Sequence[bytes],
    *,
    seed: int,
    count: int,
    first: int = 0,
) -> Iterator[Mutant]:
    """Yields damaged modules; small ones are more frequent.

    Args:
        kind: the format of the corpus.
        corpus: complete modules.
        seed: seed of the run.
        count: number of mutants.
        first: number of the first mutant.
    """
    by_size = sorted(corpus, key=lambda each: (len(each), each))
    damage: Callable[[bytes, Sequence[bytes], random.Random], bytes]
    damage = damage_text if kind == "text" else damage_proto
    for number in range(first, first + count):
        rng = random.Random(f"{kind}:{seed}:{number}")
        position = int(len(by_size) * rng.random() ** 3)
        content = by_size[position]
        (damages,) = rng.choices(_DAMAGES, _WEIGHTS)
        for _ in range(damages):
            content = damage(content, by_size, rng)
        yield Mutant(kind, seed, number, content)


def use(content: bytes, seed: str) -> tuple[str, str]:
    """Reads a module through the public interface and uses it.

    Returns:
        The outcome and its detail, as in `Result`.
    """
    rng = random.Random(seed)
    try:
        module = read_text_or_proto(content)
        again = HloModule.from_text(module.to_text())
        if again.fingerprint() != module.fingerprint():
            return "foreign", "the text reads as another module"
        HloModule.from_proto(module.to_proto())
        module.verify()
        module.cost()
        module.input_specs()
        for name in rng.sample(_PASSES, 2):
            alternatives = capture(module, [as_pipeline(name)])
            alternatives.apply(alternatives.decisions_for(name))
    except HloEnvError as error:
        return type(error).__name__, str(error)[:400]
    except Exception as error:  # a failure of this test
        return "foreign", f"{type(error).__name__}: {error}"[:400]
    return "module", ""


def use_all(mutants: Sequence[Mutant]) -> Iterator[tuple[str, str, bool]]:
    """Runs in a child; yields outcome, detail and whether reading was isolated."""
    for mutant in mutants:
        before = child.num_read()
        note(str(mutant.number))
        outcome = use(mutant.content, mutant.name)
        yield (*outcome, child.num_read() > before)


def run_mutants(mutants: Iterable[Mutant], *, workers: int = 1) -> Iterator[Result]:
    """Uses each mutant in a child process; a crash affects only its mutant.

    Yields:
        A result for each, in any order.
    """
    source = iter(mutants)
    waiting: dict[int, list[Mutant]] = {}
    with Pool(workers=workers) as pool:

        def submit(batch: list[Mutant]) -> None:
            if batch:
                job = Job(_USE, (batch,), _TIMEOUT_S, is_timed_by_value=True)
                waiting[pool.submit(job)] = batch

        for _ in range(workers):
            submit(list(islice(source, _BATCH)))
        while waiting:
            outcome = pool.next()
            batch = waiting.pop(outcome.index)
            done = len(outcome.values)
            for mutant, values in zip(batch, outcome.values, strict=False):
                yield Result(mutant, *values)
            if done < len(batch):
                how = "late" if outcome.error == TIMEOUT else "death"
                yield Result(batch[done], how, outcome.error)
            submit(batch[done + 1 :] or list(islice(source, _BATCH)))
