# SPDX-License-Identifier: Apache-2.0
"""Packages that only some functions need, imported inside these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# The extra of hloenv that installs a package, by the name that is imported.
_EXTRAS = {
    "egglog": "egraph",
    "enzyme_ad": "enzyme",
    "gymnasium": "rl",
    "jax": "jax",
    "jaxlib": "jax",
    "matplotlib": "bench",
    "networkx": "graph",
    "optuna": "tune",
    "pyarrow": "store",
    "ray": "ray",
    "safetensors": "learn",
    "sb3_contrib": "rl",
    "scipy": "egraph",
    "stable_baselines3": "rl",
    "torch": "learn",
    "torch_geometric": "learn",
}


@contextmanager
def needed_by(what: str, package: str, extra: str) -> Iterator[None]:
    """A block of imports, whose ImportError says what is to be installed.

    Args:
        what: needs the package, for the message.
        package: the package's name.
        extra: of hloenv, that installs it.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{what} needs {package} ({error}): pip install 'hloenv[{extra}]'"
        ) from error


def import_message(error: ImportError) -> str:
    """The message of an ImportError, with the extra that installs what is missing."""
    text = str(error)
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS or "pip install" in text:
        return text
    return f"{text}: pip install 'hloenv[{_EXTRAS[package]}]'"
