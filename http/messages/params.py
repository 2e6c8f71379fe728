"""Reads paths, query strings and headers. Errors name what is wrong and say what would be right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from falcon.asgi import Request
from msgspec import Meta, Struct

from penstock.config.limits import (
    APPROVALS_LISTED_MAX,
    DEAD_LETTERS_LISTED_DEFAULT,
    DEAD_LETTERS_LISTED_MAX,
    POLL_MS_MAX,
    RUNS_LISTED_DEFAULT,
    RUNS_LISTED_MAX,
    WAIT_MS_MAX,
)
from penstock.engine.definition.identifiers import is_run_id, problem_with, quoted
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid, NotFound
from penstock.engine.run.state import RunStatus

KEY_CHARS_MAX = 255
SEQ_MAX = 2**63 - 1
MIN_SEQ = "Penstock-Min-Seq"
ACTIONS = ("approve", "reject")
RESERVED_EVENTS = r"^(webhook|cron)\."
PREFIX = re.compile(r"[0-9a-f]{8,32}")

Instant = Annotated[datetime, Meta(tz=True)]


class Filter(Struct, frozen=True):
    """Which runs to list. `after` and `before` are as `created_at` is written; `cursor` continues an earlier list;
    `prefix` is what the ids begin with."""

    workflow: str | None
    status: RunStatus | None
    after: str | None
    before: str | None
    limit: int
    cursor: str | None
    prefix: str | None


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
    """A decision on an approval."""

    granted: bool
    token: str


def run_id(text: str) -> str:
    """A run id out of a path. Raises Invalid when it is missing, NotFound for what cannot be one."""
    if not text:
        raise Invalid("the run id is missing")
    if not is_run_id(text):
        raise NotFound(f"run {quoted(text)} does not exist")
    return text


def task_id(text: str) -> str:
    """A polled task's id out of a path: a run id, a dot and a step id. Raises as `run_id`."""
    if not text:
        raise Invalid("the task id is missing")
    run_id, _, step_id = text.partition(".")
    if not is_run_id(run_id) or problem_with("step id", step_id):
        raise NotFound(f"task {quoted(text)} is not among the polled tasks")
    return text


def workflow_name(text: str) -> str:
    """A workflow name out of a path."""
    return _name_in_path(text, "workflow name")


def trigger_name(text: str) -> str:
    """A trigger's name out of a path."""
    return _name_in_path(text, "trigger name", "the trigger's name")


def step_id(text: str) -> str:
    """A step id out of a path."""
    return _name_in_path(text, "step id")


def decision(req: Request) -> Asked:
    """What a person decided, and the token that lets them, out of the query string."""
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
    report = Report()
    query = _query(req, report, *ApprovalFilter.__struct_fields__)
    limit = _number(query, "limit", 1, APPROVALS_LISTED_MAX, APPROVALS_LISTED_MAX, report)
    found = ApprovalFilter(_name(query, report), limit, query.get("cursor"))
    raise_problems(report)
    return found


def run_filter(req: Request) -> Filter:
    """The filter in a query string."""
    report = Report()
    query = _query(req, report, *Filter.__struct_fields__)
    found = Filter(
        _name(query, report),
        _status(query, report),
        _instant(query, "after", report),
        _instant(query, "before", report),
        _number(query, "limit", 1, RUNS_LISTED_MAX, RUNS_LISTED_DEFAULT, report),
        query.get("cursor"),
        _prefix(query, report),
    )
    raise_problems(report)
    return found


def after_seq(req: Request) -> int:
    """After which sequence events are wanted: the header of a resumed stream, else the query parameter, else all."""
    report = Report()
    query = _query(req, report, "after")
    resumed = req.get_header("Last-Event-ID")
    seq = _number(query, "after", 0, SEQ_MAX, 0, report)
    if resumed:
        seq = _number({"Last-Event-ID": resumed}, "Last-Event-ID", 0, SEQ_MAX, 0, report)
    raise_problems(report)
    return seq


def wait_s(req: Request) -> float:
    """How long the answer may be held back until the run has ended, in s; 0: not at all."""
    report = Report()
    wait_ms = _number(_query(req, report, "wait_ms"), "wait_ms", 0, WAIT_MS_MAX, 0, report)
    raise_problems(report)
    return wait_ms / 1000


def timeout_s(req: Request) -> float:
    """How long the answer may be held back for what is not there yet, in s; 0: not at all."""
    report = Report()
    timeout_ms = _number(_query(req, report, "timeout_ms"), "timeout_ms", 0, POLL_MS_MAX, 0, report)
    raise_problems(report)
    return timeout_ms / 1000


def idempotency_key(req: Request) -> str | None:
    """The key that makes a repeated start the same one, if the request has one."""
    key = req.get_header("Idempotency-Key")
    if key is not None and not (0 < len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable()):
        raise Invalid(f"Idempotency-Key must be 1 to {KEY_CHARS_MAX} printable ASCII characters")
    return key


def min_seq(req: Request) -> int:
    """The sequence of the log that the index must have for this request; 0 without one."""
    report = Report()
    text = req.get_header(MIN_SEQ)
    seq = 0 if text is None else _number({MIN_SEQ: text}, MIN_SEQ, 0, SEQ_MAX, 0, report)
    raise_problems(report)
    return seq


def instant(text: str) -> datetime | None:
    """A moment in RFC 3339, in UTC; None for text that is none."""
    try:
        return msgspec.convert(text, Instant).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        return None


def bound(name: str, text: object, report: Report) -> str | None:
    """A bound of time, as `created_at` is written; None when there is none."""
    if text is None:
        return None
    assert isinstance(text, str)
    if (moment := instant(text)) is None:
        report.add(f"{name} must be a time such as 2025-01-31T12:00:00Z, not {quoted(text)}")
        return None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def dead_letter_filter(req: Request) -> DeadLetterFilter:
    """Which dead letters to list, out of a query string."""
    report = Report()
    query = _query(req, report, *DeadLetterFilter.__struct_fields__)
    run, task = query.get("run"), query.get("task")
    if run is not None and not is_run_id(run):
        report.add(f"run must be a run id, not {quoted(run)}")
    if task is not None and (problem := problem_with("task", task)):
        report.add(problem)
    limit = _number(query, "limit", 1, DEAD_LETTERS_LISTED_MAX, DEAD_LETTERS_LISTED_DEFAULT, report)
    cursor = _number(query, "cursor", 1, SEQ_MAX, SEQ_MAX, report)
    raise_problems(report)
    return DeadLetterFilter(run, task, limit, cursor)


def dead_letter_seq(text: str) -> int:
    """A dead letter's sequence out of a path. Raises Invalid when it is missing, NotFound for what cannot be one."""
    if not text:
        raise Invalid("the dead letter's sequence is missing")
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(SEQ_MAX)) and 0 < int(text) <= SEQ_MAX):
        raise NotFound(f"dead letter {quoted(text)} does not exist")
    return int(text)


def event_name(text: str) -> str:
    """An event's name out of a path, none of those that only the service itself sends."""
    _name_in_path(text, "event name", "the event's name")
    if found := re.match(RESERVED_EVENTS, text):
        whose = "signed webhooks" if found[1] == "webhook" else "cron triggers"
        raise Invalid(f"event name {quoted(text)} may not begin with {quoted(found[0])}: only {whose} send such events")
    return text


def signal_name(text: str) -> str:
    """A signal's name out of a path."""
    return _name_in_path(text, "signal name")


def _name_in_path(text: str, kind: str, missing: str | None = None) -> str:
    """A name out of a path; an error about one that is missing calls it `the <kind>`, or `missing`."""
    if not text:
        raise Invalid(f"{missing or f'the {kind}'} is missing")
    if problem := problem_with(kind, text):
        raise Invalid(problem)
    return text


def _query(req: Request, report: Report, *known: str) -> Mapping[str, str]:
    """Each known parameter at most once."""
    report.add(*(f"unknown query parameter {quoted(name)}" for name in req.params if name not in known))
    report.add(
        *(f"{name} is given {len(value)} times" for name, value in req.params.items() if isinstance(value, list))
    )
    return {name: value for name, value in req.params.items() if isinstance(value, str)}


def _name(query: Mapping[str, str], report: Report) -> str | None:
    name = query.get("workflow")
    if name is not None and (problem := problem_with("workflow", name)):
        report.add(problem)
    return name


def _status(query: Mapping[str, str], report: Report) -> RunStatus | None:
    text = query.get("status")
    if text is None or text in RunStatus.__members__.values():
        return None if text is None else RunStatus(text)
    report.add(f"status must be one of {' '.join(RunStatus)}, not {quoted(text)}")
    return None


def _prefix(query: Mapping[str, str], report: Report) -> str | None:
    text = query.get("prefix")
    if text is not None and not PREFIX.fullmatch(text):
        report.add(f"prefix must be the first 8 to 32 characters of a run id, which are 0-9 a-f, not {quoted(text)}")
    return text


def _instant(query: Mapping[str, str], name: str, report: Report) -> str | None:
    return bound(name, query.get(name), report)


def _number(query: Mapping[str, str], name: str, least: int, most: int, default: int, report: Report) -> int:
    text = query.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
        return int(text)
    report.add(f"{name} must be a whole number from {least} to {most}, not {quoted(text)}")
    return default


def raise_problems(report: Report) -> None:
    """Raise Invalid with what the report has, if it has anything."""
    if problems := report.problems():
        raise Invalid(*problems)
