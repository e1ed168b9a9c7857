# SPDX-License-Identifier: Apache-2.0
"""Decision spaces: positions in XLA's pipeline, and the passes to decide there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..hlo.passes import Pass
from ..hlo.pipeline import finish
from ..policies import Policy
from ..policies.known_forms import FORM_PASSES
from ..rewrite.alternatives import as_decisions
from ..rewrite.game import DecisionPoint, Game, Prefix
from ..rewrite.interception import intercept
from ..runtime.executable import Engine

# Defaults of `hloenv optimize` and of `hloenv search`, for each engine. jaxlib's own
# pipeline follows what is decided before it.
USUAL_SPACE: dict[Engine, str] = {"wheel": "early-and-fusion", "jaxlib": "algsimp"}
SEARCH_SPACE: dict[Engine, str] = {"wheel": "forms-to-fusion", "jaxlib": "before-xla"}

# TASO's families: those in Python, and those that were candidate passes before.
TASO_PASSES = ("substitutions", "reassociate", "merge-dots")

_FORMS = DecisionPoint(FORM_PASSES)
_DOTS = DecisionPoint(("dot-lowering",), where="fusion")
# Up to which tiled LLVM IR is mostly as fast as Eigen or faster, as
# scripts/reports/tune_rules.py finds.
SMALL_DOT_PRODUCTS = 32000


def small_dots(max_products: int = SMALL_DOT_PRODUCTS) -> DecisionPoint:
    """Lowering to tiled LLVM IR for dots of at most `max_products` products."""
    return DecisionPoint(
        (Pass("dot-lowering", max_products=max_products),), where="fusion"
    )


_SMALL_DOTS = small_dots()
_FUSION = DecisionPoint(("fusion", "general-fusion"), where="fusion", default="fusion")
_FUSION_THERE = replace(_FUSION, where="")  # position of the previous decision point
_GENERAL_FUSION = DecisionPoint(("general-fusion",), where="fusion", first=("fusion",))
_GENERAL_FUSION_THERE = DecisionPoint(("general-fusion",))
_ALGSIMP = DecisionPoint(("algsimp", "cse"))
_ALGSIMP_ALONE = DecisionPoint(("algsimp",))
_SIMPLIFY = DecisionPoint(("general-simplify",), where="simplification")
_REORDER = DecisionPoint(("reassociate", "merge-dots"), where="simplification")
_SPLIT = DecisionPoint(
    ("cpu-parallel-task-assigner",),
    where="cpu-parallel-task-assigner",
    default="cpu-parallel-task-assigner",
)
_LAYOUT = DecisionPoint(("general-layout",), where="fusion")
_SUBSTITUTION = DecisionPoint((*TASO_PASSES, *FORM_PASSES))
_THUNK_ORDER = DecisionPoint(("thunk-order",), where="copy-insertion")


_SIMPLIFY_VARIANTS = (
    (_ALGSIMP_ALONE, "keep-original"),
    (_ALGSIMP, "keep-original"),
    (_ALGSIMP, "accept-all"),
    (_ALGSIMP, "fewest-ops"),
    (_SIMPLIFY, "accept-all"),
    (_SIMPLIFY, "fewest-ops"),
    (_SIMPLIFY, "least-bytes"),
)
_VARIANTS = (
    *_SIMPLIFY_VARIANTS,
    (_REORDER, "fewest-ops"),
    (_REORDER, "least-bytes"),
)


class UnknownSpaceError(HloEnvError, LookupError):
    """No space has this name."""


@dataclass(frozen=True)
class Space:
    """A set of decisions, for policies and searches.

    Attributes:
        name: in reports and on the command line.
        summary: the decisions and their position.
        stops: decision points of a `Game`; empty if XLA's pipeline is intercepted.
        live: names of the passes that are decided at each of their invocations in
            XLA's own pipeline.
        variants: pre-fusion variants, for searches: an earlier decision point, and the
            policy that decides there.
    """

    name: str
    summary: str
    stops: tuple[DecisionPoint, ...] = ()
    live: frozenset[str] = frozenset()
    variants: tuple[tuple[DecisionPoint, str], ...] = ()

    @property
    def definition(self) -> str:
        """All decision points, with positions and options."""
        live = [f"live {name}" for name in sorted(self.live)]
        stops = [repr(stop) for stop in self.stops]
        variants = [f"variant {stop!r} by {policy}" for stop, policy in self.variants]
        return "; ".join((*live, *stops, *variants)) or self.name


SPACES = {
    space.name: space
    for space in (
        Space(
            "algsimp",
            "algebraic simplification, once, before all of XLA's passes",
            (_ALGSIMP,),
        ),
        Space(
            "live-algsimp",
            "each algebraic simplification in XLA's own pipeline, intercepted",
            live=frozenset({"algsimp"}),
        ),
        Space(
            "live-fusion",
            "XLA's own fusion, intercepted",
            live=frozenset({"fusion"}),
        ),
        Space(
            "live",
            "algebraic simplification and fusion in XLA's own pipeline, intercepted",
            live=frozenset({"algsimp", "fusion"}),
        ),
        Space(
            "fusion",
            "at XLA's fusion: its own fusions and every other legal one",
            (_FUSION,),
        ),
        Space(
            "more-fusion",
            "after XLA's own fusion: every other legal one, in two rounds",
            (_GENERAL_FUSION, _GENERAL_FUSION_THERE),
        ),
        Space(
            "simplify",
            "before XLA's simplification: its rewrites, including the optional ones",
            (_SIMPLIFY,),
        ),
        Space(
            "reorder",
            "before XLA's simplification: reassociation of sums and products, and "
            "merges of dots that share an operand",
            (_REORDER,),
        ),
        Space(
            "dots",
            "for each small dot: a call of Eigen, as in XLA, or tiled LLVM IR",
            (_DOTS,),
        ),
        Space(
            "small-dots",
            "as dots, for dots of at most 32,000 products, such as 32x32x31",
            (_SMALL_DOTS,),
        ),
        Space(
            "thunk-order",
            "for each computation: sequential or concurrent thunk execution",
            (_THUNK_ORDER,),
        ),
        Space(
            "runtime",
            "small-dots and thunk-order: decisions that reduce the overhead of XLA's "
            "runtime",
            (_SMALL_DOTS, _THUNK_ORDER),
        ),
        Space(
            "substitutions",
            "before all of XLA's passes: substitutions and forms of operations, in 20 "
            "rounds",
            (_SUBSTITUTION,) * 20,
        ),
        Space("layout", "layouts of dots, convolutions and reductions", (_LAYOUT,)),
        Space(
            "all",
            "simplification, reassociation, layouts and fusion, in this order",
            (_SIMPLIFY, _REORDER, _LAYOUT, _FUSION),
        ),
        Space(
            "forms",
            "before all of XLA's passes: other forms of convolutions, small dots, "
            "short reductions and sorts",
            (_FORMS,),
        ),
        Space(
            "before-xla",
            "forms, then algebraic simplification, before all of XLA's passes",
            (_FORMS, _ALGSIMP),
        ),
        Space(
            "early-and-fusion",
            "algebraic simplification before all of XLA's passes, then the lowering of "
            "small dots, fusion, and sequential thunk execution",
            (_ALGSIMP, _DOTS, _FUSION_THERE, _THUNK_ORDER),
        ),
        Space(
            "forms-to-fusion",
            "forms, then early-and-fusion",
            (_FORMS, _ALGSIMP, _DOTS, _FUSION_THERE, _THUNK_ORDER),
        ),
        Space(
            "simplify-and-fusion",
            "fusion, after one of several pre-fusion variants, for searches",
            (_FUSION,),
            variants=_VARIANTS,
        ),
        Space(
            "joint",
            "as simplify-and-fusion, with the lowering of small dots before fusion, "
            "and sequential or concurrent thunk execution after it",
            (_DOTS, _FUSION_THERE, _THUNK_ORDER),
            variants=_VARIANTS,
        ),
        Space(
            "careful",
            "as joint, but tiled LLVM IR only for dots of at most 32,000 products, and "
            "no reassociation",
            (_SMALL_DOTS, _FUSION_THERE, _THUNK_ORDER),
            variants=_SIMPLIFY_VARIANTS,
        ),
        Space(
            "split",
            "the operations that are partitioned among several threads",
            (_SPLIT,),
        ),
        Space(
            "joint-split",
            "as joint, and after fusion the operations to partition among threads",
            (_DOTS, _FUSION_THERE, _SPLIT, _THUNK_ORDER),
            variants=_VARIANTS,
        ),
    )
}


# From the earlier name to the current one.
_RENAMED = {"in-order": "thunk-order"}


def get_space(name: str) -> Space:
    """The space of this name, or of an earlier one.

    Raises:
        UnknownSpaceError: no space has this name.
    """
    space = SPACES.get(_RENAMED.get(name, name))
    if space is None:
        raise UnknownSpaceError(
            f"no space is named {name!r}; use one of {', '.join(SPACES)}"
        )
    return space


@dataclass
class Decided:
    """A module after its decisions.

    Attributes:
        applied: before the rest of XLA's passes; `module`, if these were intercepted.
        module: final: ready for XLA's backend.
        num_alternatives: that were decided.
        num_accepted: of them, those with a decision other than the original.
        changes: how often each kind of decision differs from XLA's own.
    """

    applied: HloModule
    module: HloModule
    num_alternatives: int = 0
    num_accepted: int = 0
    changes: Counter[str] | None = None


def decide(module: HloModule, space: Space, policy: Policy) -> Decided:
    """Applies the policy at each decision point, and runs the rest of XLA's passes.

    Raises:
        HloEnvError: a pass fails, or the pipeline does not reach a decision point.
    """
    if space.live:
        return _decide_live(module, space.live, policy)
    game = Game(module, space.stops)
    return decided_of_game(game, game.follow_policy(policy))


def decided_of_game(game: Game, prefix: Prefix) -> Decided:
    """A complete prefix of a game, with the rest of XLA's passes run."""
    applied = game.play(prefix)
    return Decided(
        applied,
        finish(applied),
        sum(len(each) for each in prefix),
        sum(int((each > 0).sum()) for each in prefix),
        changes_of(game, prefix),
    )


def _decide_live(module: HloModule, names: frozenset[str], policy: Policy) -> Decided:
    count = accepted = 0
    with intercept(module) as pipeline:
        for stage in pipeline:
            if stage.name not in names:
                continue
            alternatives = stage.get_alternatives()
            decisions = as_decisions(policy(alternatives))
            count += len(decisions)
            accepted += int((decisions > 0).sum())
            stage.apply_alternatives(decisions)
    return Decided(pipeline.module, pipeline.module, count, accepted)


def changes_of(game: Game, prefix: Prefix) -> Counter[str]:
    """Counts of the decisions that differ from XLA's own, by description."""
    changes: Counter[str] = Counter()
    for stop in range(len(game.stops)):
        alternatives = game.alternatives(prefix[:stop])
        default = game.default(prefix[:stop])
        for index in (prefix[stop] != default).nonzero()[0].tolist():
            choices = alternatives[index].choices
            choice, usual = choices[prefix[stop][index]], choices[default[index]]
            if prefix[stop][index] < 0:
                what = f"left to XLA: {choices[0].opcode}"
            elif prefix[stop][index] == 0:
                what = f"not {'+'.join(usual.passes)} of {choice.opcode}"
            else:
                rule = f" ({choice.rule})" if choice.rule else ""
                what = f"{'+'.join(choice.passes)}{rule}: {choices[0].opcode}"
                if choice.opcode != choices[0].opcode:
                    what += f" becomes {choice.opcode}"
            changes[what] += 1
    return changes
