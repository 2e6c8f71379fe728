"""How the server signals the application that it begins to stop, long before the end of the lifespan."""

from __future__ import annotations

from typing import Final

ON_STOP: Final = "penstock.on_stop"
"""The key in the lifespan's state for a callback, which the server calls at most once, without arguments."""
