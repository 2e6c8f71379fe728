"""The storm reads each event once, whatever interrupts it."""

from __future__ import annotations

import pytest
from chaos_parts.gathering import Gathering
from chaos_parts.workflows import BRIEF, DEFINITIONS

from penstock.broker.records.imports import FORMAT, ImportedHead, ImportMark, encode_mark
from penstock.broker.store import Store
from penstock.engine.definition.definitions import digest, to_json
from penstock.engine.errors import PenstockError
from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import WorkflowCancelled, WorkflowStarted
from penstock.engine.run.state import RunStatus
from penstock.engine.validation import parse

RUN, IMPORTED = "a" * 32, "b" * 32


async def test_an_event_is_noted_once_though_its_definition_was_not_there_at_first(store: Store) -> None:
    definition = parse(next(one for one in DEFINITIONS if one["name"] == BRIEF))
    found = digest(to_json(definition))
    started = WorkflowStarted(run_id=RUN, timestamp="2026-11-22T20:00:00Z", payload=Started(BRIEF, "1", found))
    await store.history.append_first([started])
    gathering = Gathering(store)
    with pytest.raises(PenstockError):
        await gathering.read_on()
    await store.definitions.register(definition)
    await gathering.read_on()
    assert [("workflow.started", "running")] == [
        (one.type, gathering.accounts[RUN].status) for one in gathering.seen[RUN]
    ]


async def test_what_was_imported_is_no_run_and_nothing_may_follow_it(store: Store) -> None:
    head = ImportedHead("1", BRIEF, RunStatus.RUNNING, "2026-11-22T20:00:00Z")
    mark = ImportMark(run_id=IMPORTED, timestamp="2026-11-22T20:00:00Z", v=FORMAT, payload=head)
    await store.history.mark(IMPORTED, encode_mark(mark))
    gathering = Gathering(store)
    await gathering.read_on()
    assert ({IMPORTED}, [], []) == (gathering.imported, [*gathering.seen.keys() & {IMPORTED}], gathering._malformed)
    await store.history.append(WorkflowCancelled(run_id=IMPORTED, timestamp="2026-11-22T20:00:00Z"))
    await gathering.read_on()
    assert 1 == len(gathering._malformed)
