"""Errors as RFC 9457 has them, for who asks for that; plain text for everybody else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.actors.control import triggers
from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.http.app import create_app
from penstock.http.messages.errors import KINDS, OF_THE_FRAMEWORK, PROBLEM, TYPE
from tests.support.conductor import LOOPBACK, Conductor

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
ASKS = {"Accept": PROBLEM}
RUN = "0" * 32
BRIDGE = (("Authorization", "Bearer b"),)


class Case(NamedTuple):
    """One request, the kind of error that it meets, and a header that comes with it; `peer` is where it comes from."""

    kind: str
    status: int
    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    peer: str = LOOPBACK
    told: str | None = None


CASES = [
    Case("invalid", 400, "POST", "/runs", b"{"),
    Case("invalid", 400, "POST", "/runs", b'{"foo":1,"bar":2}'),
    Case("invalid", 400, "GET", "/runs?colour=red"),
    Case("invalid", 400, "POST", "/v1/tasks/poll", b"{}", BRIDGE),
    Case("unauthorized", 401, "POST", "/v1/tasks/poll", b"{}", told="www-authenticate"),
    Case("unauthorized", 401, "GET", "/v1/tasks/nowhere", told="www-authenticate"),
    Case("unauthorized", 401, "POST", "/v1/webhooks/hook", b"1"),
    Case("forbidden", 403, "GET", "/runs", peer="192.0.2.1"),
    Case("forbidden", 403, "POST", "/runs", b'{"workflow":"one"}', (("Origin", "https://evil.example"),)),
    Case("not-found", 404, "GET", f"/runs/{RUN}"),
    Case("not-found", 404, "POST", f"/v1/tasks/{RUN}.a/resolve", b'{"action":"complete"}', BRIDGE),
    Case("not-found", 404, "POST", "/v1/webhooks/nobody", b"1"),
    Case("no-such-path", 404, "GET", "/nowhere"),
    Case("no-such-path", 404, "GET", "//runs"),
    Case("method-not-allowed", 405, "PATCH", "/runs", told="allow"),
    Case("method-not-allowed", 405, "BREW", "/runs", told="allow"),
    Case("method-not-allowed", 405, "GET", "/v1/tasks/poll", headers=BRIDGE, told="allow"),
    Case("too-large", 413, "POST", "/v1/webhooks/hook", b'"' + b"x" * (1 << 20) + b'"'),
    Case("internal", 500, "GET", "/workflows/unreadable"),
    Case("unavailable", 503, "GET", "/ready", told="retry-after"),
]


@pytest.fixture
async def app(broker_settings: BrokerSettings, definitions: None, store: Store) -> AsyncIterator[ASGIConductor]:
    await triggers.put(store, {"name": "hook", "workflow": "one", "webhook": {"secret": "s"}})
    await store.bucket(names.DEFINITIONS).put("unreadable", b"no definition")
    async with Conductor(
        create_app(Settings(broker=broker_settings, http=HttpSettings(bridge_token="b")))
    ) as conductor:
        yield conductor
    await store.bucket(names.DEFINITIONS).delete("unreadable")


async def ask(app: ASGIConductor, case: Case, accept: str | None) -> Result:
    headers = {**dict(case.headers), **({} if accept is None else {"Accept": accept})}
    path, _, query = case.path.partition("?")
    found: Result = await app.simulate_request(
        case.method, path, query_string=query, body=case.body, headers=headers, remote_addr=case.peer
    )
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind} {case.method} {case.path}")
async def test_every_error_is_a_problem_for_who_asks_and_plain_text_for_others(app: ASGIConductor, case: Case) -> None:
    plain, asked = await ask(app, case, None), await ask(app, case, PROBLEM)
    assert (case.status, "text/plain; charset=utf-8") == (plain.status_code, plain.headers["content-type"])
    assert (case.status, PROBLEM) == (asked.status_code, asked.headers["content-type"])
    problem = orjson.loads(asked.content)
    lines = plain.text.removesuffix("\n").split("\n")
    assert {"type", "title", "status", "detail", "problems"} == problem.keys()
    assert (TYPE + case.kind, case.status) == (problem["type"], problem["status"])
    assert (lines, "\n".join(lines)) == (problem["problems"], problem["detail"])
    for answer in (plain, asked):
        assert "Accept" in answer.headers["vary"]
        assert case.told is None or answer.headers[case.told]


async def test_every_offender_is_a_problem_of_its_own(app: ASGIConductor) -> None:
    problem = (await app.simulate_post("/runs", body=b'{"foo":1,"bar":2}', headers=ASKS)).json
    assert ['unknown field "foo"', 'unknown field "bar"', "workflow is required"] == problem["problems"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runs", b'{"workflow":"nobody"}'),
        ("/runs/bulk", b'{"workflow_id":"nobody","inputs":[1]}'),
        ("/runs/cancel", b'{"workflow_id":"nobody"}'),
        ("/runs/rerun", b'{"workflow_id":"nobody"}'),
    ],
)
async def test_a_workflow_that_does_not_exist_is_named_as_what_is_missing(
    app: ASGIConductor, path: str, body: bytes
) -> None:
    problem = (await app.simulate_post(path, body=body, headers=ASKS)).json
    assert (TYPE + "invalid", 400, "workflow") == (problem["type"], problem["status"], problem["missing"])
    assert ['workflow "nobody" is not registered'] == problem["problems"]


async def test_a_kind_keeps_its_title_whatever_went_wrong(app: ASGIConductor) -> None:
    answers = [(await app.simulate_post("/runs", body=body, headers=ASKS)).json for body in (b"{", b"{}", b"[]")]
    assert 1 == len({answer["title"] for answer in answers})
    assert 3 == len({answer["detail"] for answer in answers})


@pytest.mark.parametrize(
    ("accept", "asks"),
    [
        ("application/problem+json", True),
        ("APPLICATION/Problem+JSON", True),
        ("application/json, application/problem+json", True),
        ("application/problem+json, */*;q=0.1", True),
        ("application/json, application/problem+json, */*", True),
        ("text/plain;q=0.5, application/problem+json", True),
        ("application/problem+json;q=0.5", True),
        ("text/event-stream, application/problem+json", True),
        ("text/plain, application/problem+json;q=0.5", False),
        ("application/problem+json;q=0, */*", False),
        ("application/json", False),
        ("application/*", False),
        ("*/*", False),
        ("application/problem+xml", False),
        ("application/problem+json;q=high", False),
        (";application/problem+json", False),
        ("", False),
    ],
)
async def test_it_is_a_problem_for_who_names_it_and_likes_plain_text_no_better(
    app: ASGIConductor, accept: str, asks: bool
) -> None:
    answer = await app.simulate_get("/nowhere", headers={"Accept": accept})
    assert (404, PROBLEM if asks else "text/plain; charset=utf-8") == (
        answer.status_code,
        answer.headers["content-type"],
    )


async def test_success_is_what_it_ever_was(app: ASGIConductor) -> None:
    answer = await app.simulate_post("/runs", body=b'{"workflow":"one"}', headers=ASKS)
    assert (201, "application/json") == (answer.status_code, answer.headers["content-type"])


def test_every_kind_is_in_the_documentation_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", PAGE.read_text(), re.MULTILINE))
    kinds = [*KINDS.values(), *OF_THE_FRAMEWORK]
    assert {kind.name: str(int(kind.status)) for kind in kinds} == rows
    assert f"`{TYPE}" in PAGE.read_text()
    assert len(kinds) == len({kind.name for kind in kinds}) == len({kind.title for kind in kinds})
