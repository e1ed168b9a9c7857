# SPDX-License-Identifier: Apache-2.0
"""The decisions of all stages, as data.

A decision has a name, a stage, a scope, and choices, of which the first is what XLA
does by itself. A choice belongs to a numerical class, and says what it does: it decides
rewrites by a policy at a position in XLA's pipeline, sets an option of jaxlib's
compiler, makes kernels of loops, or chooses the engine. Every option here changes the
code of some program (`tests/tune/test_space.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import ArgumentError
from ..hlo.passes import Pass
from ..jax.auto import INLINING
from ..policies.known_calls import CALL_PASSES
from ..policies.known_forms import FORM_PASSES
from ..rewrite.game import DecisionPoint
from ..runtime.executable import Engine
from ..runtime.jaxlib.options import EXTRA, OptionValue
from ..search.spaces import small_dots

Scope = Literal["kernel", "computation", "module"]
# How far outputs may differ from those of XLA's own decisions.
Class = Literal["exact", "reassociating", "approximate"]
CLASSES: tuple[Class, ...] = ("exact", "reassociating", "approximate")
# Pipeline and backend.
Engines = tuple[Engine, Engine]

PLAIN: Engines = ("jaxlib", "jaxlib")
_WHEEL_PASSES: Engines = ("wheel", "jaxlib")
WHEEL: Engines = ("wheel", "wheel")
_ALL = (PLAIN, _WHEEL_PASSES, WHEEL)
_BY_JAXLIB = (PLAIN, _WHEEL_PASSES)
_BY_WHEEL_PASSES = (_WHEEL_PASSES, WHEEL)


@dataclass(frozen=True)
class Choice:
    """One way to decide.

    Attributes:
        name: among the choices of its decision.
        numerics: how far outputs may differ from XLA's own.
        point: where `policy` decides rewrites; None if it decides none.
        policy: as in `hloenv.policies.get_policy`.
        in_rounds: whether each pass of the point is decided by itself, and again where
            that may find more, as `hloenv.jit` does.
        option: of jaxlib's compiler, and its value; None if it sets none.
        loops: whether loops of small operations become kernels.
        engines: the engines that it selects; None if it selects none.
    """

    name: str
    numerics: Class = "exact"
    point: DecisionPoint | None = None
    policy: str = ""
    in_rounds: bool = False
    option: tuple[str, OptionValue] | None = None
    loops: bool = False
    engines: Engines | None = None


@dataclass(frozen=True)
class Decision:
    """What is decided at a stage.

    Attributes:
        name: unique among all decisions.
        stage: its stage.
        summary: one sentence.
        scope: what one choice is for: the result for a kernel holds in every module, a
            choice for a module only there.
        choices: the first is XLA's own.
        engines: where it has an effect.
        needs: the decision without which it has none, where that is not XLA's own; ""
            for none.
    """

    name: str
    stage: str
    summary: str
    scope: Scope
    choices: tuple[Choice, ...]
    engines: tuple[Engines, ...] = _ALL
    needs: str = ""

    def choice(self, name: str) -> Choice:
        """The choice of this name.

        Raises:
            ArgumentError: there is none.
        """
        for each in self.choices:
            if each.name == name:
                return each
        raise ArgumentError(
            f"decision {self.name!r} has no choice {name!r}; it has "
            f"{', '.join(each.name for each in self.choices)}"
        )


def _rewrites(
    name: str,
    stage: str,
    summary: str,
    choices: Sequence[tuple[str, Class, DecisionPoint, str]],
    engines: tuple[Engines, ...] = _ALL,
    scope: Scope = "kernel",
    *,
    in_rounds: bool = False,
) -> Decision:
    made = (
        Choice(label, numerics, point, policy, in_rounds)
        for label, numerics, point, policy in choices
    )
    return Decision(name, stage, summary, scope, (Choice("xla"), *made), engines)


def _options(
    name: str,
    stage: str,
    summary: str,
    flag: str,
    values: Mapping[str, tuple[Class, OptionValue]],
    engines: tuple[Engines, ...] = _BY_JAXLIB,
) -> Decision:
    made = (
        Choice(label, numerics, option=(flag, value))
        for label, (numerics, value) in values.items()
    )
    return Decision(name, stage, summary, "module", (Choice("xla"), *made), engines)


_FORMS = DecisionPoint(FORM_PASSES)
_CALLS = DecisionPoint(CALL_PASSES)
_CONVOLUTIONS = DecisionPoint(("convolution-forms",))
_ALGSIMP = DecisionPoint(("algsimp", "cse"))
_GENERAL = DecisionPoint(("general-simplify",))
_REORDER = DecisionPoint(("reassociate", "merge-dots"))
_EIGHT = DecisionPoint((Pass("loop-forms", pairs=False),), first=INLINING)
_TWO = DecisionPoint((Pass("loop-forms", unrolled=False),), first=INLINING)
_LAYOUT = DecisionPoint(("general-layout",), where="fusion")
_DOTS = DecisionPoint(("dot-lowering",), where="fusion")
_FUSION = DecisionPoint(("fusion", "general-fusion"), where="fusion", default="fusion")
_SPLIT = DecisionPoint(
    ("cpu-parallel-task-assigner",),
    where="cpu-parallel-task-assigner",
    default="cpu-parallel-task-assigner",
)
_KERNELS = DecisionPoint(("single-kernel",), where="copy-insertion")
_THUNKS = DecisionPoint(("thunk-order",), where="copy-insertion")
_LIBRARY = "LIBRARY_FUSION_TYPE_"
_YNN = "xla_cpu_experimental_ynn_fusion_type"

# Rewrites are in the order of XLA's pipeline.
DECISIONS = (
    Decision(
        "engine",
        "engine",
        "whose passes run, and whose code generator",
        "module",
        (
            Choice("jaxlib", engines=PLAIN),
            Choice("wheel-passes", "reassociating", engines=_WHEEL_PASSES),
            Choice("wheel", "reassociating", engines=WHEEL),
        ),
    ),
    _rewrites(
        "calls",
        "forms",
        "convolutions by oneDNN",
        (("onednn", "reassociating", _CALLS, "known-calls"),),
        in_rounds=True,
    ),
    _rewrites(
        "forms",
        "forms",
        "forms of convolutions, dots, reductions, sorts and functions",
        (
            ("known", "reassociating", _FORMS, "known-forms"),
            ("convolutions", "reassociating", _CONVOLUTIONS, "known-forms"),
        ),
        in_rounds=True,
    ),
    _rewrites(
        "simplify",
        "simplify",
        "algebraic simplification before all of XLA's passes",
        (
            ("all", "reassociating", _ALGSIMP, "accept-all"),
            ("fewest-ops", "reassociating", _ALGSIMP, "fewest-ops"),
            ("general", "reassociating", _GENERAL, "fewest-ops"),
            ("least-bytes", "reassociating", _GENERAL, "least-bytes"),
        ),
    ),
    _rewrites(
        "iterations",
        "simplify",
        "iterations of a counted loop in one of the compiled program",
        (
            ("eight", "reassociating", _EIGHT, "accept-all"),
            ("two", "reassociating", _TWO, "accept-all"),
        ),
    ),
    _rewrites(
        "reorder",
        "simplify",
        "reassociation of sums and products, merges of dots that share an operand",
        (
            ("fewest-ops", "reassociating", _REORDER, "fewest-ops"),
            ("least-bytes", "reassociating", _REORDER, "least-bytes"),
        ),
    ),
    _options(
        "library",
        "dots",
        "operations that YNNPACK runs, rather than Eigen or LLVM's code",
        _YNN,
        {
            "none": ("reassociating", ""),
            "dots": ("reassociating", f"{_LIBRARY}DOT"),
            "dots-reductions": (
                "reassociating",
                f"{_LIBRARY}DOT,{_LIBRARY}REDUCE",
            ),
            # What hloenv.jit may leave to XLA's own code (hloenv.jax.library).
            "no-reductions": (
                "reassociating",
                f"{_LIBRARY}INDIVIDUAL_DOT,{_LIBRARY}INDIVIDUAL_CONVOLUTION",
            ),
            "no-convolutions": (
                "reassociating",
                f"{_LIBRARY}INDIVIDUAL_DOT,{_LIBRARY}REDUCE",
            ),
            "single-dots": ("reassociating", f"{_LIBRARY}INDIVIDUAL_DOT"),
            "everything": (
                "reassociating",
                f"{_LIBRARY}DOT,{_LIBRARY}ELTWISE,{_LIBRARY}REDUCE,"
                f"{_LIBRARY}INDIVIDUAL_DOT,{_LIBRARY}INDIVIDUAL_CONVOLUTION",
            ),
        },
        (PLAIN,),
    ),
    _rewrites(
        "layout",
        "layout",
        "layouts of dots, convolutions and reductions",
        (
            ("least-bytes", "reassociating", _LAYOUT, "least-bytes"),
            ("estimated", "reassociating", _LAYOUT, "greedy-roofline"),
        ),
        _BY_WHEEL_PASSES,
        "computation",
    ),
    _rewrites(
        "small-dots",
        "dots",
        "small dots as tiled LLVM IR, rather than calls of Eigen",
        (
            ("tiled", "reassociating", _DOTS, "accept-all"),
            ("smallest", "reassociating", small_dots(), "low-overhead"),
        ),
        (WHEEL,),
    ),
    _rewrites(
        "fusion",
        "fusion",
        "which operations are fused",
        (
            ("by-bytes", "exact", _FUSION, "fuse-by-bytes"),
            ("least-bytes", "exact", _FUSION, "least-bytes"),
            ("all-legal", "exact", _FUSION, "fuse-all-legal"),
        ),
        _BY_WHEEL_PASSES,
    ),
    Decision(
        "loops",
        "fusion",
        "loops of small operations as one kernel",
        "kernel",
        (Choice("xla"), Choice("single-kernel", "reassociating", loops=True)),
        (PLAIN,),
    ),
    _options(
        "jaxlib-fusion",
        "fusion",
        "whether jaxlib's pipeline fuses",
        "xla_disable_hlo_passes",
        {"off": ("reassociating", "fusion")},
        (PLAIN,),
    ),
    _options(
        "eigen-threads",
        "parallel",
        "whether library calls use all threads",
        "xla_cpu_multi_thread_eigen",
        {"one": ("reassociating", False)},
    ),
    _rewrites(
        "partitions",
        "parallel",
        "which operations are partitioned among threads",
        (("none", "exact", _SPLIT, "keep-original"),),
        _BY_WHEEL_PASSES,
    ),
    _rewrites(
        "small-kernels",
        "schedule",
        "runs of small operations, and loops of them, as one kernel",
        (("low-overhead", "reassociating", _KERNELS, "low-overhead"),),
        (WHEEL,),
    ),
    _rewrites(
        "thunks",
        "schedule",
        "thunks one after the other, rather than as soon as operands are ready",
        (("sequential", "exact", _THUNKS, "accept-all"),),
        (WHEEL,),
        "computation",
    ),
    _options(
        "scheduler",
        "schedule",
        "what the order of the operations is chosen for",
        "xla_cpu_scheduler_type",
        {"memory": ("exact", "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED")},
        (PLAIN,),
    ),
    _options(
        "copies",
        "schedule",
        "which copies loops need: of whole values, or by the regions that use them",
        "xla_cpu_copy_insertion_use_region_analysis",
        {"regions": ("exact", True)},
        (PLAIN,),
    ),
    _options(
        "dot-tile",
        "tiles",
        "rows and columns of a tile of a product of a matrix and a vector",
        EXTRA,
        {
            f"{size}": ("reassociating", f"xla_llvm_dot_tiling_factor={size}")
            for size in (2, 4, 16)
        },
    ),
    _options(
        "tiled-emitter",
        "tiles",
        "whether the tiled emitter makes kernels",
        EXTRA,
        {"off": ("reassociating", "xla_cpu_disable_tiled_emitter=")},
    ),
    _options(
        "vectors",
        "codegen",
        "preferred width of vectors, in bits",
        "xla_cpu_prefer_vector_width",
        {"512": ("reassociating", 512), "128": ("reassociating", 128)},
    ),
    _options(
        "llvm",
        "codegen",
        "LLVM's level of optimization",
        "xla_backend_optimization_level",
        {"1": ("exact", 1)},
    ),
    _options(
        "emitters",
        "codegen",
        "the emitters of fusions, or those of single instructions",
        "xla_cpu_use_fusion_emitters",
        {"instructions": ("reassociating", False)},
    ),
    _options(
        "unrolling",
        "codegen",
        "whether LLVM unrolls loops",
        EXTRA,
        {"off": ("exact", "xla_cpu_disable_loop_unrolling=")},
    ),
    _options(
        "size",
        "codegen",
        "whether code is to be small",
        EXTRA,
        {"small": ("exact", "xla_cpu_optimize_for_size=")},
    ),
    _options(
        "math",
        "codegen",
        "the rules of floating point",
        "xla_cpu_enable_fast_math",
        {"fast": ("approximate", True)},
    ),
)

# A rule may be left to XLA in one program only: these are not in `DECISIONS`.
LEFT = "left"


def decisions_of_rules(rules: Sequence[str]) -> tuple[Decision, ...]:
    """For each rule of the forms, or of the calls of a library, whether it is used.

    Args:
        rules: labels such as "dot-forms/swapped".
    """
    return tuple(
        Decision(
            rule,
            "forms",
            f"whether {rule} is used",
            "kernel",
            (Choice("used"), Choice(LEFT)),
            needs="calls" if rule.split("/")[0] in CALL_PASSES else "forms",
        )
        for rule in rules
    )
