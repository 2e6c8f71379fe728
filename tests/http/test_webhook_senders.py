"""Webhooks as GitHub, Stripe, Slack and Svix send them: what is taken, what is kept of it, and what counts as sent
before."""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.actors.control import triggers
from penstock.broker import names
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.limits import WEBHOOK_AGE_S_MAX, WEBHOOK_BYTES_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import WorkflowStarted, decode
from penstock.http.intake.webhooks import HEADER_CHARS_MAX
from tests.support.trigger_events import engine, make, until_started
from tests.support.world import chain, register

PAGE = Path(__file__).parents[2] / "docs" / "triggers.md"
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
SECRET = "shared"
BODY = b'{"n": 1}'


def mac(signed: bytes, key: bytes = SECRET.encode()) -> str:
    return hmac.digest(key, signed, "sha256").hex()


def github(body: bytes, **headers: str) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={mac(body)}", **headers}


def stripe(body: bytes, at: float | None = None) -> dict[str, str]:
    now = str(int(time.time() if at is None else at))
    return {"Stripe-Signature": f"t={now},v1={mac(f'{now}.'.encode() + body)}", "Content-Type": JSON}


def slack(body: bytes, at: float | None = None, content_type: str = FORM, **headers: str) -> dict[str, str]:
    now = str(int(time.time() if at is None else at))
    signature = f"v0={mac(f'v0:{now}:'.encode() + body)}"
    return {"X-Slack-Signature": signature, "X-Slack-Request-Timestamp": now, "Content-Type": content_type, **headers}


def svix(body: bytes, message_id: str, prefix: str = "svix") -> dict[str, str]:
    now = str(int(time.time()))
    digest = base64.b64encode(bytes.fromhex(mac(f"{message_id}.{now}.".encode() + body))).decode()
    return {f"{prefix}-id": message_id, f"{prefix}-timestamp": now, f"{prefix}-signature": f"v1,{digest}"}


@pytest.fixture
async def hook(http: ASGIConductor, store: Store, task: str) -> AsyncIterator[str]:
    """The name of a webhook trigger of the test's own, and of its workflow."""
    await register(store, chain(task, 1))
    await make(store, task, task, webhook={"secret": SECRET})
    yield task
    await triggers.delete(store, task)


async def send(http: ASGIConductor, hook: str, body: bytes, headers: dict[str, str]) -> Result:
    answer: Result = await http.simulate_post(f"/v1/webhooks/{hook}", body=body, headers=headers)
    return answer


async def events(store: Store, hook: str) -> list[Stored]:
    return await store.reader.subject(names.EVENTS, names.webhook_subject(hook))


GITHUB = {
    "X-GitHub-Event": "pull_request",
    "X-GitHub-Delivery": "72d3162e",
    "X-GitHub-Hook-ID": "292430182",
    "X-GitHub-Hook-Installation-Target-ID": "79929171",
    "X-GitHub-Hook-Installation-Target-Type": "repository",
}
RETRIED = {"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_timeout"}
STRANGE = {"X-Hub-Signature": "sha1=0", "Authorization": "Bearer x", "X-Other": "x"}


def sent() -> dict[bytes, tuple[dict[str, str], tuple[str, ...]]]:
    """What is sent with a body, signed now, and which of its headers the run keeps."""
    return {
        b"1": ({**github(b"1", **GITHUB), **STRANGE}, tuple(GITHUB)),
        b"2": (stripe(b"2"), ()),
        b"3": (slack(b"3", content_type=JSON, **RETRIED), (*RETRIED, "X-Slack-Request-Timestamp")),
        b"4": (svix(b"4", "msg_1"), ("svix-id", "svix-timestamp")),
        b"5": (svix(b"5", "msg_2", "webhook"), ("webhook-id", "webhook-timestamp")),
        b"6": ({"X-Signature-256": f"sha256={mac(b'6')}", "webhook-timestamp": "1"}, ()),
        b"7": ({"X-Signature-256": f"sha256={mac(b'7')}", "webhook-id": 'a "b" \xfc'}, ("webhook-id",)),
    }


async def test_the_run_keeps_the_headers_that_its_sender_defines_and_no_signature(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings, hook: str
) -> None:
    """So does a run of an event trigger that follows the webhook."""
    requests = sent()
    await make(store, f"{hook}.event", hook, event={"subject": names.webhook_subject(hook)})
    async with engine(broker_settings):
        for body, (headers, _) in requests.items():
            assert 202 == (await send(http, hook, body, headers)).status_code
        runs = await until_started(store, hook, 2 * len(requests))
    for run in runs:
        headers, kept = requests[bytes(run.input)]
        assert run.trigger is not None
        assert {name.lower(): headers[name] for name in kept} == run.trigger.headers
    assert [True] * 2 * len(requests) == [
        run.trigger is not None and run.trigger.kind in ("webhook", "event") for run in runs
    ]
    await triggers.delete(store, f"{hook}.event")


async def test_a_run_shows_them_and_one_without_any_has_no_field_for_them(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings, hook: str
) -> None:
    async with engine(broker_settings):
        await send(http, hook, BODY, github(BODY, **{**GITHUB, "X-GitHub-Hook-ID": "9" * 600}))
        await until_started(store, hook, 1)
    (listed,) = (await http.simulate_get(f"/runs/{await _only(store, hook)}/events")).json
    assert "pull_request" == listed["payload"]["trigger"]["headers"]["x-github-event"]
    assert "9" * HEADER_CHARS_MAX == listed["payload"]["trigger"]["headers"]["x-github-hook-id"]
    fired = (await http.simulate_post(f"/triggers/{hook}/fire")).json["run_id"]
    assert {"name", "kind", "at"} == (await http.simulate_get(f"/runs/{fired}")).json["trigger"].keys()


FORMS: dict[str, tuple[bytes, Any]] = {
    "GitHub": (urlencode({"payload": '{"zen": "Keep it \\u0041 & ü"}'}).encode(), {"zen": "Keep it A & ü"}),
    "a command of Slack": (
        b"command=%2Fdeploy&text=to+production&empty=",
        {"command": "/deploy", "text": "to production", "empty": ""},
    ),
    "several values": (b"a=1&a=2&payload=x", {"a": ["1", "2"], "payload": "x"}),
    "several payloads": (b"payload=1&payload=2", {"payload": ["1", "2"]}),
    "control characters": (b"text=%00%0A", {"text": "\0\n"}),
    "JSON that is called a form": (BODY, {"n": 1}),
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_form_is_the_json_that_it_stands_for_and_is_signed_as_it_came(
    http: ASGIConductor, store: Store, hook: str, form: str
) -> None:
    body, expected = FORMS[form]
    for headers in (github(body, **{"Content-Type": FORM.upper() + "; charset=utf-8"}), slack(body)):
        assert 202 == (await send(http, hook, body, headers)).status_code
    assert [expected] * 2 == [orjson.loads(event.data) for event in await events(store, hook)]


@pytest.mark.parametrize(
    "body",
    [
        b"a",
        b"=&",
        b"a=%FF",
        b"\xff=1",
        b"payload=%7B",
        b"payload=",
        b"&".join([b"a=1"] * 1001),
        b"",
        b"payload=" + b"[" * 300 + b"]" * 300,
    ],
)
async def test_what_is_no_form_either_is_400_and_not_stored(
    http: ASGIConductor, store: Store, hook: str, body: bytes
) -> None:
    answer = await send(http, hook, body, slack(body))
    assert 400 == answer.status_code
    assert all(line.isprintable() for line in answer.text.splitlines())
    assert [] == await events(store, hook)


async def test_a_form_that_is_called_something_else_is_400(http: ASGIConductor, store: Store, hook: str) -> None:
    for content_type in ("", "text/plain", JSON, "multipart/form-data"):
        assert 400 == (await send(http, hook, b"a=1", github(b"a=1", **{"Content-Type": content_type}))).status_code
    assert [] == await events(store, hook)


async def test_a_form_has_its_limit_as_json(http: ASGIConductor, hook: str) -> None:
    body = b"a=" + b"%00" * (WEBHOOK_BYTES_MAX // 4)
    assert len(body) <= WEBHOOK_BYTES_MAX
    assert 413 == (await send(http, hook, body, slack(body))).status_code


async def test_the_challenge_of_slack_is_answered_and_starts_nothing(
    http: ASGIConductor, store: Store, hook: str
) -> None:
    body = b'{"token": "t", "challenge": "3eZbrw1a", "type": "url_verification"}'
    answer = await send(http, hook, body, slack(body, content_type=JSON))
    assert (200, {"challenge": "3eZbrw1a"}) == (answer.status_code, answer.json)
    assert 401 == (await send(http, hook, body, {**slack(body), "X-Slack-Signature": "v0=0"})).status_code
    assert [] == await events(store, hook)
    assert 202 == (await send(http, hook, body, github(body))).status_code  # of others it is an event like any other
    for other in (
        b'{"type": "url_verification"}',
        b'{"type": "url_verification", "challenge": 1}',
        b'{"challenge": "x"}',
    ):
        assert 202 == (await send(http, hook, other, slack(other, content_type=JSON))).status_code


@pytest.mark.parametrize("sign", [1, -1])
async def test_what_is_old_or_from_the_future_is_401(http: ASGIConductor, store: Store, hook: str, sign: int) -> None:
    at = time.time() + sign * (WEBHOOK_AGE_S_MAX + 5)
    for headers in (stripe(BODY, at), slack(BODY, at)):
        assert 401 == (await send(http, hook, BODY, headers)).status_code
    assert [] == await events(store, hook)


def twice(now: float) -> dict[str, tuple[tuple[bytes, dict[str, str]], tuple[bytes, dict[str, str]], int]]:
    """Two requests each, signed at that time, and how many events they are."""
    return {
        "Stripe tries again": (
            (b'{"id":"evt_1"}', stripe(b'{"id":"evt_1"}', now)),
            (b'{"id":"evt_1"}', stripe(b'{"id":"evt_1"}', now + 9)),
            1,
        ),
        "another event of Stripe": (
            (b'{"id":"evt_1"}', stripe(b'{"id":"evt_1"}', now)),
            (b'{"id":"evt_2"}', stripe(b'{"id":"evt_2"}', now)),
            2,
        ),
        "Slack tries again": (
            (b'{"event_id":"Ev1"}', slack(b'{"event_id":"Ev1"}', now, JSON)),
            (b'{"event_id":"Ev1"}', slack(b'{"event_id":"Ev1"}', now + 9, JSON, **RETRIED)),
            1,
        ),
        "a command that somebody sends again": (
            (b"text=x", slack(b"text=x", now)),
            (b"text=x", slack(b"text=x", now)),
            1,
        ),
        "with another signature before it": (
            (BODY, stripe(BODY, now)),
            (BODY, {"Stripe-Signature": stripe(BODY, now)["Stripe-Signature"] + ",v1=0"}),
            1,
        ),
        "a command that is given again": (
            (b"text=x", slack(b"text=x", now)),
            (b"text=x", slack(b"text=x", now + 1)),
            2,
        ),
        "Svix tries again": ((BODY, svix(BODY, "msg_1")), (BODY, svix(BODY, "msg_1")), 1),
        "GitHub delivers again": ((BODY, github(BODY, **GITHUB)), (BODY, github(BODY, **GITHUB)), 1),
        "no name and no time": ((BODY, github(BODY)), (BODY, github(BODY)), 2),
    }


@pytest.mark.parametrize("case", twice(0.0))
async def test_what_was_sent_before_is_the_same_event(http: ASGIConductor, store: Store, hook: str, case: str) -> None:
    first, second, expected = twice(time.time())[case]
    for body, headers in (first, second):
        assert 202 == (await send(http, hook, body, headers)).status_code
    assert expected == len(await events(store, hook))


def examples() -> list[str]:
    """The blocks of the page that send a webhook."""
    blocks = re.findall(r"^```\n(\$ .*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "/v1/webhooks/" in block and "curl" in block]


@pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "curl", "openssl", "base64", "od"))), reason="no openssl or curl here"
)
@pytest.mark.parametrize("block", examples(), ids=lambda block: re.findall(r"/v1/webhooks/(\w+)", block)[0])
async def test_what_the_page_shows_is_so(served: str, definitions: None, store: Store, block: str) -> None:
    key = base64.b64encode(b"\x00\xff of standard").decode()
    (name,) = {*re.findall(r"/v1/webhooks/(\w+)", block)}
    secret = f"whsec_{key}" if name == "standard" else SECRET
    await make(store, name, "one", webhook={"secret": secret})
    script = "".join(
        line[2:] if line.startswith("$ ") else line if line.startswith("  ") else "echo\n"
        for line in block.splitlines(True)
    )
    environ = {"PATH": "/usr/bin:/bin:/usr/local/bin", "SECRET": SECRET, "ENCODED": secret, "no_proxy": "*"}
    script = script.replace("localhost:8080", served.removeprefix("http://"))
    command = ["bash", "-euo", "pipefail", "-c", script]
    ran = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, text=True, check=True)
    expected = [line for line in block.splitlines() if not line.startswith(("$ ", "  "))]
    assert expected == ran.stdout.splitlines()
    assert len([line for line in expected if "accepted" in line]) == len(await events(store, name))
    await triggers.delete(store, name)


def test_every_dialect_has_an_example() -> None:
    assert {"deploy", "github", "stripe", "slack", "standard"} == {
        *re.findall(r"/v1/webhooks/(\w+)", "".join(examples()))
    }


async def _only(store: Store, hook: str) -> str:
    """The id of the one run of a workflow."""
    found = [decode(one.data) for one in await store.reader.subject(names.HISTORY, "history.*.*")]
    (event,) = (event for event in found if isinstance(event, WorkflowStarted) and event.payload.workflow == hook)
    return event.run_id
