"""Questions about limits, which the shards that own them answer out of their memory: who holds, and who waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.limits.limit_log import LimitLog
from penstock.broker.nats.connection import Broker
from penstock.config.limits import PARTITIONS
from penstock.config.process.background import all_of
from penstock.engine.errors import NotFound, Unavailable
from penstock.engine.limits.names import LimitName
from penstock.engine.limits.records import Allowed, Granted

ANSWER_S_MAX = 2.0
OWNER_S_MAX, AGAIN_S = 2.0, 0.05


class LimitQuestion(Struct, frozen=True, omit_defaults=True):
    """About the limit `limit_id`, or about the `most` limits of the partition, those for which most wait first, only
    of `scope` if that is given. Of each limit so many holders and waiting ones are `named`, the first ones. `holder` is
    one whose place is wanted; without `limit_id` only the limits for which it waits are meant."""

    limit_id: str | None = None
    scope: str | None = None
    most: int = 1
    named: int = 0
    holder: str | None = None


class LimitWaiter(Struct, frozen=True, omit_defaults=True):
    """Who waits; `place` 1 is served next."""

    place: int
    holder: str
    run_id: str
    step_id: str | None = None
    priority: int = 0


class LimitSeen(Struct, frozen=True, omit_defaults=True):
    """One limit at this moment. `holders` are the oldest ones first, `waiting` as they are served. `tokens` are those
    that a rate has left, and `next_at` (s since the epoch, broker time) is when it lets something begin again, if
    something waits; None of other limits. `place` is that of the holder that was asked for, if it waits."""

    name: LimitName
    allowed: Allowed
    holders_total: int = 0
    holders: tuple[Granted, ...] = ()
    waiting_total: int = 0
    waiting: tuple[LimitWaiter, ...] = ()
    tokens: float | None = None
    next_at: float | None = None
    place: int | None = None


_ENCODER = msgspec.json.Encoder()
_QUESTION = msgspec.json.Decoder(LimitQuestion)
_ANSWER = msgspec.json.Decoder(tuple[LimitSeen, ...])


def question_in(body: bytes) -> LimitQuestion:
    """What is asked. Raises msgspec.MsgspecError for what is no question."""
    return _QUESTION.decode(body)


def answer_of(seen: Collection[LimitSeen]) -> bytes:
    """The answer: nothing about a limit of which nothing is known."""
    return _ENCODER.encode(seen)


class LimitQuestions:
    """Asks the owners, and has them answer. While nobody answers for a partition, because it is being taken over or the
    first limit has just been asked, the question is asked again for `wait_s`."""

    def __init__(self, broker: Broker, limit_log: LimitLog) -> None:
        self._broker, self._log = broker, limit_log

    def answered(
        self, number: int, answer: Callable[[LimitQuestion], Collection[LimitSeen]]
    ) -> AbstractAsyncContextManager[None]:
        """Have questions about the limits of a partition answered for the time of the block, by their owner. What is no
        question has no answer."""

        async def reply(msg: Msg) -> None:
            try:
                question = question_in(msg.data)
            except msgspec.MsgspecError:
                return
            await self._broker.publish(msg.reply, answer_of(answer(question)))

        return self._broker.listening(names.limits_question(number), reply)

    async def one(
        self, name: LimitName, named: int = 0, holder: str | None = None, *, wait_s: float = OWNER_S_MAX
    ) -> LimitSeen | None:
        """This limit; None: nobody has used it. Raises Unavailable without an answer."""
        question = LimitQuestion(name.id, named=named, holder=holder)
        found = await self._ask(names.partition(name.id), question, wait_s)
        return found[0] if found else None

    async def waited_for(self, scope: str, holder: str, named: int = 0) -> LimitSeen | None:
        """The limit of the scope, whatever its key, for which this holder waits; None: it waits for none. Raises
        Unavailable without an answer from every partition."""
        if await self._log.tip() is None:
            return None
        question = LimitQuestion(scope=scope, named=named, holder=holder)
        answers = await all_of([self._ask(number, question) for number in range(PARTITIONS)])
        return next((one for answer in answers for one in answer), None)

    async def busiest(
        self,
        most: int,
        named: int = 0,
        scope: str | None = None,
        *,
        wait_s: float = OWNER_S_MAX,
        of_owned: bool = False,
    ) -> list[LimitSeen]:
        """Limits that are in use, those for which most wait first. Raises Unavailable without an answer from every
        partition; those without an answer are left out with `of_owned`."""
        if await self._log.tip() is None:
            return []
        question = LimitQuestion(scope=scope, most=most, named=named)

        async def ask(number: int) -> tuple[LimitSeen, ...]:
            try:
                return await self._ask(number, question, wait_s)
            except Unavailable:
                if of_owned:
                    return ()
                raise

        answers = await all_of(map(ask, range(PARTITIONS)))
        seen = [one for answer in answers for one in answer]
        return sorted(seen, key=_busy_first)[:most]

    async def _ask(self, number: int, question: LimitQuestion, wait_s: float = 0.0) -> tuple[LimitSeen, ...]:
        subject, asked, deadline = names.limits_question(number), _ENCODER.encode(question), time.monotonic() + wait_s
        while True:
            try:
                msg = await self._broker.request(subject, asked, ANSWER_S_MAX)
                break
            except NotFound as error:
                tip = await self._log.tip()
                if tip is None or tip.seq == 0:
                    return ()  # nobody has used a limit yet
                if time.monotonic() >= deadline:
                    raise Unavailable(f"no shard owns the limits of partition {number} now: try again") from error
            await asyncio.sleep(AGAIN_S)
        try:
            return _ANSWER.decode(msg.data)
        except msgspec.MsgspecError as error:
            raise Unavailable(f"the owner of the limits of partition {number} gave no answer: try again") from error


def _busy_first(one: LimitSeen) -> tuple[int, int, str, str, str]:
    return -one.waiting_total, -one.holders_total, one.name.scope, one.name.key or "", one.name.kind
