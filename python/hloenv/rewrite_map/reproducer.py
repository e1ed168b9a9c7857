# SPDX-License-Identifier: Apache-2.0
"""Minimal programs of one rewrite, as HLO and as Python for plain jax.jit."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..hlo.text import parse_text
from ..measurement.measurer import measure
from ..process.child import PYTHON, child_environment
from .ablation import reject, worth_of
from .accepted import AcceptedRewrite, find_rewrites
from .extract import small_modules
from .jax_text import NotInJaxError, jax_function
from .rows import with_nan, without_nan

_TIMEOUT_S = 300.0
# Modules that are measured, until one shows that the rewrite costs.
_MAX_MODULES = 4
_SCRIPT = '''\
"""XLA's pass {pass_name} makes this {factor} slower on this CPU.

{before}

becomes

{after}

Found in {program}. Prints the time as XLA compiles the function, and without the pass:

    python {name}.py
"""

import json
import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PASS = {pass_name!r}
PARAMETERS = {parameters}

{x64}
{function}


def milliseconds():
    """The fastest of several runs of jax.jit(function)."""
    rng = np.random.default_rng(0)
    arguments = [
        jnp.asarray(rng.normal(size=shape) if "int" not in kind and kind != "bool"
                    else np.zeros(shape), kind)
        for shape, kind in PARAMETERS
    ]
    run = jax.jit(function)
    jax.block_until_ready(run(*arguments))
    times = []
    end = time.perf_counter() + 2
    while len(times) < 5 or time.perf_counter() < end and len(times) < 1000:
        begin = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def in_child(flags):
    """`milliseconds` in a process with these XLA_FLAGS."""
    flags = " ".join(filter(None, (os.environ.get("XLA_FLAGS"), flags)))
    child = subprocess.run(
        [sys.executable, __file__, "--child"],
        env={{**os.environ, "XLA_FLAGS": flags}},
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(child.stdout)


if __name__ == "__main__":
    if "--child" in sys.argv:
        print(milliseconds())
    else:
        found = {{
            "with_ms": in_child(""),
            "without_ms": in_child("--xla_disable_hlo_passes=" + PASS),
        }}
        print(json.dumps(found))
'''


@dataclass
class Reproducer:
    """A minimal program of one rewrite, and whether it shows the same.

    Attributes:
        name: of its files.
        program: where the rewrite was found.
        pass_name: the pass that makes it.
        hlo: name of the file of HLO text.
        worth: measured worth of the rewrite on the HLO, the time without it over the
            time with it.
        low: lower end of its 95 % interval.
        high: upper end.
        script: name of the Python file; "" if there is none.
        with_ms: time of the script under plain jax.jit; NaN if it was not run.
        without_ms: the same without the whole pass.
        error: why a part of it is missing; "" if nothing is.
    """

    name: str
    program: str
    pass_name: str
    hlo: str
    worth: float = math.nan
    low: float = math.nan
    high: float = math.nan
    script: str = ""
    with_ms: float = math.nan
    without_ms: float = math.nan
    error: str = ""

    @property
    def jax_worth(self) -> float:
        """Worth of the whole pass under plain jax.jit; NaN if it was not run."""
        return self.without_ms / self.with_ms

    @property
    def shows_cost(self) -> bool:
        """Whether the rewrite costs on the small module too, by its interval."""
        return self.high < 1

    def to_json(self) -> dict[str, Any]:
        """Plain strings and numbers; NaN is None."""
        found: dict[str, Any] = without_nan(asdict(self))
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reproducer:
        """Reads the result of `to_json`."""
        return cls(**with_nan(data))


def write_reproducer(
    module: HloModule,
    rewrite: AcceptedRewrite,
    folder: Path,
    *,
    program: str = "",
    measure_s: float = 1.0,
) -> Reproducer | None:
    """Writes and checks a minimal program of one rewrite.

    It is the smallest module on which the rewrite costs by a measurement, else the
    largest that was tried.

    Args:
        module: at the start of XLA's pipeline.
        rewrite: one that XLA makes on it.
        folder: of the files, which exists.
        program: name of the module; its own by default.
        measure_s: time of the measured runs.

    Returns:
        None if the rewrite does not occur on any small module.

    Raises:
        HloEnvError: the module cannot be compiled up to the rewrite.
    """
    name = _file_name(rewrite)
    names = name, program or module.name, rewrite.pass_name, f"{name}.hlo"
    found = None
    for small in itertools.islice(small_modules(module, rewrite), _MAX_MODULES):
        found = Reproducer(*names)
        _measure(small, rewrite, found, measure_s)
        if found.shows_cost:
            break
    if found is None:
        return None
    (folder / found.hlo).write_text(small.to_text() + "\n", encoding="utf-8")
    try:
        source = script_of(small, rewrite, found)
    except NotInJaxError as error:
        found.error = found.error or f"no Python: {error}"
        return found
    found.script = f"{name}.py"
    (folder / found.script).write_text(source, encoding="utf-8")
    return found


def _file_name(rewrite: AcceptedRewrite) -> str:
    words = re.sub(r"\W+", "_", f"{rewrite.pass_name}_{rewrite.before.opcode}")
    return f"{words.strip('_')}_{rewrite.identity[:8]}"


def _measure(
    small: HloModule, rewrite: AcceptedRewrite, found: Reproducer, seconds: float
) -> None:
    without = reject(
        small,
        [each for each in find_rewrites(small) if each.identity == rewrite.identity],
    )
    try:
        result = measure(
            without, baseline=small, seconds=seconds, give_up_below=0.0, timeout_s=120.0
        )
        found.worth, found.low, found.high = worth_of(result)
    except HloEnvError as error:
        found.error = f"{type(error).__name__}: {error}"


def script_of(small: HloModule, rewrite: AcceptedRewrite, found: Reproducer) -> str:
    """A Python program that times the module under plain jax.jit.

    Raises:
        NotInJaxError: it cannot be written with `jax.lax`.
    """
    function, parameters = jax_function(parse_text(small.to_text()))
    has_64_bits = any("64" in kind for _, kind in parameters)
    return _SCRIPT.format(
        pass_name=rewrite.pass_name,
        factor=f"{1 / found.worth:.3g} times" if found.worth > 0 else "much",
        before=rewrite.before,
        after=rewrite.after_text,
        program=found.program,
        name=found.name,
        parameters=parameters,
        x64='jax.config.update("jax_enable_x64", True)\n' if has_64_bits else "",
        function=function,
    )


def run_script(found: Reproducer, folder: Path) -> None:
    """Runs the script under plain jax.jit, on the cores of this process."""
    if not found.script:
        return
    environment = child_environment()
    environment.pop("XLA_FLAGS", None)
    try:
        child = subprocess.run(
            [*PYTHON, str(folder / found.script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        times = json.loads(child.stdout.splitlines()[-1])
        found.with_ms, found.without_ms = times["with_ms"], times["without_ms"]
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        found.error = found.error or f"the script failed: {error}"
