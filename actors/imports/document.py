"""Checks the document of a run that is to be imported, and folds it. Pure, and slow for a large one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import orjson
from msgspec import Raw

from penstock.broker.records.imports import ImportDocument, stored_event
from penstock.engine import formats
from penstock.engine.definition.definitions import WorkflowDef, digest, to_json
from penstock.engine.definition.identifiers import is_run_id, quoted, shown
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid, NeedsUpgrade
from penstock.engine.run.advance import advance
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.events import Malformed, Record, WorkflowScheduled, WorkflowStarted, decode, event_type
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow
from penstock.engine.validation import parse

SEQ_MAX = 2**53  # JSON numbers beyond it are not whole everywhere


def check(document: ImportDocument) -> Run:
    """The run of the document, as it is after its last event. Raises Invalid with all problems, each with its place."""
    report = Report()
    if not is_run_id(document.run_id):
        report.add(f"run_id must be 32 characters of 0-9 a-f, not {quoted(document.run_id)}")
    definition = _definition(document.definition, report)
    records = _records(document, report)
    if not document.events:
        report.add("events is empty: a run has at least the event with which it begins")
    if records and not report.problems():
        _check_beginning(records, definition, document.definition, report)
    _raise(report)
    assert definition is not None
    return _folded(definition, records)


def compiled(document: ImportDocument) -> Workflow:
    """The definition of a document that was checked."""
    definition = _parsed(document.definition)
    return compile_workflow(definition, digest(to_json(definition)))


def _parsed(body: Raw) -> WorkflowDef:
    """The definition in its stored form, or as somebody would register it. Raises Invalid, NeedsUpgrade."""
    value = orjson.loads(bytes(body))
    if isinstance(value, dict):
        formats.check(bytes(body))
        value.pop("v", None)
    return parse(value)


def _definition(body: Raw, report: Report) -> WorkflowDef | None:
    try:
        return _parsed(body)
    except Invalid as error:
        report.add(*(f"definition: {problem}" for problem in error.problems))
    except NeedsUpgrade as error:
        report.add(f"definition: {error}")
    return None


def _records(document: ImportDocument, report: Report) -> list[Record]:
    records: list[Record] = []
    last = 0
    for number, body in enumerate(document.events):
        try:
            record = _record(body)
        except (msgspec.MsgspecError, Malformed, NeedsUpgrade, ValueError, UnicodeDecodeError, RecursionError) as error:
            report.add(f"events[{number}]: {shown(str(error))}")
            continue
        report.add(*(f"events[{number}]: {problem}" for problem in _problems(record, document.run_id, last)))
        last = record.seq
        records.append(record)
    return records


def _record(body: Raw) -> Record:
    stored = stored_event("", body)
    return Record(stored.seq, stored.at, decode(stored.data))


def _problems(record: Record, run_id: str, last: int) -> Iterator[str]:
    if not 1 <= record.seq <= SEQ_MAX:
        yield f"seq {record.seq} is not between 1 and {SEQ_MAX}"
    elif record.seq <= last:
        yield f"seq {record.seq} does not follow {last}: events are in the order of their sequences"
    if record.at < 0:
        yield "stored_at is before 1970"
    if record.event.run_id != run_id:
        yield f"run_id is {quoted(record.event.run_id)}, not that of the document"


def _check_beginning(records: list[Record], definition: WorkflowDef | None, body: Raw, report: Report) -> None:
    """What comes before the beginning changes nothing, in any history."""
    first = next((one.event for one in records if isinstance(one.event, WorkflowStarted | WorkflowScheduled)), None)
    if first is None:
        report.add("events: none of them is workflow.started or workflow.scheduled, with which a run begins")
        return
    assert definition is not None, "no problem was found in it"
    if first.payload.workflow != definition.name:
        report.add(f"definition: the run is of workflow {quoted(first.payload.workflow)}, not of {definition.name}")
    if first.payload.digest not in (digest(bytes(body)), digest(to_json(definition))):
        report.add("definition: it is not the one of the run, whose digest its first event has")


def _folded(definition: WorkflowDef, records: list[Record]) -> Run:
    workflow = compile_workflow(definition, digest(to_json(definition)))
    run: Run | None = None
    for number, record in enumerate(records):
        try:
            run, _ = advance(workflow, run, record)
        except Exception as error:  # what no engine has written may be anything
            kind = event_type(record.event)
            raise Invalid(f"events[{number}]: {kind} cannot be applied here: {type(error).__name__}") from error
    assert run is not None, "it begins with an event that makes it"
    return run


def _raise(report: Report) -> None:
    if found := report.problems():
        raise Invalid(*found)
