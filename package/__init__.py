"""The package `penstock` itself: its version. The folders beside this one contain its parts.

Here: `__version__`, of the installed distribution.
Not here: anything that imports another folder: `import penstock` is fast, and users import the part that they need.
Start reading at worker/__init__.py for what a worker imports, at README.md for everything else.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """Reads `__version__` at its first use, since reading it takes 10 ms."""
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
