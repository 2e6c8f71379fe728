"""Reads paths, query strings and headers. Errors say what is wrong and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from falcon.asgi import Request
from msgspec import Struct

from penstock.broker.live.lines import LEVELS, RANKS
from penstock.broker.records.audit import END
from penstock.config.limits import (
    APPROVALS_LISTED_MAX,
    AUDIT_LISTED_DEFAULT,
    AUDIT_LISTED_MAX,
    CALL_MS_MAX,
    DEAD_LETTERS_LISTED_DEFAULT,
    DEAD_LETTERS_LISTED_MAX,
    EVENTS_LISTED_MAX,
    LOGS_LISTED_DEFAULT,
    LOGS_LISTED_MAX,
    MAP_ITEMS_DEFAULT,
    MAP_ITEMS_MAX,
    NAME_CHARS_MAX,
    OUTPUTS_SHOWN_BYTES_MAX,
    POLL_MS_MAX,
    STEP_ID_CHARS_MAX,
    WAIT_MS_MAX,
)
from penstock.engine.definition import forms, values
from penstock.engine.definition.identifiers import NAME_PATTERN, is_run_id, problem_with, quoted
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid, NotFound
from penstock.http.messages.fields import Fields, digits, raise_problems

KEY_CHARS_MAX = 255
ITEMS_LISTED_DEFAULT = 100
SEQ_MAX = 2**63 - 1
AUDIT_CURSOR = re.compile(r"^[0-9]{1,18}\.[0-9]{1,18}$")
MIN_SEQ = "Penstock-Min-Seq"
ACTIONS = ("approve", "reject")
RESERVED_EVENTS = r"^(webhook|cron)\."
RUN_ID_EXAMPLE = "01a1fbd4e22e73c2b60e9754e7b7a067"


@forms.rule({"type": "string", "pattern": "^[0-9a-f]{32}$", "examples": [RUN_ID_EXAMPLE]}, component="RunId")
def run(path: str, value: object, report: Report) -> object:
    assert isinstance(value, str)
    if not is_run_id(value):
        report.add(f"{path} must be a run id, not {quoted(value)}")
    return value


@forms.rule({"type": "string", "pattern": AUDIT_CURSOR.pattern})
def audit_cursor(path: str, value: object, report: Report) -> object:
    assert isinstance(value, str)
    if not AUDIT_CURSOR.fullmatch(value):
        report.add(f"{path} {quoted(value)} is not one that this service has returned")
    return value


SEQ = digits(0, SEQ_MAX)
VERSION = values.version
FORCE = values.one_of("true", "false")
SUMMARY = values.one_of("true", "false")
WAIT_MS = digits(0, WAIT_MS_MAX)
PAYLOAD_MAX = digits(0, OUTPUTS_SHOWN_BYTES_MAX)
CALL_MS = digits(0, CALL_MS_MAX)
TIMEOUT_MS = digits(0, POLL_MS_MAX)


@forms.rule({"type": "string", "minLength": 1, "maxLength": STEP_ID_CHARS_MAX, "pattern": f"^{NAME_PATTERN}$"})
def step(path: str, value: object, report: Report) -> object:
    if problem := problem_with(path, value, STEP_ID_CHARS_MAX):
        report.add(problem)
    return value


# The query strings of lists.
ITEMS: Fields = {
    "status": values.one_of("queued", "running", "completed", "failed", "cancelled"),
    "limit": digits(1, MAP_ITEMS_DEFAULT),
    "cursor": digits(0, MAP_ITEMS_MAX),
}
STREAM: Fields = {"step": step, "after": SEQ}
EVENTS: Fields = {"after": SEQ, "limit": digits(1, EVENTS_LISTED_MAX), "payload_max": PAYLOAD_MAX}
LOGS: Fields = {**STREAM, "level": values.one_of(*LEVELS), "q": values.text, "limit": digits(1, LOGS_LISTED_MAX)}
APPROVALS: Fields = {"workflow": values.name, "limit": digits(1, APPROVALS_LISTED_MAX), "cursor": values.text}
AUDIT: Fields = {"limit": digits(1, AUDIT_LISTED_MAX), "cursor": audit_cursor}
DEAD_LETTERS: Fields = {
    "run": run,
    "task": values.name,
    "limit": digits(1, DEAD_LETTERS_LISTED_MAX),
    "cursor": digits(1, SEQ_MAX),
}


REPEATED = frozenset({"label"})  # what may be given several times


class ItemFilter(Struct, frozen=True):
    """Which elements of a map to list; `cursor` is the number of the first."""

    status: str | None
    limit: int
    cursor: int


class StreamFilter(Struct, frozen=True):
    """Which chunks to show: of a step and what is below it, after a place; None: of all steps."""

    step: str | None
    after: int


class EventFilter(Struct, frozen=True):
    """Which events of a run to show: `limit` of them after a sequence, None: as many as fit a page. Payloads over
    `payload_max` bytes are left out, None: none."""

    after: int
    limit: int | None
    payload_max: int | None


class LogFilter(Struct, frozen=True):
    """Which log lines to show: as StreamFilter, of this rank (RANKS) and worse, with this text, in lower case."""

    step: str | None
    after: int
    rank: int
    text: str
    limit: int


class DeadLetterFilter(Struct, frozen=True):
    """Which dead letters to list; `cursor` continues an earlier list."""

    run: str | None
    task: str | None
    limit: int
    cursor: int


class AuditFilter(Struct, frozen=True):
    """Which entries of the audit log to list; `before` is where an earlier list has ended, in each of its streams."""

    limit: int
    before: tuple[int, int]


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


def summary(req: Request) -> bool:
    """Whether what is listed shall be in short."""
    return bool(_query_values(req, {"summary": SUMMARY}).get("summary") == "true")


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


def item_filter(req: Request) -> ItemFilter:
    """Which elements of a map to list, out of a query string."""
    query = _query_values(req, ITEMS)
    return ItemFilter(query.get("status"), query.get("limit", ITEMS_LISTED_DEFAULT), query.get("cursor", 0))


def stream_filter(req: Request) -> StreamFilter:
    """Which chunks to show, out of a query string and the header of a resumed stream."""
    query = _resumed(req, STREAM)
    return StreamFilter(query.get("step"), query.get("after", 0))


def log_filter(req: Request) -> LogFilter:
    """Which log lines to show, out of a query string and the header of a resumed stream."""
    query = _resumed(req, LOGS)
    return LogFilter(
        query.get("step"),
        query.get("after", 0),
        RANKS[query.get("level", LEVELS[0])],
        query.get("q", "").casefold(),
        query.get("limit", LOGS_LISTED_DEFAULT),
    )


def event_filter(req: Request) -> EventFilter:
    """Which events to show: those after the sequence in the header of a resumed stream, else the query parameter, else
    0."""
    query = _resumed(req, EVENTS)
    return EventFilter(query.get("after", 0), query.get("limit"), query.get("payload_max"))


def _resumed(req: Request, rules: Fields) -> dict[str, Any]:
    """The query parameters; the header of a resumed stream replaces `after`. Raises Invalid that names every
    problem."""
    report = Report()
    query = read_query(req, rules, report)
    resumed = req.get_header("Last-Event-ID")
    if resumed:
        query["after"] = _seq("Last-Event-ID", resumed, report)
    raise_problems(report)
    return query


class Moment(Struct, frozen=True):
    """Which state of a run is asked for: with `at` that of this sequence, else the newest, after waiting `wait_s` for
    its end; and how large the payloads in it may be, in bytes."""

    wait_s: float
    at: int | None
    payload_max: int | None


def moment(req: Request) -> Moment:
    """Raises Invalid for both at once."""
    query = _query_values(req, {"wait_ms": WAIT_MS, "at": SEQ, "payload_max": PAYLOAD_MAX})
    if query.get("at") is not None and query.get("wait_ms"):
        raise Invalid("at and wait_ms exclude each other: what was does not change")
    return Moment(float(query.get("wait_ms", 0) / 1000), query.get("at"), query.get("payload_max"))


def payload_max(req: Request) -> int | None:
    """How large a payload may be, in bytes; None: as large as it is."""
    found: int | None = _query_values(req, {"payload_max": PAYLOAD_MAX}).get("payload_max")
    return found


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


def audit_filter(req: Request) -> AuditFilter:
    """Which entries of the audit log to list, out of a query string."""
    query = _query_values(req, AUDIT)
    changes, _, refusals = query.get("cursor", f"{END}.{END}").partition(".")
    return AuditFilter(query.get("limit", AUDIT_LISTED_DEFAULT), (int(changes), int(refusals)))


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


def _query(req: Request, report: Report, *known: str) -> Mapping[str, Any]:
    """Each known parameter at most once, but for those in REPEATED."""
    report.add(*(f"unknown query parameter {quoted(name)}" for name in req.params if name not in known))
    report.add(
        *(
            f"{name} is given {len(value)} times"
            for name, value in req.params.items()
            if isinstance(value, list) and name not in REPEATED
        )
    )
    return {name: value for name, value in req.params.items() if isinstance(value, str) or name in REPEATED}


def _seq(name: str, text: str, report: Report) -> int:
    """A sequence out of a header."""
    seq = SEQ.read(name, text, report)
    assert isinstance(seq, int)
    return seq


def _query_values(req: Request, rules: Fields) -> dict[str, Any]:
    """As `read_query`. Raises Invalid that names every problem."""
    report = Report()
    query = read_query(req, rules, report)
    raise_problems(report)
    return query


def read_query(req: Request, rules: Fields, report: Report) -> dict[str, Any]:
    """The parameters of the query string that are given, in their normal form. Others are problems."""
    query = _query(req, report, *rules)
    return {name: rule.read(name, query[name], report) for name, rule in rules.items() if name in query}
