# SPDX-License-Identifier: Apache-2.0
"""Writes python/hloenv/_core.pyi from the signatures that pybind11 records.

Usage: python scripts/dev/make_stub.py [--check]

With --check it only exits with 1 if the stub is out of date. A bare `dict` or `list` in
a signature becomes `dict[str, Any]` or `list[Any]`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import Any

STUB = Path(__file__).resolve().parents[2] / "python" / "hloenv" / "_core.pyi"

HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Written by scripts/dev/make_stub.py; do not edit.
"""

# Replacements of bare containers in signatures.
_BARE = {
    "dict": "dict[str, Any]",
    "list": "list[Any]",
    "set": "set[Any]",
    "tuple": "tuple[Any, ...]",
    "collections.abc.Sequence": "collections.abc.Sequence[Any]",
    "collections.abc.Callable": "collections.abc.Callable[..., Any]",
}
_SPECIAL = ("__call__", "__getitem__", "__init__", "__len__")
_MODULES = ("collections.abc", "enum", "numpy.typing", "numpy", "typing")


class _Bare(ast.NodeTransformer):
    """Adds type arguments to bare containers."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.slice = self.visit(node.slice)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._filled(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._filled(node)

    def _filled(self, node: ast.expr) -> ast.AST:
        full = _BARE.get(ast.unparse(node))
        return ast.parse(full, mode="eval").body if full else node


def _clean(signature: str) -> str:
    """Converts a recorded signature to the head of a function definition."""
    signature = signature.replace("hloenv._core.", "")
    # A class bound after its first use appears with its C++ name.
    signature = re.sub(r"\bhloenv::(?:\w+::)*(\w+)", r"\1", signature)
    # A default that is not a literal prints as <...>.
    signature = re.sub(r"= <[^<>]*>", "= ...", signature)
    tree = ast.parse(f"def {signature}: ...")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    for argument in (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *filter(None, (arguments.vararg, arguments.kwarg)),
    ):
        if argument.arg == "self":
            argument.annotation = None
        elif argument.annotation is None:
            argument.annotation = ast.Name("Any")
        else:
            argument.annotation = _Bare().visit(argument.annotation)
    if function.returns is not None:
        function.returns = _Bare().visit(function.returns)
    text = ast.unparse(ast.fix_missing_locations(function))
    return text.split("\n")[0]


def _signatures(name: str, doc: str) -> list[str]:
    """Returns the signatures in a docstring, one for each overload.

    Raises:
        ValueError: pybind11 recorded none.
    """
    lines = doc.splitlines()
    if not lines or not lines[0].startswith(f"{name}("):
        raise ValueError(f"no signature recorded for {name!r}: {doc!r}")
    if len(lines) > 1 and lines[1] == "Overloaded function.":
        found = [re.match(rf"\d+\. ({re.escape(name)}\(.*)", line) for line in lines]
        return [match.group(1) for match in found if match]
    return [lines[0]]


def _function(name: str, doc: str, decorator: str = "") -> list[str]:
    signatures = _signatures(name, doc)
    lines = []
    for signature in signatures:
        if len(signatures) > 1:
            lines.append("@typing.overload")
        if decorator:
            lines.append(decorator)
        lines.append(f"{_clean(signature).removesuffix(':')}: ...")
    return lines


def _property(name: str, value: property) -> list[str]:
    doc = (value.fget.__doc__ or "").strip()
    getter = _clean(f"{name}{doc[doc.index('(') :]}")
    returns = getter.rpartition(" -> ")[2].removesuffix(":")
    lines = ["@property", f"def {name}(self) -> {returns}: ..."]
    if value.fset is not None:
        lines += [f"@{name}.setter", f"def {name}(self, value: {returns}) -> None: ..."]
    return lines


def _class(cls: type) -> list[str]:
    bases = [
        base.__name__
        for base in cls.__bases__
        if base.__module__ == cls.__module__ and base is not object
    ]
    head = f"class {cls.__name__}({', '.join(bases)}):" if bases else None
    lines: list[str] = []
    for name, value in vars(cls).items():
        if name.startswith(("__", "_pybind11")) and name not in _SPECIAL:
            continue
        if name == "__call__":  # a slot, which records no signature
            lines.append("def __call__(self, *args: Any, **kwargs: Any) -> Any: ...")
        elif isinstance(value, property):
            lines += _property(name, value)
        elif isinstance(value, staticmethod):
            doc = value.__func__.__doc__ or ""
            lines += _function(name, doc, "@staticmethod")
        elif type(value).__name__ == "instancemethod":
            lines += _function(name, value.__doc__ or "")
        elif callable(value):
            continue  # inherited from object
        else:
            lines.append(f"{name}: typing.Final[{type(value).__name__}]")
    body = [f"    {line}" for line in lines] or ["    ..."]
    return [head or f"class {cls.__name__}:", *body]


def make_stub(core: Any) -> str:
    """Returns the text of the stub for the extension module `core`."""
    blocks: list[str] = []
    for name, value in sorted(vars(core).items()):
        if name.startswith("__"):
            continue
        if isinstance(value, type):
            blocks.append("\n".join(["", *_class(value), ""]))
        elif callable(value):
            blocks.append("\n".join(_function(name, value.__doc__ or "")))
        else:
            blocks.append(f"{name}: typing.Final[{type(value).__name__}]")
    text = "\n".join(blocks).strip().replace("\n\n\n", "\n\n")
    imports = [
        f"import {module}"
        for module in _MODULES
        if re.search(rf"(?<![\w.]){re.escape(module)}\.(?!typing\.)\w", text)
    ]
    if re.search(r"\bAny\b", text):
        imports.append("from typing import Any")
    return "\n".join([HEAD, *imports, "", text, ""])


def main() -> int:
    """Writes the stub, or compares it with --check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    arguments = parser.parse_args()
    from hloenv._native import core

    text = make_stub(core)
    if not arguments.check:
        STUB.write_text(text, encoding="utf-8")
        return 0
    if STUB.exists() and STUB.read_text(encoding="utf-8") == text:
        return 0
    print(f"{STUB} is out of date: python scripts/dev/make_stub.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
