"""How the server tells the application that it begins to stop: well before the lifespan's end, which waits for open
requests."""

from __future__ import annotations

from typing import Final

ON_STOP: Final = "penstock.on_stop"
"""In the lifespan's state: where the application puts what the server is to call (without arguments, at most once)."""
