# SPDX-License-Identifier: Apache-2.0
"""Finds the code of the package that a function can reach, for `code_version`.

The reachable set is the transitive closure over functions, classes and values of the
package by the names in their code, which overestimates. Annotations and docstrings are
ignored. Look-ups by string at run time are not found.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

_Target = tuple[str, str]  # file below the package, name in it; "" is the file itself


def reached(
    package: Path, file: str, name: str, *, without: Collection[str] = ()
) -> dict[str, str]:
    """Returns the code that a function may run, by "file:name"; deterministic.

    Args:
        package: the package's folder.
        file: the function's file below it.
        name: the function's name.
        without: files to ignore.

    Raises:
        KeyError: there is no such function.
    """
    modules: dict[str, _Module] = {}
    found: dict[str, str] = {}
    pending: list[_Target] = [(file, name)]
    seen: set[_Target] = set()
    while pending:
        target = pending.pop()
        if target in seen or target[0] in without:
            continue
        seen.add(target)
        path, what = target
        if path not in modules:
            text = (package / path).read_text(encoding="utf-8")
            modules[path] = _module(package, path, text)
            # Statements that run on import.
            pending.append((path, _ALWAYS))
        module = modules[path]
        names = [what] if what else list(module.definitions)
        for each in names:
            if each in module.definitions:
                found[f"{path}:{each}"], uses = module.reads(each)
                pending += uses
            for used in sorted(module.imports.get(each, ())):
                found[f"{path}:{each} is {':'.join(used)}"] = ""
                pending.append(used)
    if f"{file}:{name}" not in found:
        raise KeyError(f"{file} has no {name}")
    return found


_ALWAYS = "<import>"


class _Module:
    """The definitions and imports of a file.

    Attributes:
        definitions: statements by the name that they define; those that define none
            under `_ALWAYS`.
        imports: the targets in the package that a name may refer to.
    """

    def __init__(self, package: Path, path: str, text: str) -> None:
        self._package = package
        self._path = path
        self._folder = Path(path).parent
        self._read: dict[str, tuple[str, list[_Target]]] = {}
        tree = ast.parse(text)
        _Stripper().visit(tree)
        self.definitions: dict[str, list[ast.stmt]] = defaultdict(list)
        self.imports: dict[str, set[_Target]] = defaultdict(set)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
        for statement in tree.body:
            for name in _defined(statement):
                self.definitions[name].append(statement)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                is_own = parts[0] == self._package.name and alias.asname
                if is_own and (file := self._file("/".join(parts[1:]))):
                    self.imports[alias.asname or ""].add((file, ""))
            return
        parts = (node.module or "").split(".")
        if node.level:
            base = self._folder.parts[: len(self._folder.parts) - node.level + 1]
        elif parts[0] == self._package.name:
            base, parts = (), parts[1:]
        else:
            return
        place = "/".join([*base, *filter(None, parts)])
        for alias in node.names:
            name = alias.asname or alias.name
            if file := self._file(f"{place}/{alias.name}".lstrip("/")):
                self.imports[name].add((file, ""))
            elif file := self._file(place):
                self.imports[name].add((file, alias.name))

    def _file(self, place: str) -> str:
        for file in (f"{place}.py", f"{place}/__init__.py".lstrip("/")):
            if (self._package / file).is_file():
                return file
        return ""

    def reads(self, name: str) -> tuple[str, list[_Target]]:
        """Returns the code that defines a name, and the targets that it uses."""
        if name not in self._read:
            code = "".join(map(dump, self.definitions[name]))
            uses = [use for each in self.definitions[name] for use in self._uses(each)]
            self._read[name] = code, uses
        return self._read[name]

    def _uses(self, statement: ast.stmt) -> Iterator[_Target]:
        of_modules = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                for file, name in self.imports.get(node.value.id, ()):
                    if not name:
                        of_modules.add(id(node.value))
                        yield file, node.attr
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Name)
                and id(node) not in of_modules
                and (node.id in self.definitions or node.id in self.imports)
            ):
                yield self._path, node.id


# Cached: all kinds of checks read the same files.
@functools.lru_cache(maxsize=512)
def _module(package: Path, path: str, text: str) -> _Module:
    return _Module(package, path, text)


def _defined(statement: ast.stmt) -> list[str]:
    """Returns the names that a top-level statement defines."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return []
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return [statement.name]
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return [
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ] or [_ALWAYS]
    is_main = isinstance(statement, ast.If) and "__main__" in ast.dump(statement.test)
    return [] if is_main else [_ALWAYS]


class _Stripper(ast.NodeTransformer):
    """Removes docstrings and function annotations."""

    def visit(self, node: ast.AST) -> ast.AST:
        super().visit(node)
        without_docstring(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
            for each in ast.walk(node):
                if isinstance(each, ast.AnnAssign):
                    each.annotation = ast.Constant(None)
        if isinstance(node, ast.arg):
            node.annotation = None
        return node


def without_docstring(node: ast.AST) -> None:
    """Empties the docstring of a module, class or function."""
    body = getattr(node, "body", None)
    if (
        isinstance(body, list)
        and body
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body[0].value.value = ""


def dump(value: object) -> str:
    """Dumps a tree as text that does not depend on the Python version."""
    if isinstance(value, ast.AST):
        fields = (
            f"{name}={dump(each)}"
            for name, each in ast.iter_fields(value)
            if each is not None and each != [] and name not in ("ctx", "type_comment")
        )
        return f"{type(value).__name__}({','.join(fields)})"
    if isinstance(value, list):
        return f"[{','.join(map(dump, value))}]"
    return repr(value)
