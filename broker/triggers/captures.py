"""Streams of the service for subject triggers whose subject no other stream stores.

Triggers with overlapping subjects share one, because the broker does not let two streams store the same messages. One
document in the bucket of triggers says which trigger uses which stream. It is changed by compare-and-swap: so the last
user of a stream knows that it is the last, and no other trigger can begin to use it. A stream is recorded before it is
created, and its record is removed before it is deleted.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec import Struct

from penstock.broker import names, record_keys
from penstock.broker.nats.buckets import Bucket
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.errors import ApiError, Code
from penstock.engine.definition.subjects import covers
from penstock.engine.errors import Conflict, Invalid, PenstockError, Unavailable

TRIES_MAX = 20


class Capture(Struct, frozen=True):
    """One stream: the subjects that it stores, and the generations of triggers that need it."""

    subject: str
    users: tuple[str, ...]


Register = dict[str, Capture]
"""By the name of the stream."""

_DECODER = msgspec.json.Decoder(Register)


class Captures:
    """These streams, and the document about them."""

    def __init__(self, bucket: Bucket, broker: Broker) -> None:
        self._bucket, self._broker = bucket, broker

    async def join(self, trigger: str, generation: str, subject: str) -> str:
        """The name of a stream that stores the subject from now on, until this generation leaves. It can be repeated.

        Raises Invalid when the subject overlaps with a stored one and is not within it.
        """
        for _ in range(TRIES_MAX):
            register, revision = await self._read()
            stream = (
                _of(generation, register) or _covering(subject, register) or names.capture_stream(trigger, generation)
            )
            capture = register.get(stream, Capture(subject, ()))
            users = tuple(dict.fromkeys((*capture.users, generation)))
            if await self._written(register | {stream: Capture(capture.subject, users)}, revision):
                await self._make_for(trigger, generation, stream, capture.subject)
                return stream
        raise Unavailable("the streams of subject triggers are being changed by too many at once")

    async def used(self, streams: Collection[str], leaving: Collection[str]) -> list[str]:
        """The subjects of those streams that are needed by a generation other than those `leaving`."""
        register, _ = await self._read()
        return [c.subject for name, c in register.items() if name in streams and set(c.users) - set(leaving)]

    async def leave(self, trigger: str, generation: str, stream: str) -> None:
        """End this generation's use of its stream; a stream without users is deleted. It can be repeated."""
        for _ in range(TRIES_MAX):
            register, revision = await self._read()
            left = _without(generation, register)
            if left == register or await self._written(left, revision):
                for name in {stream, names.capture_stream(trigger, generation)} - left.keys():
                    if name.startswith(names.CAPTURE_PREFIX):
                        await self._delete(name)
                return
        raise Unavailable("the streams of subject triggers are being changed by too many at once")

    async def _read(self) -> tuple[Register, int]:
        entry, revision = await self._bucket.find(record_keys.CAPTURES_KEY)
        return ({} if entry is None else _DECODER.decode(entry.value)), revision

    async def _written(self, register: Register, revision: int) -> bool:
        try:
            await self._bucket.put(record_keys.CAPTURES_KEY, msgspec.json.encode(register), revision)
        except Conflict:
            return False
        return True

    async def _make_for(self, trigger: str, generation: str, stream: str, subject: str) -> None:
        try:
            await self._make(stream, subject)
        except Invalid:
            await self.leave(trigger, generation, stream)
            raise

    async def _make(self, stream: str, subject: str) -> None:
        """Create the stream. The broker keeps a message until every trigger of the stream has acknowledged it."""
        events = (await self._broker.api(f"STREAM.INFO.{names.EVENTS}"))["config"]
        config = {
            "name": stream,
            "subjects": [subject],
            "retention": "interest",
            "storage": "file",
            "num_replicas": events["num_replicas"],
            "allow_direct": True,
        }
        try:
            await self._broker.api(f"STREAM.CREATE.{stream}", config)
        except ApiError as error:
            if error.err_code == Code.SUBJECTS_OVERLAP:
                raise await self._overlap(stream, subject) from error
            if error.err_code != Code.STREAM_EXISTS:
                raise

    async def _overlap(self, stream: str, subject: str) -> PenstockError:
        """The error for an overlapping subject. Streams left by an interrupted deletion are removed, so that the next
        try succeeds."""
        found = await self._broker.api("STREAM.NAMES", {"subject": subject})
        register, _ = await self._read()  # after them: who makes a stream has written it down before
        others = [name for name in found.get("streams") or [] if name != stream]
        left = [name for name in others if name.startswith(names.CAPTURE_PREFIX) and name not in register]
        for name in left:
            await self._delete(name)
        if left:
            return Unavailable(
                f"the stream {', '.join(left)} was left by an interrupted deletion and is removed now: try again"
            )
        return Invalid(f"subject: subject overlaps with the stream {', '.join(others)}")

    async def _delete(self, stream: str) -> None:
        await self._broker.remove(f"STREAM.DELETE.{stream}")


def _of(generation: str, register: Register) -> str | None:
    return next((name for name, capture in register.items() if generation in capture.users), None)


def _covering(subject: str, register: Register) -> str | None:
    return next((name for name, capture in register.items() if covers(capture.subject, subject)), None)


def _without(generation: str, register: Register) -> Register:
    left = {
        name: Capture(c.subject, tuple(user for user in c.users if user != generation)) for name, c in register.items()
    }
    return {name: capture for name, capture in left.items() if capture.users}
