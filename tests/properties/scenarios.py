"""Workflows whose runs are recorded from a real service (recording.py): each shows what its `about` says.

The worker of their tasks is `Script` there. It obeys its input: `gives` is the output, the input itself without it;
`fails` is how often it fails before, counted for each `key`, and `hopeless` makes the first failure the last one;
`pauses` is how often it puts the task aside. A planner finds the outputs of its attempts, in turn, under its own id.
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
    called: bool = False
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


SCENARIOS: dict[str, Scenario] = {
    "conditions": Scenario(
        "A step whose `when` is false is skipped; templates keep types, give text, and read a skipped step's status.",
        {
            "name": "conditions",
            "steps": [
                step("a", **{"with": {"n": "${{ input.n * 2 }}", "text": "n is ${{ input.n }}", "raw": "$${{ n }}"}}),
                step("b", "a", when="steps.a.output.n > 100"),
                step("c", "a", when='run.workflow == "conditions"', **{"with": {"gives": "${{ default }}"}}),
                step("d", "b", "c", **{"with": ["${{ steps.b.status }}", "${{ steps.c.output }}", "${{ default.c }}"]}),
            ],
        },
        {"n": 21},
    ),
    "expression_failed": Scenario(
        "A template that reads a key which is not there fails the step for good, and its dead letter has no input.",
        {"name": "expression_failed", "steps": [step("a", **{"with": "${{ input.missing.key }}"}, retries=5)]},
        {"n": 1},
    ),
    "paused": Scenario(
        "A worker that puts its task aside for a while: its timeout does not run meanwhile.",
        {"name": "paused", "steps": [step("a", timeout="1m")]},
        {"pauses": 1},
    ),
    "sleep": Scenario(
        "A sleep of a duration from the input, and one until a time that is past.",
        {
            "name": "sleeping",
            "steps": [
                step("nap", type="sleep", config={"duration": "${{ input.nap }}"}),
                step("past", "nap", type="sleep", config={"until": "2020-01-01T00:00:00Z"}),
                step("work", "past"),
            ],
        },
        {"nap": "300ms"},
    ),
    "map_continues": Scenario(
        "A map, two elements at a time, with `with`: one element is retried, one fails for good, the map goes on.",
        {
            "name": "map_continues",
            "steps": [
                step(
                    "m",
                    type="map",
                    retry=ONCE_MORE,
                    timeout="1m",
                    config={"items": "${{ input }}", "max_concurrency": 2, "on_item_failure": "continue"},
                    **{"with": {"key": "k${{ index }}", "fails": "${{ item.fails }}", "gives": "${{ item.n }}"}},
                ),
                step("sum", "m"),
            ],
        },
        [{"n": 1, "fails": 0}, {"n": 2, "fails": 1}, {"n": 3, "fails": 9}, {"n": 4, "fails": 0}],
    ),
    "map_resumed": Scenario(
        "A map that fails with an element: what waits is withdrawn. "
        "The resumed run repeats only what did not complete.",
        {
            "name": "map_resumed",
            "steps": [step("m", type="map", config={"max_concurrency": 1}), step("end", "m")],
        },
        [{"gives": 0}, {**HOPELESS, "fails": 1}, {"gives": 2}],
        resumed=True,
    ),
    "map_recovered": Scenario(
        "A map that fails, whose handler gives the output in its place; a map without elements.",
        {
            "name": "map_recovered",
            "steps": [
                step("none", type="map", config={"items": []}),
                step("m", "none", type="map", config={"items": [HOPELESS]}, on_failure={"task": "DO"}),
            ],
        },
    ),
    "map_large": Scenario(
        "A map whose outputs are too large together for the state: who receives the array, gets it from the events.",
        {
            "name": "map_large",
            "steps": [
                step("m", type="map", config={"items": [1, 2, 3]}, **{"with": {"gives": [BIG, "${{ item }}"]}}),
                step("size", "m", **{"with": {"gives": "${{ steps.m.output.size() }}"}}),
            ],
        },
    ),
    "map_of_runs": Scenario(
        "A map over a workflow: each element is a child run, and the one whose child failed has a second child.",
        {
            "name": "map_of_runs",
            "steps": [
                step("m", type="map", retry=ONCE_MORE, config={"items": "${{ input }}", "workflow": "child"})
                | {"task": None}
            ],
        },
        [{"gives": {"n": 1}}, {"key": "second", "fails": 1, "gives": {"n": 2}}],
        (CHILD,),
    ),
    "sub_workflow": Scenario(
        "A step whose child completes: its output is the step's.",
        children("child"),
        {"gives": {"n": 1}},
        (CHILD,),
        runs=(("parent", "child", "A run that is another one's child: its end is reported to its parent."),),
    ),
    "sub_workflow_retried": Scenario(
        "A child that fails: the step's policy starts another child, which completes.",
        children("child", retry=ONCE_MORE),
        {"key": "child", "fails": 1, "gives": {"n": 1}},
        (CHILD,),
    ),
    "sub_workflow_failed": Scenario(
        "A child that fails for good: the step fails, naming it, and the workflow's on_failure starts a run.",
        {**children("child"), "on_failure": {"workflow": "after_failure"}},
        HOPELESS,
        (CHILD, CALLED_AFTER),
        runs=(
            ("parent", "child_failed", "A child that fails: its parent is told the error."),
            ("failure_of", "failure_run", "A run that the failure of another one has started."),
        ),
    ),
    "sub_workflow_unknown": Scenario(
        "A step whose workflow nobody has registered fails for good, whatever its policy: there is no child.",
        children("nowhere", retry=ONCE_MORE),
    ),
    "sub_workflow_detached": Scenario(
        "A step that does not wait for its child: it completes at once with the child's id.",
        {
            "name": "parents",
            "steps": [step("c", type="sub_workflow", config={"workflow": "child", "detach": True}), step("on", "c")],
        },
        {"gives": {"n": 1}},
        (CHILD,),
        runs=(("parent", "child_detached", "A child of a parent that does not wait for it: its end is not reported."),),
    ),
    "sub_workflow_timeout": Scenario(
        "A child that takes longer than its step's timeout: it is cancelled, and the step fails.",
        children("parked", timeout="200ms"),
        others=(PARKED,),
        runs=(("parent", "child_cancelled", "A child that its parent cancels."),),
    ),
    "wait_for_event": Scenario(
        "Two waits for one event each: the second one passes over the event of the first, though it looks back.",
        {
            "name": "waiting_for_events",
            "steps": [
                step(
                    "first",
                    type="wait_for_event",
                    config={
                        "event": "order.paid",
                        "correlate": {"field": "order.id", "value": "${{ input.order }}"},
                        "match": "event.amount >= 10",
                        "lookback": "1h",
                    },
                ),
                step(
                    "second",
                    "first",
                    type="wait_for_event",
                    config={
                        "event": "order.paid",
                        "correlate": {"field": "order.id", "value": "${{ input.order }}"},
                        "lookback": "1h",
                        "timeout": LONG,
                    },
                ),
            ],
        },
        {"order": 7},
        early=(("order.paid", {"order": {"id": 7}, "amount": 12}),),
        events=(
            ("order.paid", {"order": {"id": 8}, "amount": 99}),
            ("order.paid", {"order": {"id": 7}, "amount": 3}),
        ),
    ),
    "wait_timeout": Scenario(
        "Waits for events that never come: one goes on with null, one fails, and its handler recovers it.",
        {
            "name": "waiting_in_vain",
            "steps": [
                step(
                    "goes_on",
                    type="wait_for_event",
                    config={"event": "never", "timeout": "200ms", "on_timeout": "continue"},
                ),
                step(
                    "fails",
                    "goes_on",
                    type="wait_for_event",
                    config={"event": "never", "timeout": "200ms"},
                    on_failure={"task": "DO", "with": {"gives": "${{ default.error }}"}},
                ),
            ],
        },
    ),
    "planner": Scenario(
        "A plan with a planner in it and a condition; the plans' last steps give the outputs of their planners.",
        {
            "name": "planned",
            "steps": [
                step("before", **{"with": {"gives": {"n": 1}}}),
                step("p", "before", task="PLAN", type="planner", config={"max_depth": 2}, **{"with": "${{ input }}"}),
                step("after", "p"),
            ],
        },
        {
            "p": [
                {
                    "steps": [
                        {"id": "x", "task": "DO", "with": {"gives": "${{ steps.before.output.n + 1 }}"}},
                        {
                            "id": "q",
                            "task": "PLAN",
                            "type": "planner",
                            "depends_on": ["x"],
                            "with": "${{ input }}",
                        },
                        {"id": "never", "task": "DO", "depends_on": ["x"], "when": "steps.x.output == 1"},
                    ]
                }
            ],
            "p.q": [{"steps": [{"id": "y", "task": "DO", "with": {"gives": "${{ steps.x.output + 1 }}"}}]}],
        },
    ),
    "planner_again": Scenario(
        "A plan with problems is refused, and the next attempt is told them; then one without steps.",
        {
            "name": "planned_again",
            "steps": [step("p", task="PLAN", type="planner", retry=ONCE_MORE), step("after", "p")],
        },
        {"p": [{"steps": [{"id": "x", "task": "DO", "depends_on": ["nowhere"]}]}, {"steps": []}]},
    ),
    "planner_kinds": Scenario(
        "A plan with a sleep, a map, a child, a wait and a handler; the fragment has several last steps.",
        {"name": "planned_kinds", "steps": [step("p", task="PLAN", type="planner")]},
        {
            "p": [
                {
                    "steps": [
                        {"id": "nap", "type": "sleep", "config": {"duration": "10ms"}},
                        {"id": "m", "task": "DO", "type": "map", "config": {"items": [1, 2]}, "depends_on": ["nap"]},
                        {
                            "id": "c",
                            "type": "sub_workflow",
                            "config": {"workflow": "child"},
                            "with": {"gives": {"n": 1}},
                        },
                        {"id": "w", "type": "wait_for_event", "config": {"event": "for.plans"}, "depends_on": ["nap"]},
                        {"id": "h", "task": "DO", "with": HOPELESS, "on_failure": {"task": "DO"}},
                    ]
                }
            ]
        },
        (CHILD,),
        events=(("for.plans", {"yes": True}),),
    ),
    "recovered": Scenario(
        "A step that fails for good, twice tried: its handler completes, and the run goes on with its output.",
        {
            "name": "recovered",
            "steps": [
                step(
                    "a",
                    retry=ONCE_MORE,
                    on_failure={"task": "DO", "with": {"gives": "${{ default.error }} after ${{ default.attempts }}"}},
                ),
                step("b", "a"),
            ],
        },
        {"key": "a", "fails": 9},
    ),
    "handler_failed": Scenario(
        "A step and its handler fail: so does the run, with both errors, and its on_failure workflow is started.",
        {
            "name": "handler_failed",
            "steps": [step("a", on_failure={"task": "DO", "with": HOPELESS}), step("b", "a")],
            "on_failure": {"workflow": "after_failure", "with": {"why": "${{ default.error }}"}},
        },
        HOPELESS,
        (CALLED_AFTER,),
        runs=(("failure_of", "failure_run_with", "A run that a failure has started, with an input of its own."),),
    ),
    "called": Scenario(
        "A run that somebody called: `respond` answers with what a step before it worked out.",
        {
            "name": "called",
            "steps": [
                step("a", **{"with": {"gives": {"n": "${{ input.n + 1 }}"}}}),
                step(
                    "say",
                    "a",
                    type="respond",
                    config={
                        "status": 201,
                        "headers": {"x-n": "${{ steps.a.output.n }}"},
                        "body": {"n": "${{ input.n }}"},
                    },
                ),
                step("late", "say"),
            ],
        },
        {"n": 1},
        called=True,
    ),
    "http_busy": Scenario(
        "A request to a server that is busy at first: the built-in worker's failure, the retry, the response.",
        {
            "name": "http_busy",
            "steps": [step("get", type="http", config={"url": "${{ input.url }}"}, retry=ONCE_MORE)],
        },
        {"url": "URL"},
    ),
    "cancelled_kinds": Scenario(
        "A run that is cancelled while it sleeps, waits for an event and a child, and has elements and a plan out.",
        {
            "name": "cancelled_kinds",
            "steps": [
                step("rest", type="sleep", config={"duration": LONG}),
                step("w", type="wait_for_event", config={"event": "never", "timeout": LONG}),
                step("c", type="sub_workflow", config={"workflow": "parked"}),
                step("m", type="map", task="NOBODY", config={"items": [1, 2, 3], "max_concurrency": 2}),
                step("ms", type="map", config={"items": [1, 2], "workflow": "parked"}) | {"task": None},
                step("p", task="PLAN", type="planner"),
            ],
        },
        {"p": [{"steps": [{"id": "x", "type": "sleep", "config": {"duration": LONG}}]}]},
        (PARKED,),
        cancelled=7,
    ),
}
