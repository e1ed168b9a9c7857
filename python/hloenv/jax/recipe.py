# SPDX-License-Identifier: Apache-2.0
"""How a tuned module is compiled: recorded decisions, engines, and compiler options.

A recipe is data. Its decisions are a trace, which is replayed on the module that they
were recorded on, so that nothing is decided again.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ArtefactError, CompileError, HloEnvError, TraceError
from ..hlo.module import read_trusted
from ..hlo.pipeline import finish, restricts_pipeline
from ..rewrite.env import replay
from ..rewrite.trace import Trace
from ..runtime.executable import AnyExecutable, Engine, Finish, check_engine, compile
from ..runtime.jaxlib import compile_by_jaxlib
from ..runtime.jaxlib.hook import with_module_name
from ..runtime.jaxlib.options import (
    EXTRA,
    OptionValue,
    check_options,
    refuse_wrong,
)
from ..runtime.jaxlib.stablehlo import call_module
from .attempts import Attempt
from .auto import kernels_of
from .by_wheel import compiled_by_wheel
from .decide import Decided, Route
from .onednn import CACHE_IS_ON, calls_onednn, is_cache_on
from .planners import give
from .stages import Stages

if TYPE_CHECKING:
    from ..hlo.module import HloModule

_FIELDS = ("trace", "pipeline", "backend", "loops", "options")
_LIBRARY = "LIBRARY_FUSION_TYPE_"
# The options that a file may set, with their values: those of the tuner's decisions.
# Other options of XLA write files or run programs, and other values may never end. Of
# EXTRA, these are the parts.
FILE_OPTIONS: dict[str, tuple[OptionValue, ...]] = {
    "xla_backend_optimization_level": (1,),
    "xla_cpu_enable_fast_math": (True,),
    "xla_cpu_experimental_ynn_fusion_type": (
        "",
        f"{_LIBRARY}DOT",
        f"{_LIBRARY}DOT,{_LIBRARY}REDUCE",
        f"{_LIBRARY}DOT,{_LIBRARY}ELTWISE,{_LIBRARY}REDUCE,{_LIBRARY}INDIVIDUAL_DOT,"
        f"{_LIBRARY}INDIVIDUAL_CONVOLUTION",
        f"{_LIBRARY}INDIVIDUAL_DOT,{_LIBRARY}INDIVIDUAL_CONVOLUTION",
        f"{_LIBRARY}INDIVIDUAL_DOT,{_LIBRARY}REDUCE",
        f"{_LIBRARY}INDIVIDUAL_DOT",
    ),
    "xla_cpu_copy_insertion_use_region_analysis": (True,),
    "xla_cpu_multi_thread_eigen": (False,),
    "xla_cpu_prefer_vector_width": (512, 128),
    "xla_cpu_scheduler_type": ("CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",),
    "xla_cpu_use_fusion_emitters": (False,),
    "xla_disable_hlo_passes": ("fusion",),
    EXTRA: (
        "xla_llvm_dot_tiling_factor=2",
        "xla_llvm_dot_tiling_factor=4",
        "xla_llvm_dot_tiling_factor=16",
        "xla_cpu_disable_tiled_emitter=",
        "xla_cpu_disable_loop_unrolling=",
        "xla_cpu_optimize_for_size=",
    ),
}


@dataclass(frozen=True)
class Built:
    """A module ready for `hloenv.compile`, with its arguments.

    Attributes:
        module: the decided module.
        finish: as for `hloenv.compile`.
        engine: as for `hloenv.compile`.
        options: as for `hloenv.compile`.
    """

    module: HloModule
    finish: Finish
    engine: Engine
    options: Mapping[str, OptionValue]

    def compile(self) -> AnyExecutable:
        """The executable, compiled in this process.

        Raises:
            CompileError: the engine cannot compile it.
        """
        return compile(
            self.module,
            finish=self.finish,
            isolate=False,
            engine=self.engine,
            options=self.options,
        )


@dataclass(frozen=True)
class Recipe:
    """The settings of all stages of the compiler for one module.

    Attributes:
        trace: decisions on the module, from before XLA's passes; None for none.
        pipeline: the XLA whose passes run on the result.
        backend: the XLA that generates code.
        loops: whether loops of small operations become single kernels, by the policy
            "small-loops" on what jaxlib's pipeline has made.
        options: of jaxlib's compiler, as for `hloenv.compile`.
    """

    trace: Trace | None = None
    pipeline: Engine = "jaxlib"
    backend: Engine = "jaxlib"
    loops: bool = False
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks that the parts fit together.

        Raises:
            ArtefactError: they do not.
        """
        check_engine(self.pipeline)
        check_engine(self.backend)
        if self.backend == "wheel" and self.pipeline != "wheel":
            raise ArtefactError("the wheel's backend needs the wheel's pipeline")
        if self.loops and self.pipeline != "jaxlib":
            raise ArtefactError("loops=True needs jaxlib's pipeline")
        if self.options and self.backend != "jaxlib":
            raise ArtefactError("options are for jaxlib's backend")
        check_options(self.options)

    @property
    def is_plain(self) -> bool:
        """Whether it is what jax.jit does."""
        return self == Recipe()

    @property
    def route(self) -> Route:
        """How the result goes into jax."""
        if self.pipeline == "wheel":
            return "wheel"
        return "stablehlo" if self.trace is not None else "jaxlib"

    def apply(self, module: HloModule) -> HloModule:
        """The module after the recorded decisions.

        Raises:
            TraceError: they were recorded on another module, or by another XLA.
        """
        if self.trace is None:
            return module
        return replay(self.trace, module).module

    def build(self, module: HloModule) -> Built:
        """What `hloenv.compile` compiles.

        Raises:
            TraceError: the decisions are for another module.
            HloEnvError: a pass or a compilation fails.
        """
        applied = self.apply(module)
        if self.backend == "wheel":
            return Built(applied, "legalize", "wheel", {})
        if self.pipeline == "wheel":
            return Built(finish(applied), "none", "jaxlib", self.options)
        if restricts_pipeline(applied):
            raise CompileError(
                "rewrites of XLA's were rejected or it is within XLA's pipeline, which "
                "jaxlib's pipeline does not follow"
            )
        if not self.loops:
            return Built(applied, "legalize", "jaxlib", self.options)
        optimized = self._by_jaxlib(applied)
        decided = kernels_of(optimized, is_safe=False)
        return Built(decided.result, "none", "jaxlib", self.options)

    def final(self, module: HloModule) -> HloModule:
        """The module in front of the backend, as `hloenv.jax.inject` takes it.

        Raises:
            ArtefactError: the wheel's backend compiles it.
            HloEnvError: as `build`.
        """
        if self.backend == "wheel":
            raise ArtefactError(
                "the wheel's backend compiles it, which does not run inside jax's own "
                "compilation; use hloenv.jit(fn, tuned=...)"
            )
        built = self.build(module)
        if built.finish == "none":
            return built.module
        return self._by_jaxlib(built.module)

    def _by_jaxlib(self, applied: HloModule) -> HloModule:
        compiled = compile_by_jaxlib(applied, is_final=False, options=self.options)
        # Its own name is that of the function by which it was compiled.
        proto = with_module_name(compiled.module.to_proto(), applied.name)
        return read_trusted(proto)

    def attempt(self, stages: Stages, *, label: str) -> Attempt:
        """A way to compile a signature of a function.

        Args:
            stages: of the signature.
            label: says in `explain` what was tuned.

        Raises:
            HloEnvError: as `build`.
        """
        applied = self.apply(stages.module)
        refuse_wrong(applied, self.options)
        decided = Decided(
            *(stages.module, applied),
            route=self.route,
            tuned=label,
            engine=self.backend,
        )
        attempt = Attempt("tuned", decided, options=self.options)
        if self.backend == "wheel":

            def prepare(tried: Attempt) -> Attempt:
                function, discard = compiled_by_wheel(applied, stages, is_safe=True)
                return dataclasses.replace(tried, function=function, discard=discard)

            return dataclasses.replace(attempt, prepare=prepare)
        if self.pipeline == "wheel":
            return dataclasses.replace(
                attempt, replace=functools.partial(give, decided)
            )
        if self.trace is not None:
            if calls_onednn(applied) and is_cache_on():
                raise CompileError(CACHE_IS_ON)
            call = call_module(applied, stages.traced, stages.lowered)
            attempt = dataclasses.replace(attempt, function=call)
        if self.loops:
            kernels = functools.partial(kernels_of, is_safe=stages.is_safe)
            attempt = dataclasses.replace(attempt, replace=kernels)
        return attempt

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        trace = None if self.trace is None else json.loads(self.trace.to_json())
        return {
            "trace": trace,
            "pipeline": self.pipeline,
            "backend": self.backend,
            "loops": self.loops,
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, data: Any) -> Recipe:
        """Reads the result of `to_json`.

        Raises:
            ArtefactError: this is not a recipe.
        """
        if not isinstance(data, dict) or set(data) != set(_FIELDS):
            raise ArtefactError(
                f"a recipe must be an object with {', '.join(_FIELDS)}, got "
                f"{repr(data)[:80]}"
            )
        if not isinstance(data["loops"], bool) or not isinstance(data["options"], dict):
            raise ArtefactError("a recipe's loops must be a boolean, options an object")
        if unknown := sorted(set(data["options"]) - set(FILE_OPTIONS)):
            raise ArtefactError(
                f"a recipe may not set {unknown[0][:40]!r}; it may set "
                f"{', '.join(sorted(FILE_OPTIONS))}"
            )
        for name, value in data["options"].items():
            _check_file_option(name, value)
        try:
            trace = data["trace"]
            return cls(
                None if trace is None else Trace.from_json(json.dumps(trace)),
                data["pipeline"],
                data["backend"],
                data["loops"],
                data["options"],
            )
        except (HloEnvError, RecursionError) as error:
            raise ArtefactError(f"this is not a recipe: {error}") from None


def _check_file_option(name: str, value: Any) -> None:
    """Checks that a file may set an option to a value.

    Raises:
        ArtefactError: it may not.
    """
    is_split = name == EXTRA and isinstance(value, str)
    for part in value.split(",") if is_split else [value]:
        if not any(
            type(part) is type(each) and part == each for each in FILE_OPTIONS[name]
        ):
            raise ArtefactError(
                f"a recipe may not set {name} to {repr(part)[:80]}; it may be "
                f"{' or '.join(map(repr, FILE_OPTIONS[name]))}"
            )


class Proposed:
    """A planner that tries one recipe."""

    text: str | None = None
    is_auto = True

    def __init__(self, recipe: Recipe) -> None:
        """Tries `recipe` for each signature."""
        self._recipe = recipe

    def attempts(self, stages: Stages) -> Any:
        """As in `Planner`."""
        try:
            yield self._recipe.attempt(stages, label="proposed")
        except TraceError as error:
            undecided = Decided(stages.module, stages.module)
            yield Attempt("tuned", undecided, reason=str(error))
