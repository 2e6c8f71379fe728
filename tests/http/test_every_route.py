"""What holds for every path and method of the application, whichever come: what answers look like, and what is not
allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NamedTuple

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from msgspec import Raw

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.run.events import StepCompleted, StepFailed, WorkflowFailed
from penstock.http.app import Application, create_app
from tests.support.conductor import Conductor
from tests.support.routes import api_routes

TOKEN = "bridge"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
LATER = "2099-01-01T00:00:00Z"
JSON, TEXT = "application/json", "text/plain; charset=utf-8"
PLACES = {
    "scope": "a",
    "run_id": "0" * 32,
    "other": "1" * 32,
    "step_id": "a",
    "task_id": "0" * 32 + ".a",
    "name": "a",
    "seq": "1",
}
OF_WORKERS = (
    "/v1/workers/connect",
    "/v1/tasks/poll",
    "/v1/tasks/exchange",
    "/v1/tasks/{task_id}/resolve",
    "/v1/runs/{run_id}/signals/{name}",
)

# What is no JSON: pages for people, numbers for Prometheus, the stream of a connected worker.
OTHER_FORMS = {
    ("GET", "/metrics"),
    ("HEAD", "/metrics"),
    ("GET", "/docs"),
    ("HEAD", "/docs"),
    ("POST", "/v1/workers/connect"),
    ("GET", "/runs/{run_id}/stream"),
    ("HEAD", "/runs/{run_id}/stream"),
}
# What needs an engine, a worker, a person or a signature is shown in the tests of those.
ELSEWHERE = {
    *((method, "/runs/{run_id}/steps/{step_id}/items") for method in ("GET", "HEAD")),  # test_map_items.py
    *((method, "/keys") for method in ("GET", "HEAD", "POST")),  # test_keys.py: the first one closes the service
    ("DELETE", "/keys/{name}"),
    *((method, "/doctor") for method in ("GET", "HEAD")),  # test_doctor.py; it says what holds at that moment
    ("POST", "/session"),  # test_sessions.py
    ("GET", "/ready"),
    ("HEAD", "/ready"),
    ("POST", "/dead-letters/{seq}/replay"),
    ("POST", "/runs/{run_id}/approval/{step_id}"),
    ("POST", "/approvals/{run_id}/{step_id}"),
    ("POST", "/runs/{run_id}/retry"),
    ("POST", "/v1/tasks/{task_id}/resolve"),
    ("POST", "/v1/webhooks/{name}"),
}


class Route(NamedTuple):
    path: str
    methods: frozenset[str]


def routes(app: Application) -> Iterator[Route]:
    for route in api_routes(app):
        yield Route(route.path, frozenset(one.method for one in route.methods if not one.internal))


ROUTES = list(routes(create_app(Settings())))


@pytest.fixture
async def open_app(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[ASGIConductor]:
    settings = Settings(broker=broker_settings, http=HttpSettings(bridge_token=TOKEN))
    async with Conductor(create_app(settings)) as conductor:
        yield conductor


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_a_method_that_a_path_does_not_have_is_405_with_those_that_it_has(
    open_app: ASGIConductor, route: Route
) -> None:
    for method in set(METHODS) - route.methods:
        answer = await open_app.simulate_request(method, route.path.format(**PLACES), headers=HEADERS)
        assert (405, TEXT) == (answer.status_code, answer.headers["content-type"])
        assert route.methods == set(answer.headers["allow"].split(", ")) - {"OPTIONS"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_a_path_with_more_behind_it_does_not_exist(open_app: ASGIConductor, route: Route) -> None:
    answer = await open_app.simulate_get(route.path.format(**PLACES) + "/more/and/more", headers=HEADERS)
    assert (404, TEXT) == (answer.status_code, answer.headers["content-type"])


def test_what_is_for_workers_and_senders_carries_a_version_and_nothing_else_does() -> None:
    assert {*OF_WORKERS, "/v1/webhooks/{name}"} == {route.path for route in ROUTES if route.path.startswith("/v1/")}
    assert not [route.path for route in ROUTES if route.path.startswith("/v") and not route.path.startswith("/v1/")]


async def test_whatever_succeeds_is_answered_with_json(open_app: ASGIConductor, store: Store) -> None:
    """Each method of each path once, in an order in which it succeeds."""
    story = Story(open_app, store)
    await story.tell()
    expected = {(method, route.path) for route in ROUTES for method in route.methods}
    assert expected - OTHER_FORMS - ELSEWHERE == story.told
    streams = {("POST", "/v1/workers/connect"), ("GET", "/runs/{run_id}/stream"), ("HEAD", "/runs/{run_id}/stream")}
    for method, path in OTHER_FORMS - streams:
        answer = await open_app.simulate_request(method, path)
        assert (200, False) == (answer.status_code, answer.headers["content-type"].startswith(JSON))


async def test_head_is_wherever_get_is_and_nowhere_else() -> None:
    assert [] == [route.path for route in ROUTES if ("GET" in route.methods) != ("HEAD" in route.methods)]
    assert len([route for route in ROUTES if "HEAD" in route.methods]) >= 15


@pytest.mark.parametrize("path", [one.path for one in ROUTES if "GET" in one.methods and one.path != "/doctor"])
async def test_head_has_the_headers_of_get_and_no_body_whatever_the_status(open_app: ASGIConductor, path: str) -> None:
    """Of what does not exist here; what does is asked in the story of all that succeeds."""
    for headers in (HEADERS, {"Accept": "application/problem+json"}):
        await answered_alike(
            open_app,
            await open_app.simulate_get(path.format(**PLACES), headers=headers),
            path.format(**PLACES),
            headers,
        )


async def test_head_of_a_live_stream_is_its_headers_at_once(open_app: ASGIConductor) -> None:
    run_id = (await open_app.simulate_post("/runs", body=b'{"workflow":"one"}')).json["run_id"]
    live = {"Accept": "text/event-stream"}
    answer = await open_app.simulate_head(f"/runs/{run_id}/events", headers=live)
    async with open_app.simulate_get_stream(f"/runs/{run_id}/events", headers=live) as stream:
        assert (stream.status_code, stream.headers) == (answer.status_code, answer.headers)
    assert ("text/event-stream", False) == (answer.headers["content-type"], "content-length" in answer.headers)
    assert 404 == (await open_app.simulate_head(f"/runs/{'0' * 32}/events", headers=live)).status_code


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/xml; charset=latin-1"]
)
async def test_what_a_body_is_called_does_not_matter(open_app: ASGIConductor, content_type: str) -> None:
    answer = await open_app.simulate_post("/runs", body=b'{"workflow":"one"}', headers={"Content-Type": content_type})
    assert 201 == answer.status_code


async def answered_alike(http: ASGIConductor, got: Result, path: str, headers: Mapping[str, str] = HEADERS) -> None:
    """The answer to HEAD is what was got, without its body. Metrics and the lag of lists are others each time."""
    head = await http.simulate_head(path, headers=headers)
    assert (got.status_code, b"") == (head.status_code, head.content)
    changing = (
        {"content-length"}
        if path == "/metrics"
        else {"penstock-index-as-of", "penstock-index-lag"} & got.headers.keys()
    )
    assert got.headers.keys() == head.headers.keys()
    assert {**got.headers, **dict.fromkeys(changing)} == {**head.headers, **dict.fromkeys(changing)}


class Story:
    """Asks for one thing after the other, and sees that each is answered with success and JSON."""

    def __init__(self, http: ASGIConductor, store: Store) -> None:
        self._http, self._store = http, store
        self.told: set[tuple[str, str]] = set()

    async def ask(self, method: str, path: str, body: Any = None, **places: str) -> Any:
        sent = b"" if body is None else orjson.dumps(body)
        answer = await self._http.simulate_request(method, path.format(**places), body=sent, headers=HEADERS)
        assert 200 <= answer.status_code < 300, answer.text
        assert JSON == answer.headers["content-type"]
        self.told.add((method, path.partition("?")[0]))
        if method == "GET":
            await answered_alike(self._http, answer, path.format(**places))
            self.told.add(("HEAD", path))
        return answer.json

    async def tell(self) -> None:
        await self.of_workflows_and_runs()
        await self.of_many_runs()
        await self.of_triggers()
        await self.of_dead_letters()
        await self.of_limits()
        await self.ask(
            "POST", "/v1/tasks/poll", {"task_types": ["t"], "max_tasks": 0, "timeout_ms": 0, "worker_id": "w"}
        )
        await self.ask("POST", "/v1/tasks/exchange", {"resolve": []})
        for path in (
            "/approvals",
            "/tasks",
            "/workers",
            "/broker",
            "/settings",
            "/health",
            "/health/telemetry",
            "/openapi.json",
            "/schemas/definition.json",
            "/audit",
            "/session",
        ):
            await self.ask("GET", path)
        await self.ask("DELETE", "/session")

    async def of_workflows_and_runs(self) -> None:
        await self.ask("POST", "/workflows", {"name": "told", "steps": [{"id": "a", "task": "t"}]})
        await self.ask("GET", "/workflows")
        await self.ask("GET", "/workflows/{name}", name="told")
        await self.ask("POST", "/workflows/{name}/call?timeout_ms=0", "Ada", name="told")
        run_id = (await self.ask("POST", "/runs", {"workflow": "told"}))["run_id"]
        await self.ask("GET", "/runs")
        await self.ask("GET", "/runs/stats")
        await self.ask("GET", "/runs/summaries")
        await self.ask("POST", "/runs/{run_id}/signal/{name}", 1, run_id=run_id, name="go")
        await self.ask("GET", "/v1/runs/{run_id}/signals/{name}", run_id=run_id, name="go")
        await self.ask("POST", "/v1/runs/{run_id}/signals/{name}", 1, run_id=run_id, name="go")
        await self.ask("POST", "/runs/{run_id}/pause", run_id=run_id)
        await self.ask("POST", "/runs/{run_id}/resume", run_id=run_id)
        await self.ask("POST", "/runs/{run_id}/cancel", run_id=run_id)
        await self.ask("GET", "/runs/{run_id}", run_id=run_id)
        await self.ask("GET", "/runs/{run_id}/events", run_id=run_id)
        await self.ask("GET", "/runs/{run_id}/explain", run_id=run_id)
        await self.ask("GET", "/runs/{run_id}/diff/{other}", run_id=run_id, other=run_id)
        await self.ask("GET", "/runs/{run_id}/graph", run_id=run_id)
        found = await self.ask("GET", "/runs/{run_id}/export", run_id=run_id)
        await self.ask("POST", "/runs/import", orjson.loads(orjson.dumps(found).replace(run_id.encode(), b"f" * 32)))
        await self.ask("GET", "/runs/{run_id}/logs", run_id=run_id)
        done = (await self.ask("POST", "/runs", {"workflow": "told"}))["run_id"]
        (step_id,) = (await self.ask("GET", "/runs/{run_id}", run_id=done))["steps"]
        await self._store.history.append(StepCompleted(run_id=done, step_id=step_id, payload=Raw(b"1")))
        await self.ask("GET", "/runs/{run_id}/steps/{step_id}/output", run_id=done, step_id=step_id)
        await self.ask("GET", "/runs/{run_id}/steps/{step_id}/input", run_id=done, step_id=step_id)
        await self._store.checkpoints.put(f"{done}.{step_id}", b'{"page": 7}')
        await self.ask("GET", "/runs/{run_id}/steps/{step_id}/checkpoint", run_id=done, step_id=step_id)
        await self.ask("POST", "/runs/{run_id}/rerun", run_id=run_id)
        by_hand = (await self.ask("POST", "/runs", {"workflow": "told"}))["run_id"]
        await self.ask("POST", "/runs/{run_id}/steps/{step_id}/skip", run_id=by_hand, step_id=step_id)
        failed = (await self.ask("POST", "/runs", {"workflow": "told"}))["run_id"]
        await self._store.history.append(StepFailed(run_id=failed, step_id=step_id))
        await self._store.history.append(WorkflowFailed(run_id=failed))
        await self.ask("POST", "/runs/{run_id}/steps/{step_id}/retry", run_id=failed, step_id=step_id)
        later = (await self.ask("POST", "/runs", {"workflow": "told", "run_at": LATER}))["run_id"]
        for method in ("GET", "DELETE"):
            await self.ask(method, "/runs/{run_id}/scheduled", run_id=later)

    async def of_many_runs(self) -> None:
        await self.ask("POST", "/runs/bulk", {"workflow_id": "told", "inputs": [1, 2]})
        await self.ask("POST", "/runs/pause", {"workflow_id": "told"})
        await self.ask("POST", "/runs/resume", {"workflow_id": "told"})
        await self.ask("POST", "/runs/cancel", {"workflow_id": "told"})
        await self.ask("POST", "/runs/retry", {"workflow_id": "told", "mode": "replay"})
        await self.ask("POST", "/runs/rerun", {"workflow_id": "told"})
        await self.ask("POST", "/runs/prune", {"workflow_id": "told"})

    async def of_triggers(self) -> None:
        trigger = {"name": "told", "workflow": "told", "cron": {"expression": "0 0 1 1 *"}}
        await self.ask("POST", "/triggers", trigger)
        await self.ask("GET", "/triggers")
        for action in ("fire", "test"):
            await self.ask("POST", f"/triggers/{{name}}/{action}", name="told")
        await self.ask("GET", "/triggers/{name}", name="told")
        await self.ask("PUT", "/triggers/{name}", trigger, name="told")
        await self.ask("DELETE", "/triggers/{name}", name="told")
        await self.ask("POST", "/events/{name}", {"n": 1}, name="told")
        await self.ask("GET", "/workflows/{name}/versions", name="told")
        await self.ask("POST", "/workflows", {"name": "told.once", "steps": [{"id": "a", "task": "t"}]})
        await self.ask("DELETE", "/workflows/{name}", name="told.once")

    async def of_limits(self) -> None:
        limited = {"name": "limited", "concurrency": [{"limit": 1}], "steps": [{"id": "a", "task": "t"}]}
        await self.ask("POST", "/workflows", limited)
        await self.ask("GET", "/limits")
        await self.ask("PUT", "/limits/{scope}", {"limit": 2}, scope="limited")
        await self.ask("GET", "/limits/{scope}", scope="limited")
        await self.ask("DELETE", "/limits/{scope}", scope="limited")

    async def of_dead_letters(self) -> None:
        await self._store.publisher.send(names.dead_history_subject(PLACES["run_id"]), b"no event")
        (dead_letter, *_) = await self.ask("GET", "/dead-letters")
        for method in ("GET", "DELETE"):
            await self.ask(method, "/dead-letters/{seq}", seq=str(dead_letter["seq"]))
