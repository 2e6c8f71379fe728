"""One connection to the broker: requests, plain publishes and subscriptions. All errors are translated here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

import nats
import nats.errors
import orjson
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from penstock.broker.nats.client import QuickClient
from penstock.broker.nats.credentials import credentials, needs_tls
from penstock.broker.nats.errors import NOT_THERE, ApiError, Within, fail, translated, within
from penstock.broker.nats.wire.commands import message_bytes, publish_command
from penstock.config.keys import hide_passwords
from penstock.config.logging import get_logger
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Denied, Invalid, NotFound, Unavailable

REQUEST_TIMEOUT_S = 5.0
SUBJECTS_PAGE = 100_000  # the broker gives no more at once
CONNECT_TIMEOUT_S = 5.0
DRAIN_S_MAX = 2.0
PENDING_BYTES = 64 << 20
NO_HEADERS: dict[str, str] = {}

# The broker's errors for refused or expired credentials; missing permissions have other messages.
REFUSAL = re.compile(r"authorization violation|authentication (?:expired|revoked)", re.IGNORECASE)

T = TypeVar("T")

log = get_logger()


class Broker:
    """A live connection. It reconnects without end; requests meanwhile raise Unavailable."""

    def __init__(self, client: QuickClient) -> None:
        self.client = client
        self.on_reconnect: list[Callable[[], Awaitable[None]]] = []
        self.reconnects = 0
        self.losses = 0  # of the connection
        self._deadlines: dict[
            asyncio.Timeout, None
        ] = {}  # in the order of their start: a simulation must replay exactly
        self._answers: dict[asyncio.Future[Any], str] = {}  # in that order, too
        self._closing = False
        self._opened = False
        self.store_bytes_max: int | None = None  # the limit of its storage; None: not known
        self._cancelled = 0  # requests to cancel the task that connects, before it began to
        self._last_error = ""

    @property
    def connected(self) -> bool:
        return bool(self.client.is_connected)

    @property
    def clustered(self) -> bool:
        """Whether this broker is one node of several, which may have copies of each other's streams."""
        return "cluster" in self.client._server_info

    @property
    def cluster(self) -> str | None:
        """The name of its cluster, None for a broker of one node."""
        return self.client._server_info.get("cluster")

    @property
    def server_name(self) -> str:
        return str(self.client._server_info.get("server_name", ""))

    @property
    def server_version(self) -> str:
        return str(self.client._server_info.get("version", ""))

    @property
    def max_payload(self) -> int:
        """The maximum size of one message in bytes, as the broker reported it on connecting."""
        return int(self.client.max_payload)

    @property
    def unwritten(self) -> int:
        """Number of bytes that were published and have not left this process."""
        return int(self.client.pending_data_size)

    def check_connected(self) -> None:
        """Raises Unavailable while the connection is lost."""
        if not self.connected:
            raise Unavailable("broker: not connected")

    def forget_unwritten(self) -> None:
        """Drop what was published and has not left this process."""
        self.client.forget_unwritten()

    def new_inbox(self) -> str:
        return self.client.new_inbox()

    async def publish(self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None) -> None:
        """Write one message without waiting for an answer. Raises Unavailable, or Invalid when it is too large."""
        if (
            size := message_bytes(data, headers)
        ) > self.max_payload:  # the client counts no headers, and the broker cuts the connection
            raise Invalid(f"a message of {size} bytes is larger than the broker accepts ({self.max_payload})")
        command = publish_command(subject, reply, data, headers or NO_HEADERS)
        if command is not None and self.client.write_soon(command):
            return
        try:
            await self.client.publish(subject, data, reply=reply, headers=headers)
        except (nats.errors.Error, OSError) as error:
            raise Unavailable(f"broker: {error}") from error

    def publish_soon(self, subject: str, data: bytes, reply: str = "") -> bool:
        """As `publish`, at once; False, and nothing is published, where that might have to wait."""
        command = publish_command(subject, reply, data, NO_HEADERS)
        return command is not None and self.client.write_soon(command)

    def publish_later(self, subject: str, data: bytes) -> None:
        """Write one message with the next one that is written, or a moment later, without waiting for an answer. The
        subject is one that the broker has made."""
        self.client.write_later(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(data), data))

    async def flush(self) -> None:
        """Return when the broker has read all that was published before."""
        try:
            await self.client.flush()
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise Unavailable(f"broker: {error or 'no answer to a ping'}") from error

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        timeout_s: float = REQUEST_TIMEOUT_S,
        headers: dict[str, str] | None = None,
    ) -> Msg:
        """Send one request and return its answer. Raises NotFound when nothing listens on the subject, Unavailable
        without an answer."""
        self.check_connected()
        try:
            async with self.deadline(timeout_s, f"broker: no answer on {subject}"):
                # The client's own way to time out can swallow a cancellation that comes together with the answer.
                return await self.client.request(subject, data, timeout=None, headers=headers)  # type: ignore[arg-type]
        except nats.errors.NoRespondersError as error:
            raise NotFound(f"nothing listens on {subject}") from error
        except (nats.errors.Error, OSError) as error:
            raise Unavailable(f"broker: no answer on {subject}") from error

    async def api(
        self, verb: str, request: dict[str, Any] | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> dict[str, Any]:
        """One call of the broker's stream API. Raises ApiError, Conflict or Unavailable."""
        body = b"" if request is None else orjson.dumps(request)
        try:
            return api_answer((await self.request("$JS.API." + verb, body, timeout_s)).data)
        except NotFound as error:
            raise Unavailable("broker: its stream storage is not available") from error

    async def subjects(self, stream: str, under: str) -> list[str]:
        """The subjects of the stream with messages that match the filter. Raises ApiError, Unavailable."""
        return [*await self.messages_by_subject(stream, under)]

    async def messages_by_subject(self, stream: str, under: str) -> dict[str, int]:
        """As `subjects`, with the number of messages under each."""
        found: dict[str, int] = {}
        while True:
            request = {"subjects_filter": under, "offset": len(found)}
            page = (await self.api(f"STREAM.INFO.{stream}", request))["state"].get("subjects") or {}
            found |= page
            if len(page) < SUBJECTS_PAGE:
                return found

    async def remove(
        self, verb: str, request: dict[str, Any] | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> int:
        """As `api`, for a call that deletes or purges; every removal uses this, or `Publisher.erase`. Returns the
        number of removed messages, 0 when there was nothing to remove."""
        try:
            return int((await self.api(verb, request, timeout_s)).get("purged", 1))
        except ApiError as error:
            if error.err_code not in NOT_THERE:
                raise
            return 0

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]], queue: str = ""
    ) -> Subscription:
        """Call `callback` for each message, one after the other. Callbacks must not wait: they put messages in
        queues."""
        return await self.client.subscribe(
            subject, queue=queue, cb=callback, pending_msgs_limit=-1, pending_bytes_limit=-1
        )

    @asynccontextmanager
    async def listening(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]], *, drain: bool = False
    ) -> AsyncIterator[None]:
        """As `subscribe`, for the time of the block. Messages in flight at its end are dropped.

        With `drain`, the callback has had every message that the broker accepted before the end of the block, unless
        the broker does not answer within DRAIN_S_MAX.
        """
        subscription = await self.subscribe(subject, callback)
        try:
            yield
        finally:
            if drain:
                await self.client.drain_receiving(subscription, DRAIN_S_MAX)
            else:
                await self.client.end(subscription)

    def answering(self, subject: str, body: bytes) -> AbstractAsyncContextManager[None]:
        """Give this answer to every request on the subject, for the time of the block."""

        async def reply(msg: Msg) -> None:
            await self.client.publish(msg.reply, body)

        return self.listening(subject, reply)

    async def ask_all(self, subject: str, enough: Callable[[list[bytes]], bool], timeout_s: float) -> list[bytes]:
        """All answers to a request until `enough` of them, or until the time is over. Raises Unavailable when not
        connected."""
        answers: list[bytes] = []
        done = asyncio.Event()

        async def collect(msg: Msg) -> None:
            if msg.data:
                answers.append(msg.data)
            if not msg.data or enough(answers):  # no data: the broker reports that nothing listens
                done.set()

        inbox = self.new_inbox()
        subscription = await self.subscribe(inbox, collect)
        try:
            await self.publish(subject, b"", reply=inbox)
            async with asyncio.timeout(timeout_s):
                await done.wait()
        except TimeoutError:
            pass  # what has come is all there is
        finally:
            await self.client.end(subscription)
        return answers

    async def close(self) -> None:
        self._closing = True
        with suppress(OSError, RuntimeError):  # the connection may be lost already; uvloop then raises a RuntimeError
            await self.client.close()

    @asynccontextmanager
    async def deadline(self, timeout_s: float, message: str) -> AsyncIterator[None]:
        """A time limit for the block, which also ends with the connection. Raises Unavailable with this message."""
        limit = Within(timeout_s, message)
        async with limit:
            self._deadlines[limit.timeout] = None
            try:
                yield
            finally:
                del self._deadlines[limit.timeout]

    async def answer(self, future: asyncio.Future[T], timeout_s: float, message: str) -> T:
        """As `deadline`, for the one future of an answer."""
        self._answers[future] = message
        try:
            return await within(future, timeout_s, message)
        finally:
            del self._answers[future]

    async def _disconnected(self) -> None:
        """End the pending deadlines: requests over the lost connection will never be answered."""
        self.losses += 1
        for future, message in self._answers.items():
            fail(future, message)
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(0)
        if not self._closing:
            log.warning("broker_disconnected")

    async def _failed(self, error: Exception) -> None:
        """A connection attempt failed, or the broker reports an error: each is logged once until it changes or ends.

        Raises Denied when the first connection is refused for its credentials. Later the client tries again, because
        the credentials may have been changed at the broker by mistake.
        """
        self._check_cancelled()
        text = str(error) or type(error).__name__
        refused = REFUSAL.search(text)
        if refused and not self._opened:
            raise Denied(refused[0].lower())
        if isinstance(error, ConnectionRefusedError | ConnectionResetError) or text == self._last_error:
            return  # _disconnected logs a broker that is away
        self._last_error = text
        if refused:
            log.error("broker_refuses_credentials", reason=refused[0].lower())
        else:
            log.warning("broker_error", error=text)

    def _check_cancelled(self) -> None:
        """Raises CancelledError when the first attempts to connect go on though their task was cancelled: the client's
        way to wait for an answer swallows a cancellation that comes together with the answer."""
        task = asyncio.current_task()
        if not self._opened and task is not None and task.cancelling() > self._cancelled:
            raise asyncio.CancelledError

    async def _reconnected(self) -> None:
        self._last_error = ""
        log.info("broker_reconnected")
        self.reconnects += 1
        for callback in list(self.on_reconnect):
            await callback()


@asynccontextmanager
async def connect(settings: BrokerSettings, name: str, timeout_s: float = 10.0) -> AsyncIterator[Broker]:
    """A connection for the time of the block.

    Raises Unavailable when the broker does not answer within `timeout_s`, Denied as soon as it refuses the credentials,
    Invalid for credentials that cannot be read.
    """
    given = credentials(settings)
    broker, where = Broker(QuickClient(tls=needs_tls(settings))), address(settings)
    broker.store_bytes_max = settings.max_store_bytes if settings.embedded else None
    try:
        async with asyncio.timeout(timeout_s):
            await _open(broker, settings, name, given)
    except Denied as error:
        await broker.close()
        raise Denied(f"the broker at {where} refuses our credentials: {error}") from error
    except (nats.errors.Error, OSError, TimeoutError) as error:
        await broker.close()
        raise Unavailable(
            f"cannot connect to the broker at {where}: {str(error) or broker._last_error or 'no answer'}"
        ) from error
    broker._opened, broker._last_error = True, ""
    try:
        yield broker
    finally:
        await broker.close()


def api_answer(body: bytes) -> dict[str, Any]:
    """An answer of the broker's stream API, empty for an empty one. Raises ApiError, Conflict or Unavailable."""
    answer: dict[str, Any] = orjson.loads(body) if body else {}
    if "error" in answer:
        raise translated(answer["error"])
    return answer


def address(settings: BrokerSettings) -> str:
    """The broker's address for messages to people, without the passwords in it."""
    return hide_passwords(_url(settings))


def _url(settings: BrokerSettings) -> str:
    return settings.url or settings.own_url


async def _open(broker: Broker, settings: BrokerSettings, name: str, given: dict[str, Any]) -> None:
    if (task := asyncio.current_task()) is not None:
        broker._cancelled = task.cancelling()
    while True:
        try:
            await broker.client.connect(
                servers=_url(settings).split(","),
                name=name,
                error_cb=broker._failed,
                disconnected_cb=broker._disconnected,
                reconnected_cb=broker._reconnected,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,  # type: ignore[arg-type]
                connect_timeout=CONNECT_TIMEOUT_S,  # type: ignore[arg-type]
                ping_interval=5,
                max_outstanding_pings=2,
                pending_size=PENDING_BYTES,
                **given,
            )
            return
        except nats.errors.NoServersError:
            await asyncio.sleep(0.05)
