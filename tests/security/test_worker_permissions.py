"""The permissions of docs/security.md for a worker straight on the broker: with them it can do all of its work, and
nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.broker import names
from penstock.broker.nats.credentials import inbox_prefix
from penstock.broker.nats.errors import ApiError
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.settings import BrokerSettings
from penstock.worker import Context, Worker
from tests.support.server import Server, server
from tests.support.waiting import until, until_true
from tests.worker.task_queue import answer, dispatch, new_run_id, output_of, put_raw

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
TASK, WORKER = "hello", "greeter-1"  # of the example


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    (block,) = re.findall(r"```conf\n(authorization \{.*?\n\})\n```", PAGE.read_text(), re.DOTALL)
    with server(tmp_path, block) as one:
        yield one


@pytest.fixture
async def store(broker: Server) -> AsyncIterator[Store]:
    """The service's own."""
    settings = BrokerSettings(url=broker.url, user="penstock", password="change-me")
    await until_true(lambda: broker.listens)
    async with open_store(settings, "service") as opened:
        await provision(opened.broker, settings)
        yield opened


@pytest.fixture
async def as_worker(broker: Server, store: Store) -> AsyncIterator[Store]:
    """What somebody can do who has the worker's password."""
    async with open_store(BrokerSettings(url=broker.url, user=WORKER, password="change-me-too"), "worker") as opened:
        yield opened


async def test_a_worker_with_these_permissions_can_do_all_of_its_work(broker: Server, store: Store) -> None:
    worker = Worker(broker_url=broker.url.replace("//", f"//{WORKER}:change-me-too@"), worker_id=WORKER, grace_s=0.2)

    @worker.task(TASK)
    async def hello(value: Any, context: Context) -> Any:
        await context.checkpoint({"at": 1})
        await context.send_signal(context.run_id, "go", "now")
        return [value, await context.load_checkpoint(), await context.wait_signal("go", 20)]

    queued, bound, unreadable = await dispatch(store, TASK, "Ada"), new_run_id(), new_run_id()
    async with worker.running():
        assert ["Ada", {"at": 1}, "now"] == output_of(await answer(store, queued))
        body = {"task_id": f"{bound}.s", "run_id": bound, "step_id": "s", "attempt": 1, "input": "Grace"}
        await store.publisher.send(names.sticky_subject(TASK, WORKER, bound), orjson.dumps(body))
        assert ["Grace", {"at": 1}, "now"] == output_of(await answer(store, bound))
        await put_raw(store, TASK, unreadable, b"no task")
        assert await until(lambda: store.reader.subject(names.DEAD, f"dead.{TASK}.{unreadable}.*"))
        assert await store.workers.get(WORKER)
    assert await store.workers.get(WORKER) is None
    assert [] == violations(broker)


WRITES = (
    names.task_subject(TASK, "0" * 32),
    names.sticky_subject(TASK, "another", "0" * 32),
    names.dead_subject("other", "0" * 32, "s"),
    names.webhook_subject("push"),
    names.schedule_subject("0" * 32, "start"),
    names.forward_subject("front-end"),
    names.METRICS_PING,
    names.key_subject(names.WORKERS, "another"),
    *(
        names.key_subject(bucket, "x")
        for bucket in (names.DEFINITIONS, names.RUNS, names.TRIGGERS, names.APPROVAL_TOKENS)
    ),
    *(f"$JS.API.DIRECT.GET.{name}" for name in (names.HISTORY, names.TASKS, names.bucket_stream(names.TRIGGERS))),
    *(
        f"$JS.API.STREAM.{verb}.{names.HISTORY}"
        for verb in ("INFO", "PURGE", "DELETE", "UPDATE", "MSG.GET", "MSG.DELETE", "SNAPSHOT")
    ),
    f"$JS.API.STREAM.CREATE.{names.HISTORY}-2",
    f"$JS.API.CONSUMER.CREATE.{names.TASKS}",
    f"$JS.API.CONSUMER.CREATE.{names.TASKS}.{names.task_consumer(TASK)}",
    f"$JS.API.CONSUMER.CREATE.{names.TASKS}.{names.task_consumer('other')}.{names.task_filter('other')}",
    f"$JS.API.CONSUMER.MSG.NEXT.{names.TASKS}.{names.task_consumer('other')}",
    f"$JS.API.CONSUMER.DELETE.{names.TASKS}.{names.task_consumer(TASK)}",
    f"$JS.API.CONSUMER.CREATE.{names.HISTORY}.mine.history.>",
)
READS = (">", "_INBOX.>", f"{inbox_prefix('penstock')}.>", "history.>", "task.>", "watch.>", "event.>", "people.ask")
READS_OF_OURS = ("$KV.>", "$KV.triggers.>", "$JS.>", "penstock.>")


async def test_it_can_neither_read_secrets_nor_take_other_tasks_nor_change_streams(
    broker: Server, as_worker: Store
) -> None:
    for subject in WRITES:
        await as_worker.broker.publish(subject, b"{}")
    for subject in READS + READS_OF_OURS:
        await as_worker.broker.client.subscribe(subject)
    expected = {f'Publish Violation - Subject "{subject}"' for subject in WRITES}
    expected |= {f'Subscription Violation - Subject "{subject}"' for subject in READS + READS_OF_OURS}
    await until_true(lambda: len(violations(broker)) >= len(expected))
    found = "\n".join(violations(broker))
    assert [] == [line for line in expected if line not in found]


@pytest.mark.parametrize(
    "filters", [{"filter_subject": "task.other.*"}, {"filter_subjects": ["task.other.*"]}, {}], ids=str
)
async def test_its_consumer_is_for_its_own_tasks_whatever_it_asks_for(
    as_worker: Store, filters: dict[str, Any]
) -> None:
    name = names.task_consumer(TASK)
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **filters}
    request = {"stream_name": names.TASKS, "config": config}
    with pytest.raises(ApiError):
        await as_worker.broker.api(f"CONSUMER.CREATE.{names.TASKS}.{name}.{names.task_filter(TASK)}", request)


def violations(broker: Server) -> list[str]:
    return [line for line in broker.log.read_text().splitlines() if "Violation" in line]
