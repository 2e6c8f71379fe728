"""The schemas of workflows and triggers take what their forms take, and refuse what these refuse."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine import validation
from penstock.engine.definition import step_fields
from penstock.engine.run.kinds import agent_loop, approval
from penstock.engine.run.kinds.table import KINDS
from penstock.engine.trigger import trigger
from penstock.http.openapi.definitions import DOCUMENTS
from penstock.http.openapi.operations.workflows import GREET
from tests.http.test_bad_input import CASES
from tests.support.schemas import validator

STEP = {"id": "a", "task": "t"}


SKIP = {"step_id": "a", "field": "x.y", "op": "!=", "value": None}


FORMS = {
    "WorkflowDef": validation.WORKFLOW,
    "NormalStep": KINDS["normal"].form,
    "AgentLoopStep": KINDS["agent_loop"].form,
    "ApprovalStep": KINDS["approval"].form,
    "LoopConfig": agent_loop.CONFIG,
    "ApprovalConfig": approval.CONFIG,
    "RetryPolicy": step_fields.RETRY,
    "SkipIf": step_fields.SKIP_IF,
    "TriggerDocument": trigger.TRIGGER,
    "EventFilter": trigger.EVENT,
}


@pytest.mark.parametrize("name", FORMS)
def test_the_schema_of_a_form_has_its_fields(name: str) -> None:
    form, schema = FORMS[name], DOCUMENTS[name]

    assert form.fields.keys() | form.ignored == schema["properties"].keys()
    assert set(form.required) <= set(schema["required"])
    assert schema["additionalProperties"] is False


def _flow(**more: Any) -> dict[str, Any]:
    return {"name": "w", "steps": [{**STEP, **more}]}


WORKFLOWS: list[tuple[dict[str, Any], bool]] = [
    (GREET, True),
    (
        {
            "name": "w",
            "steps": [STEP],
            "$schema": 1,
            "sticky": "soft",
            "version": "x y",
            "timeout": "1h30m",
            "description": "ü",
        },
        True,
    ),
    ({"name": "w", "steps": [STEP], "input_schema": {"type": "object"}}, True),
    ({"name": "w", "steps": [STEP], "input_schema": True}, True),
    (_flow(type="normal", metadata={"a": "b"}, worker_group="g.h"), True),
    (_flow(type="agent_loop", config={"max_iterations": 1}), True),
    (_flow(type="agent_loop", loop={"max_duration": 1, "loop_delay": 0}), True),
    ({"name": "w", "steps": [{"id": "a", "type": "approval"}]}, True),
    (
        {
            "name": "w",
            "steps": [{"id": "a", "type": "approval", "timeout": "2h", "config": {"subject": "a.b", "metadata": {}}}],
        },
        True,
    ),
    (
        _flow(
            retry={"max_attempts": 0, "strategy": "linear", "initial_delay": "0s", "max_delay": ".5h", "multiplier": 1}
        ),
        True,
    ),
    (_flow(timeout="0.5s"), True),
    (_flow(timeout=1), True),
    ({"name": "w", "steps": [STEP, {**STEP, "id": "b", "depends_on": ["a"], "skip_if": SKIP}]}, True),
    (_flow(timeout=None, type=None, retry=None, skip_if=None, metadata=None, worker_group=None), True),
    ({"name": "w", "steps": [STEP], "timeout": None, "version": None, "sticky": None}, True),
    (_flow(type="agent_loop", config={"max_iterations": 1, "max_duration": None}, loop=None), True),
    (_flow(retry={"max_attempts": 1, "strategy": None, "max_delay": None}), True),
    (_flow(task=None), False),
    (_flow(retry={"max_attempts": None}), False),
    (_flow(type="agent_loop", config={"max_iterations": None}), False),
    (_flow(type="agent_loop", config=None), False),
    (_flow(timeout="0s"), False),
    (_flow(timeout=0), False),
    (_flow(timeout="-1s"), False),
    (_flow(timeout="1"), False),
    (_flow(timeout="1d"), False),
    (_flow(timeout=1.5), False),
    (_flow(type="agent_loop"), False),
    (_flow(type="agent_loop", config={}), False),
    (_flow(type="agent_loop", config={"max_iterations": 0}), False),
    (_flow(type="agent_loop", config={"max_iterations": 1}, loop={"max_iterations": 1}), False),
    (_flow(type="approval", retries=1), False),
    (_flow(type="approval", config={"subject": "history.x"}), False),
    (_flow(type="approval", config={"subject": "$JS.API"}), False),
    (_flow(type="approval", config={"subject": "a.*"}), False),
    (_flow(config={"max_iterations": 1}), False),
    (_flow(retry={}), False),
    (_flow(retry={"max_attempts": 100_001}), False),
    (_flow(retry={"max_attempts": 1, "multiplier": 0.5}), False),
    (_flow(retry={"max_attempts": 1, "strategy": "random"}), False),
    (_flow(retries=-1), False),
    (_flow(retries=True), False),
    (_flow(skip_if={"step_id": "a", "field": "x..y", "op": "==", "value": 1}), False),
    (_flow(skip_if={"step_id": "a", "field": "x", "op": "=", "value": 1}), False),
    (_flow(skip_if={"step_id": "a", "field": "x", "op": "=="}), False),
    (_flow(depends_on=["b", "b"]), False),
    (_flow(depends_on=[1]), False),
    (_flow(metadata={"a": 1}), False),
    ({"name": "w", "steps": [STEP], "sticky": "firm"}, False),
    ({"name": "w", "steps": [STEP], "version": ""}, False),
    ({"name": "w", "steps": [STEP], "version": "a\tb"}, False),
    ({"name": "w", "steps": [STEP], "version": "x" * 129}, False),
    ({"name": "w", "steps": [STEP], "description": 1}, False),
    ({"name": "w", "steps": [STEP], "input_schema": 1}, False),
]


# What a schema cannot say: what depends on other steps, and how often an id is used.
BEYOND = ("does not exist", "depends on itself", "a -> b", "duplicate step id", "input_schema")


@pytest.mark.parametrize(("sample", "valid"), WORKFLOWS, ids=lambda value: str(value)[:60])
def test_a_workflow_is_valid_by_its_schema_where_its_form_takes_it(sample: dict[str, Any], valid: bool) -> None:
    assert valid == (validation.problems(sample) == [])
    assert valid == validator({"$ref": "#/components/schemas/WorkflowDef"}).is_valid(sample)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.path == "/workflows" and not case.told.startswith(BEYOND)], ids=str
)
def test_a_workflow_that_is_refused_is_invalid_by_its_schema(case: Any) -> None:
    if not any(word in case.told for word in BEYOND):
        assert not validator({"$ref": "#/components/schemas/WorkflowDef"}).is_valid(case.document)


def _nightly(**source: Any) -> dict[str, Any]:
    return {"name": "n", "workflow": "w", **source}


TRIGGERS: list[tuple[dict[str, Any], bool]] = [
    (_nightly(cron={"expression": "0 3 * * *"}, enabled=False, input={"a": 1}, created_at="x", next_at=1), True),
    (_nightly(cron={"expression": "0 3 * * *", "timezone": "Europe/Berlin"}), True),
    (_nightly(subject={"subject": "orders.*.new.>"}), True),
    (_nightly(subject={"subject": "eventual"}), True),
    (_nightly(event={"subject": "event.webhook.push"}), True),
    (_nightly(event={"subject": "event.>", "field": "a.b", "value": None}), True),
    (_nightly(webhook={}), True),
    (_nightly(webhook={"secret": "s"}), True),
    (_nightly(webhook={"secret": None}, cron=None, enabled=None), True),
    (_nightly(event={"subject": "event.x", "value": 1, "field": None}), False),
    (_nightly(webhook=None), False),
    (_nightly(), False),
    (_nightly(webhook={}, cron={"expression": "0 3 * * *"}), False),
    (_nightly(cron={}), False),
    (_nightly(cron={"expression": 5}), False),
    (_nightly(subject={"subject": "*.orders"}), False),
    (_nightly(subject={"subject": "history.*"}), False),
    (_nightly(subject={"subject": "a..b"}), False),
    (_nightly(subject={"subject": "a.>.b"}), False),
    (_nightly(subject={"subject": "a b"}), False),
    (_nightly(subject={"subject": "x" * 256}), False),
    (_nightly(event={"subject": "orders.new"}), False),
    (_nightly(event={"subject": "event.x", "value": 1}), False),
    (_nightly(event={"subject": "event.x", "field": ".a"}), False),
    (_nightly(webhook={"secret": ""}), False),
    (_nightly(webhook={"secret": "x" * 513}), False),
    (_nightly(webhook={"secret": 1}), False),
    (_nightly(webhook={"colour": "red"}), False),
    (_nightly(webhook={}, enabled="yes"), False),
    (_nightly(webhook={}, colour="red"), False),
    ({"workflow": "w", "webhook": {}}, False),
    ({"name": "..", "workflow": "w", "webhook": {}}, False),
]


@pytest.mark.parametrize(("sample", "valid"), TRIGGERS, ids=lambda value: str(value)[:60])
def test_a_trigger_is_valid_by_its_schema_where_its_form_takes_it(sample: dict[str, Any], valid: bool) -> None:
    assert valid == _is_trigger(sample)
    assert valid == validator({"$ref": "#/components/schemas/TriggerDocument"}).is_valid(sample)


def _is_trigger(sample: object) -> bool:
    try:
        trigger.parse(sample, "kept")
    except trigger.Invalid:
        return False
    return True
