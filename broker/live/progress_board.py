"""The latest progress of each step: kept by the broker in memory, and known to every front-end process.

Subject: `progress.<run_id>.<step_id>`. A front-end process receives each message, and reads those from before it was
there: so a request for a run reads nothing.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from penstock.broker import names
from penstock.broker.live.progress import StepProgress, progress
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader
from penstock.config.limits import PROGRESS_AGE_S_MAX, PROGRESS_STEPS_MAX
from penstock.engine.errors import Invalid, PenstockError

_PROGRESS = msgspec.json.Decoder(StepProgress)
_ENCODER = msgspec.json.Encoder()


class ProgressBoard:
    """Owned by the store. `listening` is for front-end processes."""

    def __init__(self, broker: Broker, reader: DirectReader) -> None:
        self._broker, self._reader = broker, reader
        self._known: OrderedDict[str, tuple[float, StepProgress]] = OrderedDict()  # by subject; the latest last

    async def say(self, run_id: str, step_id: str, said: StepProgress) -> None:
        """Publish it, without waiting until it is stored: the next one may come soon. Raises Unavailable."""
        self._broker.check_connected()
        await self._broker.publish(names.progress_subject(run_id, step_id), _ENCODER.encode(said))

    def of(self, run_id: str, step_id: str, attempt: int) -> StepProgress | None:
        """What this attempt of the step said last, as far as this process has received it."""
        if not self._known:
            return None
        found = self._known.get(names.progress_subject(run_id, step_id))
        if found is None or found[1].attempt != attempt or found[0] < time.monotonic() - PROGRESS_AGE_S_MAX:
            return None
        return found[1]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Know the progress of all steps, for the time of the block."""
        subscription = await self._broker.client.receive("progress.*.>", self._receive)
        self._broker.on_reconnect.append(self._read)
        try:
            await self._read()
            yield
        finally:
            self._broker.on_reconnect.remove(self._read)
            await self._broker.client.stop_receiving(subscription)

    def _receive(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self._note(subject.decode(), data, time.monotonic())

    async def _read(self) -> None:
        """What was said while this process was not there. Without an answer it does without."""
        try:
            async for page in self._reader.pages(names.PROGRESS, "progress.*.>"):
                for stored in page:
                    if stored.subject not in self._known:
                        self._note(stored.subject, stored.data, time.monotonic() - (time.time() - stored.at))
        except PenstockError:
            return

    def _note(self, subject: str, data: bytes, at: float) -> None:
        try:
            said = _PROGRESS.decode(data)
            self._known[subject] = at, progress(said.done, said.total, said.text, said.attempt)
        except (msgspec.MsgspecError, UnicodeDecodeError, Invalid):  # any client may publish there
            return
        self._known.move_to_end(subject)
        if len(self._known) > PROGRESS_STEPS_MAX:
            self._known.popitem(last=False)
