"""Imports of every recorded history, whole and damaged: 400, or a run of which everything can be read; never 500."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker.store import Store
from penstock.engine.definition.definitions import digest, to_json
from penstock.engine.times import rfc3339
from penstock.engine.validation import parse
from tests.properties.recorded import histories, read

READ = (200, 400, 404)
ODD = [None, True, 0, -1, 2**53, 2**70, 1.5, "", "x", "é" * 300, "\u0000", [], {}, [[]], {"a": {}}, "0" * 32, "9" * 40]
RECORDED = {f"{path.parent.name}/{path.stem}": path for path in histories()}


def document(path: Path) -> dict[str, Any]:
    """A recorded history as an export. Ids of children follow from that of the run, so it keeps its own."""
    found = read(path)
    run_id = orjson.loads(bytes(found.records[0].event))["run_id"]
    body = to_json(parse(found.definition))
    events = []
    for record in found.records:
        event = orjson.loads(bytes(record.event))
        if event["type"] in ("workflow.started", "workflow.scheduled"):
            event["payload"] |= {"workflow": found.definition["name"], "digest": digest(body)}
        events.append({"seq": record.seq, "stored_at": rfc3339(record.at), **event})
    return {"run_id": run_id, "definition": orjson.loads(body), "events": events}


async def read_all(http: ASGIConductor, sent: dict[str, Any]) -> None:
    """Read whatever there is of an imported run."""
    run_id, seq = sent["run_id"], sent["events"][-1]["seq"]
    run = await http.simulate_get(f"/runs/{run_id}")
    assert (run.status_code, run.json["imported"]) == (200, True), run.text
    paths = ["graph", "export", "events", "logs", "explain", f"diff/{run_id}", "scheduled"]
    paths += [f"steps/{step}/{what}" for step in run.json["steps"] for what in ("output", "items")]
    for path in (f"/runs/{run_id}?at={seq}", *(f"/runs/{run_id}/{path}" for path in paths)):
        answer = await http.simulate_get(path)
        assert answer.status_code in READ, f"{path}: {answer.status_code} {answer.text}"
    assert (await http.simulate_post(f"/runs/{run_id}/cancel")).status_code == 409
    document = (await http.simulate_get(f"/runs/{run_id}/export")).json
    assert document == sent


@pytest.mark.parametrize("name", RECORDED)
async def test_every_recorded_history_is_imported_and_read(http: ASGIConductor, store: Store, name: str) -> None:
    sent = document(RECORDED[name])
    answer = await http.simulate_post("/runs/import", body=orjson.dumps(sent))
    assert answer.status_code == 201, answer.text
    snapshot = orjson.loads(bytes(read(RECORDED[name]).snapshot))
    assert answer.json["status"] == snapshot["status"]
    await read_all(http, sent)
    await store.run_data.remove(sent["run_id"], before=await store.history.last_seq() + 1)
    assert (await http.simulate_get(f"/runs/{sent['run_id']}")).status_code == 404


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container of a document, with a key or an index in it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from places(inner)


def damage(sent: dict[str, Any], data: st.DataObject) -> None:
    """Change one thing anywhere."""
    found = list(places(sent))
    container, key = found[data.draw(st.integers(0, len(found) - 1))]
    match data.draw(st.sampled_from(["odd", "gone", "twice", "swapped", "other"])):
        case "odd":
            container[key] = data.draw(st.sampled_from(ODD))
        case "gone":
            del container[key]
        case "twice" if isinstance(container, list):
            container.insert(key, container[key])
        case "swapped" if isinstance(container, list):
            container.reverse()
        case _:
            other, place = found[data.draw(st.integers(0, len(found) - 1))]
            container[key] = deepcopy(other[place]) if place_is_there(other, place) else None


def place_is_there(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data(), name=st.sampled_from(sorted(RECORDED)), many=st.integers(1, 4))
async def test_a_damaged_export_is_refused_or_can_be_read(
    http: ASGIConductor, store: Store, data: st.DataObject, name: str, many: int
) -> None:
    sent = document(RECORDED[name])
    for _ in range(many):
        damage(sent, data)
    try:
        body = orjson.dumps(sent)
    except orjson.JSONEncodeError:
        return
    answer = await http.simulate_post("/runs/import", body=body)
    assert answer.status_code in (201, 400, 409), answer.text
    if answer.status_code == 201:
        await read_all(http, orjson.loads(body))
        await store.run_data.remove(sent["run_id"], before=await store.history.last_seq() + 1)
