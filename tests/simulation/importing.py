"""Importing runs: when it is asked for, and what must be so from then on.

Under an id there is a run or an import, never both. What was imported is read as it was in its own log, and nothing
ever happens to it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from msgspec import Raw
from msgspec.structs import replace

from penstock.actors.control import pausing, run_operations, step_operations
from penstock.actors.imports import importing, reading
from penstock.actors.imports.document import check as checked
from penstock.broker import names, record_keys
from penstock.broker.nats.headers import KV_OPERATION
from penstock.broker.records.imports import ImportDocument, ImportedEvents, ImportMark, mark_in, stored_event
from penstock.broker.store import Store
from penstock.engine.errors import Conflict, NotFound, Unavailable
from penstock.engine.run.state import Run, to_snapshot
from penstock.engine.times import rfc3339
from tests.simulation.broken import Broken

if TYPE_CHECKING:
    from tests.simulation.front import Said
    from tests.simulation.plan import Move
    from tests.simulation.streams import Message
    from tests.simulation.world import World

IMPORT = "import"
OF_SEEDS, SEED = 7, 5  # one of so many seeds has imports: those with this remainder
OWN_ID = 5  # every so many numbers, the id is that of the run itself, which is there


def moments(seed: int, until_s: float) -> list[tuple[float, str, int]]:
    """When runs of this seed are imported again, and a number that picks. Drawn apart, as what operators do."""
    if seed % OF_SEEDS != SEED:
        return []
    chance = Random(f"imports {seed}")
    return [
        (round(chance.uniform(0.5, until_s), 3), IMPORT, chance.randrange(1000)) for _ in range(chance.choice((1, 2)))
    ]


def watch(marks: dict[str, ImportMark], of: Mapping[str, object], message: Message) -> bool:
    """Told of each message of a history: whether it belongs to an import. Raises Broken."""
    run_id, mark = message.subject.rsplit(".", 1)[-1], mark_in(message.data)
    if run_id in marks:
        raise Broken(f"it was imported, and its history goes on with {message.data!r}", run_id)
    if mark is None:
        return False
    if run_id in of:
        raise Broken("it was imported, and is a run", run_id)
    marks[run_id] = mark
    return True


class Imports:
    """Owned by the front: what was asked for, and what came of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[str, list[bytes]] = {}
        self._stored: set[str] = set()
        self._answered = Counter[str]()

    def wanted(self, store: Store, move: Move, run_id: str) -> Awaitable[str] | None:
        """Import the run as its log is now. For every third number two do so at the same time. None: it is removed."""
        if self._world.watch.runs[run_id].removed:
            return None
        own = move.pick % OWN_ID == 0
        import_id = run_id if own else hashlib.md5(str(move).encode(), usedforsecurity=False).hexdigest()
        return self._carry_out(store, self._document(run_id, import_id), move.pick)

    def check(self, said: Sequence[Said]) -> None:
        """At the end. Raises Broken."""
        marks = self._world.watch.marks
        for run_id in self._stored - marks.keys():
            raise Broken("an import was lost", run_id)
        for one in said:
            if one.move.act == IMPORT and isinstance(one.answer, Conflict):
                self._check_taken(one.answer)
        for run_id, states in self._asked.items():
            documents = self._documents(run_id)
            if run_id in marks:
                self._check_kept(marks[run_id], documents, states)
            unknown = len(states) - self._answered[run_id]  # one may be left of each
            if len(documents) > int(run_id in marks) + unknown:
                raise Broken("documents are left of imports that were refused", run_id)

    def _document(self, run_id: str, import_id: str) -> ImportDocument:
        """As an export gives it, under another id."""
        events = self._world.server.history.matching(names.stored_subject(run_id))
        return ImportDocument(
            import_id, Raw(self._world.watch.of[run_id].body), [_exported(event, import_id) for event in events]
        )

    async def _carry_out(self, store: Store, document: ImportDocument, pick: int) -> str:
        run = checked(document)
        self._asked.setdefault(run.run_id, []).append(to_snapshot(run))
        try:
            await importing.store_run(store, document, run)
            self._stored.add(run.run_id)
            self._answered[run.run_id] += 1
        except Conflict:
            self._answered[run.run_id] += 1
            raise
        found = await reading.read(store, run.run_id)
        if _state(found) not in self._asked[run.run_id]:
            self._world.watch.fail(Broken(f"it was imported, and is read as {found}", run.run_id))
        await self._refused(store, found, pick)
        return run.run_id

    async def _refused(self, store: Store, run: Run, pick: int) -> None:
        """Nothing can be done with what was imported."""
        step_id = next(iter(run.steps), "")
        attempts = (
            lambda: run_operations.cancel(store, run.run_id),
            lambda: run_operations.replay(store, run.run_id),
            lambda: pausing.pause(store, run.run_id),
            lambda: step_operations.skip_step(store, run.run_id, step_id, Raw(b"1")),
        )
        try:
            done: Any = await attempts[pick % len(attempts)]()
        except (Conflict, NotFound, Unavailable):
            return
        self._world.watch.fail(Broken(f"it was imported, and a request to change it was answered {done}", run.run_id))

    def _check_taken(self, refused: Conflict) -> None:
        run_id = str(refused).split()[1]
        if run_id not in self._world.watch.marks and run_id not in self._world.watch.of:
            raise Broken(f"an import was refused: {refused}, and there is no such run", run_id)

    def _check_kept(self, mark: ImportMark, documents: Mapping[str, bytes], states: Sequence[bytes]) -> None:
        body = documents.get(mark.payload.import_id)
        if body is None:
            raise Broken("it was imported, and its document is not there", mark.run_id)
        document = msgspec.json.decode(body, type=ImportDocument)
        events = ImportedEvents(document, [stored_event(mark.run_id, event) for event in document.events])
        run, _ = reading.folded(events, mark, reading.imported_records(events))
        if run is None or _state(run) not in states:
            raise Broken(f"it was imported, and is {run}", mark.run_id)

    def _documents(self, run_id: str) -> dict[str, bytes]:
        """Those that are there, by their ids."""
        stream = self._world.server.streams[names.bucket_stream(names.IMPORTS)]
        subject = names.key_subject(names.IMPORTS, record_keys.import_key(run_id, "*"))
        kept = stream.matching(subject)
        return {one.subject.rsplit(".", 1)[-1]: one.data for one in kept if KV_OPERATION not in one.headers}


def _exported(event: Message, run_id: str) -> Raw:
    fields = {**orjson.loads(event.data), "run_id": run_id, "seq": event.seq, "stored_at": rfc3339(event.at)}
    return Raw(orjson.dumps(fields))


def _state(run: Run) -> bytes:
    return to_snapshot(replace(run, imported=None))
