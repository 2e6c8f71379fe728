"""One trace through the whole service: from the caller's span through runs, steps and functions of workers to the runs
that these begin, as a receiver gets it over OTLP."""

from __future__ import annotations

import asyncio
import hmac
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.broker.store import open_store
from penstock.client import Client
from penstock.config.settings import BrokerSettings
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.support.service import Service
from tests.support.web_server import Asked, answer, web_server

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "opentelemetry.md"
TRACE, CALLER = "c0ffee" + "0" * 25 + "1", "d" * 16
HEADER = f"00-{TRACE}-{CALLER}-01"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
BEGUN = {"name": "begun", "steps": [{"id": "nap", "type": "sleep", "config": {"duration": "1ms"}}]}
TRIGGERS = (
    {"name": "hook", "workflow": "begun", "webhook": {"secret": "s"}},
    {"name": "news", "workflow": "begun", "event": {"subject": "event.news"}},
    {"name": "keyed", "workflow": "begun", "event": {"subject": "event.keyed"}},
    {"name": "outside", "workflow": "begun", "subject": {"subject": "outside.*"}},
    {"name": "clock", "workflow": "begun", "cron": {"expression": "* * * * * *"}},
)
SENDERS = {name: digit * 16 for name, digit in (("hook", "1"), ("news", "2"), ("keyed", "3"), ("outside", "4"))}
CHILD = {"name": "child", "steps": [{"id": "wait", "task": "traced.waiting"}]}
PARENT = {
    "name": "parent",
    "steps": [
        {"id": "block", "task": "traced.blocking"},
        {"id": "ask", "type": "http", "depends_on": ["block"], "config": {"url": "${{ input.url }}"}},
        {"id": "sub", "type": "sub_workflow", "depends_on": ["ask"], "config": {"workflow": "child"}},
        {
            "id": "each",
            "type": "map",
            "task": "traced.waiting",
            "depends_on": ["sub"],
            "config": {"items": "${{ [1, 2] }}"},
        },
    ],
}


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as found:
        yield found


@contextmanager
def serving(directory: Path, receiver: OtlpReceiver, **settings: object) -> Iterator[Service]:
    given = {"shards": 1, "http_workers": 1, "otlp_endpoint": receiver.url, **settings}
    with Service(directory / "service", SOON, **given) as service:
        yield service


@contextmanager
def worker(service: Service, transport: str, receiver: OtlpReceiver, **environ: str) -> Iterator[None]:
    environ = {**service.environ, **SOON, "SERVICE_OTLP_ENDPOINT": receiver.url, **environ}
    process = subprocess.Popen([sys.executable, "-m", "tests.support.traced_worker", transport], env=environ, cwd=ROOT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def begin(service: Service, workflow: str, given: object = None, header: str | None = HEADER) -> str:
    headers = {} if header is None else {"traceparent": header}
    with httpx2.Client(base_url=service.url, headers=headers, trust_env=False) as http:
        answered = http.post("/runs", json={"workflow": workflow, "input": given})
        assert 201 == answered.status_code, answered.text
        return str(answered.json()["run_id"])


def register(service: Service, *definitions: dict[str, Any]) -> None:
    with httpx2.Client(base_url=service.url, trust_env=False) as http:
        for definition in definitions:
            answered = http.post("/workflows", json=definition)
            assert 201 == answered.status_code, answered.text


def ended(service: Service, run_id: str) -> dict[str, Any]:
    with httpx2.Client(base_url=service.url, trust_env=False, timeout=40) as http:
        found: dict[str, Any] = http.get(f"/runs/{run_id}", params={"wait_ms": 30_000}).json()
        return found


def one(receiver: OtlpReceiver, name: str, **about: Any) -> ReceivedSpan:
    """The only span of this name with these attributes."""
    found = {
        span
        for span in receiver.spans
        if span.name == name and all(span.about(f"penstock.{key}") == value for key, value in about.items())
    }
    assert 1 == len(found), (name, about, found)
    return found.pop()


@pytest.mark.parametrize("transport", ["nats", "bridge"])
async def test_one_trace_goes_from_the_caller_through_every_process(
    tmp_path: Path, receiver: OtlpReceiver, transport: str
) -> None:
    def script(asked: Asked) -> bytes:
        return answer(200, b"{}", content_type="application/json")

    async with web_server(script) as world:
        settings = {"builtin_workers": "http", "http_allow": "127.0.0.1", "bridge_token": "b"}
        with serving(tmp_path, receiver, **settings) as service:
            register(service, BEGUN, CHILD, PARENT)
            with worker(service, transport, receiver, SERVICE_BRIDGE_TOKEN="b"):
                run_id = begin(service, "parent", {"url": world.url("/x")})
                run = await asyncio.to_thread(ended, service, run_id)
                assert "completed" == run["status"], run
                await asyncio.to_thread(receiver.until, lambda: has_all(receiver))
        sent = world.asked[0].headers["traceparent"]
    check_tree(receiver, run_id, run, sent)


def has_all(receiver: OtlpReceiver) -> bool:
    names = Counter(span.name for span in {span for span in receiver.spans if span.trace_id == TRACE})
    wanted = {"run parent": 1, "run child": 1, "run begun": 4, "step block": 1, "step ask": 1, "step sub": 1}
    wanted |= {"step wait": 1, "step each": 1, "step each.0": 1, "step each.1": 1, "step nap": 4}
    wanted |= {"task traced.blocking": 1, "task traced.waiting": 3, "of the user": 3, "task penstock.http": 1}
    return all(names[name] == count for name, count in wanted.items())


def check_tree(receiver: OtlpReceiver, run_id: str, run: dict[str, Any], sent: str) -> None:
    parent, child_id = one(receiver, "run parent"), run["steps"]["sub"]["child_run_id"]
    assert (CALLER, "completed") == (parent.parent_id, parent.about("penstock.status"))
    block, ask, sub = (one(receiver, f"step {step}", run_id=run_id) for step in ("block", "ask", "sub"))
    assert {parent.span_id} == {block.parent_id, ask.parent_id, sub.parent_id}
    # into the function in a thread, and on to the run that it has started
    called = one(receiver, "task traced.blocking")
    assert (block.span_id, 5) == (called.parent_id, called.kind)
    output = run["steps"]["block"]["output"]
    assert (TRACE, called.span_id) == (output["trace_id"], output["span_id"])
    assert called.span_id == one(receiver, "run begun", run_id=output["begun"]).parent_id
    # out into the world
    requested = one(receiver, "task penstock.http")
    assert (ask.span_id, f"00-{TRACE}-{requested.span_id}-01") == (requested.parent_id, sent)
    # into the child run, its step, its async function, and on to the run that this has started
    child = one(receiver, "run child", run_id=child_id)
    wait = one(receiver, "step wait", run_id=child_id)
    awaited = one(receiver, "task traced.waiting", run_id=child_id)
    assert [sub.span_id, child.span_id, wait.span_id] == [child.parent_id, wait.parent_id, awaited.parent_id]
    users = next(span for span in receiver.spans if span.name == "of the user" and span.parent_id == awaited.span_id)
    begun = [span for span in receiver.spans if span.name == "run begun" and span.parent_id == users.span_id]
    assert 1 == len({span.span_id for span in begun})
    # through a map into its elements
    each = one(receiver, "step each")
    items = [one(receiver, f"step each.{number}") for number in (0, 1)]
    assert [(parent.span_id, each.span_id)] * 2 == [(each.parent_id, item.parent_id) for item in items]
    for number, item in enumerate(items):
        assert item.span_id == one(receiver, "task traced.waiting", item=number).parent_id
    # each process says who it is, and no span lies
    assert {"penstock", "penstock-worker"} == {span.about("service.name") for span in receiver.spans}
    assert all(span.begin <= span.end for span in receiver.spans)
    assert parent.begin <= block.begin <= called.begin <= called.end
    ids = Counter(span.span_id for span in set(receiver.spans))
    assert 1 == max(ids.values())


def test_a_function_that_fails_says_so_in_its_span(tmp_path: Path, receiver: OtlpReceiver) -> None:
    definition = {"name": "w", "steps": [{"id": "s", "task": "traced.broken", "retry": {"max_attempts": 1}}]}
    with serving(tmp_path, receiver) as service, worker(service, "nats", receiver):
        register(service, definition)
        run_id = begin(service, "w", header=None)
        assert "failed" == ended(service, run_id)["status"]
        receiver.until(lambda: any(span.name == "run w" for span in receiver.spans))
        receiver.until(lambda: 2 == len({span for span in receiver.spans if span.name == "task traced.broken"}))
    first, second = (one(receiver, "step s", attempt=attempt) for attempt in (1, 2))
    tasks = [one(receiver, "task traced.broken", attempt=attempt) for attempt in (1, 2)]
    assert [first.span_id, second.span_id] == [task.parent_id for task in tasks]
    assert {2} == {span.status for span in (first, second, *tasks, one(receiver, "run w"))}
    assert {"ValueError"} == {task.about("error.type") for task in tasks}
    assert run_id == first.trace_id, "without a caller's trace, the run id is that of the trace"
    assert "" == one(receiver, "run w").parent_id


def test_a_caller_that_records_nothing_has_nothing_recorded(tmp_path: Path, receiver: OtlpReceiver) -> None:
    with serving(tmp_path, receiver) as service, worker(service, "nats", receiver):
        register(service, BEGUN, CHILD)
        unrecorded = ended(service, begin(service, "child", header=HEADER[:-2] + "00"))
        recorded = begin(service, "child", header=None)
        ended(service, recorded)
        receiver.until(lambda: any(span.name == "run child" for span in receiver.spans))
    assert (HEADER[:-2] + "00")[:36] == unrecorded["steps"]["wait"]["output"]["given"][:36]
    assert unrecorded["steps"]["wait"]["output"]["given"].endswith("-00")
    assert {recorded} == {span.trace_id for span in receiver.spans if span.name.startswith(("run child", "step wait"))}
    assert TRACE not in {span.trace_id for span in receiver.spans}


def test_a_killed_engine_leaves_one_trace_without_two_spans_of_one_id(tmp_path: Path, receiver: OtlpReceiver) -> None:
    with serving(tmp_path, receiver, shards=2) as service:
        register(service, BEGUN, CHILD)
        runs = [begin(service, "child", header=f"00-{number:032x}-{CALLER}-01") for number in range(1, 13)]
        for name in ("shard-0", "shard-1"):
            service.await_restart(name, service.kill(name))
        with worker(service, "nats", receiver), Client(service.url) as client:
            assert {"completed"} == {ended(service, run_id)["status"] for run_id in runs}
            receiver.until(lambda: set(runs) <= {span.about("penstock.run_id") for span in of_runs(receiver)})
            assert [] == list(client.runs(workflow="child", status="running"))
    for number, run_id in enumerate(runs, 1):
        run, step = one(receiver, "run child", run_id=run_id), one(receiver, "step wait", run_id=run_id)
        assert (f"{number:032x}", CALLER) == (run.trace_id, run.parent_id)
        assert (run.trace_id, run.span_id) == (step.trace_id, step.parent_id)


def test_the_caller_of_the_page_has_the_run_below_its_span(tmp_path: Path, receiver: OtlpReceiver) -> None:
    [caller] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with serving(tmp_path, receiver) as service:
        register(service, {**BEGUN, "name": "checkout"})
        code = caller.replace("http://localhost:8080", service.url) + "\nprint(run.run_id)\n"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        receiver.until(lambda: any(span.name == "run checkout" for span in receiver.spans))
    run = one(receiver, "run checkout", run_id=ran.stdout.strip())
    assert run.parent_id
    assert run.trace_id != ran.stdout.strip()


def test_what_a_trigger_starts_is_below_the_span_of_who_has_sent_its_event(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    with serving(tmp_path, receiver) as service, httpx2.Client(base_url=service.url, trust_env=False) as http:
        register(service, BEGUN)
        for trigger in TRIGGERS:
            assert 201 == http.post("/triggers", json=trigger).status_code
        signature = "sha256=" + hmac.digest(b"s", b"{}", "sha256").hex()
        sent = [
            http.post("/v1/webhooks/hook", content=b"{}", headers={**span_of("hook"), "X-Signature-256": signature}),
            http.post("/events/news", json={}, headers=span_of("news")),
            http.post("/events/keyed", json={}, headers={**span_of("keyed"), "Idempotency-Key": "k"}),
        ]
        assert [202] * 3 == [answered.status_code for answered in sent]
        asyncio.run(publish_outside(service))
        receiver.until(lambda: set(SENDERS.values()) <= {span.parent_id for span in begun(receiver)})
        receiver.until(lambda: any(span.trace_id != TRACE for span in begun(receiver)))
    for parent_id in SENDERS.values():
        [found] = {span for span in begun(receiver) if span.parent_id == parent_id}
        assert TRACE == found.trace_id
    others = {span for span in begun(receiver) if span.parent_id not in SENDERS.values()}
    assert {("", span.about("penstock.run_id")) for span in others} == {
        (span.parent_id, span.trace_id) for span in others
    }, "an instant and a message without a span begin a trace each"


def span_of(name: str) -> dict[str, str]:
    return {"traceparent": f"00-{TRACE}-{SENDERS[name]}-01"}


async def publish_outside(service: Service) -> None:
    """As a program does it that has spans, in Go: there the name of the header begins with a capital. And as one that
    has none, and as one that writes nonsense."""
    async with open_store(BrokerSettings(url=service.broker_url), "test") as store:
        for headers in ({"Traceparent": span_of("outside")["traceparent"]}, {}, {"traceparent": "nonsense"}):
            await store.publisher.send("outside.a", b"{}", headers)


def begun(receiver: OtlpReceiver) -> set[ReceivedSpan]:
    return {span for span in receiver.spans if span.name == "run begun"}


def of_runs(receiver: OtlpReceiver) -> set[ReceivedSpan]:
    return {span for span in receiver.spans if span.name == "run child"}
