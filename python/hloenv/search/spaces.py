# SPDX-License-Identifier: Apache-2.0
"""What is decided in a benchmark: places of XLA's pipeline, and passes there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..hlo.passes import Pass
from ..hlo.pipeline import finish
from ..policies import Policy
from ..rewrite.alternatives import as_decisions
from ..rewrite.game import DecisionPoint, Game, Prefix
from ..rewrite.interception import intercept

# What the commands decide unless told otherwise.
USUAL_SPACE = "early-and-fusion"

_DOTS = DecisionPoint(("dot-lowering",), where="fusion")
# Up to 8x40x50 loops are faster as a rule; Eigen catches up at about 4x64x64.
# scripts/tune_rules.py sets it.
SMALL_DOT_PRODUCTS = 16000


def small_dots(max_products: int = SMALL_DOT_PRODUCTS) -> DecisionPoint:
    """Loops for dots of at most so many products."""
    return DecisionPoint(
        (Pass("dot-lowering", max_products=max_products),), where="fusion"
    )


_SMALL_DOTS = small_dots()
_FUSION = DecisionPoint(("fusion", "general-fusion"), where="fusion", default="fusion")
_FUSION_THERE = replace(_FUSION, where="")  # where the stop before was
_MORE = DecisionPoint(("general-fusion",), where="fusion", first=("fusion",))
_AGAIN = DecisionPoint(("general-fusion",))
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
_IN_ORDER = DecisionPoint(("thunk-order",), where="copy-insertion")


_SIMPLER = (
    (_ALGSIMP_ALONE, "keep-original"),
    (_ALGSIMP, "keep-original"),
    (_ALGSIMP, "accept-all"),
    (_ALGSIMP, "fewest-ops"),
    (_SIMPLIFY, "accept-all"),
    (_SIMPLIFY, "fewest-ops"),
    (_SIMPLIFY, "least-bytes"),
)
_VARIANTS = (
    *_SIMPLER,
    (_REORDER, "fewest-ops"),
    (_REORDER, "least-bytes"),
)


class UnknownSpaceError(HloEnvError, LookupError):
    """No space has this name."""


@dataclass(frozen=True)
class Space:
    """One way to put decisions to a policy.

    Attributes:
        name: in reports and on the command line.
        summary: what is decided, and where.
        stops: of a `Game`; empty where XLA's own pipeline is intercepted.
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
        """Everything that is decided, where, and with which options."""
        live = [f"live {name}" for name in sorted(self.live)]
        stops = [repr(stop) for stop in self.stops]
        variants = [f"front {stop!r} by {policy}" for stop, policy in self.variants]
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
            "each algebraic simplification of XLA's own pipeline, in its place",
            live=frozenset({"algsimp"}),
        ),
        Space(
            "live-fusion",
            "XLA's own fusion in its place",
            live=frozenset({"fusion"}),
        ),
        Space(
            "live",
            "algebraic simplification and fusion of XLA's own pipeline",
            live=frozenset({"algsimp", "fusion"}),
        ),
        Space(
            "fusion",
            "in the place of XLA's fusion, every legal fusion beside XLA's",
            (_FUSION,),
        ),
        Space(
            "more-fusion",
            "after XLA's own fusion, every other legal one, in two rounds",
            (_MORE, _AGAIN),
        ),
        Space(
            "simplify",
            "before XLA's simplification, all its optional rewrites too",
            (_SIMPLIFY,),
        ),
        Space(
            "reorder",
            "before XLA's simplification, other orders of sums and products, and "
            "dots that share an operand",
            (_REORDER,),
        ),
        Space(
            "dots",
            "for each small dot, a call of Eigen as XLA has it, or loops",
            (_DOTS,),
        ),
        Space(
            "small-dots",
            "the same for dots of at most 16,000 products, such as 25x25x25",
            (_SMALL_DOTS,),
        ),
        Space(
            "in-order",
            "whether the steps of a computation run one after the other",
            (_IN_ORDER,),
        ),
        Space(
            "runtime",
            "small-dots and in-order: what spares work of XLA's runtime",
            (_SMALL_DOTS, _IN_ORDER),
        ),
        Space("layout", "layouts of dots, convolutions, reductions", (_LAYOUT,)),
        Space(
            "all",
            "simplification, orders, layouts and fusion, one after the other",
            (_SIMPLIFY, _REORDER, _LAYOUT, _FUSION),
        ),
        Space(
            "early-and-fusion",
            "algebraic simplification before all of XLA's passes, then loops for small "
            "dots, fusion, and steps in order",
            (_ALGSIMP, _DOTS, _FUSION_THERE, _IN_ORDER),
        ),
        Space(
            "simplify-and-fusion",
            "fusion, and before it one of several ways to simplify, for searches",
            (_FUSION,),
            variants=_VARIANTS,
        ),
        Space(
            "joint",
            "as simplify-and-fusion, and before fusion loops for small dots, and then "
            "which computations run their steps in order",
            (_DOTS, _FUSION_THERE, _IN_ORDER),
            variants=_VARIANTS,
        ),
        Space(
            "careful",
            "as joint, but loops only for dots of at most 16,000 products, and no "
            "other order of sums",
            (_SMALL_DOTS, _FUSION_THERE, _IN_ORDER),
            variants=_SIMPLER,
        ),
        Space(
            "split",
            "which operations are split among threads, where there are several",
            (_SPLIT,),
        ),
        Space(
            "joint-split",
            "as joint, and after fusion which operations are split among threads",
            (_DOTS, _FUSION_THERE, _SPLIT, _IN_ORDER),
            variants=_VARIANTS,
        ),
    )
}


def get_space(name: str) -> Space:
    """The space of this name.

    Raises:
        UnknownSpaceError: there is none.
    """
    space = SPACES.get(name)
    if space is None:
        raise UnknownSpaceError(
            f"no space is named {name!r}; there are {', '.join(SPACES)}"
        )
    return space


@dataclass
class Decided:
    """A module with its decisions made.

    Attributes:
        module: final: ready for XLA's backend.
        num_alternatives: that were decided.
        num_accepted: of them, those that did not keep the original.
        changes: how often each kind of decision differs from XLA's own.
    """

    module: HloModule
    num_alternatives: int = 0
    num_accepted: int = 0
    changes: Counter[str] | None = None


def decide(module: HloModule, space: Space, policy: Policy) -> Decided:
    """Asks the policy at each stop, and runs the rest of XLA's passes.

    Raises:
        HloEnvError: a pass fails, or the pipeline does not come by a stop.
    """
    if space.live:
        return _decide_live(module, space.live, policy)
    game = Game(module, space.stops)
    return decided_of_game(game, game.follow_policy(policy))


def decided_of_game(game: Game, prefix: Prefix) -> Decided:
    """A complete prefix of a game, with the rest of XLA's passes run."""
    return Decided(
        finish(game.play(prefix)),
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
    return Decided(pipeline.module, count, accepted)


def changes_of(game: Game, prefix: Prefix) -> Counter[str]:
    """How often each kind of decision differs from XLA's own, in words."""
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
