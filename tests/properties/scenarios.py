"""Workflows whose runs are recorded from a real service (recording.py): each shows what its `about` says."""

from __future__ import annotations

from tests.properties.scenario import BIG, CALLED_AFTER, CHILD, HOPELESS, LONG, ONCE_MORE, PARKED, Scenario, step
from tests.properties.scenarios_of_maps import OF_MAPS

SCENARIOS: dict[str, Scenario] = {
    "labelled": Scenario(
        "A run with labels, which a condition and an input read.",
        {
            "name": "labelled",
            "steps": [
                step("gold", when="run.labels.tier == 'gold'", **{"with": {"gives": "${{ run.labels }}"}}),
                step("other", "gold", when="run.labels.tier != 'gold'"),
            ],
        },
        labels={"tier": "gold", "order": "a: 7 € \n"},
    ),
    "at_once": Scenario(
        "Executions that are answered at once, so that their answers say when they began: with a timeout, a failure "
        "before the retry, and the elements of a map, which is then undone.",
        {
            "name": "at_once",
            "steps": [
                step("a", timeout="1m", compensate={"task": "DO", "timeout": "1m"}),
                step(
                    "b",
                    "a",
                    **{"with": {"fails": 1, "key": "at once"}},
                    retry={"max_attempts": 1, "initial_delay": "50ms"},
                ),
                step(
                    "each",
                    "b",
                    type="map",
                    config={"items": [1, 2, 3]},
                    timeout="1m",
                    compensate={"task": "DO", "timeout": "1m"},
                ),
                step("last", "each", **{"with": HOPELESS}),
            ],
        },
    ),
    "run_paused": Scenario(
        "A run that is paused while a step waits for an event. The event comes, and what follows waits until the run "
        "is resumed. The timeout of the workflow stands still.",
        {
            "name": "run_paused",
            "timeout": LONG,
            "steps": [
                step("paid", type="wait_for_event", config={"event": "paid"}),
                step("ship", "paid"),
                step("mail", "ship"),
            ],
        },
        events=(("paid", {"n": 1}),),
        paused=True,
    ),
    "by_hand": Scenario(
        "A run that has failed: the step is completed by hand, and the run goes on.",
        {"name": "by_hand", "steps": [step("charge", **{"with": HOPELESS}), step("pack", "charge")]},
        by_hand=("charge", {"paid": True}),
    ),
    "repeated": Scenario(
        "A run of several steps, which is repeated from the last one.",
        {
            "name": "repeated",
            "steps": [
                step("big", **{"with": {"gives": BIG * 3}}),
                step("each", type="map", config={"items": [1, 2, 3]}),
                step("never", when="false"),
                step("last", "big", "each", "never"),
            ],
        },
        rerun_from="last",
        runs=(("rerun_of", "rerun_from", "A rerun from the last step: it takes over a large output, a map, a skip."),),
    ),
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
    **OF_MAPS,
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
