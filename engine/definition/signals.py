"""Limits of a signal: its run, its name, its size."""

from __future__ import annotations

from penstock.config.limits import SIGNAL_BYTES_MAX
from penstock.engine.definition.identifiers import is_run_id, problem_with, quoted
from penstock.engine.errors import Invalid, TooLarge


def check_target(run_id: str, name: str) -> None:
    """Raises Invalid when `run_id` is not a run id, or `name` is not a valid signal name."""
    found = (
        problem_with("signal name", name),
        None if is_run_id(run_id) else f"run id {quoted(run_id)} is not 32 lowercase hex characters",
    )
    if problems := [problem for problem in found if problem]:
        raise Invalid(*problems)


def check_size(payload: bytes) -> None:
    """Raises TooLarge over 1 MiB."""
    if len(payload) > SIGNAL_BYTES_MAX:
        raise TooLarge(f"the signal has {len(payload)} bytes, {SIGNAL_BYTES_MAX} is the most")
