"""The stored messages of one kind, log lines or chunks: append, read back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing

from penstock.broker.names import said_in
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.nats.publisher import Publisher

Page = list[Stored]


class SaidStream:
    """Owned by the store: LOGS or CHUNKS. `subject_of` makes the subject of a run's step."""

    def __init__(
        self,
        name: str,
        subject_of: Callable[[str, str], str],
        broker: Broker,
        publisher: Publisher,
        reader: DirectReader,
    ) -> None:
        self.name, self.subject_of = name, subject_of
        self.broker, self._publisher, self._reader = broker, publisher, reader

    def send(self, run_id: str, step_id: str, body: bytes, message_id: str) -> asyncio.Future[bytes]:
        """Append a message; the future ends when it is stored. It is sent again until then; a repeat within 5 s is
        stored once. The future raises Full, and errors of the broker."""
        return self._publisher.send(self.subject_of(run_id, step_id), body, {MSG_ID: message_id}, wait_if_full=False)

    def subjects(self, run_id: str, step_id: str | None) -> Sequence[str]:
        """Filters for all that a run said, or a step and what is below it."""
        return (self.subject_of(run_id, ">"),) if step_id is None else said_in(self.subject_of(run_id, step_id))

    async def pages(self, run_id: str, step_id: str | None, from_seq: int) -> AsyncGenerator[Page]:
        """The messages from a sequence on, in order. Raises Unavailable."""
        async with AsyncExitStack() as stack:
            found = [self._reader.pages(self.name, subject, from_seq) for subject in self.subjects(run_id, step_id)]
            for one in found:
                await stack.enter_async_context(aclosing(one))
            async for page in _merged(found):
                yield page


async def _merged(sources: Sequence[AsyncGenerator[Page]]) -> AsyncGenerator[Page]:
    """Pages of several sources, each in order, as pages in order."""
    heads = [await anext(source, []) for source in sources]
    while any(heads):
        # All up to here is known: a source's next page begins after its last message.
        upto = min(head[-1].seq for head in heads if head)
        yield sorted((one for head in heads for one in head if one.seq <= upto), key=lambda one: one.seq)
        for at, source in enumerate(sources):
            if heads[at]:
                heads[at] = [one for one in heads[at] if one.seq > upto] or await anext(source, [])
