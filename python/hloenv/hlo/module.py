# SPDX-License-Identifier: Apache-2.0
"""HLO modules as values."""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import naming
from .._native import core, is_text
from .._registry import load_attribute
from ..errors import (
    ArgumentTypeError,
    ConstantsWarning,
    InvalidModuleError,
    ModuleTooLargeError,
    ParseError,
    PositionError,
)
from .array_spec import ArraySpec
from .decided import pass_names_of
from .position import from_note, to_note
from .reading import (
    decoded,
    read_here,
    read_untrusted,
    short_message,
    starts_like_text,
    without_given_schedule,
)
from .source import Source
from .text import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Callable

_LEFT_OUT = (
    "the text leaves {} of its constants out, as constant({{...}}): their numbers are "
    "made up, so that outputs are another program's; print them in full "
    "(XLA_FLAGS=--xla_dump_large_constants, TensorFlow's stage='hlo_serialized')"
)


@dataclass(frozen=True)
class ModuleCost:
    """XLA's cost analysis of the whole module.

    Attributes:
        flops: floating-point operations; a loop body counts once.
        bytes: bytes read and written by all instructions.
        transcendentals: exp, log, tanh and the like.
    """

    flops: float
    bytes: float
    transcendentals: float


class HloModule:
    """An HLO module. Immutable: a rewrite returns another module.

    Threads may share a module. Besides the HLO it holds its position in XLA's own
    pipeline, so that `compile` can continue from there.

    `from_text`, `from_file` and `from_proto` take any input: they return a module or
    raise an exception, and the process continues. XLA's own parser and proto reader end
    the process on unsound input (a CHECK failure), so hloenv checks the structure
    first: names, types, dimensions, layouts, operand counts, attributes of each
    operation, calls. Input that passes is read in this process. Input that the check
    does not cover (collectives, asynchronous operations, shardings, tiled layouts,
    ...) or finds wrong is read in a child process first, which is started on first
    use (about a second) and serves all later input; if that process crashes, the
    input is rejected. Then XLA's verifier runs, unless `verify` is false.

    Attributes:
        position: position in XLA's pipeline, None at its start.
        decided: names of the passes whose rewrites have been decided. XLA's later
            passes do not make the rejected rewrites.
    """

    __slots__ = ("_decided", "_is_verified", "_raw", "_source", "position")

    def __init__(self) -> None:
        raise TypeError(
            "HloModule has no public constructor; use HloModule.from_text, from_file, "
            "from_proto or from_jax"
        )

    _raw: core.Module
    _is_verified: bool
    # The original text or proto, for pickling: passes depend on an order of
    # instructions and users that neither text nor protos of the module preserve.
    _source: str | bytes | None
    position: Any
    _decided: frozenset[str]  # entries, as decided.py has them

    @classmethod
    def _wrap(
        cls,
        module: core.Module,
        *,
        position: Any = None,
        decided: frozenset[str] = frozenset(),
        is_verified: bool = True,
    ) -> HloModule:
        self = object.__new__(cls)
        self._raw = module
        self._is_verified = is_verified
        self._source = None
        self.position = position
        self._decided = decided
        return self

    @property
    def decided(self) -> frozenset[str]:
        """Names of the passes whose rewrites have been decided."""
        return pass_names_of(self._decided)

    @property
    def _core(self) -> core.Module:
        """The module, verified, for callers that hand it to XLA.

        Raises:
            InvalidModuleError: it was loaded with `verify=False` and is not valid.
        """
        if not self._is_verified:
            self.verify()
        return self._raw

    @classmethod
    def from_text(cls, text: str, *, verify: bool = True) -> HloModule:
        """Parses HLO text; text from `save` keeps the position of the saved module.

        Constants that are printed as "{...}", as XLA's dumps and TensorFlow have them
        from 11 elements on, get numbers that are made up, the same in each process,
        and a `ConstantsWarning`.

        Args:
            text: HLO text, as `to_text` or an XLA dump has it.
            verify: whether XLA's verifier checks the module now. Otherwise it does so
                before the first use other than reading, printing and counting.

        Raises:
            ParseError: the text is not HLO; the message points at the line.
            InvalidModuleError: the module breaks a rule of HLO, or XLA crashes on it.
            PositionError: what it says of its position is not what `save` writes.
            MeasureTimeout: the child process did not finish reading it in time.
        """
        if not isinstance(text, str):
            raise ParseError(
                f"HLO text must be a str, got {type(text).__name__}; for bytes use "
                "from_proto"
            )
        if not text.strip():
            raise ParseError(
                "the HLO text is empty; it must start with 'HloModule NAME'"
            )
        if not is_text(text):
            raise ParseError(
                "the HLO text has unpaired surrogates; it must be encodable as UTF-8"
            )
        text = text.removeprefix("\ufeff")  # a byte order mark
        try:
            module = _read_untrusted(text, verify=verify)
            unscheduled = without_given_schedule(text, module._raw)
            if unscheduled is not None:
                module = _read_untrusted(unscheduled, verify=verify)
        except ParseError as error:
            raise type(error)(short_message(str(error))) from None
        if left_out := text.count(f"constant({LEFT_OUT})"):
            warnings.warn(_LEFT_OUT.format(left_out), ConstantsWarning, stacklevel=2)
        return module

    @classmethod
    def from_proto(cls, data: bytes, *, verify: bool = True) -> HloModule:
        """Reads a serialized HloModuleProto or HloProto, as `from_text` reads text.

        Raises:
            ParseError: the bytes are neither.
            InvalidModuleError: the module breaks a rule of HLO, or XLA crashes on it.
            PositionError: what it says of its position is not what `save` writes.
            MeasureTimeout: the child process did not finish reading it in time.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ParseError(
                f"a proto must be bytes, got {type(data).__name__}; for text use "
                "from_text"
            )
        return _read_untrusted(bytes(data), verify=verify)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, verify: bool = True
    ) -> HloModule:
        """Reads text (.hlo, .txt, or content that starts like HLO), else a proto.

        Raises:
            FileNotFoundError: the file does not exist.
            ParseError: the content is neither text nor proto.
            InvalidModuleError: the module breaks a rule of HLO, or XLA crashes on it.
            PositionError: what it says of its position is not what `save` writes.
        """
        if path == "":
            raise ParseError(
                "an empty text or path was given; a module is HLO text, or the path of "
                "text or a proto"
            )
        try:
            data = Path(path).read_bytes()
        except TypeError:
            raise ArgumentTypeError(
                f"a path must be a str or a path object, got {type(path).__name__}"
            ) from None
        try:
            if Path(path).suffix in (".hlo", ".txt"):
                return cls.from_text(decoded(data), verify=verify)
            return read_text_or_proto(data, verify=verify)
        except (ParseError, InvalidModuleError, PositionError) as error:
            raise type(error)(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def from_jax(cls, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> HloModule:
        """Lowers a JAX function for these arguments.

        `fn` may be a plain or a jitted function. The module is the input of XLA, before
        any optimization, with the metadata of its instructions: `sources` has the
        operation and the source line of each.

        Raises:
            ImportError: jax is not installed.
        """
        from_jax = load_attribute("hloenv.jax:from_jax")
        lowered: HloModule = from_jax(fn, *args, **kwargs)
        return lowered

    def sources(self) -> dict[str, Source]:
        """Operation and source line of each instruction that has metadata, by name."""
        return {name: Source(*each) for name, *each in self._raw.sources()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a proto to a path that ends in .pb, text to any other.

        The file holds the module's position and its decisions in an attribute, so that
        a reader continues from there. After all of XLA's passes a module has no
        position: compile it with `finish="none"`.
        """
        data: bytes
        if os.fspath(path).endswith(".pb"):
            data = self.to_bytes()
        else:
            data = (self._noted().to_text() + "\n").encode()
        with naming(path):
            Path(path).write_bytes(data)

    def to_text(self, *, all_constants: bool = True) -> str:
        """HLO text, which `from_text` reads back.

        Args:
            all_constants: False prints those of more than ten elements as "{...}",
                for which `from_text` makes numbers up.

        Raises:
            InvalidModuleError: an attribute holds bytes that are not UTF-8.
        """
        try:
            return self._raw.to_text(all_constants)
        except UnicodeDecodeError as error:
            around = error.object[max(0, error.start - 40) : error.start + 20]
            raise InvalidModuleError(
                f"module {self.name!r} has no text form: byte {error.start} is not "
                f"UTF-8, in {around!r}; use to_proto"
            ) from None

    def to_proto(self) -> bytes:
        """A serialized HloModuleProto."""
        return self._raw.to_proto()

    def to_bytes(self) -> bytes:
        """A serialized HloModuleProto with the module's position and its decisions.

        `from_proto` reads all of it; `save` writes it, and other processes get it.
        """
        return self._noted().to_proto()

    def _noted(self) -> core.Module:
        if self.position is None and not self._decided:
            return self._raw
        return self._raw.with_note(to_note(self.position, self._decided))

    def clone(self) -> HloModule:
        """A deep copy with the same names."""
        result = HloModule._wrap(
            self._raw.clone(),
            position=self.position,
            decided=self._decided,
            is_verified=self._is_verified,
        )
        result._source = self._source
        return result

    def fingerprint(self) -> str:
        """128-bit hash of the live graph, as 32 hex digits.

        Independent of names, ids, metadata, dead code and, unless the module is
        scheduled, of order. Equal in all processes.
        """
        return self._core.fingerprint()

    def input_specs(self) -> tuple[ArraySpec, ...]:
        """One for each flat leaf of the parameters, in order."""
        return tuple(
            ArraySpec(shape, dtype) for dtype, shape in self._raw.input_specs()
        )

    def output_specs(self) -> tuple[ArraySpec, ...]:
        """One for each flat leaf of the result, in order."""
        return tuple(
            ArraySpec(shape, dtype) for dtype, shape in self._raw.output_specs()
        )

    @property
    def entry_layout(self) -> str:
        """Types, shapes and layouts of all parameters and of the result, as HLO text.

        A module can replace another one only if both are equal here.
        """
        return self._raw.entry_layout

    @property
    def name(self) -> str:
        """The module's name."""
        return self._raw.name

    @property
    def instruction_count(self) -> int:
        """Instructions of all computations, including dead ones."""
        return self._raw.instruction_count

    @property
    def computation_count(self) -> int:
        """Computations, including the entry."""
        return self._raw.computation_count

    def opcode_counts(self) -> dict[str, int]:
        """Instructions of all computations by opcode, sorted by name."""
        return self._raw.opcode_counts()

    def verify(self) -> None:
        """Runs XLA's verifier.

        Behind layout assignment in XLA's pipeline (`position`) the layouts of operands
        and results must agree as well, since XLA's backend relies on it.

        Raises:
            InvalidModuleError: the module breaks a rule of HLO.
        """
        source = None if self._is_verified else self._source
        if source is not None:
            # XLA's verifier may crash on unchecked input as well.
            read_untrusted(source, verify=True)
        if source is None or self._has_layouts:
            self._raw.verify(layout_sensitive=self._has_layouts)
        self._is_verified = True

    @property
    def _has_layouts(self) -> bool:
        return self.position is not None and self.position.has_layouts

    def cost(self) -> ModuleCost:
        """XLA's cost analysis of the entry computation and what it calls."""
        return ModuleCost(*self._core.cost())

    @property
    def place(self) -> Any:
        """Earlier name of `position`."""
        return self.position

    def _repr_html_(self) -> str:
        html: str = load_attribute("hloenv.explorer.notebook:module_html")(self)
        return html

    def __repr__(self) -> str:
        return (
            f"<HloModule {self.name!r}: {self.instruction_count} instructions in "
            f"{self.computation_count} computations>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        source = self.to_bytes() if self._source is None else self._source
        return _unpickle, (source, self._is_verified)


def _unpickle(source: str | bytes, is_verified: bool) -> HloModule:
    return _at_its_position(read_here(source), source, is_verified=is_verified)


def _at_its_position(
    module: core.Module, source: str | bytes, *, is_verified: bool
) -> HloModule:
    position, decided = from_note(module.note)
    if module.note:
        module = module.with_note("")
    result = HloModule._wrap(
        module, position=position, decided=decided, is_verified=is_verified
    )
    result._source = source
    return result


def _read_untrusted(source: str | bytes, *, verify: bool) -> HloModule:
    raw = read_untrusted(source, verify=verify)
    module = _at_its_position(raw, source, is_verified=verify)
    if verify and module._has_layouts:
        module.verify()
    return module


def from_own_bytes(data: bytes) -> HloModule:
    """Reads what `HloModule.to_bytes` wrote in another process of hloenv's."""
    return _at_its_position(read_here(data), data, is_verified=True)


def read_trusted(content: str | bytes) -> HloModule:
    """As `read_text_or_proto`, for input that is verified or from jaxlib."""
    if isinstance(content, bytes) and starts_like_text(content):
        content = content.decode()
    return _at_its_position(read_here(content), content, is_verified=True)


def read_text_or_proto(content: str | bytes, *, verify: bool = True) -> HloModule:
    """A module from text, or from bytes of text or of a proto.

    Raises:
        ParseError: neither.
        InvalidModuleError: the module breaks a rule of HLO, or XLA crashes on it.
    """
    if isinstance(content, str):
        return HloModule.from_text(content, verify=verify)
    if starts_like_text(content):
        return HloModule.from_text(decoded(content), verify=verify)
    return HloModule.from_proto(content, verify=verify)


ModuleLike = HloModule | str | os.PathLike[str]


def as_module(module: ModuleLike) -> HloModule:
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
        "a module must be an HloModule, HLO text, or a path to text or proto, got "
        f"{type(module).__name__}"
    )


def check_size(module: HloModule, max_instructions: int) -> None:
    """Rejects a module that is larger than a limit.

    Raises:
        ModuleTooLargeError: it has more than `max_instructions` instructions.
    """
    if module.instruction_count > max_instructions:
        raise ModuleTooLargeError(
            f"module {module.name!r} has {module.instruction_count} instructions; "
            f"the limit is {max_instructions}; raise max_instructions"
        )


def identity(module: HloModule) -> str:
    """Fingerprint of the module and of its rejected rewrites."""
    entries = sorted(each for each in module._decided if not each.endswith("?"))
    if not entries:
        return module.fingerprint()
    digest = hashlib.sha256("\n".join(entries).encode()).hexdigest()
    return f"{module.fingerprint()}+{digest[:16]}"


def decided_of(module: HloModule) -> list[str]:
    """The decided entries of a module, sorted, for the C++ core."""
    return sorted(module._decided)
