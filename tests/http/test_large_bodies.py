"""Large inputs, outputs and exports: whole for whoever asks, and a bounded number of bytes of them in memory."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import orjson
import pytest
from falcon.asgi import Request, Response
from falcon.testing import ASGIConductor, create_scope
from msgspec import Raw

from penstock.actors.runs.loading import load
from penstock.broker.store import Store
from penstock.config.limits import LARGE_BODIES_BYTES_MAX, MIB, PAYLOAD_BYTES_MAX
from penstock.config.process.byte_gate import ByteGate
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.state import to_snapshot
from penstock.engine.validation import parse
from penstock.http.messages import large_bodies
from penstock.http.messages.large_bodies import LargeBodies, ok_large
from tests.support.frontends import front_ends
from tests.support.waiting import until_true

PARTS = 16
FIRST = [{"id": f"s{n}", "task": "work"} for n in range(PARTS)]
JOINED = {
    "name": "joined",
    "steps": [*FIRST, {"id": "all", "task": "work", "depends_on": [step["id"] for step in FIRST]}],
}
LARGE = b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"'
INPUT = {f"s{n}": orjson.loads(LARGE) for n in range(PARTS)}
CLIENTS = 50


async def joining(store: Store, start: str) -> str:
    """A run of which one step's input is the outputs of all others, with its snapshot."""
    for number in range(PARTS):
        await store.history.append(StepCompleted(run_id=start, step_id=f"s{number}", payload=Raw(LARGE)))
    run = (await load(store, start)).run
    assert run is not None
    await store.runs.put(start, to_snapshot(run))
    return start


async def read(url: str, path: str) -> tuple[bytes, int]:
    """The status line, and how many bytes the body has; a connection of its own, and nothing is kept."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        size = 0
        while piece := await reader.read(1 << 16):
            size += len(piece)
        return head.split(b"\r\n")[0], size
    finally:
        writer.close()


async def _nothing_to_receive() -> dict[str, str]:
    return {}


async def test_many_clients_that_ask_for_a_large_input_at_once_get_it_and_take_bounded_memory(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings
) -> None:
    await store.definitions.register(parse(JOINED))
    run_id = await joining(store, (await http.simulate_post("/runs", json={"workflow": "joined"})).json["run_id"])
    path, whole = f"/runs/{run_id}/steps/all/input", len(orjson.dumps(INPUT))
    with front_ends(broker_settings, 1, None) as [end]:
        assert (b"HTTP/1.1 200 OK", whole) == await read(end.url, path)
        before = end.memory_most
        found = await asyncio.gather(*(read(end.url, path) for _ in range(CLIENTS)))
        assert [(b"HTTP/1.1 200 OK", whole)] * CLIENTS == found
        assert end.memory_most - before < 2 * LARGE_BODIES_BYTES_MAX < CLIENTS * whole / 2


async def test_inputs_outputs_and_exports_come_whole_and_leave_nothing_taken(
    http: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates: list[ByteGate] = []
    take = ByteGate.take

    async def noted(gate: ByteGate, size: int) -> object:
        gates.append(gate)
        return await take(gate, size)

    monkeypatch.setattr(ByteGate, "take", noted)
    await store.definitions.register(parse(JOINED))
    run_id = await joining(store, (await http.simulate_post("/runs", json={"workflow": "joined"})).json["run_id"])
    asked = await http.simulate_get(f"/runs/{run_id}/steps/all/input")
    assert (200, "application/json", INPUT) == (asked.status_code, asked.headers["content-type"], asked.json)
    assert str(len(asked.content)) == asked.headers["content-length"]
    head = await http.simulate_head(f"/runs/{run_id}/steps/all/input")
    assert (200, asked.headers["content-length"]) == (head.status_code, head.headers["content-length"])
    exported = await http.simulate_get(f"/runs/{run_id}/export")
    assert (200, PARTS + 1) == (exported.status_code, len(exported.json["events"]))
    assert 3 == len(gates)
    assert LARGE == (await http.simulate_get(f"/runs/{run_id}/steps/s0/output")).content
    assert 3 == len(gates), "a small one waits for nothing"
    assert {(gate.most, gate.free) for gate in gates} == {(LARGE_BODIES_BYTES_MAX, LARGE_BODIES_BYTES_MAX)}


async def test_who_waits_too_long_for_others_is_told_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_bodies, "LARGE_BODY_WAIT_S_MAX", 0.01)
    bodies = LargeBodies()
    held = await bodies.take_all()
    with pytest.raises(Unavailable, match="try again later"):
        await bodies.take(2 * MIB)
    assert await bodies.take(PAYLOAD_BYTES_MAX) is None
    held.give_back()
    assert await bodies.take(2 * MIB) is not None


async def test_a_client_that_takes_nothing_gets_no_more_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_bodies, "LARGE_BODY_STALLED_S_MAX", 0.01)
    bodies, resp = LargeBodies(), Response()
    ok_large(Request(create_scope(), _nothing_to_receive), resp, Raw(LARGE), await bodies.take_all())
    assert bodies.gate.most - len(LARGE) == bodies.gate.free
    pieces = aiter(resp.stream)  # type: ignore[arg-type]
    assert 0 < len(await anext(pieces)) < len(LARGE)
    await until_true(lambda: bodies.gate.free == bodies.gate.most)
    assert [] == [piece async for piece in pieces], "the server closes a connection whose body is too short"
