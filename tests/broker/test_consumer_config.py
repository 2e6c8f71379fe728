"""Consumers are made with the configuration that stored ones have: another one would be refused, or change them."""

from __future__ import annotations

from typing import Any

import pytest
from uuid_utils import uuid7

from penstock.broker import names
from penstock.broker.nats.consumers import ConsumerConfig, create_consumer, create_request
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.store import Store

OF_EVERY_DURABLE = {"ack_policy": "explicit", "ack_wait": 30 * 10**9, "max_ack_pending": -1}


async def stored(store: Store, stream: str, consumer: str) -> dict[str, Any]:
    config: dict[str, Any] = (await store.broker.api(f"CONSUMER.INFO.{stream}.{consumer}"))["config"]
    return config


async def test_a_partition_s_consumer_acknowledges_in_order_from_its_first_sequence(store: Store) -> None:
    consumer = names.engine_consumer(5, 9)
    await store.consumers.open(consumer, 5, 3)
    wanted = {
        **OF_EVERY_DURABLE,
        "ack_policy": "all",
        "filter_subject": "history.5.*",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 3,
        "durable_name": consumer,
    }
    assert wanted.items() <= (await stored(store, names.HISTORY, consumer)).items()


async def test_a_task_type_s_consumer_delivers_from_the_beginning_for_ever(store: Store) -> None:
    task = f"t{uuid7().hex}"
    async with store.tasks.consume(task, lambda _: None, batch=1, room=lambda: 0):
        config = await stored(store, names.TASKS, names.task_consumer(task))
    assert {**OF_EVERY_DURABLE, "filter_subject": f"task.{task}.*", "deliver_policy": "all"}.items() <= config.items()
    assert "inactive_threshold" not in config


async def test_a_sticky_worker_s_consumer_is_forgotten_after_an_hour(store: Store) -> None:
    task = f"t{uuid7().hex}"
    async with store.sticky_tasks.consume(task, "w1", lambda _: None, batch=1, room=lambda: 0):
        config = await stored(store, names.STICKY, names.sticky_consumer(task, "w1"))
    wanted = {**OF_EVERY_DURABLE, "filter_subject": f"sticky.{task}.w1.*", "inactive_threshold": 3600 * 10**9}
    assert wanted.items() <= config.items()


def test_a_named_consumer_is_made_or_the_same() -> None:
    config = ConsumerConfig(stream="S", name="c", filter_subject="a.*")
    body = {
        "stream_name": "S",
        "config": {"name": "c", "durable_name": "c", "ack_policy": "explicit", "filter_subject": "a.*"},
    }
    assert ("CONSUMER.CREATE.S.c", body | {"action": "create"}) == create_request(config)
    assert ("CONSUMER.CREATE.S.c.a.*", body) == create_request(config, update=True, filter_in_subject=True)


def test_a_nameless_consumer_lives_in_the_memory_of_one_server() -> None:
    config = ConsumerConfig(stream="S", ack_policy="none", start_seq=7, forget_after_s=10)
    fields = {
        "mem_storage": True,
        "num_replicas": 1,
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 7,
        "inactive_threshold": 10 * 10**9,
    }
    assert ("CONSUMER.CREATE.S", {"stream_name": "S", "config": fields}) == create_request(config)


async def test_another_configuration_under_a_name_is_refused_unless_it_is_an_update(store: Store) -> None:
    name = uuid7().hex
    assert name == await create_consumer(store.broker, ConsumerConfig(stream=names.TELEMETRY, name=name))
    other = ConsumerConfig(stream=names.TELEMETRY, name=name, pending_max=7)
    with pytest.raises(ApiError) as caught:
        await create_consumer(store.broker, other)
    assert Code.CONSUMER_EXISTS == caught.value.err_code
    await create_consumer(store.broker, other, update=True)
    assert 7 == (await stored(store, names.TELEMETRY, name))["max_ack_pending"]
