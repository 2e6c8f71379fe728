"""Removal of all that is stored of runs, in every stream and bucket, many runs at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.broker import names, record_keys
from penstock.broker.far_events import events_before
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader
from penstock.broker.nats.publisher import Publisher
from penstock.config.process.background import all_of
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Unavailable

TOGETHER_MAX = 100  # runs whose data are removed together
CALLS_AT_ONCE = 16
# To remove a history by its subject, the broker looks at all that is stored from its first message to its last, which
# is the mark of an archived run. Where others have stored so many messages for each of its own, they go one by one.
APART = 256


class _Place(NamedTuple):
    """A stream that may have something of a run, under what `subject_of` returns; `token` of such a subject is the id
    of the run."""

    stream: str
    subject_of: Callable[[str], str]
    token: int


def _keys(bucket: str, token: int, key_of: Callable[[str], str]) -> _Place:
    return _Place(names.bucket_stream(bucket), lambda run_id: names.key_subject(bucket, key_of(run_id)), token)


# Most runs have nothing there, so the broker is asked first, once for many runs.
SELDOM = (
    _keys(names.SIGNALS, 2, lambda run_id: f"{run_id}.>"),
    _keys(names.CHECKPOINTS, 2, lambda run_id: f"{run_id}.>"),
    _keys(names.APPROVAL_TOKENS, 2, lambda run_id: f"{run_id}.>"),
    _keys(names.STICKY_BINDINGS, 2, lambda run_id: run_id),
    _keys(names.EVENT_WAITS, 3, lambda run_id: f"{names.partition(run_id)}.{run_id}.>"),
    _keys(names.IMPORTS, 2, lambda run_id: record_keys.import_key(run_id, "*")),
    _Place(names.LOGS, lambda run_id: names.log_subject(run_id, ">"), 1),
    _Place(names.CHUNKS, lambda run_id: names.chunk_subject(run_id, ">"), 1),
    _Place(names.PROGRESS, lambda run_id: names.progress_subject(run_id, ">"), 1),
    _Place(names.HISTORY, lambda run_id: names.schedule_subject(run_id, ">"), 1),
)


SNAPSHOTS = _keys(names.RUNS, 2, lambda run_id: run_id)


class RunData:
    """Owned by a store. Whoever removes runs at the same time shares the calls of the broker."""

    def __init__(self, broker: Broker, reader: DirectReader, publisher: Publisher) -> None:
        self._broker, self._reader, self._publisher = broker, reader, publisher
        self._wanted: dict[str, int] = {}
        self._archived: dict[str, tuple[int, Sequence[int]]] = {}
        self._gate, self._archived_gate = asyncio.Semaphore(1), asyncio.Semaphore(1)

    async def remove(self, run_id: str, before: int, archived: Collection[int] = ()) -> None:
        """Delete everything of a run, of its history only what has a sequence below `before`, and these messages of the
        archive. The history goes last. Raises Unavailable (it may be repeated)."""
        for seq in archived:
            await self._broker.remove(f"STREAM.MSG.DELETE.{names.ARCHIVE}", {"seq": seq, "no_erase": True})
        self._wanted[run_id] = before
        async with self._gate:
            if run_id in self._wanted:  # else it was among those of another caller
                others = [one for one in self._wanted if one != run_id][: TOGETHER_MAX - 1]
                await self._remove({one: self._wanted[one] for one in (run_id, *others)})

    async def put_away(self, run_id: str, upto: int, events: Sequence[int] = ()) -> None:
        """Remove the snapshot of an archived run, and what its history has up to this sequence, which is the mark's:
        these events, where they are given and far from the mark, else by its subject. Raises Unavailable (it may be
        repeated)."""
        self._archived[run_id] = upto, events
        async with self._archived_gate:
            if run_id in self._archived:
                others = [one for one in self._archived if one != run_id][: TOGETHER_MAX - 1]
                await self._put_away({one: self._archived[one] for one in (run_id, *others)})

    async def _put_away(self, runs: Mapping[str, tuple[int, Sequence[int]]]) -> None:
        await self._purge(SNAPSHOTS.stream, map(SNAPSHOTS.subject_of, await self._there(SNAPSHOTS, list(runs))))
        reached("run.snapshot_put_away")
        apart = {run_id: one for run_id, one in runs.items() if _is_apart(*one)}
        await self._purge_histories({run_id: upto + 1 for run_id, (upto, _) in runs.items() if run_id not in apart})
        await all_of(self._erase(upto, events) for upto, events in apart.values())
        for run_id in runs:
            self._archived.pop(run_id, None)

    async def _erase(self, mark: int, events: Sequence[int]) -> None:
        """Remove the messages of a history one by one, the mark behind them last. A reader may come in between: without
        the first one it looks for the run in the archive, and who has read that finds no other but all before it."""
        first, *others = events
        for seq in (first, *reversed(others)):
            await self._publisher.erase(names.HISTORY, seq)
        reached("run.events_put_away")
        await self._publisher.erase(names.HISTORY, mark)

    async def _erase_backwards(self, events: Sequence[int]) -> None:
        """Remove the messages of a history one by one. Who has the last of them has read all; for anyone else the
        removal counts because that one is missing (actors/runs/loading.py)."""
        for seq in reversed(events):
            await self._publisher.erase(names.HISTORY, seq)

    async def _remove(self, runs: Mapping[str, int]) -> None:
        for place in SELDOM:
            await self._purge(place.stream, map(place.subject_of, await self._there(place, list(runs))))
        await self._purge(names.DEAD, await self._dead_letters(runs.keys()))
        snapshots = names.bucket_stream(names.RUNS)
        await self._purge(snapshots, [names.key_subject(names.RUNS, run_id) for run_id in runs])
        reached("run.data_removed")
        far = await self._far(runs)
        await self._purge_histories({run_id: before for run_id, before in runs.items() if run_id not in far})
        await all_of(map(self._erase_backwards, far.values()))
        for run_id in runs:
            self._wanted.pop(run_id, None)

    async def _far(self, before: Mapping[str, int]) -> dict[str, list[int]]:
        """What those of these runs have below a sequence each, that of their removal, which began long before it."""
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def look(run_id: str, seq: int) -> list[int]:
            async with gate:
                found = await events_before(self._broker, self._reader, names.stored_subject(run_id), seq)
                return [] if found is None else [one.seq async for one in found]

        found = await all_of(look(run_id, seq) for run_id, seq in before.items())
        return {run_id: seqs for run_id, seqs in zip(before, found, strict=True) if seqs}

    async def _purge_histories(self, before: Mapping[str, int]) -> None:
        """Remove what these runs have below a sequence each."""
        requests = [{"filter": names.stored_subject(run_id), "seq": seq} for run_id, seq in before.items()]
        await self._purge_all(names.HISTORY, requests)

    async def _purge(self, stream: str, subjects: Iterable[str]) -> None:
        await self._purge_all(stream, [{"filter": subject} for subject in subjects])

    async def _purge_all(self, stream: str, requests: Sequence[dict[str, Any]]) -> None:
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def purge(request: dict[str, Any]) -> None:
            async with gate:
                await self._broker.remove(f"STREAM.PURGE.{stream}", request)

        await all_of(map(purge, requests))

    async def _there(self, place: _Place, run_ids: Sequence[str]) -> list[str]:
        """Those of these runs of which the stream has something; all, when that cannot be told for sure."""
        if await self._reader.leaders.needed(place.stream):
            return list(run_ids)
        try:
            found = await self._reader.last(place.stream, [place.subject_of(run_id) for run_id in run_ids])
        except Unavailable:  # more subjects than the broker lists at a time
            return list(run_ids)
        return sorted({one.subject.split(".")[place.token] for one in found})

    async def _dead_letters(self, run_ids: Iterable[str]) -> list[str]:
        info = await self._broker.api(f"STREAM.INFO.{names.DEAD}")
        if not info["state"]["messages"]:
            return []
        wanted = frozenset(run_ids)
        subjects = await self._broker.subjects(names.DEAD, names.dead_filter())
        return [subject for subject in subjects if not wanted.isdisjoint(subject.split("."))]


def _is_apart(mark: int, events: Sequence[int]) -> bool:
    return bool(events) and mark - events[0] >= APART * len(events)
