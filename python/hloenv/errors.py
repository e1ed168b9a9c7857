# SPDX-License-Identifier: Apache-2.0
"""The exceptions of hloenv: one root, each kind also a built-in.

Every message says what was given, what is allowed, and what to do. The C++ core
raises these classes by name.
"""

from __future__ import annotations


class HloEnvError(Exception):
    """Root of everything that hloenv raises on purpose."""


class TensorflowError(HloEnvError, ImportError):
    """TensorFlow's libraries are missing or of another version."""


class InterceptError(HloEnvError, RuntimeError):
    """An intercepted compile is not where the call needs it to be."""


class TargetError(HloEnvError, ValueError):
    """XLA cannot compile for this target."""


class HookError(HloEnvError, RuntimeError):
    """XLA's passes cannot be observed in this process."""


class FlagError(HloEnvError, ValueError):
    """XLA_FLAGS holds a flag that this XLA does not know."""


class ForkError(HloEnvError, RuntimeError):
    """This process was forked from one whose threads or children it would need."""


class ParseError(HloEnvError, ValueError):
    """The input is not an HLO module."""


class InvalidModuleError(HloEnvError, ValueError):
    """XLA's verifier refuses the module."""


class DoubtfulModuleError(HloEnvError):
    """The structure check cannot tell whether XLA can read the input.

    Internal: untrusted input of this kind is read in a child
    process then, so that no caller sees this.
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
    """XLA's pipeline has no such place, or has passed it already."""


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
    """Arrays of the wrong number, shape or dtype for an executable."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument that is not of a type that the function takes."""


class ExecuteError(HloEnvError, RuntimeError):
    """Running a compiled module failed."""


class OutputMismatchError(HloEnvError, AssertionError):
    """Outputs differ from the original's by more than rounding."""


class WorkerError(HloEnvError, RuntimeError):
    """The child process that did the work died.

    Attributes:
        is_kill: somebody else ended it, so that another try may do.
    """

    is_kill = False


class MeasureTimeout(HloEnvError, TimeoutError):  # noqa: N818 (a fixed name)
    """A measurement took longer than its limit."""


class LockError(HloEnvError, OSError):
    """The folder of lock files cannot be made, or belongs to another user."""


class StoreError(HloEnvError, RuntimeError):
    """The store of results cannot be read or written, or a record does not fit it."""


class DatasetError(HloEnvError, ValueError):
    """The dataset is not there, is damaged, or has no such split or module."""


class PositionWarning(UserWarning):
    """Alternatives were asked for where XLA could not use them."""


# Their earlier names, by which the extension raises them.
PlaceError = PositionError
PlaceWarning = PositionWarning
