"""Archiving: moves the histories of runs that ended long ago into the archive, each as one message.

The message is stored and read back first. Then a mark is appended to the history, only if nothing else was appended
since it was read: so of an archiving and a replay at the same time one succeeds, and the other finds out. From the mark
on the run is in the archive, and its shard deletes what is in the history. Whoever dies in between leaves both, and the
next round, or the next owner, goes on. Two that archive the same run store it twice; the index notes one of the two as
superseded, and only what is noted so is removed from the archive here.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing, closing, suppress
from pathlib import Path

from penstock.actors.control.run_operations import now
from penstock.actors.index.archived import FIRST, RunEnd
from penstock.actors.index.file import IndexFile
from penstock.actors.index.queries import Place
from penstock.actors.index.run_index import RunIndex
from penstock.actors.maintenance.archivable import Archivable, archivable
from penstock.actors.maintenance.rounds import Throttle, repeat_rounds, unthrottled
from penstock.broker.archive.archived_runs import ARCHIVED_START, ArchivedAt, RunArchived, encode_archive_mark
from penstock.broker.store import Store
from penstock.config.limits import MIB
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of
from penstock.config.process.crash_points import reached
from penstock.config.process.idle import IdleShare
from penstock.config.process.memory import give_back
from penstock.engine.errors import Conflict, Unavailable
from penstock.engine.run.events import REMOVED_RUN

EVERY_S = 10.0
SHARE_MIN = 0.1  # of the time, on a machine that is busy: else the share of its CPU that is idle
PAUSE_S_MIN = 0.2
MANY = 1000  # in a round: others are due by now
LATE_US = 60_000_000  # ends that the index learns of later are found when all are looked through
ALL_EVERY_S = 3600.0
SHORT_US = 60_000_000  # runs that took longer have their histories apart from those that ended with them
READ_BYTES_MAX = 4 * MIB
TOGETHER_MAX = 500  # runs that go together: their shards have other work, too
PUT_AWAY_S_MAX, PUT_AWAY_POLL_S = 2.0, 0.02  # a shard may be away: it does so later
LOOKED_AT = 50

log = get_logger()


async def apply_archiving(store: Store, index: Path, after_s: float | None) -> None:
    """Archive runs that ended so long ago, for ever, every EVERY_S or sooner; without a time, only tidy up what was
    archived. `index` is the run index's file."""
    archiver, idle = Archiver(store, index), IdleShare()

    async def check(throttle: Throttle) -> None:
        if not await store.archive.in_use():
            return
        await archiver.remove_superseded()
        if after_s is None:
            archiver.keep_no_list()
        else:
            archived = 0
            while (more := await archiver.archive(await store.history.now() - after_s, throttle)) >= MANY:
                archived += more
            if archived:
                give_back(thoroughly=True)

    every_s = min(EVERY_S, after_s or EVERY_S)
    await repeat_rounds(
        "archiving", check, every_s, share_max=lambda: max(SHARE_MIN, idle()), pause_s_min=min(PAUSE_S_MIN, every_s)
    )


class Archiver:
    """Remembers up to which end everything is looked through, so that a round reads what is new."""

    def __init__(self, store: Store, index: Path) -> None:
        self._store, self._index = store, index
        self._all_at, self._before_us = -math.inf, 0
        self._settled, self._unmarked = 0, 0

    async def archive(self, ended_before: float, throttle: Throttle = unthrottled) -> int:
        """Archive the runs that ended before this time (of the broker, s since the epoch), those that ended first
        before the others. Returns how many. Raises Unavailable (it may be repeated)."""
        begun, before_us = time.monotonic(), int(ended_before * 1e6)
        looks_at_all = begun - self._all_at > ALL_EVERY_S
        after: Place | None = FIRST if looks_at_all else (self._before_us - LATE_US, "")
        await self._list_ends()
        with closing(RunIndex(self._index)) as index:
            done = await self._finish(index, ended_before, throttle) if looks_at_all or self._unmarked else 0
            while after is not None:
                page = index.ends(after, before_us)
                self._forget_ends(page.gone)
                done += await self._archive_page(index, page.runs, ended_before, throttle)
                after = page.next
        self._before_us = before_us
        if looks_at_all:
            self._all_at = begun
        if done:
            log.info("runs_archived", runs=done)
        return done

    async def _list_ends(self) -> None:
        """Have the index keep the list of ends, with those that were before. Raises Unavailable without an index."""
        if not self._index.exists():
            raise Unavailable("there is no run index yet")
        with closing(IndexFile(self._index)) as file:
            after: Place | None = FIRST
            while after is not None:
                after = file.list_ends(after)
                await asyncio.sleep(0)

    def keep_no_list(self) -> None:
        """Nobody archives any more."""
        with closing(IndexFile(self._index)) as file:
            file.unlist_ends()

    def _forget_ends(self, gone: Sequence[Place]) -> None:
        if gone:
            with closing(IndexFile(self._index)) as file:
                file.forget_ends(gone)

    async def remove_superseded(self) -> None:
        """Remove messages from the archive whose runs it has in others."""
        with closing(RunIndex(self._index)) as index:
            seqs = index.superseded()
        if seqs:
            await self._store.archive.remove(seqs)
            with closing(IndexFile(self._index)) as file:
                file.forget_superseded(seqs)

    async def _finish(self, index: RunIndex, ended_before: float, throttle: Throttle) -> int:
        """Go on with what was stored in the archive, and may still stand in the history: somebody died, or an event
        came in between."""
        done, after, self._unmarked = 0, "", 0
        _, upto = index.archived(())
        while noted := index.noted_archived(after, self._settled):
            run_ids = [run_id for run_id, _ in noted]
            await self._remove_removed(dict(noted))
            done += await self._archive(index, run_ids, ended_before, throttle)
            after = run_ids[-1]
        self._settled = upto
        return done

    async def _remove_removed(self, places: Mapping[str, int]) -> None:
        """Remove from the archive what was stored there while the run was removed: only its mark was refused."""
        last = await self._store.history.last_of(list(places))
        removed = [run_id for run_id, stored in last.items() if stored.data.startswith(REMOVED_RUN)]
        if removed:
            await self._store.archive.remove([places[run_id] for run_id in removed])
            with closing(IndexFile(self._index)) as file:
                file.forget(removed)

    async def _archive_page(
        self, index: RunIndex, ended: Sequence[RunEnd], ended_before: float, throttle: Throttle
    ) -> int:
        """Archive those of these runs that can be, in this order. Those that took long are read on their own."""
        if not ended:
            return 0
        short_since = ended[0].ended_us - SHORT_US
        by_creation = sorted(ended, key=lambda one: one.created_us)
        short = [one.run_id for one in by_creation if one.created_us >= short_since]
        long = [one.run_id for one in by_creation if one.created_us < short_since]
        places = {one.run_id: (one.ended_us, one.run_id) for one in ended}
        done = await self._archive(index, short, ended_before, throttle, places)
        return done + await self._archive(index, long, ended_before, throttle, places)

    async def _archive(
        self,
        index: RunIndex,
        run_ids: Sequence[str],
        ended_before: float,
        throttle: Throttle,
        places: Mapping[str, Place] = {},
    ) -> int:
        """Archive those of these runs that can be. They are read together, and then removed: the broker reads a block
        of its stream anew for whoever reads from it behind a removal. `places` are theirs in the list of ends."""
        done, found, size = 0, list[Archivable](), 0
        async with aclosing(archivable(self._store, run_ids, ended_before)) as coming:
            async for more in coming:
                found, size = found + more, size + sum(len(one.body) for one in more)
                if size > READ_BYTES_MAX:
                    done += await self._store_all(index, found, places, throttle)
                    found, size = [], 0
                await throttle()
        return done + await self._store_all(index, found, places, throttle)

    async def _store_all(
        self, index: RunIndex, runs: Sequence[Archivable], places: Mapping[str, Place], throttle: Throttle
    ) -> int:
        """Those that ended first go first."""
        done, in_order = 0, sorted(runs, key=lambda one: places.get(one.run_id, FIRST))
        for at in range(0, len(in_order), TOGETHER_MAX):
            together = in_order[at : at + TOGETHER_MAX]
            stored, _ = index.archived([one.run_id for one in together])
            self._unmarked += len(together)  # if it fails now, they may be stored
            archived = await archive_runs(self._store, together, stored)
            self._unmarked -= len(archived)
            self._forget_ends([place for one in archived if (place := places.get(one)) is not None])
            done += len(archived)
            with suppress(TimeoutError):
                async with asyncio.timeout(PUT_AWAY_S_MAX):
                    await self._put_away(together)
            await throttle()
        return done

    async def _put_away(self, runs: Sequence[Archivable]) -> None:
        """Return when the shards have removed what is in the archive, judging by the last of these runs."""
        left = [one.run_id for one in runs[-LOOKED_AT:]]
        while left:
            last = await self._store.history.last_of(left)
            left = [run_id for run_id, stored in last.items() if stored.data.startswith(ARCHIVED_START)]
            await asyncio.sleep(PUT_AWAY_POLL_S if left else 0)


async def archive_runs(store: Store, runs: Sequence[Archivable], places: Mapping[str, int] = {}) -> list[str]:
    """Store these runs in the archive, then say so in their histories. Returns those that are archived now. `places`
    are messages that may have one of them already. Raises Unavailable (it may be repeated)."""
    stored = await _stored(store, runs, places)
    reached("archive.stored")
    at = now()
    marks = [_mark(run, stored[run.run_id], places.get(run.run_id, 0), at) for run in runs if run.run_id in stored]
    ends = {run.run_id: run.last_seq for run in runs}
    marked = await all_of(_marked(store, mark, ends[mark.run_id]) for mark in marks)
    reached("archive.marked")
    return [mark.run_id for mark, is_stored in zip(marks, marked, strict=True) if is_stored]


async def _stored(store: Store, runs: Sequence[Archivable], places: Mapping[str, int]) -> dict[str, int]:
    """The messages that have these runs, all of them read back: those of an earlier try, and new ones."""
    earlier = {run.run_id: seq for run in runs if (seq := places.get(run.run_id)) is not None}
    found = {run_id: await store.archive.body(seq) for run_id, seq in earlier.items()}
    stored = {run.run_id: earlier[run.run_id] for run in runs if found.get(run.run_id) == run.body}
    others = [run for run in runs if run.run_id not in stored]
    seqs = await all_of(store.archive.put(run.body) for run in others)
    bodies = await store.archive.bodies(frozenset(seqs))
    for run, seq in zip(others, seqs, strict=True):
        if bodies.get(seq) == run.body:
            stored[run.run_id] = seq
        else:
            log.error("archived_run_not_stored", run_id=run.run_id, seq=seq)
    return stored


def _mark(run: Archivable, seq: int, place: int, at: str) -> RunArchived:
    """The mark that leads to this message. Earlier ones have no more of the run, if the mark is stored."""
    former = tuple(sorted(one for one in {*run.former, place} if 0 < one < seq))
    return RunArchived(run_id=run.run_id, timestamp=at, payload=ArchivedAt(seq, former, run.events))


async def _marked(store: Store, mark: RunArchived, last_seq: int) -> bool:
    """Say in the history that the run is in the archive. False: something was appended since it was read."""
    try:
        await store.history.mark(mark.run_id, encode_archive_mark(mark), last_seq)
    except Conflict:
        return False
    return True
