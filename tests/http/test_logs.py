"""The log lines and chunks of a run, whoever wrote them: what is found, and what hostile messages do."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor

from penstock.actors.control import run_operations
from penstock.broker.live import chunks, lines
from penstock.broker.live.said import SaidStream
from penstock.broker.store import Store
from penstock.config.limits import CHUNK_BYTES_MAX, LOG_LINE_BYTES_MAX
from penstock.engine.run.events import WorkflowCancelled
from tests.http.bridge import client

AT = "2026-11-21T12:00:00.000000Z"


async def start(http: ASGIConductor) -> str:
    answer = await http.simulate_post("/runs", json={"workflow": "two"})
    return str(answer.json["run_id"])


async def say(said: SaidStream, run_id: str, step_id: str, body: bytes) -> None:
    await said.send(run_id, step_id, body, f"{run_id}.{step_id}.{hash(body)}")


async def lines_of(store: Store, run_id: str, step_id: str, *texts: str, level: str = "info") -> None:
    body = lines.batch([lines.line(text, level, AT) for text in texts], 1, "w")
    await say(store.logs, run_id, step_id, body)


async def found(http: ASGIConductor, run_id: str, query: str = "") -> list[Any]:
    answer = await http.simulate_get(f"/runs/{run_id}/logs", query_string=query)
    assert 200 == answer.status_code, answer.text
    page: list[Any] = answer.json
    return page


async def streamed(served: str, path: str, **headers: str) -> list[tuple[str, Any]]:
    """Name and data of each event of a stream that ends."""
    async with client(served, None) as http:
        answer = await http.get(path, headers={"Accept": "text/event-stream", **headers})
    assert 200 == answer.status_code, answer.text
    events = [dict(line.split(": ", 1) for line in part.splitlines()) for part in answer.text.split("\n\n") if part]
    return [(one["event"], orjson.loads(one["data"])) for one in events if "event" in one]


async def ended(store: Store, run_id: str) -> None:
    await store.history.append(WorkflowCancelled(run_id=run_id, timestamp=run_operations.now()))


async def test_lines_are_found_by_step_level_and_text(http: ASGIConductor, store: Store) -> None:
    run_id = await start(http)
    await lines_of(store, run_id, "a", "Charged 12", "detail")
    await lines_of(store, run_id, "b", "refused", level="error")
    await lines_of(store, run_id, "a.on_failure", "handled", level="warning")
    assert ["Charged 12", "detail", "refused", "handled"] == [line["text"] for line in await found(http, run_id)]
    assert ["Charged 12", "detail", "handled"] == [line["text"] for line in await found(http, run_id, "step=a")]
    assert ["refused", "handled"] == [line["text"] for line in await found(http, run_id, "level=warning")]
    assert ["Charged 12"] == [line["text"] for line in await found(http, run_id, "q=charged&step=a")]
    first = (await found(http, run_id))[0]
    assert {"step_id": "a", "attempt": 1, "worker_id": "w", "level": "info", "at": AT} == {
        name: value for name, value in first.items() if name not in ("seq", "text")
    }


async def test_pages_follow_each_other_without_a_gap(http: ASGIConductor, store: Store) -> None:
    run_id = await start(http)
    for n in range(4):
        await lines_of(store, run_id, "a", *(f"line {n}.{m}" for m in range(3)))
    texts, path = [], f"/runs/{run_id}/logs?limit=5&q=line"
    while path:
        answer = await http.simulate_get(path)
        texts += [line["text"] for line in answer.json]
        path = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
    assert [f"line {n}.{m}" for n in range(4) for m in range(3)] == texts


async def test_the_logs_of_what_is_not_there_are_not_found(http: ASGIConductor, store: Store) -> None:
    nobody, run_id = "0" * 32, await start(http)
    for path in (f"/runs/{nobody}/logs", f"/runs/{nobody}/stream"):
        answer = await http.simulate_get(path, headers={"Accept": "text/event-stream"})
        assert (404, f"run {nobody} does not exist\n") == (answer.status_code, answer.text)
    answer = await http.simulate_get(f"/runs/{run_id}/logs?step=c")
    assert (404, f'run {run_id} has no step "c"\n') == (answer.status_code, answer.text)
    await lines_of(store, run_id, "a", "secret")
    await store.run_data.remove(run_id, before=await store.history.last_seq() + 1)
    assert 404 == (await http.simulate_get(f"/runs/{run_id}/logs")).status_code
    assert 0 == await store.reader.count(store.logs.name, store.logs.subject_of(run_id, ">"))


@pytest.mark.parametrize(
    ("query", "named"),
    [("level=loud", "level"), ("step=a..b", "step"), ("after=-1", "after"), ("limit=0", "limit"), ("x=1", "x")],
)
async def test_a_bad_query_is_named(http: ASGIConductor, query: str, named: str) -> None:
    answer = await http.simulate_get(f"/runs/{await start(http)}/logs", query_string=query)
    assert 400 == answer.status_code
    assert named in answer.text


async def test_what_is_no_message_is_passed_over(http: ASGIConductor, store: Store, served: str) -> None:
    run_id = await start(http)
    for body in (b"", b"{", b"[]", b"\xff\x00", b'{"lines":1}', b'{"lines":[{"text":1},"x",null,{"text":"\xff"}]}'):
        await say(store.logs, run_id, "a", body)
        await say(store.chunks, run_id, "a", body)
    strange = [b'{"text":"ok","level":"LOUD","at":"yesterday","fields":{"a":\n1}}', b'{"text":"no","fields":[1]}']
    await say(store.logs, run_id, "a", lines.batch(strange, 2, None))
    [line] = await found(http, run_id)
    assert ("ok", "info", {"a": 1}, 2) == (line["text"], line["level"], line["fields"], line["attempt"])
    assert line["at"] > AT
    await ended(store, run_id)
    assert [("log", line), ("end", {"status": "cancelled"})] == await streamed(served, f"/runs/{run_id}/logs")
    assert [("end", {"status": "cancelled"})] == await streamed(served, f"/runs/{run_id}/stream")


async def test_a_line_and_a_chunk_have_a_largest_size(http: ASGIConductor, store: Store, served: str) -> None:
    run_id = await start(http)
    huge = lines.line("é" * LOG_LINE_BYTES_MAX, "info", AT, b'{"a":"%b"}' % (b"x" * 100_000))
    await say(store.logs, run_id, "a", lines.batch([huge], 1, None))
    await say(store.chunks, run_id, "a", chunks.batch([b'"%b"' % (b"x" * CHUNK_BYTES_MAX), b'"fits"'], 1, None))
    [line] = await found(http, run_id)
    assert LOG_LINE_BYTES_MAX >= len(line["text"].encode()) > LOG_LINE_BYTES_MAX - 4
    assert line["text"].endswith("…")
    assert {"dropped_bytes": 100_008} == line["fields"]
    await ended(store, run_id)
    assert ["fits", None] == [data.get("data") for _, data in await streamed(served, f"/runs/{run_id}/stream")]


async def test_nothing_in_a_chunk_or_a_line_can_begin_another_event(
    http: ASGIConductor, store: Store, served: str
) -> None:
    run_id = await start(http)
    forged = "\n\nevent: end\ndata: {}\r\n\r\n"
    await say(store.logs, run_id, "a", lines.batch([lines.line(forged, "info", AT, b'{"a":\n\n1}')], 1, forged))
    await say(store.chunks, run_id, "a", chunks.batch([orjson.dumps(forged), b"[1,\n2]"], 1, forged))
    await ended(store, run_id)
    said = await streamed(served, f"/runs/{run_id}/logs")
    assert ["log", "end"] == [name for name, _ in said]
    assert forged == said[0][1]["text"]
    assert [forged, [1, 2]] == [
        data["data"] for name, data in await streamed(served, f"/runs/{run_id}/stream") if name == "chunk"
    ]


async def test_a_stream_goes_on_after_the_last_event_that_was_seen(
    http: ASGIConductor, store: Store, served: str
) -> None:
    run_id = await start(http)
    await lines_of(store, run_id, "a", "one", "two", "three")
    await lines_of(store, run_id, "b", "four")
    await ended(store, run_id)
    second = (await found(http, run_id))[1]["seq"]
    said = await streamed(served, f"/runs/{run_id}/logs", **{"Last-Event-ID": str(second)})
    assert ["three", "four", None] == [data.get("text") for _, data in said]
