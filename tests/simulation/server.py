"""The simulated broker: it takes what clients write, after a while, stores it, answers, delivers, and fires schedules.

Faults are armed (`Fault`) and used up by the first message that they fit. It may be away for a while: what it has
stored stays, what was on its way to it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, NamedTuple

import orjson

from penstock.broker import names
from penstock.broker.nats import batch
from penstock.broker.nats.errors import Code
from penstock.broker.nats.headers import MSG_ID, SCHEDULE, SCHEDULE_NEXT, SCHEDULE_TARGET, SCHEDULER, TTL
from penstock.broker.streams.provisioning import streams
from penstock.config.settings import BrokerSettings
from tests.simulation.api import answer_of, read_directly
from tests.simulation.client import Client, Item, Subscription, Written
from tests.simulation.clock import EPOCH
from tests.simulation.consumers import Consumer, Reader
from tests.simulation.followers import Follower
from tests.simulation.loop import Loop
from tests.simulation.streams import Message, Refused, Stream, first_known, is_literal, matches

NS = 10**9
LATENCIES = 128
NEXT_S = 1e-6  # what stays in order does not come at the same moment
OVERDUE_S = 0.25  # a schedule whose time is over fires so much later
AT = "@at "
BATCH_INCOMPLETE = Refused(400, Code.BATCH_INCOMPLETE, "atomic publish batch is incomplete")
DUPLICATE = Refused(400, Code.DUPLICATE_IN_BATCH, "atomic publish batch contains duplicate message id")
BUSY = Refused(429, 10167, "too many requests")
LATE = frozenset({"stall", "last words"})
ACK_PREFIX, API_PREFIX = "$JS.ACK.", "$JS.API."
HISTORY_PREFIX = "history."

# What a message is about: by the beginning of its subject.
KINDS: Sequence[tuple[str, str]] = (
    ("history.", "event"),
    ("schedule.", "schedule"),
    ("task.", "task"),
    ("sticky.", "task"),
    (f"$KV.{names.RUNS}.", "snapshot"),
    ("$KV.", "bucket"),
    ("dead.", "letter"),
    ("limit.", "limit"),
    (ACK_PREFIX, "ack"),
    ("$JS.API.CONSUMER.MSG.NEXT.", "pull"),
    ("$JS.API.DIRECT.", "read"),
    (API_PREFIX, "api"),
)


class Fault(NamedTuple):
    """`act`: lose, lose_answer, refuse, stall (for `more` s), stall_answer, crash_before, crash_after, last words (as
    crash_after, and it arrives `more` s later). `kind`: one of KINDS, or any."""

    act: str
    kind: str
    more: float = 0.0


class Server:
    """`on_store[stream](message)` is called for everything that is stored, `on_remove(message)` after each message of
    the history that is removed alone; `crash(client)` ends a process on the
    spot."""

    def __init__(self, loop: Loop, seed: int, latency_s: float) -> None:
        self.loop = loop
        chance = Random(seed)
        self._latencies = [latency_s * (0.05 + chance.random() ** 3) for _ in range(LATENCIES)]
        self._turn = self._clients = 0
        self._context = Context()
        self.down = False
        self.archives = False  # whether the service archives runs
        self._starts = 0
        self._when_up: list[Callable[[], object]] = []
        self.streams = {one["name"]: _stream(one) for one in streams(BrokerSettings())}
        self.history = self.streams[names.HISTORY]
        self.consumers: dict[str, Consumer] = {}
        self.readers: dict[str, Reader] = {}
        self.readers_made = 0
        self.followers: dict[str, Follower] = {}
        # those of workers; what waits for these is not delivered by them
        self.sticky_consumers: Callable[[], list[str]] = list
        self._routes = [
            (subject.removesuffix(">").removesuffix("*"), self.streams[one["name"]])
            for one in streams(BrokerSettings())
            for subject in one["subjects"]
        ]
        self._core: dict[str, list[Subscription]] = {}
        self._wide: list[Subscription] = []
        self._batches: dict[str, list[Written]] = {}
        self.on_store: dict[str, Callable[[Message], None]] = {}
        self.on_remove: Callable[[Message], None] = lambda message: None
        self.crash: Callable[[Client], None] = lambda client: None
        self.armed: dict[str, list[Fault]] = {"engine": [], "front": []}
        self.schedules_late_s = 0.0
        self.late_until = 0.0  # messages and answers that are held up are on their way until then
        self.trace: list[str] | None = None

    @property
    def now(self) -> float:
        return self.loop.now

    @property
    def wall(self) -> float:
        """The broker's clock."""
        return EPOCH + self.loop.now

    def count_client(self) -> int:
        self._clients += 1
        return self._clients

    def latency_s(self) -> float:
        self._turn = (self._turn + 1) % LATENCIES
        return self._latencies[self._turn]

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        self.loop.at(self.now + delay_s, callback, *args, context=self._context)

    # Its end, and its beginning

    def stop(self, *, killed: bool) -> None:
        """Nobody reaches it any more, and what it had in memory is gone. All clients must lose their connections now,
        see `Client.disconnect`."""
        self.note(None, "the broker is killed" if killed else "the broker ends")
        self.down, self._starts = True, self._starts + 1
        self._batches.clear()
        self.readers.clear()
        self.followers.clear()
        self.streams = {name: stream for name, stream in self.streams.items() if stream.lasting}
        self._routes = [(prefix, stream) for prefix, stream in self._routes if stream.lasting]
        self.consumers = {name: consumer for name, consumer in self.consumers.items() if consumer.lasting}
        for consumer in self.consumers.values():
            consumer.begin_again(killed=killed)

    def start(self) -> None:
        """On what it has stored, if it is not there."""
        if not self.down:
            return
        self.note(None, "the broker is back")
        self.down = False
        for stream in self.streams.values():
            stream.begin_again(self.wall)
        waiting, self._when_up = self._when_up, []
        for callback in waiting:
            self.later(OVERDUE_S, callback)

    def when_up(self, callback: Callable[..., object], *args: Any) -> None:
        """Now; or as soon as it is there again."""
        if self.down:
            self._when_up.append(partial(callback, *args))
        else:
            callback(*args)

    def make(self, config: dict[str, Any]) -> Stream:
        """A stream that is not there yet. One that is there stays as it is."""
        name = config["name"]
        if name not in self.streams:
            made = self.streams[name] = _stream(config)
            self._routes += [(subject.removesuffix(">"), made) for subject in config["subjects"]]
        return self.streams[name]

    # From clients

    def send(self, client: Client, written: Written) -> None:
        kind = kind_of(written.subject)
        fault = self._fault(client, kind)
        if fault is not None:
            self.note(client, f"{fault.act} {written.subject}")
            if fault.act == "crash_before":
                self.crash(client)
                return
            if fault.act == "lose":
                return
        way = "event" if kind == "schedule" else kind  # one stream takes both
        at = max(self.now + self.latency_s(), client.out.get(way, 0.0) + NEXT_S) + (
            fault.more if fault and fault.act in LATE else 0.0
        )
        client.out[way] = at
        if fault is not None and fault.act in LATE:
            self.late_until = max(self.late_until, at)
        self.loop.at(at, self._arrive, client, client.era, self._starts, written, fault, context=self._context)
        if fault is not None and fault.act in ("crash_after", "last words"):
            self.crash(client)

    def _arrive(self, client: Client, era: int, starts: int, written: Written, fault: Fault | None) -> None:
        if starts != self._starts or (era != client.era and written.data and len(written.data) % 2):
            return  # the connection was lost, and it with it
        if self.trace is not None:
            self.note(client, f"{written.subject} {_shown(written)}")
        subject = written.subject
        if subject.startswith(ACK_PREFIX):
            parts = subject.split(".")
            if (consumer := self.consumers.get(parts[3])) is not None:
                consumer.acknowledge(int(parts[5]))
        elif subject.startswith(API_PREFIX):
            self._api(client, subject[len(API_PREFIX) :], written, fault)
        elif (stream := self.stream_of(subject)) is not None:
            self._publish(client, stream, written, fault)
        elif not self._tell(subject, written.data, written.reply) and written.reply:
            self.loop.at(self.now + self.latency_s(), client.no_responders, written.reply, context=client.life.context)

    def _fault(self, client: Client, kind: str) -> Fault | None:
        armed = self.armed[client.kind]
        for fault in armed:
            if fault.kind in (kind, "any") and not client.life.ended:
                armed.remove(fault)
                return fault
        return None

    def note(self, client: Client | None, text: str) -> None:
        if self.trace is not None:
            who = "broker" if client is None else client.life.name
            self.trace.append(f"{self.now:10.4f} {who:9} {text}")

    # To clients

    def deliver(self, client: Client, source: str, inbox: str, *items: Item, late_s: float = 0.0) -> None:
        if not client.is_connected:
            return
        at = max(self.now + self.latency_s(), client.into.get(source, 0.0) + NEXT_S) + late_s
        client.into[source] = at  # later answers of this source are held up, too
        if late_s:
            self.late_until = max(self.late_until, at)
        self.loop.at(at, client.arrive, client.era, inbox, list(items), context=client.life.context)

    def _answer(self, client: Client, source: str, written: Written, body: bytes, fault: Fault | None) -> None:
        if not written.reply or (fault is not None and fault.act == "lose_answer"):
            return
        late_s = fault.more if fault is not None and fault.act == "stall_answer" else 0.0
        self.deliver(client, source, written.reply, (b"", b"", body, b""), late_s=late_s)

    def listen(self, subscription: Subscription) -> None:
        if subscription.subject.startswith("_INBOX"):
            return
        if is_literal(subscription.subject):
            self._core.setdefault(subscription.subject, []).append(subscription)
        else:
            self._wide.append(subscription)

    def stop_listening(self, subscription: Subscription) -> None:
        for found in (self._core.get(subscription.subject, []), self._wide):
            if subscription in found:
                found.remove(subscription)

    def drop(self, client: Client) -> None:
        """Its connection is gone."""
        for found in (*self._core.values(), self._wide):
            found[:] = [one for one in found if one.client is not client]
        for consumer in self.consumers.values():
            consumer.forget(client)

    def _tell(self, subject: str, data: bytes, reply: str, head: bytes = b"") -> bool:
        """Give a message to those who listen now; whether there are any."""
        told = [*self._core.get(subject, ()), *(one for one in self._wide if matches(one.subject, subject))]
        for one in told:
            self.deliver(one.client, "core", one.subject, (subject.encode(), reply.encode(), data, head))
        return bool(told)

    # Storing

    def stream_of(self, subject: str) -> Stream | None:
        return next((stream for prefix, stream in self._routes if subject.startswith(prefix)), None)

    def _publish(self, client: Client, stream: Stream, written: Written, fault: Fault | None) -> None:
        headers = written.headers or {}
        if fault is not None and fault.act == "refuse":
            outcome: Refused | tuple[int, bool] = BUSY
        elif batch.BATCH_ID in headers:
            staged = self._stage(stream, written)
            if staged is None:
                return
            outcome = staged
        else:
            outcome = self.publish(stream, written.subject, written.data, headers)
        self._answer(client, stream.name, written, _publish_answer(stream, outcome), fault)

    def publish(
        self, stream: Stream, subject: str, data: bytes, headers: Mapping[str, str]
    ) -> Refused | tuple[int, bool]:
        """Store one message: its sequence, and whether it was a repeat."""
        stored = stored_subject(subject)
        problem = stream.problem(stored, headers)
        if problem is not None:
            return problem
        known = stream.known(headers, self.wall)
        if known is not None:
            return known, True
        return self._store(stream, stored, data, headers).seq, False

    def _store(self, stream: Stream, subject: str, data: bytes, headers: Mapping[str, str]) -> Message:
        message = stream.store(subject, data, headers, self.wall)
        if stream is self.history:
            self._stored_history(message)
        else:
            for reader in self.readers.values():
                reader.pump()
            for follower in self.followers.values():
                follower.offer(message)
        self._tell(message.subject, data, "")
        if TTL in headers:
            self.later(_seconds(headers[TTL]), self._expire, stream, message)
        hook = self.on_store.get(stream.name)
        if hook is not None:
            hook(message)
        return message

    def _expire(self, stream: Stream, message: Message) -> None:
        if stream.messages.get(message.seq) is message:
            self.remove(stream, message.seq)

    def remove(self, stream: Stream, seq: int) -> None:
        """Remove one message, of which the consumers that have it learn."""
        removed = stream.remove(seq)
        if stream is self.history:
            for consumer in self.consumers.values():
                consumer.was_removed(seq)
            self.on_remove(removed)

    def purge(self, stream: Stream, subject: str, before_seq: int | None) -> int:
        """Remove what is stored under a subject, and return the number of messages."""
        gone = stream.purge(subject, before_seq)
        if gone and stream is self.history:
            for consumer in self.consumers.values():
                if consumer.takes(subject):
                    consumer.some_were_purged()
        return len(gone)

    def _stored_history(self, message: Message) -> None:
        headers = message.headers
        if SCHEDULE in headers:
            self.history.purge(message.subject, message.seq)
            at = datetime.fromisoformat(headers[SCHEDULE].removeprefix(AT)).timestamp() - EPOCH
            self.loop.at(
                max(at + self.latency_s(), self.now + OVERDUE_S),
                self.when_up,
                self._due,
                message,
                context=self._context,
            )
            return
        if headers.get(SCHEDULE_NEXT) == "purge" and SCHEDULER in headers:
            self.history.purge(headers[SCHEDULER])
        for consumer in self.consumers.values():
            if consumer.takes(message.subject):
                consumer.offer(message)
        watched = names.watch_subject(message.subject.rsplit(".", 1)[1])
        if self._core.get(watched):
            before = self.history.subjects[message.subject][:-1]
            head = message.head() + b"Nats-Last-Sequence: %d\r\n\r\n" % (before[-1] if before else 0)
            self._tell(watched, message.data, "", head)

    def _due(self, message: Message) -> None:
        """A schedule fires, unless it was taken back or replaced; late when the broker is."""
        if self.history.messages.get(message.seq) is not message:
            return
        if self.schedules_late_s:
            late_s, self.schedules_late_s = self.schedules_late_s, 0.0
            self.later(late_s, self.when_up, self._due, message)
            return
        self.history.remove(message.seq)
        target = message.headers[SCHEDULE_TARGET]
        kept = {
            name: value
            for name, value in message.headers.items()
            if not name.startswith("Nats-Schedule") and name != MSG_ID
        }
        self.note(None, f"fires {message.subject}")
        self._store(
            self.history,
            stored_subject(target),
            message.data,
            {**kept, SCHEDULER: message.subject, SCHEDULE_NEXT: "purge"},
        )

    def _stage(self, stream: Stream, written: Written) -> Refused | tuple[int, bool] | None:
        assert written.headers is not None
        key = written.headers[batch.BATCH_ID]
        staged = self._batches.setdefault(key, [])
        staged.append(written)
        if batch.BATCH_COMMIT not in written.headers:
            return None
        del self._batches[key]
        if [int((one.headers or {})[batch.BATCH_SEQUENCE]) for one in staged] != list(range(1, len(staged) + 1)):
            return BATCH_INCOMPLETE
        return self._commit(stream, staged)

    def _commit(self, stream: Stream, staged: list[Written]) -> Refused | tuple[int, bool]:
        """All of them or none: first come the expectations, then the ids."""
        for one in staged:
            problem = stream.problem(stored_subject(one.subject), one.headers or {})
            if problem is not None:
                return problem
        if first_known(stream, [one.headers or {} for one in staged], self.wall):
            return DUPLICATE
        for one in staged:
            last = self._store(stream, stored_subject(one.subject), one.data, one.headers or {})
        return last.seq, False

    # The API

    def _api(self, client: Client, verb: str, written: Written, fault: Fault | None) -> None:
        request = orjson.loads(written.data) if written.data else {}
        parts = verb.split(".")
        if verb.startswith("CONSUMER.MSG.NEXT."):
            if (follower := self.followers.get(parts[4])) is not None:
                follower.ask(client, written.reply, request["batch"], request["expires"] / NS)
            elif (reader := self.readers.get(parts[4])) is not None:
                reader.ask(
                    client, written.reply, request["batch"], None if "no_wait" in request else request["expires"] / NS
                )
            elif (consumer := self.consumers.get(parts[4])) is not None:
                consumer.ask(client, written.reply, request["batch"], request["expires"] / NS)
            else:
                self.deliver(client, parts[4], written.reply, (b"", b"", b"", b"NATS/1.0 503\r\n\r\n"))
            return
        if verb.startswith("DIRECT.GET."):
            self._read_directly(client, parts[2], request, written, fault)
            return
        answer = answer_of(self, parts, request)
        if answer is None:
            return
        self._answer(
            client,
            "api",
            written,
            orjson.dumps({"error": answer.body()} if isinstance(answer, Refused) else answer),
            fault,
        )

    def _read_directly(
        self, client: Client, stream: str, request: dict[str, Any], written: Written, fault: Fault | None
    ) -> None:
        if stream not in self.streams:  # it was in memory, and the broker was restarted
            self.loop.at(self.now + self.latency_s(), client.no_responders, written.reply, context=client.life.context)
        elif fault is None or fault.act != "lose_answer":
            late_s = fault.more if fault is not None and fault.act == "stall_answer" else 0.0
            found = read_directly(self.streams[stream], request)
            self.deliver(client, "read", written.reply, *found, late_s=late_s)


def kind_of(subject: str) -> str:
    return next((kind for prefix, kind in KINDS if subject.startswith(prefix)), "other")


def stored_subject(subject: str) -> str:
    return names.stored_subject(subject[len(HISTORY_PREFIX) :]) if subject.startswith(HISTORY_PREFIX) else subject


def _stream(config: dict[str, Any]) -> Stream:
    lasting = config["storage"] == "file"
    return Stream(
        config["name"], config["duplicate_window"] / NS, max(0, config["max_msgs_per_subject"]), lasting=lasting
    )


def _publish_answer(stream: Stream, outcome: Refused | tuple[int, bool]) -> bytes:
    if isinstance(outcome, Refused):
        return orjson.dumps({"error": outcome.body(), "stream": stream.name, "seq": 0})
    seq, duplicate = outcome
    return b'{"stream":"%b","seq":%d%b}' % (stream.name.encode(), seq, b',"duplicate": true' if duplicate else b"")


def _shown(written: Written) -> str:
    body = written.data[:300].decode(errors="replace")
    return f"{body} {dict(written.headers)}" if written.headers else body


def _seconds(ttl: str) -> float:
    """The time to live of a header: `60`, `60s`, `1h`."""
    return float(ttl[:-1]) * 3600 if ttl.endswith("h") else float(ttl.removesuffix("s"))
