# SPDX-License-Identifier: Apache-2.0
"""Tunes the functions in which a script spends its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import HloEnvError, ScriptError
from ..jax.artefact import Artefact, Tuned
from ..measurement.store import Store
from .options import TuneOptions
from .program import program_of_function
from .recording import Hot, Recording, record
from .state import OnChange
from .tuner import Tuner

# Of the time of all functions: one that takes less is left alone.
_MIN_SHARE, _MAX_FUNCTIONS = 0.02, 8
# Seconds of the budget that one function gets at least, if there is that much.
_MIN_SECONDS = 10.0
# Why a function is not tuned that takes enough of the time.
NO_TIME = "no time: give more --seconds"


@dataclass(frozen=True)
class TunedFunction:
    """One function of a script.

    Attributes:
        hot: how the script has called it.
        entry: what was tuned; None if it cannot be.
        failure: why it cannot be tuned; "" if it can.
        is_kept: whether other processes find what makes it faster.
    """

    hot: Hot
    entry: Tuned | None
    failure: str = ""
    is_kept: bool = False


@dataclass(frozen=True)
class TunedScript:
    """Result of `tune_script`.

    Attributes:
        recording: the run of the script.
        functions: those that were to be tuned, the one that takes most time first; up
            to the one at which Ctrl-C has ended the tuning. Then those for which the
            budget is too short.
    """

    recording: Recording
    functions: tuple[TunedFunction, ...]

    @property
    def artefact(self) -> Artefact:
        """The entries of all tuned functions."""
        return Artefact(
            tuple(each.entry for each in self.functions if each.entry is not None)
        )

    @property
    def calls_s(self) -> float:
        """Seconds of the calls of all functions of the script, as they were."""
        return sum(each.seconds for each in self.recording.functions)

    @property
    def expected_s(self) -> float:
        """The same with what was tuned."""
        saved = sum(
            each.hot.seconds * (1 - 1 / each.entry.speedup)
            for each in self.functions
            if each.entry is not None and not each.entry.is_identity
        )
        return self.calls_s - saved

    @property
    def compile_s(self) -> float:
        """Seconds that XLA takes to compile what was tuned; not in `expected_s`."""
        return sum(each.compile_s for each in self.artefact.entries)


def tune_script(
    path: Path,
    argv: Sequence[str],
    options: TuneOptions,
    *,
    run_seconds: float,
    store: Store | None,
    on_recorded: Callable[[Recording], None] | None = None,
    on_change: OnChange | None = None,
    on_function: Callable[[Hot], None] | None = None,
) -> TunedScript:
    """Runs a script, and tunes its hot functions for the arguments of their first call.

    Args:
        path: of the script.
        argv: its arguments.
        options: of the tuning; the budget is divided by the time of the functions.
        run_seconds: after which the script is ended.
        store: cache of measurements; None for none.
        on_recorded: called with the run of the script, if there is something to tune.
        on_change: as for `Tuner`.
        on_function: called before a function is tuned.

    Raises:
        FileNotFoundError: there is no such script.
        HloEnvError: a function cannot be compiled.
        KeyboardInterrupt: Ctrl-C ends the script before it has called a function, or
            the tuning before there is a result.
        ScriptError: the script calls no function of jax.jit twice, or fails before.
    """
    recording = record(path, argv, seconds=run_seconds)
    most = min(_MAX_FUNCTIONS, max(1, int(options.seconds / _MIN_SECONDS)))
    worth = recording.worth_tuning(share=_MIN_SHARE, most=_MAX_FUNCTIONS)
    chosen, left = worth[:most], worth[most:]
    if not chosen:
        if recording.is_interrupted:
            raise KeyboardInterrupt
        raise recording.failure or ScriptError(
            f"{path} calls no function of jax.jit more than once with arrays of the "
            f"same shapes ({recording.calls_text} in {recording.seconds:.1f} s): there "
            "is nothing to tune"
        )
    if on_recorded is not None:
        on_recorded(recording)
    total = sum(each.seconds for each in chosen)
    least = min(_MIN_SECONDS, options.seconds / len(chosen))
    rest = options.seconds - least * len(chosen)
    found = []
    for hot in chosen:
        if on_function is not None:
            on_function(hot)
        own = replace(options, seconds=least + rest * hot.seconds / total)
        if options.measurements is not None:
            share = round(options.measurements * hot.seconds / total)
            own = replace(own, measurements=max(share, min(options.measurements, 1)))
        assert hot.args is not None
        try:
            program = program_of_function(hot.fn, hot.args, hot.kwargs, hot.options)
            tuner = Tuner(program, own, store=store, on_change=on_change)
            entry = tuner.run()
            found.append(TunedFunction(hot, entry, is_kept=tuner.state.is_kept))
        except HloEnvError as error:
            found.append(TunedFunction(hot, None, str(error)))
        except KeyboardInterrupt:
            if not found:
                raise
            left = []
            break
        else:
            if tuner.state.is_interrupted:
                left = []
                break
    found += [TunedFunction(hot, None, NO_TIME) for hot in left]
    return TunedScript(recording, tuple(found))
