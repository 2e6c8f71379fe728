"""What a recorded workflow consists of, and its steps.

The worker of their tasks is `Script` in recording.py. It obeys its input: `gives` is the output, the input itself
without it; `fails` is how often it fails before, counted for each `key`, and `hopeless` makes the first failure the
last one; `pauses` is how often it puts the task aside. A planner finds the outputs of its attempts, in turn, under its
own id.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Definition = dict[str, Any]

ONCE_MORE = {"max_attempts": 2, "initial_delay": "10ms"}
LONG = "1h"
HOPELESS = {"key": "hopeless", "fails": 9, "hopeless": True}
BIG = "a text of 2,000 characters ".ljust(2000, ".")


class Scenario(NamedTuple):
    """`others` are workflows that the first one needs. `events` are sent once the run waits for one, `early` before it
    starts. `cancelled`: once so many steps are running. `resumed`: when it has failed, with the failures forgotten.
    `paused`: once a step waits for an event, until the others have come as far as they can.
    `by_hand`: a step, and what it is completed with, when it has failed. `rerun_from`: a step, when it has ended.

    `runs` are the names under which other runs that the first one has started are recorded, by the field of their
    `workflow.started` that says so, with what each shows.
    """

    about: str
    definition: Definition
    given: object = None
    others: tuple[Definition, ...] = ()
    early: tuple[tuple[str, object], ...] = ()
    events: tuple[tuple[str, object], ...] = ()
    cancelled: int = 0
    resumed: bool = False
    paused: bool = False
    by_hand: tuple[str, object] | None = None
    rerun_from: str | None = None
    called: bool = False
    labels: dict[str, str] | None = None
    runs: tuple[tuple[str, str, str], ...] = ()


def step(step_id: str, *depends_on: str, **fields: Any) -> Definition:
    worker = {} if fields.get("type") in WITHOUT_TASK else {"task": "DO"}
    return {"id": step_id, **worker, "depends_on": list(depends_on), **fields}


WITHOUT_TASK = ("sleep", "sub_workflow", "wait_for_event", "respond", "http")

CHILD = {
    "name": "child",
    "steps": [step("work"), step("more", "work", **{"with": {"gives": ["${{ steps.work.output.n }}", "more"]}})],
}
PARKED = {"name": "parked", "steps": [step("rest", type="sleep", config={"duration": LONG})]}
CALLED_AFTER = {"name": "after_failure", "steps": [step("note")]}


def children(of: str, **fields: Any) -> Definition:
    return {"name": "parents", "steps": [step("c", type="sub_workflow", config={"workflow": of}, **fields)]}
