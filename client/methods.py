"""Makes methods of the clients from the functions that make their requests: same name, parameters and docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

M = TypeVar("M", bound=Callable[..., Any])


def documented(method: M, make: Callable[..., Any]) -> M:
    """The method, with the name, docstring and parameters of `make`, for `help` and editors."""
    parameters = inspect.signature(make).parameters.values()
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__, method.__qualname__, method.__doc__ = make.__name__, make.__name__, make.__doc__
    method.__signature__ = inspect.Signature([itself, *parameters])  # type: ignore[attr-defined]
    return method
