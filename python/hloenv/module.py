# SPDX-License-Identifier: Apache-2.0
"""HLO modules as values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._native import core
from .errors import ModuleTooLargeError, ParseError, PlaceError
from .place import from_note, to_note

if TYPE_CHECKING:
    from collections.abc import Callable

# XLA's names for element types that numpy knows under another name, and those
# that only ml_dtypes has.
_DTYPE_NAMES = {
    "pred": "bool",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
_ML_DTYPE_NAMES = {"bf16": "bfloat16", "s4": "int4", "u4": "uint4"}


@dataclass(frozen=True)
class ArraySpec:
    """One flat leaf of a module's inputs or outputs.

    Attributes:
        shape: dimensions, major to minor.
        hlo_dtype: XLA's name of the element type ("f32", "pred", "token", ...).
    """

    shape: tuple[int, ...]
    hlo_dtype: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype; bfloat16 and the 8- and 4-bit types need ml_dtypes.

        Raises:
            TypeError: numpy has no such type (tokens, opaque values).
        """
        if self.hlo_dtype in _DTYPE_NAMES:
            return np.dtype(_DTYPE_NAMES[self.hlo_dtype])
        name = _ML_DTYPE_NAMES.get(self.hlo_dtype)
        if name is None and self.hlo_dtype.startswith("f8"):
            name = "float8_" + self.hlo_dtype[2:]
        if name is None:
            raise TypeError(f"numpy has no dtype for HLO type {self.hlo_dtype!r}")
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes, as numpy stores it."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True)
class ModuleCost:
    """What XLA's cost analysis says of the whole module.

    Attributes:
        flops: floating-point operations; a loop body counts once.
        bytes: bytes read and written by all instructions.
        transcendentals: exp, log, tanh and the like.
    """

    flops: float
    bytes: float
    transcendentals: float


class HloModule:
    """An HLO module. It never changes: what rewrites it returns another one.

    Threads may share a module. Beside the HLO it remembers where in XLA's own
    pipeline it stands, so that `compile` can go on from there.

    Attributes:
        place: how far XLA's pipeline has run, None at its start.
        decided: names of the passes whose rewrites have been decided, which XLA
            must not redo.
    """

    __slots__ = ("_core", "decided", "place")

    def __init__(self) -> None:
        raise TypeError(
            "make modules with HloModule.from_text, from_file, from_proto or from_jax"
        )

    _core: core.Module
    place: Any
    decided: frozenset[str]

    @classmethod
    def _wrap(
        cls,
        module: core.Module,
        *,
        place: Any = None,
        decided: frozenset[str] = frozenset(),
    ) -> HloModule:
        self = object.__new__(cls)
        self._core = module
        self.place = place
        self.decided = decided
        return self

    @classmethod
    def from_text(cls, text: str) -> HloModule:
        """Parses HLO text; as `save` wrote it, at the place that it was saved at.

        Raises:
            PlaceError: what it says of its place is not what `save` writes.
            ParseError: this is not HLO text; the message points at the place.
        """
        if not isinstance(text, str):
            raise ParseError(
                f"HLO text has to be a str, not {type(text).__name__}; "
                "from_proto takes bytes"
            )
        if not text.strip():
            raise ParseError("the HLO text is empty; it starts with 'HloModule NAME'")
        return _at_its_place(core.Module.from_text(text))

    @classmethod
    def from_proto(cls, data: bytes) -> HloModule:
        """Reads a serialized HloModuleProto or HloProto, as `from_text` reads text.

        Raises:
            PlaceError: what it says of its place is not what `save` writes.
            ParseError: the bytes are neither.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ParseError(f"a proto has to be bytes, not {type(data).__name__}")
        return _at_its_place(core.Module.from_proto(bytes(data)))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> HloModule:
        """Reads text (.hlo, .txt, or what starts like HLO), else a proto.

        Raises:
            FileNotFoundError: there is no such file.
            ParseError: the content is neither text nor proto.
            PlaceError: what it says of its place is not what `save` writes.
        """
        data = Path(path).read_bytes()
        try:
            if Path(path).suffix in (".hlo", ".txt"):
                return cls.from_text(data.decode())
            return read_text_or_proto(data)
        except (ParseError, UnicodeDecodeError) as error:
            raise ParseError(f"{os.fspath(path)}: {error}") from None
        except PlaceError as error:
            raise PlaceError(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def from_jax(cls, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> HloModule:
        """Lowers a JAX function for these arguments.

        `fn` may be a plain or a jitted function. The module is what jax hands to
        XLA, before any optimization.

        Raises:
            ImportError: jax is not installed.
        """
        from . import jax as jax_interface

        return jax_interface.from_jax(fn, *args, **kwargs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a proto to a path that ends in .pb, text to any other.

        With them goes the module's place and what has been decided, in an attribute of
        the module, so that who reads the file goes on from there. A module that all of
        XLA's passes have run on has no place: compile it with `finish="none"`.
        """
        noted = self._core.with_note(to_note(self.place, self.decided))
        if os.fspath(path).endswith(".pb"):
            Path(path).write_bytes(noted.to_proto())
        else:
            Path(path).write_text(noted.to_text() + "\n", encoding="utf-8")

    def to_text(self) -> str:
        """HLO text with all constants, which `from_text` reads back."""
        return self._core.to_text()

    def to_proto(self) -> bytes:
        """A serialized HloModuleProto."""
        return self._core.to_proto()

    def clone(self) -> HloModule:
        """A deep copy with the same names."""
        return HloModule._wrap(
            self._core.clone(), place=self.place, decided=self.decided
        )

    def fingerprint(self) -> str:
        """128-bit hash of the live graph, as 32 hex digits.

        Blind to names, ids, metadata, dead code and, unless the module is
        scheduled, to order. Stable over processes.
        """
        return self._core.fingerprint()

    def input_specs(self) -> tuple[ArraySpec, ...]:
        """One for each flat leaf of the parameters, in order."""
        return tuple(
            ArraySpec(shape, dtype) for dtype, shape in self._core.input_specs()
        )

    def output_specs(self) -> tuple[ArraySpec, ...]:
        """One for each flat leaf of the result, in order."""
        return tuple(
            ArraySpec(shape, dtype) for dtype, shape in self._core.output_specs()
        )

    @property
    def entry_layout(self) -> str:
        """Types, shapes and layouts of all parameters and of the result, as HLO text.

        Two modules that differ here cannot stand in for each other.
        """
        return self._core.entry_layout

    @property
    def name(self) -> str:
        """The module's name."""
        return self._core.name

    @property
    def instruction_count(self) -> int:
        """Instructions of all computations, dead ones included."""
        return self._core.instruction_count

    @property
    def computation_count(self) -> int:
        """Computations, the entry included."""
        return self._core.computation_count

    def opcode_counts(self) -> dict[str, int]:
        """Instructions of all computations by opcode, sorted by name."""
        return self._core.opcode_counts()

    def verify(self) -> None:
        """Runs XLA's verifier.

        Raises:
            InvalidModuleError: the module breaks a rule of HLO.
        """
        self._core.verify()

    def cost(self) -> ModuleCost:
        """XLA's cost analysis of the entry computation and what it calls."""
        return ModuleCost(*self._core.cost())

    def __repr__(self) -> str:
        return (
            f"<HloModule {self.name!r}: {self.instruction_count} instructions in "
            f"{self.computation_count} computations>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self.to_proto(), self.place, self.decided))


def _unpickle(proto: bytes, place: Any, decided: frozenset[str]) -> HloModule:
    return HloModule._wrap(core.Module.from_proto(proto), place=place, decided=decided)


def _at_its_place(module: core.Module) -> HloModule:
    place, decided = from_note(module.note)
    if module.note:
        module = module.with_note("")
    return HloModule._wrap(module, place=place, decided=decided)


def read_text_or_proto(content: str | bytes) -> HloModule:
    """A module from text, or from bytes of text or of a proto.

    Raises:
        ParseError: neither.
        UnicodeDecodeError: text that is not UTF-8.
    """
    if isinstance(content, str):
        return HloModule.from_text(content)
    if content.lstrip().startswith((b"HloModule", b"//", b"/*")):
        return HloModule.from_text(content.decode())
    return HloModule.from_proto(content)


def as_module(module: HloModule | str | os.PathLike[str]) -> HloModule:
    """A module from a module, HLO text, or a path.

    A string with a line break or that starts with "HloModule" is text; any other
    is a path.

    Raises:
        ParseError: neither.
        FileNotFoundError: a path that does not exist.
    """
    if isinstance(module, HloModule):
        return module
    if isinstance(module, str):
        if module.lstrip().startswith("HloModule") or "\n" in module:
            return HloModule.from_text(module)
        return HloModule.from_file(module)
    if isinstance(module, os.PathLike):
        return HloModule.from_file(module)
    raise ParseError(
        "a module is an HloModule, HLO text, or a path to text or proto, not "
        f"{type(module).__name__}"
    )


def check_size(module: HloModule, max_instructions: int) -> None:
    """Refuses a module that is larger than a limit.

    Raises:
        ModuleTooLargeError: it has more than `max_instructions` instructions.
    """
    if module.instruction_count > max_instructions:
        raise ModuleTooLargeError(
            f"module {module.name!r} has {module.instruction_count} instructions; "
            f"the limit here is {max_instructions}"
        )
