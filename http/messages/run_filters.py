"""Which runs a list or a count is about, out of a query string."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from typing import Any

from falcon.asgi import Request
from msgspec import Struct

from penstock.actors.index.selection import GroupBy, Selection
from penstock.config.limits import (
    CALL_MS_DEFAULT,
    RUN_LABELS_MAX,
    RUNS_LISTED_DEFAULT,
    RUNS_LISTED_MAX,
    SEARCH_TEXT_CHARS_MAX,
    STATS_WITHIN_MS_MAX,
    STATS_WITHIN_MS_MIN,
    SUMMARIES_LISTED_DEFAULT,
    SUMMARIES_LISTED_MAX,
)
from penstock.engine.definition import durations, forms, values
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.labels import label_text
from penstock.engine.definition.report import Report
from penstock.engine.run.state import RunStatus
from penstock.http.messages.callers import caller_of
from penstock.http.messages.fields import Fields, digits, moment, raise_problems
from penstock.http.messages.params import CALL_MS, PAYLOAD_MAX, read_query, run

BUCKET_S_MIN = 0.001
TRUTH = {"true": True, "false": False}
PREFIX = re.compile("^[0-9a-f]{8,32}$")


@forms.rule({"type": "string", "minLength": 1, "maxLength": SEARCH_TEXT_CHARS_MAX})
def search_text(path: str, value: object, report: Report) -> object:
    assert isinstance(value, str)
    if not value:
        report.add(f"{path} is empty")
    if len(value) > SEARCH_TEXT_CHARS_MAX:
        report.add(f"{path} has {len(value)} characters, {SEARCH_TEXT_CHARS_MAX} is the most")
    return value


@forms.rule({"type": "array", "items": label_text, "maxItems": RUN_LABELS_MAX})
def label_filter(path: str, value: object, report: Report) -> object:
    """Labels that a run must have, each key once."""
    given = [value] if isinstance(value, str) else value
    assert isinstance(given, list)
    if len(given) > RUN_LABELS_MAX:
        report.add(f"{path} is given {len(given)} times, {RUN_LABELS_MAX} is the most")
        return []
    keys = Counter(one.partition(":")[0] for one in given)
    report.add(*(f"{path} {quoted(key)} is given {times} times" for key, times in keys.items() if times > 1))
    return [label_text.read(path, one, report) for one in given]


@forms.rule({**durations.SCHEMA, "description": "Text such as 5m, 1h, 24h; 1ms is the least."})
def bucket(path: str, value: object, report: Report) -> object:
    """The width of buckets of time."""
    read = values.timeout.read(path, value, report)
    assert isinstance(read, str)
    if not report.problems() and durations.parse(read) < BUCKET_S_MIN:
        report.add(f"{path} {quoted(read)} is too short, 1ms is the least")
    return read


@forms.rule({"type": "string", "pattern": PREFIX.pattern})
def prefix(path: str, value: object, report: Report) -> object:
    assert isinstance(value, str)
    if not PREFIX.fullmatch(value):
        report.add(f"{path} must be the first 8 to 32 characters of a run id, which are 0-9 a-f, not {quoted(value)}")
    return value


OF_PAGES = ("limit", "cursor", "payload_max")
RUNS: Fields = {
    "workflow": values.name,
    "status": values.one_of(*RunStatus),
    "after": moment,
    "before": moment,
    "limit": digits(1, RUNS_LISTED_MAX),
    "cursor": values.text,
    "prefix": prefix,
    "parent": run,
    "trigger": values.name,
    "paused": values.one_of(*TRUTH),
    "q": search_text,
    "label": label_filter,
    "payload_max": PAYLOAD_MAX,
}
STATS: Fields = {
    **{name: rule for name, rule in RUNS.items() if name not in OF_PAGES},
    "bucket": bucket,
    "by": values.one_of(*(one.value for one in GroupBy)),
    "durations": values.one_of(*TRUTH),
    "within_ms": digits(STATS_WITHIN_MS_MIN, STATS_WITHIN_MS_MAX),
}


SUMMARIES: Fields = {
    **{name: rule for name, rule in RUNS.items() if name != "payload_max"},
    "limit": digits(1, SUMMARIES_LISTED_MAX),
    "explain": values.one_of(*TRUTH),
    "held_up": values.one_of("true"),
}


CALL: Fields = {"timeout_ms": CALL_MS, "label": label_filter}


class Filter(Struct, frozen=True):
    """Which runs to list; `cursor` continues an earlier list. Larger payloads than `payload_max` bytes are left out."""

    selection: Selection
    status: RunStatus | None
    limit: int
    cursor: str | None
    payload_max: int | None


def run_filter(req: Request) -> Filter:
    """The filter in a query string."""
    report = Report()
    selection, query = _selection(req, RUNS, report)
    raise_problems(report)
    status = RunStatus(query["status"]) if "status" in query else None
    limit = query.get("limit", RUNS_LISTED_DEFAULT)
    return Filter(selection, status, limit, query.get("cursor"), query.get("payload_max"))


class SummaryFilter(Struct, frozen=True):
    """Which runs to list in short, whether to say why they wait, and whether only those that somebody has to act on."""

    runs: Filter
    explain: bool
    held_up: bool


def summary_filter(req: Request) -> SummaryFilter:
    """The filter in a query string. What is held up is explained, too."""
    report = Report()
    selection, query = _selection(req, SUMMARIES, report)
    raise_problems(report)
    status = RunStatus(query["status"]) if "status" in query else None
    wanted = Filter(selection, status, query.get("limit", SUMMARIES_LISTED_DEFAULT), query.get("cursor"), None)
    held_up = "held_up" in query
    return SummaryFilter(wanted, held_up or TRUTH[query.get("explain", "false")], held_up)


def newest(req: Request, limit: int) -> Filter:
    """The newest runs that the caller may see."""
    return Filter(Selection(pattern=caller_of(req).workflows), None, limit, None, None)


def call_options(req: Request) -> tuple[float, dict[str, str] | None]:
    """How long a caller waits for the answer of a run, in s, and the labels of the run."""
    report = Report()
    query = read_query(req, CALL, report)
    raise_problems(report)
    labels = dict(one.split(":", 1) for one in query.get("label", ()))
    return query.get("timeout_ms", CALL_MS_DEFAULT) / 1000, labels or None


class StatsFilter(Struct, frozen=True):
    """Which runs to count, the width of the buckets, None for one, by what they are grouped, and whether it is also
    asked how long they took. With `within_s` the newest are counted for so long."""

    selection: Selection
    width: timedelta | None
    by: GroupBy | None
    durations: bool
    within_s: float | None


def stats_filter(req: Request) -> StatsFilter:
    """What the numbers are asked of."""
    report = Report()
    selection, query = _selection(req, STATS, report)
    others = [name for name in ("by", "durations") if name in query]
    if "within_ms" in query and others:
        report.add(f"within_ms and {' and '.join(others)} exclude each other: of these, all runs are counted")
    raise_problems(report)
    width = query.get("bucket")
    return StatsFilter(
        selection,
        None if width is None else timedelta(seconds=durations.parse(width)),
        GroupBy(query["by"]) if "by" in query else None,
        TRUTH.get(query.get("durations", ""), False),
        query["within_ms"] / 1000 if "within_ms" in query else None,
    )


def _selection(req: Request, rules: Fields, report: Report) -> tuple[Selection, dict[str, Any]]:
    """The filter in a query string, and all its values."""
    query = read_query(req, rules, report)
    status = query.get("status")
    given: dict[str, Any] = {
        name: query.get(name) for name in ("workflow", "after", "before", "prefix", "parent", "trigger")
    }
    selection = Selection(
        **given,
        statuses=None if status is None else frozenset({status}),
        labels=tuple(query.get("label", ())),
        text=query.get("q"),
        pattern=caller_of(req).workflows,
        paused=TRUTH.get(query.get("paused", "")),
    )
    return selection, query
