"""Workflows with maps and child runs that are recorded: see scenarios.py."""

from __future__ import annotations

from tests.properties.scenario import BIG, CALLED_AFTER, CHILD, HOPELESS, ONCE_MORE, PARKED, Scenario, children, step

OF_MAPS: dict[str, Scenario] = {
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
}
