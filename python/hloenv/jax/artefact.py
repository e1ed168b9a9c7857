# SPDX-License-Identifier: Apache-2.0
"""Artefacts: files with the recipes that `hloenv.tune` has found.

An artefact is JSON without code. Each of its entries belongs to one module, and holds
for one kind of machine and one set of versions; where one of these differs, the entry
is refused, with the reason.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .._files import read_file, replacing
from .._native import core
from .._version import __version__
from ..errors import ArgumentError, ArtefactError, LeftOutWarning
from ..hlo.module import HloModule, as_module
from ..rewrite.trace import ModuleId
from ..runtime.executable import AnyExecutable, Engine, compile
from ..runtime.machine import this_machine
from .recipe import Recipe

FORMAT = "hloenv-tuned-1"
# A larger file is not an artefact.
_MAX_BYTES = 1 << 28
_PACKAGES = ("jax", "jaxlib")


def environment() -> dict[str, Any]:
    """What the worth of a recipe depends on: processor, cores, flags, versions."""
    machine = this_machine()
    found: dict[str, Any] = {
        "cpu": machine.cpu,
        "extensions": machine.features,
        "architecture": machine.architecture,
        "cores": len(os.sched_getaffinity(0)),
        "flags": machine.flags,
        "tensorflow": core.tensorflow_version,
        "hloenv": __version__,
    }
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


@dataclass(frozen=True)
class Tuned:
    """The recipe of one module, and what is known about it.

    Attributes:
        name: of the function or module.
        module: identity of the module that it is for.
        recipe: how to compile it; plain if nothing better was found.
        label: the decisions in words; "" if it is plain.
        reason: why it is plain; "" if it is not.
        baseline: what it was compared with: "jax.jit"; of a module "hloenv.compile", or
            "hloenv.compile(engine='jaxlib')".
        speedup: the baseline's time over that of the recipe, in the last check; 1 if it
            is plain.
        interval: 95 % interval of `speedup`.
        numerics: class of the decisions: "exact", "reassociating" or "approximate".
        error: largest difference of an output from the baseline's, at the element with
            the largest excess.
        excess: the same in units of the tolerance.
        is_bitwise: whether all compared outputs were bitwise equal to the baseline's.
        compile_s: time to compile it, in seconds.
        baseline_s: median time of one run of the baseline, in seconds.
        stages: what was decided at each stage, and what each is worth alone.
        environment: processor, cores, flags and versions that it holds for.
        date: of the last check, as 2026-11-23.
    """

    name: str
    module: ModuleId
    recipe: Recipe
    label: str = ""
    reason: str = ""
    baseline: str = "jax.jit"
    speedup: float = 1.0
    interval: tuple[float, float] = (1.0, 1.0)
    numerics: str = "exact"
    error: float = 0.0
    excess: float = 0.0
    is_bitwise: bool = False
    compile_s: float = 0.0
    baseline_s: float = 0.0
    stages: tuple[Mapping[str, Any], ...] = ()
    environment: Mapping[str, Any] = field(default_factory=environment)
    date: str = ""

    @property
    def is_identity(self) -> bool:
        """Whether it leaves the program as it is."""
        return self.recipe.is_plain

    def mismatch(self) -> str:
        """Why it does not hold here; "" if it does."""
        for name, value in environment().items():
            if self.environment.get(name) != value:
                return (
                    f"it was tuned for {name} {self.environment.get(name)!r}, and this "
                    f"is {value!r}; tune again here"
                )
        return ""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data = {
            each.name: getattr(self, each.name) for each in dataclasses.fields(self)
        }
        data["module"] = dataclasses.asdict(self.module)
        data["recipe"] = self.recipe.to_json()
        data["interval"] = list(self.interval)
        data["stages"] = [dict(each) for each in self.stages]
        data["environment"] = dict(self.environment)
        return data

    @classmethod
    def from_json(cls, data: Any) -> Tuned:
        """Reads the result of `to_json`.

        Raises:
            ArtefactError: this is not an entry.
        """
        names = [each.name for each in dataclasses.fields(cls)]
        if not isinstance(data, dict) or set(data) != set(names):
            raise ArtefactError(
                f"an entry must be an object with {', '.join(names)}, got "
                f"{repr(data)[:80]}"
            )
        values = dict(data)
        for name, types in _TYPES.items():
            if not isinstance(values[name], types) or isinstance(
                values[name], bool
            ) != (types is bool):
                raise ArtefactError(
                    f"{name} of an entry must be a {_type_name(types)}, got "
                    f"{repr(values[name])[:80]}"
                )
        module, interval = values["module"], values["interval"]
        if set(module) != {"fingerprint", "text_sha256"} or not all(
            isinstance(each, str) for each in module.values()
        ):
            raise ArtefactError(f"the module of an entry is {repr(module)[:80]}")
        if len(interval) != 2 or not all(_is_number(each) for each in interval):
            raise ArtefactError(f"the interval of an entry is {repr(interval)[:80]}")
        if not all(
            isinstance(each, dict) and isinstance(each.get("stage"), str)
            for each in values["stages"]
        ):
            raise ArtefactError("the stages of an entry must be objects with a 'stage'")
        for name in _NUMBERS:
            if not _is_number(values[name]):
                raise ArtefactError(f"{name} of an entry is {repr(values[name])[:80]}")
        values |= {
            "module": ModuleId(**module),
            "recipe": Recipe.from_json(values["recipe"]),
            "interval": (float(interval[0]), float(interval[1])),
            "stages": tuple(values["stages"]),
        }
        return cls(**values)

    def __str__(self) -> str:
        if self.is_identity:
            return f"{self.name}: as {self.baseline} has it ({self.reason})"
        low, high = self.interval
        return (
            f"{self.name}: {self.speedup:.3f}x of {self.baseline} ({low:.3f} to "
            f"{high:.3f}), {self.label}"
        )


_NUMBER = (int, float)
_NUMBERS = ("speedup", "error", "excess", "compile_s", "baseline_s")
_TYPES: dict[str, Any] = {
    **dict.fromkeys(
        ("name", "label", "reason", "baseline", "numerics", "date"),
        str,
    ),
    **dict.fromkeys(_NUMBERS, _NUMBER),
    **dict.fromkeys(("module", "recipe", "environment"), dict),
    **dict.fromkeys(("interval", "stages"), list),
    "is_bitwise": bool,
}


def _type_name(types: Any) -> str:
    return "number" if types is _NUMBER else str(types.__name__)


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can be."""
    if not isinstance(value, _NUMBER) or isinstance(value, bool):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


@dataclass(frozen=True)
class Artefact:
    """What `hloenv.tune` has found: one entry for each tuned module.

        found = hloenv.tune(step, state, batch)
        found.save("step.tuned")
        step = hloenv.jit(step, tuned="step.tuned")

    Attributes:
        entries: of the modules, in the order in which they were tuned.
    """

    entries: tuple[Tuned, ...]

    @property
    def is_identity(self) -> bool:
        """Whether no entry changes anything."""
        return all(each.is_identity for each in self.entries)

    def find(self, module: HloModule) -> Tuned:
        """The entry of a module.

        Raises:
            ArtefactError: there is none, or it is for another machine or version.
        """
        identity = ModuleId.of(module)
        for entry in self.entries:
            if entry.module == identity:
                if reason := entry.mismatch():
                    raise ArtefactError(f"the artefact is not used: {reason}")
                return entry
        raise ArtefactError(
            f"the artefact has no entry for module {module.name!r} "
            f"({identity.fingerprint}); it has those of "
            f"{', '.join(each.name for each in self.entries) or 'no function'}: it was "
            "tuned for another program, shape or type"
        )

    def compile(self, module: HloModule | str | os.PathLike[str]) -> AnyExecutable:
        """The executable of a module, by its recipe.

        Raises:
            ArtefactError: it has no entry for it, or one of another machine or version.
            HloEnvError: it cannot be compiled.
        """
        module = as_module(module)
        entry = self.find(module)
        if entry.is_identity:
            is_wheel = entry.baseline == "hloenv.compile"
            engine: Engine = "wheel" if is_wheel else "jaxlib"
            return compile(module, engine=engine)
        return entry.recipe.build(module).compile()

    def final(self, module: HloModule | str | os.PathLike[str]) -> HloModule:
        """The module for `hloenv.jax.inject`; without the options of the compiler.

            module = hloenv.HloModule.from_jax(fn, *args, donations=False)
            with hloenv.jax.inject(artefact.final(module)):
                outputs = jax.jit(fn)(*args)

        Where these are a part of the recipe, a `LeftOutWarning` names them, for
        `jax.jit(fn, compiler_options=...)`.

        Raises:
            ArtefactError: as `find`; or the wheel's backend is part of the recipe.
            HloEnvError: it cannot be compiled.
        """
        module = as_module(module)
        recipe = self.find(module).recipe
        final = recipe.final(module)
        if recipe.options:
            warnings.warn(
                "options of the compiler are a part of the recipe, and not of the "
                f"module: use jax.jit(fn, compiler_options={dict(recipe.options)}), or "
                "hloenv.jit(fn, tuned=...)",
                LeftOutWarning,
                stacklevel=2,
            )
        return final

    def to_json(self) -> dict[str, Any]:
        """Plain data, with a checksum."""
        entries = [each.to_json() for each in self.entries]
        return {"format": FORMAT, "entries": entries, "checksum": _checksum(entries)}

    @classmethod
    def from_json(cls, data: Any) -> Artefact:
        """Reads the result of `to_json`.

        Raises:
            ArtefactError: this is not an artefact, one of another format, or damaged.
        """
        if not isinstance(data, dict) or not isinstance(data.get("format"), str):
            raise ArtefactError(
                "this is not an artefact of hloenv tune: it must be an object with "
                "'format'"
            )
        if data["format"] != FORMAT:
            raise ArtefactError(
                f"the artefact has format {data['format'][:40]!r}; this version of "
                f"hloenv reads {FORMAT!r}: tune again"
            )
        entries = data.get("entries")
        if not isinstance(entries, list) or data.get("checksum") != _checksum(entries):
            raise ArtefactError("the artefact is damaged: its checksum is wrong")
        return cls(tuple(Tuned.from_json(each) for each in entries))

    @property
    def text(self) -> str:
        """What a file of it contains."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file; on failure an earlier one is as it was.

        Raises:
            OSError: it cannot be written.
        """
        with replacing(Path(path).absolute()) as draft:
            draft.write_text(self.text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, is_own: bool = False) -> Artefact:
        """Reads a file of `save`.

        Args:
            path: of the file.
            is_own: whether only this user may be able to write it.

        Raises:
            ArtefactError: it is not an artefact.
            FileNotFoundError: there is no such file.
            OSError: it cannot be read, or is no regular file.
        """
        file = Path(path)
        try:
            text = read_file(file, max_bytes=_MAX_BYTES, is_own=is_own)
            return cls.from_json(json.loads(text))
        except ArtefactError as error:
            raise ArtefactError(f"{file}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise ArtefactError(
                f"{file} is not an artefact of hloenv tune: it is not JSON: {error}"
            ) from None


def as_artefact(tuned: Artefact | str | os.PathLike[str]) -> Artefact:
    """An artefact, read if this is a path.

    Raises:
        ArgumentError: this is neither.
        ArtefactError: the file is not an artefact.
        FileNotFoundError: there is no such file.
    """
    if isinstance(tuned, Artefact):
        return tuned
    if isinstance(tuned, str | os.PathLike):
        return Artefact.load(tuned)
    raise ArgumentError(
        "tuned must be the result of hloenv.tune, or the path of a saved one, got "
        f"{type(tuned).__name__}"
    )


def compile_tuned(
    module: HloModule | str | os.PathLike[str], tuned: Any
) -> AnyExecutable:
    """`hloenv.compile(module, tuned=...)`."""
    return as_artefact(tuned).compile(module)


def _checksum(entries: Sequence[Any]) -> str:
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def finite(value: float) -> float:
    """A number that JSON has: not-a-number is 0, infinities are the largest float."""
    if math.isnan(value):
        return 0.0
    largest = 1.7976931348623157e308
    return float(min(max(value, -largest), largest))
