"""The package `penstock` itself: its version, and what programs write first. The folders beside this one contain its
parts.

Here: `__version__`, of the installed distribution; `Workflow` and `task`, of authoring/; `Client` and
`AsyncClient`, of client/.
Not here: anything that is loaded before its name is used: `import penstock` is fast, and users import the part that
they need.
Start reading at authoring/__init__.py for workflows in Python, at worker/__init__.py for what a worker imports, at
README.md for everything else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.authoring import Workflow, task
    from penstock.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "Workflow", "__version__", "task"]

__version__: str

_MODULES = {
    "AsyncClient": "penstock.client",
    "Client": "penstock.client",
    "Workflow": "penstock.authoring",
    "task": "penstock.authoring",
}


def __getattr__(name: str) -> object:
    """Loads what has the name at its first use; reading the version alone takes 10 ms."""
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
