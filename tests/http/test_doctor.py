"""What is wrong with the service: every finding brought about over a real broker, and found by GET /doctor."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import orjson
import pytest
from falcon.testing import ASGIConductor
from msgspec.structs import replace

from penstock.actors.triggers.trigger_runner import open_triggers
from penstock.broker import names
from penstock.broker.nats.consumers import ConsumerConfig, create_consumer
from penstock.broker.records.owners import Claim, Member
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.broker.streams.telemetry import ProcessReport
from penstock.config.limits import PARTITIONS
from penstock.config.settings import BrokerSettings, Settings
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.run.events import WorkflowCancelled, WorkflowStarted
from penstock.engine.times import rfc3339
from penstock.http.app import create_app
from penstock.http.backend import Backend
from penstock.http.diagnosis import explanations, service_facts
from penstock.http.diagnosis.checks import of_broker, of_engines
from penstock.http.diagnosis.checks.facts import ServiceFacts, WaitedLimit
from penstock.http.diagnosis.checks.table import CHECKS, examined
from penstock.http.diagnosis.service_facts import answering_store
from tests.support.conductor import Conductor
from tests.support.little_room import fill, make_room, small_broker
from tests.support.own_broker import own_broker
from tests.support.waiting import until
from tests.worker.task_queue import dispatch, new_run_id

SOON_S = 3.0


async def examine(http: ASGIConductor) -> dict[str, str]:
    """The text and the remedy of each check that has found something."""
    answer = await http.simulate_get("/doctor")
    assert 200 == answer.status_code, answer.text
    found: dict[str, str] = {}
    for one in answer.json["findings"]:
        assert one["text"].isprintable()
        assert one["remedy"]
        found[one["check"]] = f"{found.get(one['check'], '')}{one['text']}\n"
    assert {one["check"]: one["ok"] for one in answer.json["checks"]} == {name: name not in found for name in CHECKS}
    return found


async def soon(http: ASGIConductor, check: str, text: str) -> str:
    async def there() -> str | None:
        found = (await examine(http)).get(check, "")
        return found if text in found else None

    said = await until(there)
    assert said is not None
    return said


async def test_a_service_without_engines_and_index(http: ASGIConductor) -> None:
    found = await examine(http)
    assert "no engine has the partitions 0-31" in found["engines"]
    assert "no engine runs the triggers" in found["engines"]
    assert "the run index is not followed" in found["index"]
    assert {"engines", "index"} >= found.keys() - {"disk"}


async def test_the_default_way_of_writing_to_disk_is_a_note_with_a_remedy(http: ASGIConductor) -> None:
    answer = (await http.simulate_get("/doctor")).json
    [note] = answer["notes"]
    assert ("fsync", True) == (note["check"], "fsync = interval" in note["text"])
    assert "set fsync = always" in note["remedy"]
    assert {"check": "fsync", "ok": True} in answer["checks"]
    assert "fsync" not in {one["check"] for one in answer["findings"]}


async def test_partitions_and_triggers_that_are_taken_care_of_are_no_finding(
    http: ASGIConductor, store: Store, index: None
) -> None:
    partitions = orjson.dumps({"partitions": list(range(32))})
    async with store.broker.answering(names.ENGINE_PING, partitions), open_triggers(store):
        await store.broker.flush()

        async def fine() -> bool:
            return not {"engines", "index"} & (await examine(http)).keys()

        assert await until(fine)


async def test_tasks_without_a_worker(http: ASGIConductor, store: Store, task: str) -> None:
    await dispatch(store, task)
    await dispatch(store, task, group="gpu")
    found = await soon(http, "tasks_without_workers", task)
    assert f'1 task waits of type "{task}" for a worker' in found
    assert f'"{task}" (worker group "gpu")' in found


async def test_registered_workers_that_request_nothing(http: ASGIConductor, store: Store, task: str) -> None:
    async with store.tasks.consume(task, lambda delivery: None, batch=1, room=lambda: 0):
        await store.workers.put("w", orjson.dumps({"worker_id": "w", "task_types": [task]}))
        await dispatch(store, task)
        found = await soon(http, "consumers", task)
    assert "none of its registered workers (1) requests them" in found
    assert task not in (await examine(http)).get("tasks_without_workers", "")
    await store.workers.delete("w")


async def test_a_consumer_of_events_that_nobody_reads(http: ASGIConductor, store: Store) -> None:
    config = ConsumerConfig(stream=names.EVENTS, name="trigger-lonely-1", filter_subject="event.lonely")
    await create_consumer(store.broker, config)
    await store.publisher.send("event.lonely", b"1")
    assert '"trigger-lonely-1" of stream EVENTS has 1 message that' in await soon(http, "consumers", "lonely")


async def test_dead_letters(http: ASGIConductor, store: Store) -> None:
    await store.publisher.send(names.dead_history_subject(new_run_id()), b"x")
    assert "dead letter" in await soon(http, "dead_letters", "failed for good")


@pytest.mark.parametrize("common", [False, True])
async def test_an_engine_that_is_behind(
    http: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch, *, common: bool
) -> None:
    monkeypatch.setattr(of_engines, "LAG_S_MAX", 0.05)
    run_id = new_run_id()
    partition = names.partition(run_id)
    consumer = names.common_consumer(1) if common else names.engine_consumer(partition, 1)
    await store.consumers.open(consumer, None if common else partition, await store.history.last_seq() + 1)
    await store.owners.renew(Member(f"m-{common}", "here"), 0)
    claims = (await store.owners.read()).claims
    for number in (partition, (partition + 1) % PARTITIONS) if common else (partition,):
        expect = claims[number].revision if number in claims else 0
        await store.owners.claim(number, Claim(f"m-{common}", consumer), expect)
    await store.history.append(msgspec.json.decode(_STARTED.replace(b"RUN", run_id.encode()), type=WorkflowStarted))
    assert "1 event waits in 1 partition" in await soon(http, "engine_lag", f"(partition {partition})")
    assert "penstock_engine_lag_messages 1.0" in (await http.simulate_get("/metrics")).text
    await store.history.append(WorkflowCancelled(run_id=run_id))
    several = "up to 2 partitions" if common else "1 partition"
    assert f"2 events wait in {several}, the oldest for" in await soon(http, "engine_lag", "2 events")
    await store.consumers.remove(consumer)


async def test_a_clock_that_is_wrong_and_versions_that_differ(
    http: ASGIConductor, broker_settings: BrokerSettings
) -> None:
    def report() -> list[ProcessReport]:
        return [ProcessReport("shard-7", "far", 1, "life", rfc3339(time.time() + 90), [], "0.0.1")]

    async with open_store(broker_settings, "other") as other:
        await other.telemetry.answer(report)
        await other.broker.flush()
        said = await soon(http, "clock", "shard-7 on far")
        assert "ahead of the broker's" in said
        versions = (await examine(http))["versions"]
    assert "0.0.1: shard-7 on far" in versions
    assert "2 versions of penstock" in versions


async def test_a_worker_of_another_version(http: ASGIConductor, store: Store) -> None:
    entry = {"worker_id": "old", "task_types": ["t"], "language": "python", "version": "0.0.2"}
    await store.workers.put("old", orjson.dumps(entry))
    await store.workers.put("other", orjson.dumps({**entry, "worker_id": "other", "language": "go", "version": "9"}))
    said = await soon(http, "versions", "0.0.2: worker old")
    assert "9: " not in said
    await store.workers.delete("old")


async def test_a_disk_with_little_room(http: ASGIConductor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_broker, "DISK_BYTES_MIN", 1 << 60)
    assert "MiB left of" in (await examine(http))["disk"]


async def test_a_storage_that_is_full_and_one_that_is_nearly_full(data_dir: Path) -> None:
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(small_broker(data_dir))
        store = await stack.enter_async_context(open_store(broker.settings, "test"))
        await provision(store.broker, broker.settings)
        http = await stack.enter_async_context(Conductor(create_app(Settings(broker=broker.settings))))
        await fill(store)
        assert "the broker's storage is full" in await soon(http, "storage", "nothing is stored")
        await make_room(store)
        for number in range(14):
            await store.signals.put(f"r.{number}", bytes(1 << 20))
        assert "% full: " in await soon(http, "storage", "storage is")


@pytest.mark.parametrize("act", ["freeze", "stop"])
async def test_a_broker_that_does_not_answer_is_named_soon_with_a_remedy(tmp_path: Path, act: str) -> None:
    """By the examination of the service, and by that of a run."""
    with own_broker(tmp_path) as own:
        async with open_store(own.settings, "test") as store:
            await provision(store.broker, own.settings)
            async with Conductor(create_app(Settings(broker=own.settings))) as http:
                assert 200 == (await http.simulate_get("/doctor")).status_code
                if act == "stop":
                    await asyncio.to_thread(own.stop)
                else:
                    await own.freeze()
                try:
                    for path in ("/doctor", f"/runs/{new_run_id()}/explain"):
                        begin = time.monotonic()
                        answer = await http.simulate_get(path)
                        assert time.monotonic() - begin < SOON_S
                        assert 503 == answer.status_code
                        where = f"the broker does not answer at nats://127.0.0.1:{own.settings.port}: is it running?"
                        assert answer.text.startswith(where)
                finally:
                    if act == "freeze":
                        own.go_on()


async def test_a_broker_that_freezes_after_its_first_answer_leaves_checks_unknown_and_takes_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_broker(tmp_path) as own:
        async with open_store(own.settings, "test") as store:
            await provision(store.broker, own.settings)
            async with Conductor(create_app(Settings(broker=own.settings))) as http:

                async def freeze(backend: Backend) -> Store:
                    opened = await answering_store(backend)
                    await own.freeze()
                    return opened

                monkeypatch.setattr(service_facts, "answering_store", freeze)
                monkeypatch.setattr(explanations, "answering_store", freeze)
                try:
                    begin = time.monotonic()
                    answer = (await http.simulate_get("/doctor")).json
                    assert time.monotonic() - begin < SOON_S
                    own.go_on()
                    assert {"broker", "disk"} >= {one["check"] for one in answer["findings"]}
                    said = " ".join(one["text"] for one in answer["findings"])
                    unknown = CHECKS.keys() - {"broker", "disk", "fsync"}
                    assert all(name in said for name in unknown)
                    assert "the broker has answered at first, and then not within" in said
                    assert not unknown & {one["check"] for one in answer["checks"] if one["ok"]}

                    begin = time.monotonic()
                    explained = await http.simulate_get(f"/runs/{new_run_id()}/explain")
                    assert time.monotonic() - begin < SOON_S
                    assert (503, True) == (explained.status_code, "and then not within" in explained.text)

                    for path, status in (("/health", 503), ("/ready", 503), ("/metrics", 200)):
                        begin = time.monotonic()
                        assert status == (await http.simulate_get(path)).status_code
                        assert time.monotonic() - begin < SOON_S
                finally:
                    own.go_on()


@pytest.mark.parametrize("check", CHECKS)
def test_a_service_in_which_all_is_well_has_no_finding(check: str) -> None:
    assert [] == list(CHECKS[check](ServiceFacts()))


def test_an_index_that_is_behind_is_found_only_after_a_while() -> None:
    late = ServiceFacts(index_behind=100, index_behind_s=60.0)
    assert ["index"] == [one.check for one in examined(late).findings]
    assert [] == examined(replace(late, index_behind_s=1.0)).findings


OPENAI = LimitName(LimitKind.EXECUTIONS, "openai", "acme")


@pytest.mark.parametrize(
    ("limit", "text", "remedy"),
    [
        (
            WaitedLimit(OPENAI, 0, 2),
            'the limit "openai" (executions, key "acme") lets nothing begin, and 2 wait for it',
            '`penstock limit set openai N --kind executions --key "acme"` lets so many begin',
        ),
        (
            WaitedLimit(replace(OPENAI, key=None), 0, 1, overridden=True),
            'the limit "openai" (executions) lets nothing begin, and 1 waits for it',
            "`penstock limit reset openai --kind executions` lets what is registered count again",
        ),
        (
            WaitedLimit(OPENAI, 4, 2, paused=("r1", "r2", "r3", "r4")),
            'the limit "openai" (executions, key "acme") has slots that paused runs hold (r1, r2, r3 and 1 more), and '
            "2 wait for it",
            "`penstock run resume RUN` lets them go on, and `penstock run cancel RUN` ends them",
        ),
    ],
    ids=["of nothing", "overridden with nothing", "held by paused runs"],
)
def test_limits_that_hold_everything_are_found(limit: WaitedLimit, text: str, remedy: str) -> None:
    (found,) = examined(ServiceFacts(limits=(limit,))).findings
    assert ("limits", text) == (found.check, found.text)
    assert found.remedy.startswith(remedy)
    assert [] == examined(ServiceFacts(limits=(replace(limit, allowed=4, paused=()),))).findings


_STARTED = (
    b'{"type":"workflow.started","run_id":"RUN","timestamp":"2026-01-01T00:00:00Z",'
    b'"payload":{"workflow":"w","version":"1","digest":"d","input":null}}'
)
