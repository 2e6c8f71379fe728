"""Reports and the next poll in one request. Each report is carried out separately; a refused one does not affect the
others, except that what a task says keeps its order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
from falcon.asgi import Request
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.broker.worker_protocol.bridge_messages import (
    NextPoll,
    PollTasks,
    ResolvedTask,
    ResolveTask,
    TaskAnswer,
)
from penstock.config.limits import POLL_TASKS_MAX
from penstock.config.process.background import all_of
from penstock.engine.definition import values
from penstock.engine.errors import Invalid, NotFound, PenstockError, Unavailable
from penstock.http.bridge.requests import POLL, action_of, checked_poll
from penstock.http.bridge.resolver import Resolver, SentAnswer
from penstock.http.messages import bodies, errors, fields, params

ANSWERS: fields.Fields = {"resolve": fields.entries(POLL_TASKS_MAX)}
WORKER: fields.Fields = {"worker_id": values.name}
SAME_POLL_BYTES_MAX = 1000
IN_ORDER = ("log", "stream")  # actions that are of no use behind a missing one


class UnreadExchange(Struct, frozen=True, forbid_unknown_fields=True):
    """ExchangeTasks with its reports and its poll as raw JSON, so that one malformed report does not affect the
    others."""

    resolve: list[Raw]
    poll: Raw | UnsetType = UNSET
    worker_id: str | None = None


class ExchangeRequest(NamedTuple):
    """A request: the reports, decoded only as far as their task ids, and the poll."""

    answers: Sequence[tuple[str, Raw]]
    poll: PollTasks | None


class _Task(Struct, frozen=True):
    task_id: str


async def read(req: Request) -> ExchangeRequest:
    """Decode a request. Raises Invalid for problems of the request or its poll, and for reports without a task id."""
    form = bodies.decode(await bodies.read(req), UnreadExchange)
    fields.check_fields(form, ANSWERS)
    return ExchangeRequest([(_task_id(at, body), body) for at, body in enumerate(form.resolve)], _poll(form))


async def resolve_all(resolver: Resolver, answers: Sequence[tuple[str, Raw]]) -> list[ResolvedTask]:
    """The result of each report, in their order. Reports on one task are carried out one after the other, all others
    concurrently. A line or chunk behind one that may not be stored, or whose task was not known, is not stored either:
    the worker sends both again, and in their order."""
    tasks: dict[str, list[int]] = {}
    for at, (task_id, _) in enumerate(answers):
        tasks.setdefault(task_id, []).append(at)
    found: dict[int, ResolvedTask] = {}

    async def in_order(places: Sequence[int]) -> None:
        missing: dict[str, PenstockError] = {}
        for at in places:
            found[at] = await _resolved(resolver, *answers[at], missing)

    sent: dict[int, SentAnswer] = {}
    others = [places for places in tasks.values() if not _is_sent(resolver, answers, places, sent, found)]
    if others:
        await all_of([_stored(resolver, sent, found), *map(in_order, others)])
    else:
        await _stored(resolver, sent, found)
    return [found[at] for at in range(len(answers))]


def _is_sent(
    resolver: Resolver,
    answers: Sequence[tuple[str, Raw]],
    places: Sequence[int],
    sent: dict[int, SentAnswer],
    found: dict[int, ResolvedTask],
) -> bool:
    """Whether the one report on a task was a quick answer: then it is among `sent`, or refused among `found`. So the
    usual reports leave together, and without a task for each."""
    at = places[0]
    task_id, body = answers[at]
    if len(places) > 1 or not resolver.is_new(task_id):
        return False
    try:
        if one := resolver.send(task_id, action_of(bodies.decode_part(body, TaskAnswer, "the answer"))):
            sent[at] = one
        return one is not None
    except PenstockError as error:
        found[at] = _refused(task_id, error)
        return True


async def _stored(resolver: Resolver, sent: dict[int, SentAnswer], found: dict[int, ResolvedTask]) -> None:
    """Add the results of sent answers."""
    try:
        while sent:
            at = next(iter(sent))
            one = sent.pop(at)
            try:
                await resolver.stored(one)
                found[at] = ResolvedTask(one.task_id, "ok")
            except PenstockError as error:
                found[at] = _refused(one.task_id, error)
    finally:
        for one in sent.values():
            resolver.forget(one)


def _refused(task_id: str, error: PenstockError) -> ResolvedTask:
    return ResolvedTask(task_id, "error", errors.status_of(error), str(error))


async def _resolved(resolver: Resolver, task_id: str, body: Raw, missing: dict[str, PenstockError]) -> ResolvedTask:
    """`missing` has, by action, why what the task said before may not be stored."""
    try:
        answer = bodies.decode_part(body, TaskAnswer, "the answer")
        if before := missing.get(answer.action):
            raise before
        await _resolve(resolver, params.task_id(task_id), answer, missing)
    except PenstockError as error:
        return _refused(task_id, error)
    return ResolvedTask(task_id, "ok")


async def _resolve(resolver: Resolver, task_id: str, answer: TaskAnswer, missing: dict[str, PenstockError]) -> None:
    try:
        await resolver.resolve(task_id, action_of(answer), _alone(answer))
    except (Unavailable, NotFound) as error:
        if answer.action in IN_ORDER:
            missing[answer.action] = error
        raise


def _alone(answer: TaskAnswer) -> bytes:
    """The body of the request that would make only this report."""
    return msgspec.json.encode(ResolveTask(**{name: getattr(answer, name) for name in ResolveTask.__struct_fields__}))


def _task_id(at: int, body: Raw) -> str:
    try:
        return msgspec.json.decode(body, type=_Task).task_id
    except msgspec.ValidationError as error:
        raise Invalid(f"resolve[{at}] must be an object with a task_id that is a string") from error


def _poll(form: UnreadExchange) -> PollTasks | None:
    """The poll of the request. If it is invalid, no report is carried out. Raises Invalid."""
    if isinstance(form.poll, UnsetType) or bytes(form.poll) == b"null":
        fields.check_fields(form, WORKER)
        return None
    body = bytes(form.poll)
    return (_read_again if len(body) <= SAME_POLL_BYTES_MAX else _read_poll)(body, form.worker_id)


def _read_poll(body: bytes, worker_id: str | None) -> PollTasks:
    wanted = bodies.decode_part(Raw(body), NextPoll, "poll")
    poll = PollTasks(
        wanted.task_types, wanted.max_tasks, wanted.timeout_ms, worker_id, wanted.worker_group, wanted.builtin
    )
    return checked_poll(poll, POLL)


_read_again = lru_cache(maxsize=1000)(_read_poll)
"""As `_read_poll`: a worker asks for the same with each request."""
