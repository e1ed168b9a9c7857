# SPDX-License-Identifier: Apache-2.0
"""A function by the code of the XLA in TensorFlow's wheel, as one call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..hlo.module import HloModule
from ..process import child
from ..runtime.executable import Finish, compile
from ..runtime.jaxlib.ffi_call import call_executable, discard_executable
from ..runtime.jaxlib.package import require_jax
from ..runtime.jaxlib.stablehlo import call_function
from .flat import from_flat, to_flat
from .stages import Stages

# For a compilation in a child process.
COMPILE_TIMEOUT_S = 60.0


def compiled_by_wheel(
    module: HloModule, stages: Stages, *, is_safe: bool, finish: Finish = "legalize"
) -> tuple[Callable[..., Any], Callable[[], None]]:
    """The function of `stages` as a call of an executable of the wheel's XLA.

    Args:
        module: of the function.
        stages: whose arguments and results it has.
        is_safe: whether it is known to compile.
        finish: as for `hloenv.compile`.

    Returns:
        The function, and one that frees the executable, if no function of jax that
        calls it is kept.

    Raises:
        CompileError: XLA cannot compile it.
        MeasureTimeout: it takes too long to compile.
    """
    jax = require_jax("hloenv.jit")
    if not is_safe:
        child.try_compile(module.to_bytes(), finish, timeout_s=COMPILE_TIMEOUT_S)
    executable = compile(module, finish=finish, isolate=False)
    run = call_executable(executable)
    avals = stages.traced.jaxpr.out_avals

    def flat(*leaves: Any) -> list[Any]:
        results = run(*(to_flat(jax, leaf) for leaf in leaves))
        return from_flat(jax, results, avals)

    discard = functools.partial(discard_executable, executable)
    try:
        function = call_function(flat, module, stages.traced, stages.lowered)
    except BaseException:
        discard()
        raise
    return function, discard
