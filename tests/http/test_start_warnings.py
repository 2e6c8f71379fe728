"""POST /runs warns of task types that no worker serves, by what the front end knew a moment ago."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor

from penstock.broker.store import Store
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.validation import parse
from penstock.http import served
from penstock.http.served import ServedTasks
from tests.support.waiting import until


async def started(http: ASGIConductor, **more: Any) -> dict[str, Any]:
    answer = await http.simulate_post("/runs", body=orjson.dumps({"workflow": "warned", **more}))
    assert 201 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json
    return found


async def register(http: ASGIConductor, task: str) -> None:
    body = {"name": "warned", "steps": [{"id": "a", "task": task}]}
    assert 201 == (await http.simulate_post("/workflows", body=orjson.dumps(body))).status_code


async def test_the_first_start_warns_and_the_next_one_does_not_once_a_worker_is_there(
    http: ASGIConductor, store: Store, task: str
) -> None:
    await register(http, task)
    (warning,) = (await started(http))["warnings"]
    assert warning == f'step "a": no worker serves task "{task}" now; it waits for one'
    await store.workers.put("w", orjson.dumps({"worker_id": "w", "task_types": [task]}))

    async def silent() -> bool:
        return (await started(http)).keys() == {"run_id"}

    assert await until(silent)
    await store.workers.delete("w")


async def test_a_start_at_a_later_time_warns_of_nothing(http: ASGIConductor, task: str) -> None:
    await register(http, task)
    assert {"run_id", "status"} == (await started(http, run_at="2099-01-01T00:00:00Z")).keys()


async def test_starts_without_a_warning_read_nothing_while_it_is_fresh(store: Store, task: str) -> None:
    definition = _definition(task)
    await store.workers.put("w2", orjson.dumps({"worker_id": "w2", "task_types": [task]}))
    known = ServedTasks(store)
    known.look()
    assert [] == await known.warnings(definition, "d")
    reads = _counted(store)
    for _ in range(100):
        known.look()
        assert [] == await known.warnings(definition, "d")
    assert [] == reads
    await store.workers.delete("w2")


async def test_many_starts_with_a_warning_share_a_few_reads(
    store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "DOUBTED_S", 60.0)
    known, reads = ServedTasks(store), _counted(store)
    for _ in range(100):
        known.look()
        assert 1 == len(await known.warnings(_definition(task), "d"))
    assert 1 == len(reads)


def _definition(task: str) -> WorkflowDef:
    return parse({"name": "warned", "steps": [{"id": "a", "task": task}]})


def _counted(store: Store) -> list[str]:
    """The reads of the registrations from now on."""
    reads, read = list[str](), store.workers.all

    async def counting(under: str = ">") -> Any:
        reads.append(under)
        return await read(under)

    store.workers.all = counting  # type: ignore[method-assign]
    return reads
