"""What webhook intake publishes is an event like any other: event triggers listen to it, each with its own filter."""

from __future__ import annotations

import hmac

import orjson
from falcon.testing import ASGIConductor

from penstock.actors.control import triggers
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from tests.support.trigger_events import engine, inputs, make, nothing_left, until_started
from tests.support.world import chain, register

SECRET = "shop"


async def test_one_webhook_starts_runs_of_every_event_trigger_that_lets_it_through(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings
) -> None:
    for workflow in ("shop.any", "shop.paid", "shop.large"):
        await register(store, chain(workflow, 1))
    await make(store, "shop", "shop.any", webhook={"secret": SECRET})
    await make(
        store, "paid", "shop.paid", event={"subject": "event.webhook.shop", "field": "order.status", "value": "paid"}
    )
    await make(store, "large", "shop.large", event={"subject": "event.webhook.*", "field": "order.large"})
    bodies = [
        orjson.dumps({"order": order})
        for order in ({"n": 1, "status": "paid"}, {"n": 2, "status": "open"}, {"n": 3, "status": "paid", "large": True})
    ]
    async with engine(broker_settings):
        for body in bodies:
            signature = "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex()
            answer = await http.simulate_post("/v1/webhooks/shop", body=body, headers={"X-Signature-256": signature})
            assert 202 == answer.status_code
        await until_started(store, "shop.any", 3)
        for name in ("shop", "paid", "large"):
            await nothing_left(store, await triggers.get(store, name))
    assert [body.decode() for body in bodies] == await inputs(store, "shop.any")
    assert [bodies[0].decode(), bodies[2].decode()] == await inputs(store, "shop.paid")
    assert [bodies[2].decode()] == await inputs(store, "shop.large")
