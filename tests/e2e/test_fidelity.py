"""The test kit and a service make the same histories of the same scenarios, but for ids, times and who worked."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import orjson
import pytest

from penstock.testing import TestRun, TestService
from tests.e2e.conftest import StartService
from tests.support.fidelity import EVENTS, FUNCTIONS, OTHERS, Scenario, scenarios
from tests.support.service import Service
from tests.support.waiting import until_true

ID, TIME = re.compile(r"[0-9a-f]{64}|[0-9a-f]{32}"), re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
UNLIKE = ("traceback", "seq", "due", "digest", "until", "since")  # parts of payloads that are times or numbers of a log

History = dict[str, list[Any]]

pytestmark = pytest.mark.timeout(240)


@contextmanager
def working(service: Service) -> Iterator[None]:
    worker = subprocess.Popen([sys.executable, "-m", "tests.support.fidelity"], env=service.environ)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


async def test_the_kit_and_the_service_make_the_same_histories(start_service: StartService) -> None:
    service, wanted = start_service(shards=1, http_workers=1), scenarios()
    with service.client() as api, working(service):
        for definition in (*OTHERS, *(one.definition for one in wanted)):
            api.register(orjson.dumps(definition))
        for event in EVENTS:
            api.send_event("fidelity", orjson.dumps(event))
        run_ids = [api.start(one.definition["name"], orjson.dumps(one.input)).run_id for one in wanted]
        for run_id in run_ids:
            await until_true(lambda run_id=run_id: _ended(service, run_id), 60)
        real = [_by_service(service, run_id) for run_id in run_ids]
    differ = [
        (scenario.definition, name, found.get(name), kit.get(name))
        for scenario, found in zip(wanted, real, strict=True)
        for kit in [_by_kit(scenario)]
        for name in {*found, *kit}
        if found.get(name) != kit.get(name)
    ]
    assert not differ, "\n".join(map(str, differ))
    assert len({event[0] for found in real for events in found.values() for event in events}) > 15


def _ended(service: Service, run_id: str) -> bool:
    return httpx2.get(f"{service.url}/runs/{run_id}").json()["status"] in ("completed", "failed", "cancelled")


def _by_service(service: Service, run_id: str) -> History:
    """What happened to a run and those below it, by run and step."""
    answer = httpx2.get(f"{service.url}/runs/{run_id}/events")
    assert answer.status_code == 200, answer.text
    events = [_Told(one["type"], one) for one in answer.json()]
    return _history(events, lambda child: _by_service(service, child))


def _by_kit(scenario: Scenario) -> History:
    with TestService(*OTHERS, tasks=FUNCTIONS) as service:
        for event in EVENTS:
            service.send_event("fidelity", event)
        run = service.start(scenario.definition, scenario.input)
        while not run.ended and service.advance_to_next():
            pass
        return _of_kit(service, run)


def _of_kit(service: TestService, run: TestRun) -> History:
    events = [
        _Told(
            event.type,
            {
                "step_id": event.step_id,
                "attempt_number": event.attempt,
                "iteration": event.iteration,
                "item": event.item,
                "payload": event.payload,
                "started_at": event.started_at,
            },
        )
        for event in run.events
    ]
    return _history(events, lambda child: _of_kit(service, service.run(child)))


class _Told(NamedTuple):
    type: str
    document: dict[str, Any]


def _history(events: Sequence[_Told], below: Callable[[str], History]) -> History:
    """By step (`""`: the run), in the order of the log; a child's below the step that has started it. An answer that
    says when its worker began is a start, too: a worker of the service may be slow."""
    found: History = {}
    for event in events:
        step_id, payload = event.document.get("step_id") or "", event.document.get("payload")
        said = {name: event.document.get(name) for name in ("attempt_number", "iteration", "item")}
        timer = payload.get("step_id", "") if event.type == "timer.fired" else ""
        if event.document.get("started_at") is not None:
            found.setdefault(step_id, []).append(("step.started", said, None))
        found.setdefault(step_id or timer, []).append((event.type, said, _plain(payload)))
        if event.type == "step.started" and isinstance(payload, dict) and (child := payload.get("child_run_id")):
            attempt = event.document.get("attempt_number") or 1
            found |= {f"{step_id}#{attempt}/{name}": one for name, one in below(child).items()}
    return found


def _plain(value: Any) -> Any:
    """Without what is another time, id or place in another log."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if name not in UNLIKE}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return TIME.sub("TIME", ID.sub("ID", value)) if isinstance(value, str) else value
