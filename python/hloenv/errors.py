# SPDX-License-Identifier: Apache-2.0
"""The exceptions of hloenv: one root, each kind also a built-in.

Every message says what was given, what is allowed, and what to do. The C++ core
raises these classes by name.
"""

from __future__ import annotations


class HloEnvError(Exception):
    """Root of the exceptions that hloenv raises."""


class TensorflowError(HloEnvError, ImportError):
    """TensorFlow's libraries are missing or of another version."""


class InterceptError(HloEnvError, RuntimeError):
    """An intercepted compile is not in the state that the call requires."""


class TargetError(HloEnvError, ValueError):
    """XLA cannot compile for this target."""


class HookError(HloEnvError, RuntimeError):
    """XLA's passes cannot be observed in this process."""


class FlagError(HloEnvError, ValueError):
    """XLA_FLAGS holds a flag that this XLA does not know."""


class ForkError(HloEnvError, RuntimeError):
    """This process was forked from one whose threads or child processes it needs."""


class ParseError(HloEnvError, ValueError):
    """The input is not an HLO module."""


class InvalidModuleError(HloEnvError, ValueError):
    """XLA's verifier rejects the module."""


class DoubtfulModuleError(HloEnvError):
    """The structure check cannot tell whether XLA can read the input.

    Internal: such input is then read in a child process, so that no caller sees this.
    """


class ModuleTooLargeError(HloEnvError, ValueError):
    """The module is larger than a limit that the caller set."""


class UnknownPassError(HloEnvError, LookupError):
    """No pass has this name."""


class PassOptionError(HloEnvError, ValueError):
    """A pass has no such option, or the option's value has the wrong type."""


class PassError(HloEnvError, RuntimeError):
    """A pass failed on a module."""


class PositionError(HloEnvError, LookupError):
    """XLA's pipeline has no such position, or is past it."""


class DecisionError(HloEnvError, ValueError):
    """Decisions of the wrong length, type or range."""


class StaleAlternativesError(HloEnvError, RuntimeError):
    """The alternatives belong to a state that the environment has left."""


class GraphError(HloEnvError, ValueError):
    """The arrays of a graph do not fit together, or have no such column."""


class TraceError(HloEnvError, ValueError):
    """A trace does not fit the module, or cannot be read."""


class CompileError(HloEnvError, RuntimeError):
    """XLA could not compile the module."""


class ArgumentError(HloEnvError, ValueError):
    """An argument that the function does not take, such as one out of range."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument that is not of a type that the function takes."""


class ExecuteError(HloEnvError, RuntimeError):
    """Running a compiled module failed."""


class OutputMismatchError(HloEnvError, AssertionError):
    """Outputs differ from the original's by more than rounding."""


class NotComparedError(HloEnvError, AssertionError):
    """Outputs are NaN everywhere, as the original's, which says nothing."""


class WorkerError(HloEnvError, RuntimeError):
    """The child process that did the work crashed or was ended.

    Attributes:
        is_kill: whether another process ended it, so that a retry may succeed.
    """

    is_kill = False


class MeasureTimeout(HloEnvError, TimeoutError):  # noqa: N818 (a fixed name)
    """A measurement took longer than its limit."""


class LockError(HloEnvError, OSError):
    """The folder of lock files cannot be made, or belongs to another user."""


class StoreError(HloEnvError, RuntimeError):
    """The store of results cannot be read or written, or a record does not fit it."""


class ArtefactError(HloEnvError, ValueError):
    """A tuned artefact cannot be read, or is for something else."""


class ScriptError(HloEnvError, RuntimeError):
    """A Python script failed, or has nothing to tune."""


class DatasetError(HloEnvError, ValueError):
    """The dataset is missing or damaged, or has no such split or module."""


class PositionWarning(UserWarning):
    """XLA cannot use the alternatives at this position in the pipeline."""


class LeftOutWarning(UserWarning):
    """A part is left out: the decisions of a pass that fails, options of a recipe."""


class ConstantsWarning(UserWarning):
    """Text leaves constants out, whose numbers are made up."""


class StoreWarning(UserWarning):
    """The store of results cannot be used; the work goes on without it."""
