"""Webhook intake: what is let in, what each stranger is told, and that what was accepted is stored."""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import pytest
from falcon.testing import ASGIConductor

from penstock.actors.control import triggers
from penstock.broker import names
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.limits import WEBHOOK_BYTES_MAX
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.http.app import create_app
from tests.support.conductor import Conductor
from tests.support.trigger_events import engine, inputs, nothing_left, until_started
from tests.support.world import chain, register

BODY = b'{"n": 1}'
Headers: TypeAlias = Mapping[str, str]  # those with a time in them are made when they are sent
ENCODED = "whsec_" + base64.b64encode(b"standard").decode()


@pytest.fixture(autouse=True)
async def _triggers(http: ASGIConductor, store: Store) -> None:
    for kept in await triggers.get_all(store):
        await triggers.delete(store, kept.trigger.name)
    await make(store, "own", secret="mine")
    await make(store, "default")
    await make(store, "off", secret="mine", enabled=False)
    await make(store, "standard", secret=ENCODED)


@pytest.fixture
async def guarded(broker_settings: BrokerSettings) -> AsyncIterator[ASGIConductor]:
    """With a default secret, and a token for the control plane that no webhook has."""
    settings = Settings(broker=broker_settings, http=HttpSettings(webhook_secret="everybodys", api_token="token"))
    async with Conductor(create_app(settings)) as conductor:
        yield conductor


async def make(store: Store, name: str, workflow: str = "typed", secret: str | None = None, **more: Any) -> None:
    await triggers.put(store, {"name": name, "workflow": workflow, "webhook": {"secret": secret}, **more})


def signed(secret: str, body: bytes = BODY, header: str = "X-Signature-256", **more: str) -> dict[str, str]:
    return {header: "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex(), **more}


def by_standard(key: bytes, message_id: str = "msg_1", body: bytes = BODY, at: float | None = None) -> dict[str, str]:
    timestamp = str(int(time.time() if at is None else at))
    digest = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


async def send(
    http: ASGIConductor, name: str, headers: Headers | Callable[[], Headers], body: bytes = BODY
) -> tuple[int, str]:
    made = headers() if callable(headers) else headers
    answer = await http.simulate_post(f"/v1/webhooks/{name}", body=body, headers=dict(made))
    return answer.status_code, answer.text


async def events(store: Store, name: str) -> list[Stored]:
    return await store.reader.subject(names.EVENTS, names.webhook_subject(name))


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("own", signed("mine")),
        ("own", signed("mine", header="X-Hub-Signature-256")),
        ("own", partial(by_standard, b"mine")),
        ("standard", partial(by_standard, b"standard", "msg_2")),
        ("default", signed("everybodys")),
        ("default", partial(by_standard, b"everybodys", "msg_3")),
    ],
)
async def test_a_signed_webhook_is_202_and_an_event(
    guarded: ASGIConductor, store: Store, name: str, headers: Headers | Callable[[], Headers]
) -> None:
    before = len(await events(store, name))
    assert (202, '{"status":"accepted"}') == await send(guarded, name, headers)
    stored = await events(store, name)
    assert before + 1 == len(stored)
    assert BODY == stored[-1].data


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("own", {}),
        ("own", signed("everybodys")),  # the trigger's own goes before the default
        ("own", signed("mine", b'{"n": 2}')),
        ("own", {"X-Signature-256": "sha256="}),
        ("own", {"X-Signature-256": "\xfc"}),
        ("own", partial(by_standard, b"mine", at=0)),
        ("default", signed("mine")),
        ("default", signed("")),
        ("standard", partial(by_standard, ENCODED.encode())),
    ],
)
async def test_without_the_right_signature_it_is_401_and_nothing_is_stored(
    guarded: ASGIConductor, store: Store, name: str, headers: Headers | Callable[[], Headers]
) -> None:
    before = await store.events.last_seq()
    assert (401, "a valid signature is needed\n") == await send(guarded, name, headers)
    assert before == await store.events.last_seq()


async def test_without_any_secret_every_signature_is_wrong(http: ASGIConductor) -> None:
    for secret in ("", "None", "mine"):
        assert 401 == (await send(http, "default", signed(secret)))[0]


@pytest.mark.parametrize("name", ["unknown", "off", "a b", "..", "*", ">", "x" * 200, "nightly"])
async def test_an_unknown_or_disabled_webhook_is_404_signed_or_not(
    guarded: ASGIConductor, store: Store, name: str
) -> None:
    await triggers.put(store, {"name": "nightly", "workflow": "one", "cron": {"expression": "0 0 1 1 *"}})
    for headers in ({}, signed("mine"), signed("everybodys")):
        assert 404 == (await send(guarded, name, headers))[0]


async def test_a_missing_name_is_named(guarded: ASGIConductor) -> None:
    assert (400, "the webhook's name is missing\n") == await send(guarded, "", {})


async def test_a_body_may_have_one_mebibyte_and_not_more(guarded: ASGIConductor, store: Store) -> None:
    await make(store, "own", "one", "mine")
    body = b'"' + b"x" * (WEBHOOK_BYTES_MAX - 2) + b'"'
    assert 202 == (await send(guarded, "own", signed("mine", body), body))[0]
    assert 413 == (await send(guarded, "own", signed("mine", body + b" "), body + b" "))[0]
    assert 413 == (await send(guarded, "own", {}, body + b" "))[0]


@pytest.mark.parametrize("body", [b"", b"{", b"a=1", b"[" * 300 + b"]" * 300])
async def test_what_is_not_json_is_400_for_who_has_signed_it_and_401_for_others(
    guarded: ASGIConductor, store: Store, body: bytes
) -> None:
    before = await store.events.last_seq()
    assert 400 == (await send(guarded, "own", signed("mine", body), body))[0]
    assert 401 == (await send(guarded, "own", {}, body))[0]
    assert before == await store.events.last_seq()


async def test_an_input_that_the_workflow_does_not_take_is_400_and_nothing_is_stored(
    guarded: ASGIConductor, store: Store
) -> None:
    body = b'{"n": "x"}'
    before = await store.events.last_seq()
    status, text = await send(guarded, "own", signed("mine", body), body)
    assert (400, True) == (status, text.startswith("input.n: "))
    assert before == await store.events.last_seq()
    await make(store, "own", "typed", "mine", input={"n": 1})
    assert 202 == (await send(guarded, "own", signed("mine", body), body))[0]


async def test_of_a_batch_only_the_array_must_be_an_input_that_the_workflow_takes(
    guarded: ASGIConductor, store: Store
) -> None:
    body = b'{"n": "x"}'
    await make(store, "own", "typed", "mine", batch={"size": 5, "period": "1h"})
    assert 202 == (await send(guarded, "own", signed("mine", body), body))[0]
    await make(store, "own", "typed", "mine", debounce={"period": "1h", "max_wait": "1h"})
    assert 400 == (await send(guarded, "own", signed("mine", body), body))[0]


async def test_other_methods_are_405(guarded: ASGIConductor) -> None:
    answer = await guarded.simulate_get("/v1/webhooks/own")
    assert 405 == answer.status_code
    assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize("dialect", ["webhook-id", "X-GitHub-Delivery"])
async def test_a_redelivered_webhook_is_one_event_and_one_run(
    guarded: ASGIConductor, store: Store, broker_settings: BrokerSettings, dialect: str
) -> None:
    """Within the broker's window as one event; after it, as one occurrence."""
    workflow = f"redelivered.{dialect.lower()}"
    await register(store, chain(workflow, 1))
    name = f"again.{dialect.lower()}"
    await make(store, name, workflow, "mine")
    for number in (1, 1, 2):
        headers = {**signed("mine"), dialect: f"id {number}"}
        assert 202 == (await send(guarded, name, headers))[0]
    found = await events(store, name)
    assert 2 == len(found)
    message = (await store.broker.api(f"STREAM.MSG.GET.{names.EVENTS}", {"seq": found[0].seq}))["message"]
    event_id = base64.b64decode(message["hdrs"]).decode().partition(f"{names.EVENT_ID}: ")[2].split("\r\n")[0]
    await store.publisher.send(names.webhook_subject(name), BODY, {names.EVENT_ID: event_id})
    async with engine(broker_settings):
        await until_started(store, workflow, 2)
        await nothing_left(store, await triggers.get(store, name))
    assert [BODY.decode()] * 2 == await inputs(store, workflow)


async def test_a_broker_that_is_away_is_503(
    guarded: ASGIConductor, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    monkeypatch.setattr("penstock.broker.streams.events.PUBLISH_DEADLINE_S", 0.05)
    await store.broker.api(f"STREAM.DELETE.{names.EVENTS}")
    assert 503 == (await send(guarded, "own", signed("mine")))[0]


async def test_no_secret_comes_out_of_the_log(guarded: ASGIConductor, capfd: pytest.CaptureFixture[str]) -> None:
    for headers in ({}, signed("mine"), signed("wrong")):
        await send(guarded, "own", headers)
    assert not [word for word in ("mine", "everybodys", ENCODED) if word in "".join(capfd.readouterr())]
