"""Writes docs/states.md: the moves of runs and steps as diagrams, out of the tables that the engine goes by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from penstock.engine.run.state import RUN_MOVES, STEP_MOVES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "states.md"

S = TypeVar("S", bound=StrEnum)


def page() -> str:
    """The whole page, as it stands in docs/states.md."""
    return "\n".join(
        [
            "# States",
            "",
            "Written by `python scripts/diagrams.py` out of `engine/run/state.py`; a test compares the two.",
            "",
            "## Run",
            "",
            "A run begins as `scheduled` when it has a time to wait for, otherwise as `pending`. Only a replay leaves",
            "`failed`, and none does after `compensating`.",
            "",
            *_diagram(RUN_MOVES, begins=("scheduled", "pending")),
            "",
            "## Step",
            "",
            "A retry goes back to `queued`. A failed step whose `on_failure` completes is `recovered`; otherwise only",
            "a replay leaves `failed` and `cancelled`; it cancels a handler that had failed. While the run is",
            "`compensating`, a cancelled step may turn out to run, or to have completed: then it is undone, too.",
            "",
            *_diagram(STEP_MOVES, begins=("pending",)),
            "",
        ]
    )


def _diagram(moves: Mapping[S, frozenset[S]], begins: tuple[str, ...]) -> Iterator[str]:
    order = list(moves)
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield from (f"    [*] --> {status}" for status in begins)
    for status, followers in moves.items():
        yield from (f"    {status} --> {follower}" for follower in sorted(followers, key=order.index))
    yield from (f"    {status} --> [*]" for status in order if not moves[status])
    yield "```"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
