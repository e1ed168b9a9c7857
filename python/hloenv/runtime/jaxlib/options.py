# SPDX-License-Identifier: Apache-2.0
"""Options of jaxlib's compiler for one compilation.

They are XLA's flags, which otherwise hold for a whole process. jax takes scalar ones
with `compile(compiler_options=)`; those of XLA's CPU backend that have no flag of their
own ("xla_llvm_dot_tiling_factor", ...) are in the map `xla_backend_extra_options`,
which jax does not take, so that they are added to its serialized options.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, ArgumentTypeError, CompileError
from .hook import fresh_options
from .package import require_jax

if TYPE_CHECKING:
    from ...hlo.module import HloModule

# As XLA_FLAGS has it: "NAME=VALUE,NAME=VALUE".
EXTRA = "xla_backend_extra_options"
OptionValue = bool | int | str
Options = Mapping[str, OptionValue]

WIDTH = "xla_cpu_prefer_vector_width"
# Bits up to which jaxlib computes arc tangents rightly: it calls a function for a whole
# vector, which is compiled for vectors of 256 bits, and reads wider ones elsewhere.
_MAX_WIDTH = 256
_ARC_TANGENT = "atan2"  # with a divisor that may become 1

_LENGTH_DELIMITED = 2
# Fields of CompileOptionsProto, ExecutableBuildOptionsProto and DebugOptions.
_BUILD_OPTIONS, _DEBUG_OPTIONS, _EXTRA_OPTIONS = 3, 3, 500
_lock = threading.RLock()


def check_options(options: Options | None) -> dict[str, OptionValue]:
    """The options as a sorted dict.

    Raises:
        ArgumentTypeError: this is not a mapping from names to booleans, integers or
            text.
        ArgumentError: a name is not one of XLA's flags.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ArgumentTypeError(
            "options must be a dict of XLA's flags, such as "
            f"{{'xla_cpu_prefer_vector_width': 512}}, got {type(options).__name__}"
        )
    for name, value in options.items():
        if not isinstance(name, str) or not name.startswith("xla_"):
            raise ArgumentError(
                f"an option must be the name of one of XLA's flags, 'xla_...' without "
                f"dashes, got {name!r}"
            )
        if not isinstance(value, bool | int | str):
            raise ArgumentTypeError(
                f"option {name} must be a boolean, an integer or text, got "
                f"{type(value).__name__}"
            )
    return dict(sorted(options.items()))


def are_wrong(module: HloModule, options: Options) -> bool:
    """Whether jaxlib makes code with these options that computes something else."""
    try:
        is_wide = int(options.get(WIDTH, 0)) > _MAX_WIDTH
    except ValueError:  # which jaxlib refuses
        return False
    return is_wide and _ARC_TANGENT in module.opcode_counts()


def refuse_wrong(module: HloModule, options: Options) -> None:
    """Raises for options with which jaxlib's code would compute something else.

    Raises:
        CompileError: `are_wrong`.
    """
    if are_wrong(module, options):
        raise CompileError(
            f"module {module.name!r} has an arc tangent, which jaxlib computes wrongly "
            f"with {WIDTH}={options[WIDTH]}: leave the option out, or give "
            f"{_MAX_WIDTH} at most; math-forms/angle replaces arc tangents"
        )


def compile_lowered(lowered: Any, options: Options | None = None) -> Any:
    """Compiles a `jax.stages.Lowered` with options; the `jax.stages.Compiled`.

    Raises:
        CompileError: jaxlib has no such option, or this version of jax does not take
            backend options.
        JaxRuntimeError: jaxlib cannot compile the function.
    """
    given = check_options(options)
    if not given:
        return lowered.compile()
    jax = require_jax("compiler options")
    extra = parse_extra(str(given.pop(EXTRA, "")))
    try:
        if not extra:
            return lowered.compile(compiler_options=given)
        with _adding(extra):
            # jax caches executables by the options that it knows.
            return lowered.compile(compiler_options={**given, **fresh_options()})
    except jax.errors.JaxRuntimeError as error:
        if "compile option" in str(error) or "While setting option" in str(error):
            raise CompileError(
                f"jaxlib {jax.lib.__version__} does not take these options: {error}"
            ) from None
        raise


def can_keep_compiled(lowered: Any) -> bool:
    """Whether this version of jax has the cache that `keep_compiled` writes."""
    return hasattr(lowered._lowering, "_executable")


def keep_compiled(lowered: Any, compiled: Any) -> None:
    """Makes calls of the function of `lowered` run `compiled`.

    Both must be of the same trace. If jax drops its caches (`jax.clear_caches`), the
    function is compiled again, without options.

    Raises:
        CompileError: this version of jax has no such cache.
    """
    lowering = lowered._lowering
    if not can_keep_compiled(lowered):
        raise CompileError(
            "this version of jax keeps compiled functions in another place; compiler "
            "options cannot be used for a function of jax.jit"
        )
    lowering._executable = compiled._executable


def parse_extra(text: str) -> dict[str, str]:
    """The map of "NAME=VALUE,NAME=VALUE"; a value may be empty.

    Raises:
        ArgumentError: a part has no name.
    """
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = part.partition("=")
        if not name:
            raise ArgumentError(f"{EXTRA} must be NAME=VALUE,..., got {text!r}")
        found[name] = value
    return found


@contextlib.contextmanager
def _adding(extra: Mapping[str, str]) -> Iterator[None]:
    """Adds to the options of the compilations in the block, of this thread only."""
    here = threading.get_ident()
    with _lock:  # another thread's function must not be taken for jax's
        try:
            from jax._src import compiler
            from jaxlib import xla_client

            original: Any = compiler.get_compile_options
            parse: Any = xla_client.CompileOptions.ParseFromString
        except (ImportError, AttributeError):
            raise CompileError(
                f"this version of jax does not take {EXTRA}; leave it out"
            ) from None

        def added(*args: Any, **kwargs: Any) -> Any:
            options = original(*args, **kwargs)
            if threading.get_ident() != here:
                return options
            # Serialized messages are merged by concatenation.
            return parse(options.SerializeAsString() + _serialized(extra))

        compiler.get_compile_options = added
        try:
            yield
        finally:
            compiler.get_compile_options = original


def _serialized(extra: Mapping[str, str]) -> bytes:
    entries = b"".join(
        _field(_EXTRA_OPTIONS, _field(1, name.encode()) + _field(2, value.encode()))
        for name, value in extra.items()
    )
    return _field(_BUILD_OPTIONS, _field(_DEBUG_OPTIONS, entries))


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
