"""Who asks for what is being done: the front end sets it for each request, and the events that begin runs, signals and
sent events contain it as `by`. Nobody while the API is open, and for whatever no request asks for."""

from __future__ import annotations

from contextvars import ContextVar

_author: ContextVar[str | None] = ContextVar("author", default=None)


def author() -> str | None:
    """The name of the key with which the current request came."""
    return _author.get()


def set_author(name: str | None) -> None:
    """Set it for what the current task does from now on."""
    _author.set(name)
