"""Consumers: the configuration of one, and the request that creates it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from penstock.broker.nats.connection import REQUEST_TIMEOUT_S, Broker

NS = 10**9


class ConsumerConfig(Struct, frozen=True, kw_only=True):
    """What one consumer of a stream delivers, and how. Other fields have the broker's defaults.

    Without a `name` the broker generates one and holds the consumer in memory, on one server, as `in_memory` does for
    one with a name. `filter_subjects`: more than one filter. `pending_max` bounds the
    unacknowledged deliveries (-1: no bound). `forget_after_s`: the broker removes a consumer that was not used for so
    long (None: never).
    """

    stream: str
    name: str = ""
    filter_subject: str | None = None
    filter_subjects: tuple[str, ...] | None = None
    ack_policy: Literal["explicit", "all", "none"] = "explicit"
    ack_wait_s: float | None = None
    pending_max: int | None = None
    start_seq: int | None = None
    forget_after_s: float | None = None
    in_memory: bool = False

    def fields(self) -> dict[str, Any]:
        """The configuration in the broker's form; durations in ns."""
        named = {"name": self.name, "durable_name": self.name} if self.name else {}
        in_memory = {"mem_storage": True, "num_replicas": 1} if self.in_memory or not self.name else {}
        given = {
            "filter_subject": self.filter_subject,
            "filter_subjects": self.filter_subjects,
            "ack_wait": _ns(self.ack_wait_s),
            "max_ack_pending": self.pending_max,
            "deliver_policy": None if self.start_seq is None else "by_start_sequence",
            "opt_start_seq": self.start_seq,
            "inactive_threshold": _ns(self.forget_after_s),
        }
        return (
            named
            | in_memory
            | {"ack_policy": self.ack_policy}
            | {key: value for key, value in given.items() if value is not None}
        )


def create_request(config: ConsumerConfig, *, update: bool = False, filter_in_subject: bool = False) -> tuple[str, Any]:
    """API call and body that create this consumer.

    With `update` an existing one is changed; without, it must be the same. With `filter_in_subject` the filter is the
    end of the request's subject, so that the broker's permissions can limit what a consumer may read.
    """
    tokens = ["CONSUMER.CREATE", config.stream, config.name, config.filter_subject if filter_in_subject else ""]
    body: dict[str, Any] = {"stream_name": config.stream, "config": config.fields()}
    if config.name and not update:
        body["action"] = "create"
    return ".".join(token for token in tokens if token), body


async def create_consumer(
    broker: Broker,
    config: ConsumerConfig,
    *,
    update: bool = False,
    filter_in_subject: bool = False,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> str:
    """Create the consumer and return its name; `update` and `filter_in_subject` as in `create_request`.

    Raises ApiError with Code.CONSUMER_EXISTS for one of this name and another configuration, Unavailable.
    """
    verb, body = create_request(config, update=update, filter_in_subject=filter_in_subject)
    return str((await broker.api(verb, body, timeout_s))["name"])


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * NS)
