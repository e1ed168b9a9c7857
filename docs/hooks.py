# SPDX-License-Identifier: Apache-2.0
"""Completes pages of the site from the package itself, so that they agree with it."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
from typing import Any

import hloenv
from hloenv.cli.parser import make_parser

# Markers in pages, each replaced by what a function below returns.
_NAMES = "<!-- top-level names -->"
_COMMANDS = "<!-- commands -->"
_PACKAGES = (
    *("hlo", "graph", "runtime", "rewrite", "measurement", "cost", "policies"),
    *("search", "dataset", "jax"),
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    for marker, write in ((_NAMES, _names), (_COMMANDS, _commands)):
        if marker in markdown:
            markdown = markdown.replace(marker, write())
    return markdown


def _names() -> str:
    """A table of the names of `hloenv`, with links to their packages' pages."""
    lines = ["| name | what it is |", "| --- | --- |"]
    for name in sorted({*hloenv.__all__, *hloenv._LAZY} - {"__version__"}):
        value = getattr(hloenv, name)
        summary = inspect.getdoc(value).splitlines()[0]
        lines.append(f"| [`{name}`][{_home(name, value)}] | {summary} |")
    return "\n".join(lines)


def _home(name: str, value: object) -> str:
    for package in _PACKAGES:
        module = importlib.import_module(f"hloenv.{package}")
        if name in module.__all__ and getattr(module, name) is value:
            home = f"hloenv.{package}.{name}"
            # A file of the same name hides what the package imports from it.
            return f"{home}.{name}" if value.__module__ == home else home
    return f"{value.__module__}.{name}"


def _commands() -> str:
    """The help of each command, as the program prints it."""
    os.environ["COLUMNS"] = "88"
    parser = make_parser([])
    sections = [_help(parser)]
    for name in _subparsers(parser):
        command = _subparsers(make_parser([name]))[name]
        sections.append(f"## hloenv {name}\n\n{_help(command)}")
        for action, subcommand in _subparsers(command).items():
            sections.append(f"### hloenv {name} {action}\n\n{_help(subcommand)}")
    return "\n\n".join(sections)


def _subparsers(
    parser: argparse.ArgumentParser,
) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _help(parser: argparse.ArgumentParser) -> str:
    return f"```text\n{parser.format_help()}```"
