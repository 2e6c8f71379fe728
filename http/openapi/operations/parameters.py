"""Parameters, headers, bodies and examples that several operations share."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from penstock.client.views import OUTCOME
from penstock.config import limits
from penstock.engine.definition.forms import Rule
from penstock.engine.definition.identifiers import NAME_PATTERN
from penstock.http.messages import params, responses
from penstock.http.messages.fields import Fields
from penstock.http.messages.params import KEY_CHARS_MAX, RESERVED_EVENTS, SEQ_MAX
from penstock.http.openapi.definitions import Schema, described, ref, whole
from penstock.http.openapi.operations.operation import Answer, Body, Parameter

RUN_ID = params.RUN_ID_EXAMPLE
INSTANT = "2026-11-21T12:00:00Z"


def limit(rules: Fields, default: int) -> Parameter:
    return Parameter("limit", {**described(rules["limit"]), "default": default}, "How many at most.", "10")


def number(name: str, rule: Rule, description: str, example: str) -> Parameter:
    """A number that is 0 when it is not given."""
    return Parameter(name, {**described(rule), "default": 0}, description, example)


STEP_ID: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": limits.STEP_ID_CHARS_MAX,
    "pattern": f"^{NAME_PATTERN}$",
}

# Path parameters, by what stands before them and their name.
PATHS: Mapping[tuple[str, str], tuple[Schema, str, str]] = {
    ("workflows", "name"): (ref("Name"), "The workflow's name.", "greet"),
    ("runs", "run_id"): (ref("RunId"), "The run's id.", RUN_ID),
    ("diff", "other"): (ref("RunId"), "The id of the run to compare it with.", RUN_ID),
    ("signal", "name"): (ref("Name"), "The signal's name.", "paid"),
    ("signals", "name"): (ref("Name"), "The signal's name.", "paid"),
    ("approvals", "run_id"): (ref("RunId"), "The run's id.", RUN_ID),
    ("", "step_id"): (STEP_ID, "The step that waits.", "review"),
    ("approval", "step_id"): (STEP_ID, "The step that waits.", "review"),
    ("steps", "step_id"): (STEP_ID, "The step's id; `<map>.<number>` is that of an element.", "hello"),
    ("triggers", "name"): (ref("Name"), "The trigger's name.", "nightly"),
    ("limits", "scope"): (
        {
            "type": "string",
            "minLength": 1,
            "maxLength": limits.LIMIT_SCOPE_CHARS_MAX,
            "pattern": f"^{NAME_PATTERN}$",
        },
        "The limit's scope: a name that several share, else that of the workflow, or `<workflow>.<step>`.",
        "openai",
    ),
    ("keys", "name"): (ref("Name"), "The key's name.", "ada"),
    ("webhooks", "name"): (ref("Name"), "The webhook trigger's name.", "push"),
    ("events", "name"): (
        {"allOf": [ref("Name")], "not": {"pattern": RESERVED_EVENTS}},
        "The event's name; `webhook.…` and `cron.…` are the service's own.",
        "order.paid",
    ),
    ("dead-letters", "seq"): (whole(1, SEQ_MAX), "The dead letter's sequence.", "17"),
    ("tasks", "task_id"): (
        {"type": "string", "pattern": r"^[0-9a-f]{32}\.[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*$"},
        "The task's id: run id, dot, step id.",
        f"{RUN_ID}.hello",
    ),
}
BY_RUN = {"run_id": "$response.body#/run_id"}
KEY = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    "The same key and workflow give the same run, for ever.",
    "order-17",
    place="header",
)
EVENT_KEY = structs.replace(KEY, description="The same key and name are the same event, for 30 days.")
MIN_SEQ = Parameter(
    params.MIN_SEQ,
    described(params.SEQ),
    "Wait for this sequence of the log, at most 1 s; as Penstock-Seq gave it.",
    "25",
    place="header",
)
LAG = (responses.INDEX_AS_OF, responses.INDEX_LAG)
OLDER = (
    Parameter(
        "Cache-Control",
        {"type": "string"},
        "With max-age, an answer that was made for somebody else will do, if it is no older (s, at most "
        f"{limits.ANSWER_AGE_S_MAX}).",
        "max-age=2",
        place="header",
    ),
    Parameter("If-None-Match", {"type": "string"}, "The ETag of an answer that is there.", '"a3f1"', place="header"),
)
UNCHANGED = Answer(media=(), headers=("ETag",))
STARTS = (responses.SEQ,)
CALLS = (responses.LOCATION, OUTCOME, responses.SEQ)
SIGNAL_BODY = Body(None, {"amount": 12}, required=False, bytes_max=limits.SIGNAL_BYTES_MAX)
PAYLOAD_BODY = Body({}, "Ada", required=False, bytes_max=limits.PAYLOAD_BYTES_MAX)
