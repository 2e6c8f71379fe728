"""The package `penstock` itself: its version. What it consists of stands in the folders beside this one.

Here: `__version__`, of the installed distribution.
Not here: anything that imports another folder: `import penstock` costs nothing, and whoever needs a part imports that.
Start reading at worker/__init__.py for what a worker imports, at README.md for everything else.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """`__version__` is read when it is asked for: looking it up takes 10 ms."""
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
