"""A host whose clock is wrong: this process. The broker is another one, and its clock is right."""

from __future__ import annotations

import time

import pytest


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    """From here on, the wall clock of this process is so much ahead of the broker's, or behind it."""
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(ahead_s * 1e9))
