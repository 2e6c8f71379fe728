"""Whatever is sent: 400 or 413 in plain text, the offender named on a printable line, and nothing stored."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.broker import names
from penstock.broker.store import Store

MIB = 1 << 20
DEEP = b"[" * 100_000 + b"]" * 100_000
POSTS = ("/workflows", "/runs", "/runs/bulk", "/runs/cancel", "/runs/retry")
BAD_NAMES = [
    "",
    ".",
    "..",
    ".a",
    "a.",
    "a..b",
    "a/b",
    "a b",
    "a*",
    "a>",
    "$a",
    "a\nb",
    "a\0b",
    "ü",
    "a" * 129,
    "a\x7f",
    "a:b",
    "a%41",
]

BROKEN = {
    "nothing": b"",
    "spaces": b"   ",
    "a word": b"hello",
    "cut short": b'{"name":',
    "trailing": b"{} x",
    "single quotes": b"{'name':'x'}",
    "trailing comma": b'{"name":"x",}',
    "comment": b'{/* */"name":"x"}',
    "not a number": b'{"name":NaN}',
    "infinity": b'{"name":1e999}',
    "no utf-8": b'{"name":"\xff"}',
    "utf-16": '{"name":"x"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"name":"x"}',
    "lone surrogate": b'{"name":"\\ud800"}',
    "control character": b'{"name":"a\nb"}',
    "nul": b"\0",
    "deep": DEEP,
    "deep object": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep input": b'{"workflow":"one","input":' + DEEP[99_700:100_300] + b"}",
}


class Case(NamedTuple):
    path: str
    document: object
    told: str


def _step(**more: Any) -> dict[str, Any]:
    return {"name": "w", "steps": [{"id": "a", "task": "t", **more}]}


CASES = [
    Case("/workflows", [], "must be an object, not an array"),
    Case("/workflows", {}, "name is missing"),
    Case("/workflows", {"name": "w"}, "steps is missing"),
    Case("/workflows", {"name": "w", "steps": []}, "steps has 0 entries"),
    Case("/workflows", {**_step(), "colour": "red"}, 'unknown field "colour"'),
    Case("/workflows", _step(colour="red"), 'unknown field "colour"'),
    Case("/workflows", {**_step(), "timeout": "soon"}, '"soon"'),
    Case("/workflows", _step(timeout="-1s"), '"-1s"'),
    Case("/workflows", _step(depends_on=["x"]), 'step "a" depends on "x", which does not exist'),
    Case("/workflows", _step(depends_on=["a"]), 'step "a" depends on itself'),
    Case("/workflows", _step(depends_on="a"), "depends_on must be an array"),
    Case("/workflows", _step(task=None), "task is missing"),
    Case("/workflows", _step(retry={"max_attempts": -1}), "max_attempts"),
    Case("/workflows", _step(type="sorcery"), '"sorcery"'),
    Case(
        "/workflows",
        {"name": "w", "steps": [{"id": x, "task": "t", "depends_on": [y]} for x, y in ("ab", "bc", "ca")]},
        "a -> b -> c -> a",
    ),
    Case("/workflows", {"name": "w", "steps": [{"id": "a", "task": "t"}] * 2}, 'duplicate step id "a"'),
    Case("/workflows", {"name": "w", "steps": [{"id": f"s{n}", "task": "t"} for n in range(1001)]}, "1001"),
    Case("/workflows", {**_step(), "input_schema": {"type": "nonsense"}}, "input_schema"),
    Case("/runs", [], "must be an object, not an array"),
    Case("/runs", "text", "must be an object, not a string"),
    Case("/runs", None, "must be an object, not null"),
    Case("/runs", {}, "workflow is required"),
    Case("/runs", {"workflow": None}, "workflow is required"),
    Case("/runs", {"workflow": 1}, "workflow must be a string, not a number"),
    Case("/runs", {"workflow": "one", "foo": 1}, 'unknown field "foo"'),
    Case("/runs", {"workflow": "one", "Workflow": 1}, 'unknown field "Workflow"'),
    Case("/runs", {"workflow": "one", "a\nb\x1b[31m": 1}, "unknown field"),
    Case("/runs", {"workflow": "one", "run_at": 5}, "run_at must be a string, not a number"),
    Case("/runs", {"workflow": "nobody"}, '"nobody"'),
    Case("/runs", {"workflow": "typed", "input": {"n": "x"}}, "input.n"),
    Case("/runs/bulk", {"workflow_id": "one", "inputs": "x"}, "inputs must be an array, not a string"),
    *(Case("/workflows", {**_step(), "name": name}, "name") for name in BAD_NAMES),
    *(Case("/workflows", _step(task=name), "task") for name in BAD_NAMES),
    *(Case("/workflows", {"name": "w", "steps": [{"id": name, "task": "t"}]}, "id") for name in BAD_NAMES),
    *(Case("/runs", {"workflow": name}, "workflow") for name in BAD_NAMES),
    *(Case("/runs/bulk", {"workflow_id": name, "inputs": [1]}, "workflow") for name in BAD_NAMES),
]


@pytest.mark.parametrize("kind", BROKEN)
async def test_what_is_no_json_is_refused_everywhere(http: ASGIConductor, store: Store, kind: str) -> None:
    before = await _stored(store)
    for path in POSTS:
        _refused(400, await http.simulate_post(path, body=BROKEN[kind]), "the body")
    assert before == await _stored(store)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.path} {case.told}")
async def test_every_wrong_field_is_named_in_plain_text(http: ASGIConductor, store: Store, case: Case) -> None:
    before = await _stored(store)
    _refused(400, await http.simulate_post(case.path, body=orjson.dumps(case.document)), case.told)
    assert before == await _stored(store)


async def test_all_wrong_fields_are_named_at_once(http: ASGIConductor) -> None:
    answer = await http.simulate_post("/runs", body=b'{"foo":1,"bar":2,"run_at":3}')
    assert ['unknown field "foo"', 'unknown field "bar"', "workflow is required"] == answer.text.splitlines()[:3]
    assert 4 == len(answer.text.splitlines())


async def test_a_body_over_its_limit_is_refused(http: ASGIConductor, store: Store) -> None:
    before = await _stored(store)
    for path in POSTS:
        _refused(413, await http.simulate_post(path, body=b'"' + b"x" * (10 * MIB) + b'"'), str(8 * MIB))
    assert before == await _stored(store)


async def test_an_input_may_have_a_mebibyte_and_no_more(http: ASGIConductor, store: Store) -> None:
    assert 201 == (await http.simulate_post("/runs", body=_input(MIB))).status_code
    before = await _stored(store)
    _refused(413, await http.simulate_post("/runs", body=_input(MIB + 1)), "input")
    assert before == await _stored(store)


async def test_a_deeply_nested_input_that_is_taken_is_also_given_back(http: ASGIConductor) -> None:
    body = b'{"workflow":"one","input":' + b"[" * 250 + b"]" * 250 + b"}"
    run_id = (await http.simulate_post("/runs", body=body)).json["run_id"]
    assert 200 == (await http.simulate_get(f"/runs/{run_id}")).status_code


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if name not in ("", "a/b")])
async def test_a_bad_name_in_a_path_is_refused(http: ASGIConductor, name: str) -> None:
    escaped = "".join(f"%{byte:02X}" for byte in name.encode())
    _refused(400, await http.simulate_get(f"/workflows/{escaped}"), "workflow name")


EMPTY_SEGMENTS = {
    ("GET", "/workflows/"): "workflow name",
    ("GET", "/runs/"): "run id",
    ("POST", "/runs//cancel"): "run id",
    ("GET", "/runs//events"): "run id",
    ("GET", "/runs//scheduled"): "run id",
    ("DELETE", "/runs//scheduled"): "run id",
    ("POST", "/runs//signal/go"): "run id",
    ("POST", f"/runs/{'0' * 32}/signal/"): "signal name",
    ("GET", "/dead-letters/"): "dead letter's sequence",
    ("POST", "/dead-letters//replay"): "dead letter's sequence",
}


@pytest.mark.parametrize(("method", "path"), EMPTY_SEGMENTS)
async def test_an_empty_segment_is_refused_with_what_is_missing(http: ASGIConductor, method: str, path: str) -> None:
    _refused(400, await http.simulate_request(method, path), f"the {EMPTY_SEGMENTS[method, path]} is missing")


CANCEL = {b"{": "not JSON", b"[]": "object", b'{"foo":1}': '"foo"', b'{"reason":1}': "reason must be a string"}


@pytest.mark.parametrize("body", CANCEL)
async def test_a_bad_body_of_a_cancel_cancels_nothing(http: ASGIConductor, store: Store, body: bytes) -> None:
    run_id = (await http.simulate_post("/runs", body=b'{"workflow":"one"}')).json["run_id"]
    before = await _stored(store)
    _refused(400, await http.simulate_post(f"/runs/{run_id}/cancel", body=body), CANCEL[body])
    assert before == await _stored(store)


@pytest.mark.parametrize("path", ["/nope", "/runs/x/y/z", "/workflows/a/b", "/v1", "/%0a"])
async def test_an_unknown_path_is_not_found(http: ASGIConductor, path: str) -> None:
    _refused(404, await http.simulate_get(path), "does not exist")


ALLOWED = {
    "/workflows": "GET, HEAD, POST",
    "/workflows/a": "DELETE, GET, HEAD",
    "/runs": "GET, HEAD, POST",
    "/runs/x": "GET, HEAD",
    "/runs/x/cancel": "POST",
    "/runs/x/scheduled": "GET, HEAD, DELETE",
    "/runs/x/signal/go": "POST",
    "/dead-letters": "GET, HEAD",
    "/dead-letters/1": "GET, HEAD, DELETE",
    "/dead-letters/1/replay": "POST",
    "/health": "GET, HEAD",
}


@pytest.mark.parametrize("path", ALLOWED)
@pytest.mark.parametrize("method", ["DELETE", "PATCH", "PUT", "HEAD", "BREW"])
async def test_a_wrong_method_is_answered_with_the_allowed_ones(http: ASGIConductor, path: str, method: str) -> None:
    if method in ALLOWED[path]:
        return
    answer = await http.simulate_request(method, path)
    assert 405 == answer.status_code
    assert set(ALLOWED[path].split(", ")) == set(answer.headers["allow"].split(", ")) - {"OPTIONS"}


def _input(size: int) -> bytes:
    return b'{"workflow":"one","input":"' + b"x" * (size - 2) + b'"}'


def _refused(status: int, answer: Result, told: str) -> None:
    assert (status, "text/plain; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    assert told in answer.text
    assert all(line and line.isprintable() for line in answer.text.splitlines())
    assert len(answer.text) < 20_000


async def _stored(store: Store) -> tuple[int, int]:
    """The last sequences of everything that a request could write to."""
    definitions = await store.broker.api(f"STREAM.INFO.{names.bucket_stream(names.DEFINITIONS)}")
    return await store.history.last_seq(), definitions["state"]["last_seq"]
