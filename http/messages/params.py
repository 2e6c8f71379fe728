"""Reads paths, query strings and headers. Errors say what is wrong and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from falcon.asgi import Request
from msgspec import Struct

from penstock.config.limits import (
    APPROVALS_LISTED_MAX,
    CALL_MS_DEFAULT,
    CALL_MS_MAX,
    DEAD_LETTERS_LISTED_DEFAULT,
    DEAD_LETTERS_LISTED_MAX,
    MAP_ITEMS_DEFAULT,
    MAP_ITEMS_MAX,
    NAME_CHARS_MAX,
    POLL_MS_MAX,
    RUNS_LISTED_DEFAULT,
    RUNS_LISTED_MAX,
    STEP_ID_CHARS_MAX,
    WAIT_MS_MAX,
)
from penstock.engine.definition import forms, values
from penstock.engine.definition.identifiers import is_run_id, problem_with, quoted
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid, NotFound
from penstock.engine.run.state import RunStatus
from penstock.http.messages.fields import Fields, digits, moment, raise_problems

KEY_CHARS_MAX = 255
ITEMS_LISTED_DEFAULT = 100
SEQ_MAX = 2**63 - 1
MIN_SEQ = "Penstock-Min-Seq"
ACTIONS = ("approve", "reject")
RESERVED_EVENTS = r"^(webhook|cron)\."
RUN_ID_EXAMPLE = "01a1fbd4e22e73c2b60e9754e7b7a067"
PREFIX = re.compile("^[0-9a-f]{8,32}$")


@forms.rule({"type": "string", "pattern": "^[0-9a-f]{32}$", "examples": [RUN_ID_EXAMPLE]}, component="RunId")
def run(path: str, value: object, report: Report) -> object:
    assert isinstance(value, str)
    if not is_run_id(value):
        report.add(f"{path} must be a run id, not {quoted(value)}")
    return value


@forms.rule({"type": "string", "pattern": PREFIX.pattern})
def prefix(path: str, value: object, report: Report) -> object:
    assert isinstance(value, str)
    if not PREFIX.fullmatch(value):
        report.add(f"{path} must be the first 8 to 32 characters of a run id, which are 0-9 a-f, not {quoted(value)}")
    return value


SEQ = digits(0, SEQ_MAX)
VERSION = values.version
FORCE = values.one_of("true", "false")
WAIT_MS = digits(0, WAIT_MS_MAX)
CALL_MS = digits(0, CALL_MS_MAX)
TIMEOUT_MS = digits(0, POLL_MS_MAX)
# The query strings of lists.
RUNS: Fields = {
    "workflow": values.name,
    "status": values.one_of(*RunStatus),
    "after": moment,
    "before": moment,
    "limit": digits(1, RUNS_LISTED_MAX),
    "cursor": values.text,
    "prefix": prefix,
    "parent": run,
}
ITEMS: Fields = {
    "status": values.one_of("queued", "running", "completed", "failed", "cancelled"),
    "limit": digits(1, MAP_ITEMS_DEFAULT),
    "cursor": digits(0, MAP_ITEMS_MAX),
}
APPROVALS: Fields = {"workflow": values.name, "limit": digits(1, APPROVALS_LISTED_MAX), "cursor": values.text}
DEAD_LETTERS: Fields = {
    "run": run,
    "task": values.name,
    "limit": digits(1, DEAD_LETTERS_LISTED_MAX),
    "cursor": digits(1, SEQ_MAX),
}


class Filter(Struct, frozen=True):
    """Which runs to list. `after` and `before` are as `created_at` is written; `cursor` continues an earlier list;
    `prefix` is what the ids begin with, `parent` the run that has started them."""

    workflow: str | None
    status: RunStatus | None
    after: str | None
    before: str | None
    limit: int
    cursor: str | None
    prefix: str | None
    parent: str | None


class ItemFilter(Struct, frozen=True):
    """Which elements of a map to list; `cursor` is the number of the first."""

    status: str | None
    limit: int
    cursor: int


class DeadLetterFilter(Struct, frozen=True):
    """Which dead letters to list; `cursor` continues an earlier list."""

    run: str | None
    task: str | None
    limit: int
    cursor: int


class ApprovalFilter(Struct, frozen=True):
    """Which approvals to list; `cursor` continues an earlier list."""

    workflow: str | None
    limit: int
    cursor: str | None


class Asked(Struct, frozen=True):
    """A decision on an approval, from the query string."""

    granted: bool
    token: str


def run_id(text: str) -> str:
    """A run id in a path. Raises Invalid when it is missing, NotFound when it is not a run id."""
    if not text:
        raise Invalid("the run id is missing")
    if not is_run_id(text):
        raise NotFound(f"run {quoted(text)} does not exist")
    return text


def task_id(text: str) -> str:
    """A polled task's id in a path: a run id, a dot and a step id. Raises as `run_id`."""
    if not text:
        raise Invalid("the task id is missing")
    run_id, _, step_id = text.partition(".")
    if not is_run_id(run_id) or problem_with("step id", step_id, STEP_ID_CHARS_MAX):
        raise NotFound(f"task {quoted(text)} is not among the polled tasks")
    return text


def workflow_name(text: str) -> str:
    """A workflow name out of a path."""
    return _name_in_path(text, "workflow name")


def version(req: Request) -> str | None:
    """Which version of a workflow is asked for, None for the latest."""
    found: str | None = _query_values(req, {"version": VERSION}).get("version")
    return found


def force(req: Request) -> bool:
    """Whether something shall be done though something else needs it not to be."""
    return bool(_query_values(req, {"force": FORCE}).get("force") == "true")


def trigger_name(text: str) -> str:
    """A trigger's name out of a path."""
    return _name_in_path(text, "trigger name", "the trigger's name")


def step_id(text: str) -> str:
    """A step id out of a path, which may be that of an element, a handler or a planned step."""
    return _name_in_path(text, "step id", chars_max=STEP_ID_CHARS_MAX)


def decision(req: Request) -> Asked:
    """A person's decision, and the token that authorizes it, from the query string."""
    report = Report()
    query = _query(req, report, "action", "token")
    action, token = query.get("action"), query.get("token")
    if action is None:
        report.add("action is missing: approve or reject")
    elif action not in ACTIONS:
        report.add(f"action must be approve or reject, not {quoted(action)}")
    if not token:
        report.add("token is missing")
    raise_problems(report)
    assert token
    return Asked(action == "approve", token)


def granted(action: str) -> bool:
    """Whether the action of a decision is approve. Raises Invalid when it is neither approve nor reject."""
    if action not in ACTIONS:
        raise Invalid(f"action must be approve or reject, not {quoted(action)}")
    return action == "approve"


def approval_filter(req: Request) -> ApprovalFilter:
    """Which approvals to list, out of a query string."""
    query = _query_values(req, APPROVALS)
    return ApprovalFilter(query.get("workflow"), query.get("limit", APPROVALS_LISTED_MAX), query.get("cursor"))


def run_filter(req: Request) -> Filter:
    """The filter in a query string."""
    query = _query_values(req, RUNS)
    status = RunStatus(query["status"]) if "status" in query else None
    return Filter(**{**dict.fromkeys(RUNS), "limit": RUNS_LISTED_DEFAULT, **query, "status": status})


def item_filter(req: Request) -> ItemFilter:
    """Which elements of a map to list, out of a query string."""
    query = _query_values(req, ITEMS)
    return ItemFilter(query.get("status"), query.get("limit", ITEMS_LISTED_DEFAULT), query.get("cursor", 0))


def after_seq(req: Request) -> int:
    """The sequence after which events are requested: the header of a resumed stream, else the query parameter, else
    0."""
    report = Report()
    query = _read(req, {"after": SEQ}, report)
    resumed = req.get_header("Last-Event-ID")
    seq: int = query.get("after", 0)
    if resumed:
        seq = _seq("Last-Event-ID", resumed, report)
    raise_problems(report)
    return seq


def wait_s(req: Request) -> float:
    """How long the response may wait for the end of the run, in s; 0: not at all."""
    query = _query_values(req, {"wait_ms": WAIT_MS})
    return float(query.get("wait_ms", 0) / 1000)


def call_s(req: Request) -> float:
    """How long a caller waits for the answer of a run, in s."""
    query = _query_values(req, {"timeout_ms": CALL_MS})
    return float(query.get("timeout_ms", CALL_MS_DEFAULT) / 1000)


def timeout_s(req: Request) -> float:
    """How long the response may wait for a value that does not exist yet, in s; 0: not at all."""
    query = _query_values(req, {"timeout_ms": TIMEOUT_MS})
    return float(query.get("timeout_ms", 0) / 1000)


def idempotency_key(req: Request) -> str | None:
    """The key under which a repeated request has no second effect, if the request has one."""
    key = req.get_header("Idempotency-Key")
    if key is not None and not (0 < len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable()):
        raise Invalid(f"Idempotency-Key must be 1 to {KEY_CHARS_MAX} printable ASCII characters")
    return key


def min_seq(req: Request) -> int:
    """The sequence of the log that the index must have for this request; 0 without one."""
    report = Report()
    text = req.get_header(MIN_SEQ)
    seq = 0 if text is None else _seq(MIN_SEQ, text, report)
    raise_problems(report)
    return seq


def dead_letter_filter(req: Request) -> DeadLetterFilter:
    """Which dead letters to list, out of a query string."""
    query = _query_values(req, DEAD_LETTERS)
    limit, cursor = query.get("limit", DEAD_LETTERS_LISTED_DEFAULT), query.get("cursor", SEQ_MAX)
    return DeadLetterFilter(query.get("run"), query.get("task"), limit, cursor)


def dead_letter_seq(text: str) -> int:
    """A dead letter's sequence out of a path. Raises Invalid when it is missing, NotFound for what cannot be one."""
    if not text:
        raise Invalid("the dead letter's sequence is missing")
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(SEQ_MAX)) and 0 < int(text) <= SEQ_MAX):
        raise NotFound(f"dead letter {quoted(text)} does not exist")
    return int(text)


def event_name(text: str) -> str:
    """An event's name in a path, except names that only the service itself sends."""
    _name_in_path(text, "event name", "the event's name")
    if found := re.match(RESERVED_EVENTS, text):
        whose = "signed webhooks" if found[1] == "webhook" else "cron triggers"
        raise Invalid(f"event name {quoted(text)} may not begin with {quoted(found[0])}: only {whose} send such events")
    return text


def signal_name(text: str) -> str:
    """A signal's name out of a path."""
    return _name_in_path(text, "signal name")


def _name_in_path(text: str, kind: str, missing: str | None = None, chars_max: int = NAME_CHARS_MAX) -> str:
    """A name out of a path; an error about one that is missing calls it `the <kind>`, or `missing`."""
    if not text:
        raise Invalid(f"{missing or f'the {kind}'} is missing")
    if problem := problem_with(kind, text, chars_max):
        raise Invalid(problem)
    return text


def _query(req: Request, report: Report, *known: str) -> Mapping[str, str]:
    """Each known parameter at most once."""
    report.add(*(f"unknown query parameter {quoted(name)}" for name in req.params if name not in known))
    report.add(
        *(f"{name} is given {len(value)} times" for name, value in req.params.items() if isinstance(value, list))
    )
    return {name: value for name, value in req.params.items() if isinstance(value, str)}


def _seq(name: str, text: str, report: Report) -> int:
    """A sequence out of a header."""
    seq = SEQ.read(name, text, report)
    assert isinstance(seq, int)
    return seq


def _query_values(req: Request, rules: Fields) -> dict[str, Any]:
    """As `_read`. Raises Invalid that names every problem."""
    report = Report()
    query = _read(req, rules, report)
    raise_problems(report)
    return query


def _read(req: Request, rules: Fields, report: Report) -> dict[str, Any]:
    """The parameters of the query string that are given, in their normal form. Others are problems."""
    query = _query(req, report, *rules)
    return {name: rule.read(name, query[name], report) for name, rule in rules.items() if name in query}
