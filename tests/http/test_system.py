"""What stands behind the service: the broker with its streams, the settings, and what steps have kept."""

from __future__ import annotations

import orjson
import pytest
from falcon.testing import ASGIConductor
from msgspec.structs import replace

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.keys import KEYS
from penstock.config.settings import BrokerSettings, HttpSettings, Settings, load, to_environ
from penstock.http.app import create_app
from tests.support.conductor import Conductor
from tests.worker.task_queue import new_run_id


async def test_every_stream_has_its_size_and_its_leader(http: ASGIConductor, store: Store) -> None:
    await store.checkpoints.put(f"{new_run_id()}.a", b"x" * 5000)
    found = (await http.simulate_get("/broker")).json
    streams = {one["stream"]: one for one in found["streams"]}
    assert {names.HISTORY, names.TASKS, names.DEAD} <= streams.keys()
    assert sorted((one["bytes"] for one in found["streams"]), reverse=True) == [
        one["bytes"] for one in found["streams"]
    ]
    kept = streams[f"KV_{names.CHECKPOINTS}"]
    assert kept["messages"] >= 1
    assert kept["bytes"] > 5000
    assert found["storage_bytes"] >= kept["bytes"]
    [node] = found["nodes"]
    assert {"node": store.broker.server_name, "leads": len(streams), "follows": 0, "online": True} == node
    assert {node["node"]} == {one["leader"] for one in streams.values()}
    assert {()} == {tuple(one["copies"]) for one in streams.values()}
    assert store.broker.server_version == found["version"]
    assert (True, "interval") == (found["embedded"], found["fsync"])


async def test_a_broker_elsewhere_does_not_say_how_it_writes(broker_settings: BrokerSettings) -> None:
    elsewhere = replace(broker_settings, url=broker_settings.own_url.replace("127.0.0.1", "localhost"))
    async with Conductor(create_app(Settings(broker=elsewhere))) as http:
        found = (await http.simulate_get("/broker")).json
    assert False is found["embedded"]
    assert "fsync" not in found


async def test_settings_are_shown_with_their_sources_and_without_secrets(broker_settings: BrokerSettings) -> None:
    settings = Settings(broker=broker_settings, http=HttpSettings(webhook_secret="tell-nobody"))
    sources = {"listen": "file penstock.toml", "webhook_secret": "environment SERVICE_WEBHOOK_SECRET"}
    async with Conductor(create_app(settings, sources)) as http:
        answer = await http.simulate_get("/settings")
    found = {one["key"]: one for one in answer.json}
    assert list(KEYS) == list(found)
    assert ("0.0.0.0:8080", "file penstock.toml") == (found["listen"]["value"], found["listen"]["source"])
    assert ("(set)", sources["webhook_secret"]) == (found["webhook_secret"]["value"], found["webhook_secret"]["source"])
    assert "default" == found["fsync"]["source"]
    assert all(one["about"] for one in answer.json)
    assert "tell-nobody" not in answer.text


def test_a_child_process_knows_where_its_settings_came_from() -> None:
    settings, sources = load({"shards": "3"}, {"SERVICE_FSYNC": "always", "SERVICE_CONFIG": ""})
    there = load({}, to_environ(settings, sources))
    assert (settings, sources) == there
    assert ("flag", "environment SERVICE_FSYNC", "default") == (
        there.sources["shards"],
        there.sources["fsync"],
        there.sources["listen"],
    )


async def test_the_latest_checkpoint_of_a_step_says_when_it_was_kept(http: ASGIConductor, store: Store) -> None:
    run_id = new_run_id()
    path = f"/runs/{run_id}/steps/import/checkpoint"
    missing = await http.simulate_get(path)
    assert 404 == missing.status_code
    assert "has no checkpoint" in missing.text
    for page in (6, 7):
        await store.checkpoints.put(f"{run_id}.import", orjson.dumps({"page": page}))
    found = (await http.simulate_get(path)).json
    assert ({"page": 7}, 10) == (found["checkpoint"], found["checkpoint_bytes"])
    assert found["at"].endswith("Z")
    small = (await http.simulate_get(path, params={"payload_max": "9"})).json
    assert {"at": found["at"], "checkpoint_bytes": 10} == small
    assert 400 == (await http.simulate_get(path, params={"payload_max": "many"})).status_code


@pytest.mark.parametrize("body", [b"\xff raw", b"{", b""])
async def test_of_a_checkpoint_that_is_no_json_the_size_is_said(http: ASGIConductor, store: Store, body: bytes) -> None:
    run_id = new_run_id()
    await store.checkpoints.put(f"{run_id}.a", body)
    found = (await http.simulate_get(f"/runs/{run_id}/steps/a/checkpoint")).json
    assert {"at", "checkpoint_bytes"} == found.keys()
    assert len(body) == found["checkpoint_bytes"]
