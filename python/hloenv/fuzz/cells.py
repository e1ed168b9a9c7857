# SPDX-License-Identifier: Apache-2.0
"""The cells of the invariant matrix: which checks, passes, modules and variants.

A cell is one kind of check of one pass, or of two passes jointly, on one module at one
variant: raw, or at a position in XLA's pipeline. Passes that change many modules are
checked everywhere, other passes on a seeded sample of the modules.
"""

from __future__ import annotations

import functools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .. import errors
from ..hlo.module import HloModule
from ..hlo.passes import as_pipeline, describe_pass, list_passes, pass_names
from ..hlo.pipeline import list_stages, run_until
from ..rewrite.placement import at_place
from ..search.spaces import SPACES
from .matrix import LATER
from .subjects import Subject

# Raw, and the positions in XLA's pipeline at which `bench.spaces` decides its passes.
VARIANTS = ("raw", "simplification", "fusion", "copy-insertion")

# The variant before the first run of the checked pass itself.
OWN = "in front of it"

# Besides the candidate passes: passes that change most modules (docs/passes.md), and
# passes on loops, calls and conditionals.
_SIMPLIFIERS = (
    *("algsimp", "constant_folding", "cse", "gather_simplifier", "hlo normalization"),
    *("reshape-mover", "simplification", "simplify-while-loops", "tuple-simplifier"),
    *("simplify-conditional", "while-loop-invariant-code-motion"),
)
_CHANGE_MOST = (
    *_SIMPLIFIERS,
    *("call-inliner", "conditional-canonicalizer", "copy-insertion", "dce"),
    *("dot_decomposer", "flatten-call-graph", "fusion", "reshape-decomposer"),
    *("small-while-loop-hoisting", "transpose-folding", "while-loop-constant-sinking"),
    "while-loop-trip-count-annotator",
)

# Passes whose checks are often impossible: they are drawn on a fifth more modules.
_OFTEN_SKIPPED = frozenset(
    ("copy-insertion", "post_scatter_expansion_simplification", "reshape-decomposer")
)

# Passes that were added when most cells had been checked. Each has draws of its own,
# so that the cells drawn before are still wanted.
_ADDED = frozenset(("fusion-cuts", "loop-forms", "math-forms", "sort-forms"))

Cells = dict[str, list[str]]  # passes by variant


@dataclass(frozen=True)
class Extent:
    """The extent of one kind of check.

    Attributes:
        kind: "structure", "values", "compiled" or "default".
        passes: all checked passes.
        busy: passes that are checked on `busy_modules` modules.
        busy_modules: number of modules for busy passes; the cheapest ones.
        max_instructions: draw those modules at random among modules of at most this
            size; 0 takes the cheapest.
        other_modules: number of those modules on which every other pass is checked.
        everywhere: size, in instructions, of the largest modules on which busy passes
            are checked at every variant. On larger ones they are checked where XLA or a
            benchmark decides them, and at another variant for a third of the modules.
        num_first: number of variants at which a busy pass is checked on every module
            before the remaining variants of any module.
        pairs: number of joint captures of two busy passes for each module and variant;
            one more where busy passes are checked everywhere.
    """

    kind: str
    passes: tuple[str, ...]
    busy: tuple[str, ...]
    busy_modules: int
    max_instructions: int
    other_modules: int
    everywhere: int
    num_first: int
    pairs: int


def candidates() -> tuple[str, ...]:
    """Returns hloenv's candidate passes, which propose each rewrite separately."""
    return tuple(name for name in list_passes() if describe_pass(name).candidate)


def default_extents() -> dict[str, Extent]:
    """Returns the default extent of each kind of check."""
    most = (*candidates(), *_CHANGE_MOST)
    values = (*candidates(), *_SIMPLIFIERS, "fusion")
    every = list_passes()
    default = run_by_xla()
    extents = (
        Extent("structure", every, most, 10**6, 0, 1100, 1000, 2, 2),
        Extent("values", every, values, 2100, 0, 320, 0, 1, 1),
        Extent("compiled", every, values, 200, 400, 20, 0, 1, 1),
        Extent(
            "default",
            default,
            tuple(name for name in _CHANGE_MOST if name in default),
            *(10**6, 0, 300, 0, 1, 0),
        ),
    )
    return {each.kind: each for each in extents}


_TINY = """HloModule tiny

ENTRY main {
  p = f32[4]{0} parameter(0)
  ROOT n = f32[4]{0} negate(p)
}
"""


@functools.cache
def _at_variants() -> dict[str, HloModule]:
    tiny = HloModule.from_text(_TINY)
    return {v: tiny if v == "raw" else run_until(tiny, v) for v in VARIANTS}


@functools.cache
def variants_of(name: str) -> tuple[str, ...]:
    """Returns the variants in which the results of a pass are correct."""
    found = []
    for variant, module in _at_variants().items():
        try:
            at_place(as_pipeline(name), module)
        except errors.PositionError:
            continue
        found.append(variant)
    return tuple(found)


@functools.cache
def _points_of_xla() -> dict[str, str]:
    """Maps each pass that XLA runs to the variant before its first run."""
    points: dict[str, str] = {}
    variant = "raw"
    for stage in list_stages(_at_variants()["raw"]):
        names = stage.path.split("/")
        for each in VARIANTS[1:]:
            if each in names and VARIANTS.index(each) > VARIANTS.index(variant):
                variant = each
        for name in names:
            points.setdefault(name, variant)
    return points


@functools.cache
def run_by_xla() -> tuple[str, ...]:
    """Returns the registered passes that XLA's own pipeline runs."""
    return tuple(name for name in list_passes() if name in _points_of_xla())


@functools.cache
def run_again_by_xla() -> frozenset[str]:
    """Returns the registered passes that XLA's own pipeline runs more than once."""
    runs = Counter(stage.name for stage in list_stages(_at_variants()["raw"]))
    return frozenset(name for name in run_by_xla() if runs[name] > 1)


@functools.cache
def home_of(name: str) -> str:
    """Returns the variant at which a benchmark, or else XLA, decides a pass."""
    for space in SPACES.values():
        where = "raw"
        for stop in space.stops:
            where = stop.where or where
            names = pass_names([as_pipeline(each) for each in stop.passes])
            if name in names and where in variants_of(name):
                return where
    home = _points_of_xla().get(name, "raw")
    return home if home in variants_of(name) else variants_of(name)[0]


class Plan:
    """The wanted cells of a list of modules."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        extents: Sequence[Extent],
        *,
        passes: Sequence[str] = (),
        variants: Sequence[str] = (),
    ) -> None:
        """Draws the samples, deterministically.

        Args:
            subjects: all modules.
            extents: the extent of each kind of check.
            passes: only these, on as many modules as busy passes; empty for all.
            variants: only these; empty for all.
        """
        self.extents = {each.kind: each for each in extents}
        if passes:
            self.extents = {
                kind: replace(
                    each,
                    busy=tuple(
                        name
                        for name in passes
                        if set(name.split(",")) <= set(each.passes)
                    ),
                    other_modules=0,
                )
                for kind, each in self.extents.items()
            }
        self.variants = tuple(variants or (*VARIANTS, OWN, LATER))
        self._subjects: dict[str, list[Subject]] = {}
        self._others: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._further: dict[tuple[str, str], list[str]] = defaultdict(list)
        for extent in self.extents.values():
            self._draw(extent, subjects)

    def _draw(self, extent: Extent, subjects: Sequence[Subject]) -> None:
        def cost(subject: Subject) -> float:
            if extent.kind == "values":
                return subject.work
            return float(subject.instruction_count)

        chosen = sorted(subjects, key=lambda s: s.fingerprint)
        if extent.max_instructions:
            limit = extent.max_instructions
            chosen = [each for each in chosen if each.instruction_count <= limit]
            random.Random(extent.kind).shuffle(chosen)
            chosen = chosen[: extent.busy_modules]
        chosen = sorted(chosen, key=cost)[: extent.busy_modules]
        self._subjects[extent.kind] = chosen
        fingerprints = sorted(subject.fingerprint for subject in chosen)
        for name in sorted(set(extent.passes) - set(extent.busy)):
            rng = random.Random(f"{extent.kind} {name}")
            count = min(extent.other_modules, len(fingerprints))
            drawn = rng.sample(fingerprints, count)
            for fingerprint in drawn:
                self._others[extent.kind, fingerprint].append(name)
            if name in _OFTEN_SKIPPED:
                left = sorted(set(fingerprints) - set(drawn))
                for fingerprint in rng.sample(left, min(count // 5, len(left))):
                    self._further[extent.kind, fingerprint].append(name)

    def subjects(self, kind: str) -> list[Subject]:
        """Returns the modules of one kind of check, the cheapest first."""
        return self._subjects[kind]

    def cells(
        self, kind: str, subject: Subject, *, is_first: bool | None = None
    ) -> Cells:
        """Returns the passes to check on a module, by variant.

        Args:
            kind: of check.
            subject: the module.
            is_first: True for the cells checked on every module first, False for the
                remaining cells, None for both.
        """
        extent = self.extents[kind]
        rng = random.Random(f"{kind} {subject.fingerprint}")
        first: Cells = defaultdict(list)
        rest: Cells = defaultdict(list)
        own = {
            name: random.Random(f"{kind} {subject.fingerprint} {name}")
            for name in extent.busy
            if name in _ADDED
        }
        for name in extent.busy:
            draws = own.get(name, rng)
            variants = _places(extent, name, draws, subject.instruction_count)
            for i, variant in enumerate(variants):
                (first if i < extent.num_first else rest)[variant].append(name)
        for name in self._others[kind, subject.fingerprint]:
            places = (OWN,) if kind == "default" else variants_of(name)
            first[rng.choice(places)].append(name)
        for cells in (first, rest):
            for variant in VARIANTS:
                for pair in _pairs(extent, variant, rng, own):
                    if variant in cells and pair not in cells[variant]:
                        cells[variant].append(pair)
        # Last, so that they change no other draw.
        for name in self._further[kind, subject.fingerprint]:
            places = (OWN,) if kind == "default" else variants_of(name)
            first[rng.choice(places)].append(name)
        found: Cells = defaultdict(list)
        for cells, is_wanted in ((first, is_first is not False), (rest, not is_first)):
            for variant, names in cells.items() if is_wanted else ():
                if variant in self.variants:
                    found[variant] += [n for n in names if n not in found[variant]]
        return dict(found)

    def all_cells(self, kind: str) -> Iterator[tuple[Subject, str, str]]:
        """Yields (module, variant, passes) of every wanted cell of one kind."""
        for subject in self.subjects(kind):
            for variant, names in self.cells(kind, subject).items():
                for name in names:
                    yield subject, variant, name


def _pairs(
    extent: Extent,
    variant: str,
    rng: random.Random,
    own: Mapping[str, random.Random],
) -> Iterator[str]:
    """Draws the joint captures of busy passes on one module; `own` as in `_ADDED`."""
    names = [name for name in extent.busy if variant in variants_of(name)]
    drawn = [name for name in names if name not in own]
    if len(drawn) < 2:
        return
    for _ in range(extent.pairs):
        yield ",".join(rng.sample(drawn, 2))
        for name in (name for name in names if name in own):
            # As often as another pass.
            if own[name].random() < 2 / len(names):
                yield ",".join(own[name].sample((name, own[name].choice(drawn)), 2))


def _places(
    extent: Extent, name: str, rng: random.Random, instruction_count: int
) -> list[str]:
    """Draws the variants at which a busy pass is checked on one module."""
    if extent.kind == "default":
        is_later = name in run_again_by_xla() and rng.random() < 1 / 4
        return [OWN, LATER] if is_later else [OWN]
    home = home_of(name)
    elsewhere = [variant for variant in variants_of(name) if variant != home]
    rng.shuffle(elsewhere)
    is_elsewhere = rng.random() < 1 / 3
    if instruction_count <= extent.everywhere:
        return [home, *elsewhere]
    return [home, *elsewhere[:1]] if is_elsewhere else [home]
