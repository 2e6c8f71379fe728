"""Archiving runs that have ended: when it is asked for, and what must be so from then on. The archive has all of the
run's events when its mark is stored, nothing of it is left behind, and one that goes on has all of them again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from penstock.actors.maintenance.archivable import archivable
from penstock.actors.maintenance.archiving import archive_runs
from penstock.broker import names
from penstock.broker.archive.archived_runs import RunArchived, archive_mark_in, decode_archived
from penstock.broker.store import Store
from penstock.engine.run.state import Run
from tests.simulation.broken import Broken
from tests.simulation.clock import TIME
from tests.simulation.streams import Message

if TYPE_CHECKING:
    from tests.simulation.server import Server
    from tests.simulation.world import World

ARCHIVE = "archive"
OF_SEEDS, SEED = 11, 7  # one of so many seeds has some archived: those with this remainder
IMPORTS_OF, IMPORTS = 7, 5  # those that import read histories in the broker
LATER_S = 3600.0
AT_ONCE_S = 0.05


def archives(seed: int) -> bool:
    return seed % OF_SEEDS == SEED and seed % IMPORTS_OF != IMPORTS


def moments(seed: int, until_s: float) -> list[tuple[float, str, int]]:
    """When runs of this seed are archived, and a number that picks; some are resumed, or removed, at the same time.
    Drawn apart, as what operators do."""
    if not archives(seed):
        return []
    chance, found = Random(f"archives {seed}"), list[tuple[float, str, int]]()
    for _ in range(chance.choice((1, 2, 3))):
        at, pick = chance.uniform(1.0, until_s), chance.randrange(1000)
        found.append((round(at, 3), ARCHIVE, pick))
        if other := ("", "replay", "replay many", "prune", "archive")[pick % 5]:
            found.append((round(at + chance.uniform(-AT_ONCE_S, AT_ONCE_S), 3), other, pick))
    return found


def fits(run: Run) -> bool:
    """Others' histories are looked at in the broker."""
    return run.ended and not run.removed and run.parent is None and run.failure_of is None


async def archive(store: Store, run_ids: Sequence[str], pick: int) -> Collection[str]:
    """Archive those of these runs that have ended, however lately. Those that are archived now. Sometimes their marks
    do not name the events, as if they were large."""
    before = TIME.time() + LATER_S
    runs = [run async for found in archivable(store, run_ids, before) for run in found]
    if not pick % 2:
        runs = [one._replace(events=()) for one in runs]
    assert store.archive.places is not None
    places, _ = store.archive.places([run.run_id for run in runs])
    return await archive_runs(store, runs, places)


def places(server: Server, run_ids: Collection[str]) -> tuple[Mapping[str, int], int]:
    """In the place of the run index: what the archive has, as of now."""
    stream = server.streams[names.ARCHIVE]
    found: dict[str, tuple[int, int]] = {}
    for message in stream.messages.values():
        run = decode_archived(message.data, message.seq)
        if run.run_id in run_ids:
            found[run.run_id] = max(found.get(run.run_id, (0, 0)), (run.last_seq, message.seq))
    return {run_id: seq for run_id, (_, seq) in found.items()}, stream.last_seq


class Archives:
    """Owned by a watch: all events that there ever were, and which marks lead to the archive."""

    def __init__(self, server: Server, runs: Mapping[str, Run]) -> None:
        self._server, self._runs = server, runs
        self.told: dict[str, list[Message]] = {}
        self.archived: dict[str, Message] = {}

    def watch(self, message: Message) -> bool:
        """Told of each message of a history: whether it is a mark. Raises Broken."""
        run_id, mark = message.subject.rsplit(".", 1)[-1], archive_mark_in(message.data)
        if mark is None:
            self.told.setdefault(run_id, []).append(message)
            return False
        run = self._runs.get(run_id)
        if run is None or not run.ended or run.removed:
            raise Broken("a mark says that it is archived, and it has not ended", run_id)
        former = self.archived.get(run_id)
        restored = not isinstance(mark, RunArchived) and former is not None
        self._check_whole(run_id, mark.payload.seq, former.seq if restored else message.seq)
        if isinstance(mark, RunArchived):
            self.archived[run_id] = message
        else:
            self.archived.pop(run_id, None)
        return True

    def watch_removal(self, message: Message) -> None:
        """Told after each message of a history that is removed alone. Who reads meanwhile must not take what is left of
        an archived run for all of it, or miss what was before something that it has. Raises Broken."""
        run_id = message.subject.rsplit(".", 1)[-1]
        mark, run = self.archived.get(run_id), self._runs.get(run_id)
        if run is not None and run.removed:
            if mark is None and any(
                message.seq < one.seq < run.seq for one in self._server.history.matching(message.subject)
            ):
                raise Broken(f"it is removed, and its message {message.seq} has gone before others behind it", run_id)
            return
        found = None if mark is None else archive_mark_in(mark.data)
        if mark is None or found is None or not found.payload.events:
            return
        left = [one.seq for one in self._server.history.matching(message.subject) if one.seq <= mark.seq]
        named = (*found.payload.events, mark.seq)
        if left and left not in ([*named], [*named[1 : len(left)], mark.seq]):
            raise Broken(f"of the messages {named} of its history, which it is archived with, {left} are left", run_id)

    def check(self) -> None:
        """At the end. Raises Broken."""
        for run_id, mark in self.archived.items():
            if self._runs[run_id].removed:
                continue
            found = archive_mark_in(mark.data)
            assert found is not None
            self._check_whole(run_id, found.payload.seq, mark.seq)
            left = self._server.history.matching(names.stored_subject(run_id))
            if any(one.seq <= mark.seq for one in left):
                raise Broken(f"it is archived, and a history of {len(left)} messages is left", run_id)

    def is_put_away(self, run_id: str) -> bool:
        return run_id in self.archived

    def _check_whole(self, run_id: str, seq: int, before: int) -> None:
        """The archive has all events of the run before this sequence."""
        message = self._server.streams[names.ARCHIVE].messages.get(seq)
        if message is None:
            raise Broken(f"its message {seq} is not in the archive", run_id)
        has = [(one.seq, one.data) for one in decode_archived(message.data, seq).events]
        told = [(one.seq, one.data) for one in self.told[run_id] if one.seq < before]
        if has != told:
            raise Broken(f"the archive has {len(has)} of its {len(told)} events", run_id)


def check(world: World) -> None:
    world.watch.archives.check()
