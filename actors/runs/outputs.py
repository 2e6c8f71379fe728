"""Payloads that stay in a run's history and are read back when their bytes are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Raw, UnsetType

from penstock.actors.runs.shared.mailbox import PendingEvent
from penstock.broker.records.imports import ImportedEvents
from penstock.broker.store import Store
from penstock.broker.streams.history import History
from penstock.config.limits import KIB, OUTPUTS_SHOWN_BYTES_MAX
from penstock.config.process.background import all_of
from penstock.engine.errors import NotFound, TooLarge
from penstock.engine.run.event_payloads import NULL
from penstock.engine.run.events import Malformed, decode
from penstock.engine.run.execution.inputs import output_of as step_output
from penstock.engine.run.payloads import (
    Gathered,
    Parts,
    Payload,
    PayloadRef,
    Value,
    element_result,
    joined,
    payload_of,
    size_of,
)
from penstock.engine.run.state import Run, StepStatus

RunEvents: TypeAlias = History | ImportedEvents
"""Where the events of a run are read."""

Kept: TypeAlias = tuple[str, int]
"""Where a payload stands: the run, and the sequence of its event. Those of imported runs are of another log."""

READS_AT_ONCE = 16
LIGHT_BYTES_MAX = 64 * KIB
OUTPUT_BYTES_MAX = 1 << 40  # of what somebody asks for: any output that a run has


def is_light(value: Value) -> bool:
    """Whether its bytes are in memory, and so few that any number of such messages may be in flight."""
    return isinstance(value, Raw) and memoryview(value).nbytes <= LIGHT_BYTES_MAX


class Outputs:
    """Reads payloads for one turn of a run. What the turn's own events contain is not read again, nor what was read
    last. One value is in memory at a time."""

    def __init__(self, log: RunEvents, run_id: str, events: Sequence[PendingEvent] = ()) -> None:
        self._log, self._run_id, self._events = log, run_id, events
        self._last: tuple[int, Raw] | None = None

    async def whole(self, value: Value, most: int) -> Raw:
        """The value as one JSON text. Raises TooLarge for more than `most` bytes, NotFound when some is gone,
        Unavailable."""
        size = size_of(value)
        if size > most:
            raise TooLarge(f"{size} bytes are more than the broker accepts in a message ({most})")
        if isinstance(value, Raw | PayloadRef | Gathered | Parts):
            return await self._part(value)
        return joined({key: await self._part(part) for key, part in value.items()})

    async def _part(self, part: Payload) -> Raw:
        match part:
            case PayloadRef():
                return await self._kept(part)
            case Gathered():
                return await collect(self._log, self._run_id, part)
            case Parts():
                return joined({key: await self._part(one) for key, one in part.parts.items()})
            case _:
                return part

    async def of_event(self, seq: int) -> Raw:
        """The payload of the run's event with this sequence; null without one. Raises NotFound when it is gone,
        Unavailable."""
        stored = await self._log.at(self._run_id, seq)
        if stored is None:
            raise NotFound(f"event {seq} of the history is not there any more")
        found = payload_of(decode(stored.data))
        return NULL if isinstance(found, UnsetType) else found

    async def _kept(self, kept: PayloadRef) -> Raw:
        if self._last is None or self._last[0] != kept.seq:
            body = next((event.delivery.data for event in self._events if event.delivery.seq == kept.seq), None)
            self._last = (
                kept.seq,
                await read_back(self._log, self._run_id, kept) if body is None else _payload(body, kept),
            )
        return self._last[1]


async def events_of(store: Store, run: Run) -> RunEvents:
    """What has the events of the run: the history, or its document if it was imported. Raises NotFound, Unavailable."""
    if run.imported is None:
        return store.history
    found = await store.imports.get(run.run_id, run.imported)
    if found is None:
        raise NotFound(f"the document of the imported run {run.run_id} is gone")
    return found


async def collect(log: RunEvents, run_id: str, array: Gathered) -> Raw:
    """The array of a map's outputs, from the events of its elements. Raises NotFound when one is gone, Unavailable."""
    wanted = {element.begun + element.ended: number for number, element in array.items.numbered()}
    found: dict[int, bytes] = {}
    async for page in log.pages(run_id, min(wanted, default=1) - 1):
        found |= {
            wanted[one.seq]: bytes(element_result(decode(one.data), array.items.wraps))
            for one in page
            if one.seq in wanted
        }
        if len(found) == len(wanted):
            return Raw(b"[%b]" % b",".join(found[number] for number in range(array.items.total)))
    raise NotFound(f"{len(wanted) - len(found)} of the {len(wanted)} outputs of a map are not there any more")


async def read_back(log: RunEvents, run_id: str, kept: PayloadRef) -> Raw:
    """The payload at that place of the run's history. Raises NotFound when it is gone, Unavailable."""
    stored = await log.at(run_id, kept.seq)
    if stored is None:
        raise _gone(kept)
    return _payload(stored.data, kept)


async def input_of(store: Store, run: Run) -> Raw:
    """The input of the run. Raises NotFound when it is gone, Unavailable."""
    if run.input_at is None:
        return run.input
    return await read_back(await events_of(store, run), run.run_id, run.input_at)


async def output_of(store: Store, run: Run, step_id: str) -> Raw:
    """The output of a step, or of an element of a map. Raises NotFound if the run has no such step or the step no
    output, Unavailable."""
    step = run.find(step_id)
    if step is None:
        raise NotFound(f'run {run.run_id} has no step "{step_id}"')
    if step_id not in run.steps and step.status is StepStatus.COMPLETED:
        return await _output_of_element(store, run, step_id)
    if step.output_at is not None:
        return await read_back(await events_of(store, run), run.run_id, step.output_at)
    if step.status is StepStatus.COMPLETED and isinstance(found := step_output(run, step_id), Gathered | Parts):
        return await Outputs(await events_of(store, run), run.run_id).whole(found, OUTPUT_BYTES_MAX)
    if isinstance(step.output, UnsetType):
        raise NotFound(f'step "{step_id}" of run {run.run_id} has no output: it is {step.status}')
    return step.output


def output_size(run: Run, step_id: str) -> int:
    """The size in bytes of what `output_of` returns, or more; 0 for an element of a map, which is one message, and for
    what it does not find."""
    step = run.find(step_id)
    if step is None or step_id not in run.steps or step.status is not StepStatus.COMPLETED:
        return 0
    return step.output_at.size if step.output_at is not None else size_of(step_output(run, step_id))


async def _output_of_element(store: Store, run: Run, item_id: str) -> Raw:
    """What the event has that completed the element; null if it has nothing."""
    map_id, number = run.element(item_id) or (item_id, 0)
    items = run.steps[map_id].items
    assert items is not None, "it is an element"
    element = items.get(number)
    stored = await (await events_of(store, run)).at(run.run_id, element.begun + element.ended)
    if stored is None:
        raise NotFound(f'the output of "{item_id}" is not in the history any more')
    payload = payload_of(decode(stored.data))
    return NULL if isinstance(payload, UnsetType) else payload.copy()


def left_behind(run: Run) -> Iterator[PayloadRef]:
    """The places of the input and the outputs that the run keeps in its history only, in the order of its steps."""
    if run.input_at is not None:
        yield run.input_at
    for step in run.steps.values():
        if step.output_at is not None:
            yield step.output_at


async def shown(
    store: Store, runs: Sequence[Run], most: int = OUTPUTS_SHOWN_BYTES_MAX, each: int | None = None
) -> dict[Kept, Raw]:
    """Inputs and outputs that these runs keep in the history only: in the order of the runs, as many as fit into `most`
    bytes, none over `each`. Those that are gone are missing, too. Raises Unavailable.
    """
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(run: Run, kept: PayloadRef) -> tuple[Kept, Raw] | None:
        async with gate:
            try:
                return (run.run_id, kept.seq), await read_back(await events_of(store, run), run.run_id, kept)
            except NotFound:
                return None

    found = await all_of(one(run, kept) for run, kept in _fitting(runs, most, each))
    return dict(filter(None, found))


def _fitting(runs: Sequence[Run], most: int, each: int | None) -> Iterator[tuple[Run, PayloadRef]]:
    for run in runs:
        for kept in left_behind(run):
            if kept.size <= (most if each is None else min(most, each)):
                most -= kept.size
                yield run, kept


def _payload(body: bytes, kept: PayloadRef) -> Raw:
    """The payload of a stored event. Raises NotFound for another event in its place: the stream was created again."""
    try:
        payload = payload_of(decode(body))
    except Malformed as error:
        raise _gone(kept) from error
    if isinstance(payload, UnsetType) or memoryview(payload).nbytes != kept.size:
        raise _gone(kept)
    return payload


def _gone(kept: PayloadRef) -> NotFound:
    return NotFound(f"event {kept.seq} of the history, with {kept.size} bytes, is not there any more")
