"""Answers that many ask for: made once for all who ask at the same time, and reused by those who allow an age."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from falcon.asgi import Request, Response
from falcon.testing import ASGIConductor, create_asgi_req

from penstock.broker.store import Store
from penstock.engine.access.scopes import Caller, KeyScope
from penstock.engine.errors import Unavailable
from penstock.engine.run.events import WorkflowCancelled
from penstock.engine.validation import parse
from penstock.http.messages import recent
from penstock.http.messages.recent import Made, RecentAnswers
from tests.http.conftest import TWO_STEPS

PATHS = ("/runs/summaries", "/runs/stats")


class Maker:
    """Makes an answer with a number of its own whenever it is let."""

    def __init__(self) -> None:
        self.calls = 0
        self.gate = asyncio.Event()
        self.waits = asyncio.Event()

    async def __call__(self) -> Made:
        self.calls += 1
        number = self.calls
        self.waits.set()
        await self.gate.wait()
        return Made(b"%d" % number, {"Link": "next"})


def asked(age: int | None = None, caller: Caller | None = None, query: str = "", tag: str = "") -> Request:
    headers = {} if age is None else {"Cache-Control": f"max-age={age}"}
    req = create_asgi_req(path="/x", query_string=query, headers={**headers, **({"If-None-Match": tag} if tag else {})})
    if caller is not None:
        req.context.caller = caller
    return req


async def given(answers: RecentAnswers, req: Request, make: Callable[[], Awaitable[Made]]) -> Response:
    resp = Response()
    await answers.give(req, resp, make)
    return resp


async def test_who_asks_while_an_answer_is_made_shares_the_next_one() -> None:
    answers, make = RecentAnswers(), Maker()
    first = asyncio.ensure_future(given(answers, asked(), make))
    await make.waits.wait()
    later = [asyncio.ensure_future(given(answers, asked(), make)) for _ in range(50)]
    await asyncio.sleep(0)

    make.gate.set()

    assert b"1" == (await first).data
    assert [b"2"] * 50 == [(await one).data for one in later]
    assert 2 == make.calls


async def test_without_an_age_an_answer_is_made_anew() -> None:
    answers, make = RecentAnswers(), Maker()
    make.gate.set()

    found = [(await given(answers, asked(age), make)).data for age in (5, 5, None, None, 0)]

    assert [b"1", b"1", b"2", b"3", b"4"] == found


async def test_a_failure_whose_first_asker_left_is_no_answer_to_a_later_request() -> None:
    answers, let = RecentAnswers(), asyncio.Event()

    async def fail() -> Made:
        await let.wait()
        raise Unavailable("no broker")

    first = asyncio.ensure_future(given(answers, asked(5), fail))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    let.set()
    await asyncio.sleep(0)
    make = Maker()
    make.gate.set()

    assert b"1" == (await given(answers, asked(5), make)).data


async def test_an_answer_with_an_age_is_not_reused_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(recent.time, "monotonic", lambda: now)
    answers, make = RecentAnswers(), Maker()
    make.gate.set()
    await given(answers, asked(2), make)

    now = 101.9
    reused = await given(answers, asked(2), make)
    now = 102.1
    renewed = await given(answers, asked(2), make)
    now = 120.0  # more than 10 s is never allowed
    last = await given(answers, asked(86400), make)

    assert [(b"1", "1"), (b"2", "0"), (b"3", "0")] == [
        (one.data, one.get_header("Age")) for one in (reused, renewed, last)
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (asked(9), asked(9, query="q=a")),
        (asked(9), asked(9, Caller("k", KeyScope.READ, "pay.*"))),
        (asked(9, Caller("k", KeyScope.READ, "pay.*")), asked(9, Caller("l", KeyScope.READ, "ship.*"))),
    ],
    ids=["query", "key for some", "keys for others"],
)
async def test_other_questions_and_rights_have_answers_of_their_own(one: Request, other: Request) -> None:
    answers, make = RecentAnswers(), Maker()
    make.gate.set()

    assert b"1" == (await given(answers, one, make)).data
    assert b"2" == (await given(answers, other, make)).data
    assert b"1" == (await given(answers, one, make)).data


async def test_keys_with_the_same_rights_share_an_answer() -> None:
    answers, make = RecentAnswers(), Maker()
    make.gate.set()
    keys = [Caller(name, KeyScope.READ, "pay.*") for name in "ab"]

    assert [b"1", b"1"] == [(await given(answers, asked(9, key), make)).data for key in keys]


async def test_what_has_not_changed_is_304() -> None:
    answers, make = RecentAnswers(), Maker()
    make.gate.set()
    first = await given(answers, asked(9), make)
    tag = first.get_header("ETag")
    assert tag is not None

    again = await given(answers, asked(9, tag=tag), make)
    changed = await given(answers, asked(0, tag=tag), make)

    assert ("304 Not Modified", None, tag) == (again.status, again.data, again.get_header("ETag"))
    assert (b"2", False) == (changed.data, changed.get_header("ETag") == tag)


async def test_a_failure_is_told_to_all_who_wait_and_not_kept() -> None:
    answers, calls = RecentAnswers(), 0

    async def make() -> Made:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Unavailable("away")
        return Made(b"there")

    told = await asyncio.gather(*(given(answers, asked(9), make) for _ in range(3)), return_exceptions=True)

    assert ["away"] * 3 == [str(one) for one in told]
    assert b"there" == (await given(answers, asked(9), make)).data


async def test_whoever_asked_first_may_go_away() -> None:
    answers, make = RecentAnswers(), Maker()
    first = asyncio.ensure_future(given(answers, asked(9), make))
    await make.waits.wait()
    other = asyncio.ensure_future(given(answers, asked(9), make))
    await asyncio.sleep(0)

    first.cancel()
    make.gate.set()

    assert b"1" == (await other).data


async def test_memory_for_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "ANSWERS_KEPT_BYTES_MAX", 250)
    answers, calls = RecentAnswers(), 0

    async def make() -> Made:
        nonlocal calls
        calls += 1
        return Made(b"x" * 100)

    for number in (1, 2, 3, 3, 2, 1):
        await given(answers, asked(9, query=f"q={number}"), make)

    assert 4 == calls  # only the first had to go


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("path", PATHS)
async def test_a_list_has_what_was_written_before_it_unless_it_may_be_older(
    http: ASGIConductor, store: Store, path: str
) -> None:
    name = f"w{uuid4().hex}"
    await store.definitions.register(parse({**TWO_STEPS, "name": name}))
    run_id = (await http.simulate_post("/runs", json={"workflow": name})).json["run_id"]
    allowed: dict[str, Any] = {"params": {"workflow": name}, "headers": {"Cache-Control": "no-transform, max-age=9"}}
    before = await http.simulate_get(path, **allowed)
    await store.history.append(WorkflowCancelled(run_id=run_id))

    older = await http.simulate_get(path, **allowed)
    now = await http.simulate_get(path, params={"workflow": name})

    assert before.content == older.content
    assert before.headers["etag"] == older.headers["etag"] != now.headers["etag"]
    assert (b"running" in older.content, b"cancelled" in now.content) == (True, True)
    assert (older.headers["age"], now.headers.get("age")) == ("0", None)
    unchanged = await http.simulate_get(path, params={"workflow": name}, headers={"If-None-Match": now.headers["etag"]})
    assert (304, b"") == (unchanged.status_code, unchanged.content)
