# SPDX-License-Identifier: Apache-2.0
"""The output of -o: a decided module that is valid, right and faster; its trace."""

from __future__ import annotations

import argparse
import math

from ..errors import InvalidModuleError, OutputMismatchError
from ..hlo.pipeline import restricts_pipeline
from ..measurement.record import Measurement
from ..rewrite.env import HloEnv
from . import output

EXIT_NOT_WRITTEN = 3


def add_result(parser: argparse.ArgumentParser) -> None:
    """Adds -o and --force."""
    parser.add_argument(
        *("-o", "--output"),
        metavar="FILE",
        help="save the decided module (.pb or text) and its trace (FILE.trace.json), "
        "if it is valid, its outputs are those of the original, and it is faster than "
        "XLA's default beyond its 95 %% interval; otherwise nothing is written and the "
        f"exit code is {EXIT_NOT_WRITTEN}",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="with -o: save it also if it is no faster, or could not be timed or "
        "compared; a module that is invalid or has other outputs is never written",
    )


class Result:
    """A decided module, and whether -o writes it.

    Attributes:
        refused: why it is not written; "" if it is, or without -o.
        warning: the check that `--force` overrode; "" if none.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        env: HloEnv | None,
        measurement: Measurement | None,
        *,
        failure: str = "",
    ) -> None:
        """Writes the module to the path in `args` if it passes the checks.

        Args:
            args: as `add_result` declares them.
            env: at the end of the episode; None if there is no module to write.
            measurement: of its module against XLA's default; None if not measured.
            failure: why there is no measurement, or nothing to write.
        """
        self.path: str | None = args.output
        self._engine: str = args.engine
        self.refused = self.warning = ""
        if self.path is None:
            return
        if env is None:
            self.refused = failure
            return
        self.refused = _wrong(env, measurement)
        doubt = failure or doubt_about(measurement)
        if not self.refused and doubt:
            if args.force:
                self.warning = doubt
            else:
                self.refused = f"{doubt}; to write it anyway, use --force"
        if not self.refused:
            self._is_restricted = restricts_pipeline(env.module)
            env.module.save(self.path)
            env.trace.save(self.path + ".trace.json")

    @property
    def exit_code(self) -> int:
        """0, or `EXIT_NOT_WRITTEN`."""
        return EXIT_NOT_WRITTEN if self.refused else 0

    def to_json(self) -> dict[str, str | None]:
        """`output` and `trace` are paths, `not_written` the reason; null for none."""
        is_written = self.path is not None and not self.refused
        return {
            "output": self.path if is_written else None,
            "trace": f"{self.path}.trace.json" if is_written else None,
            "not_written": self.refused or None,
        }

    def print(self) -> None:
        """Prints the paths that were written, or why none was."""
        if self.refused:
            output.print_line(f"\n{self.path} is not written: {self.refused}")
        elif self.path is not None:
            output.print_line(f"\nwrote {self.path} and {self.path}.trace.json")
            output.print_line(f"in Python: {self._deployed()}")
            if self.warning:
                output.print_line(f"warning: {self.warning}")

    def _deployed(self) -> str:
        """How a program uses the file."""
        path = self.path
        if self._engine == "jaxlib" and self._is_restricted:
            return (
                f"hloenv.jax.inject(hloenv.finish(hloenv.HloModule.from_file({path!r})))"
                " around the first call of the function under jax.jit"
            )
        rest = "" if self._engine == "wheel" else f", engine={self._engine!r}"
        return (
            f"hloenv.load({path!r}{rest}), or hloenv.load({path!r}, fn{rest}) with the "
            "arguments of fn; both also inside jax.jit"
        )


def _wrong(env: HloEnv, measurement: Measurement | None) -> str:
    """Why a module must not be used at all, or ""."""
    try:
        env.module.verify()
    except InvalidModuleError as error:
        return f"the decided module is not valid: {_one_line(error)}"
    failure = None if measurement is None else measurement.error
    if failure is not None and failure.kind == OutputMismatchError.__name__:
        return (
            f"its outputs are not those of the original: {_one_line(failure.message)}"
        )
    return ""


def doubt_about(measurement: Measurement | None) -> str:
    """Why a module is not known to be faster, or ""."""
    if measurement is None:
        return "it was not measured, and its outputs were not compared"
    if measurement.error is not None:
        return (
            "it could not be measured, and its outputs were not compared "
            f"({measurement.error.kind}: {_one_line(measurement.error.message)})"
        )
    low, high = measurement.speedup_interval
    if low > 1:
        return ""
    if math.isinf(high):
        return "its speed-up was not measured"
    return (
        f"it is not faster than XLA's default: {measurement.speedup:.3f}x, 95 % "
        f"interval {low:.3f} to {high:.3f}"
    )


def _one_line(message: object) -> str:
    return " ".join(str(message).split())
