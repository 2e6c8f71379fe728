"""Gathering the evidence: the whole history stream as it grows, and when all is over, whoever else shows runs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from urllib.parse import quote

import orjson

from penstock.actors.runs.loading import advance_safely, load
from penstock.broker import names
from penstock.broker.archive.archived_runs import ArchivedRun, decode_archived, is_archive_mark
from penstock.broker.nats.direct import Stored
from penstock.broker.records.imports import mark_in
from penstock.broker.store import Store
from penstock.config.process.background import all_of
from penstock.engine.run.events import Malformed, Record, decode
from penstock.engine.run.kinds.sub_workflow import ChildPlan
from penstock.engine.run.state import Run, to_snapshot
from penstock.engine.run.workflow import Workflow

from .account import Account
from .api import Api, Heard
from .evidence import Evidence, History, Sent, ShownRun, ShownStep, shown_item, shown_state
from .executions import read_all
from .importing import exported_imports, listed_imports
from .installation import Installation
from .ledger import Ledger
from .limit_story import Logged, told
from .operators import TEAMS
from .said import Said, chunks_of, line_of, said_by
from .step_account import Seen, wire_events
from .workflows import CRON, DEFINITIONS

READS_AT_ONCE = 16
LISTED_MAX = 10_000
SNAPSHOT_S_MAX = 20.0
LOOK_S = 0.5
PROGRESS = ("step.started", "step.completed", "step.continue", "workflow.started", "workflow.completed")
BUGS = (
    *("advance_failed", "run_failed_to_advance", "event_dead_lettered", "snapshot_unreadable", "task_malformed"),
    *(
        "request_failed",
        "definition_missing",
        "command_refused",
        "limit_slot_astray",
    ),  # request_failed: answered 500, with its traceback
)


class Gathering:
    """Owned by the storm. Every event is read once; `seen` are those of a run, `accounts` say how far the runs are."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seq = self._limits_seq = self._archive_seq = 0
        self._taken: dict[str, int] = {}
        self._archived: dict[str, ArchivedRun] = {}
        self._records: defaultdict[str, list[Record]] = defaultdict(list)
        self.seen: defaultdict[str, list[Seen]] = defaultdict(list)
        self._malformed: list[str] = []
        self.removed: set[str] = set()
        self.imported: set[str] = set()
        self.accounts: dict[str, Account] = {}
        self.progress: list[float] = []
        self.last_tick = 0
        self.limit_log: list[Logged] = []

    @property
    def archived(self) -> frozenset[str]:
        """Runs that are in the archive, as far as it was read."""
        return frozenset(self._archived)

    @property
    def open(self) -> list[str]:
        """Runs that have not ended."""
        begun = self.seen.keys() - self._unborn()
        return [run_id for run_id in begun if run_id not in self.accounts or not self.accounts[run_id].ended]

    @property
    def paused(self) -> list[str]:
        """Runs that are paused, as far as the log was read."""
        return [run_id for run_id, account in self.accounts.items() if account.pause is not None]

    @property
    def slots_in_use(self) -> bool:
        """Whether somebody holds a slot, or waits for one, as far as the log of limits was read."""
        return any(story.holders or story.waiting for story in told(self.limit_log, {}).values())

    async def read_on(self) -> None:
        """Read what is new in the log. Raises Unavailable."""
        last = await self._store.history.last_seq()
        read = self._store.reader.between(names.HISTORY, "history.*.*", self._seq + 1, last)
        found = {stored.seq: stored async for stored in read}
        await self._read_archive()  # later: what was archived meanwhile is there
        fresh = [run for run in self._archived.values() if run.last_seq > self._taken.get(run.run_id, 0)]
        found |= {event.seq: event for run in fresh for event in run.events}
        for seq, stored in sorted(found.items()):
            run_id = stored.subject.rpartition(".")[2]
            if seq > self._taken.get(run_id, 0) and not is_archive_mark(stored.data):
                await self._take(stored)
                self._taken[run_id] = seq
        self._seq = max(self._seq, last)
        await self._read_limits()

    async def _read_archive(self) -> None:
        """Read what is new in the archive. Of two messages of a run, that with more of it counts."""
        tip = await self._store.archive.tip()
        async for stored in self._store.reader.between(names.ARCHIVE, names.ARCHIVED, self._archive_seq + 1, tip):
            run = decode_archived(stored.data, stored.seq)
            if run.run_id not in self._archived or run.last_seq >= self._archived[run.run_id].last_seq:
                self._archived[run.run_id] = run
        self._archive_seq = max(self._archive_seq, tip)

    async def _read_limits(self) -> None:
        """Read what is new of limits: what nobody needs any more is removed from there."""
        tip = await self._store.limit_log.tip()
        if tip is None:
            return
        async for stored in self._store.reader.between(names.LIMITS, "limit.>", self._limits_seq + 1, tip.seq):
            limit_id = names.limit_of(stored.subject)[0] if stored.data else ""
            body = orjson.loads(stored.data) if stored.data else None
            self.limit_log.append(Logged(stored.seq, stored.at, limit_id, body))
            self._limits_seq = stored.seq

    async def queued(self) -> list[str]:
        """The subjects of all tasks that wait or are held. Raises Unavailable."""
        return await self._subjects(names.TASKS, "task.>") + await self._subjects(names.STICKY, "sticky.>")

    async def evidence(self, ledger: Ledger, api: Api, installation: Installation, restored: bool = False) -> Evidence:
        """All that the checker looks at. The service must be there, and quiet. Of one that was `restored`, runs that
        nobody has touched since have no snapshot. Raises Unavailable."""
        workflows = {run_id: account.workflow for run_id, account in self.accounts.items()}
        folds = {run_id: _folded(workflow, self._records[run_id]) for run_id, workflow in workflows.items()}
        snapshots = await self._snapshots(folds, restored)
        stored = {run_id: shown_state(orjson.loads(body)) for run_id, body in snapshots.items()}
        dead_letters = await self._dead_letters()
        return Evidence(
            ledger,
            {run_id: History(workflow, self.seen[run_id], run_id) for run_id, workflow in workflows.items()},
            snapshots=snapshots,
            folds={run_id: fold for run_id, fold in folds.items() if not restored or run_id in snapshots},
            shown={
                **({} if restored else {"snapshot": stored}),
                "GET /runs/{id}": await _views(api, list(workflows)),
                "GET /runs": {one: run for one, run in (await _listed(api)).items() if one not in self.imported},
            },
            items=await _items(api, self.accounts),
            children=await _children(api, self.accounts),
            events=await self._events(),
            unborn=frozenset(self._unborn()),
            dead_letters=frozenset(one for one in dead_letters if one[0] not in self.removed),
            imports=await exported_imports(api, iter(self.imported)),
            listed_imports=await listed_imports(api),
            removed=await self._removed(api, dead_letters),
            executions=read_all(installation.executions),
            tasks=await self.queued(),
            timers=await self._subjects(names.HISTORY, "schedule.>"),
            limit_log=self.limit_log,
            malformed=[
                *self._malformed,
                *(
                    f"the history of {run_id} has no start"
                    for run_id in self.seen.keys() - workflows.keys() - set(self._unborn())
                ),
            ],
            restored=restored,
            labelled={("team", team): await _labelled(api, team) for team in TEAMS},
            lines={run_id: await _lines(api, run_id) for run_id in self._saying()},
            chunks=await self._chunks(),
            failed=list(api.failed),
            logged=[orjson.dumps(line).decode() for line in installation.log_lines() if line.get("event") in BUGS],
        )

    def longest_stall(self, begin: float, end: float) -> float:
        """The longest time between two signs of progress within these bounds, in s."""
        moments = [begin, *sorted(at for at in self.progress if begin <= at <= end), end]
        return max(after - before for before, after in pairwise(moments))

    async def _take(self, stored: Stored) -> None:
        run_id = stored.subject.rpartition(".")[2]
        if run_id in self.removed:
            return  # a worker that knows nothing of it
        if mark_in(stored.data) is not None and run_id not in self.seen:
            self.imported.add(run_id)
            return
        if run_id in self.imported:
            self._malformed.append(f"{stored.seq} is behind the import {run_id}")
            return
        try:
            record = Record(stored.seq, stored.at, decode(stored.data))
        except Malformed as error:
            self._malformed.append(f"{stored.seq} of {run_id}: {error}")
            return
        *before, seen = wire_events(stored.seq, stored.at, stored.data)
        if seen.type == "workflow.removed":
            self._forget(run_id)
            return
        if run_id not in self.accounts and seen.type in ("workflow.started", "workflow.scheduled"):
            # Before anything is noted: where it is interrupted, or the broker away, the event is read again.
            workflow = await self._store.definitions.load(seen.payload["workflow"], seen.payload["digest"])
            self.accounts[run_id] = Account(workflow, run_id)
        self._records[run_id].append(record)
        if seen.type in PROGRESS:
            self.progress.append(stored.at)
        for one in (*before, seen):
            self.seen[run_id].append(one)
            if run_id in self.accounts:
                self.accounts[run_id].take(one)
        if seen.type == "workflow.started" and (trigger := seen.payload.get("trigger", {})).get("name") == CRON:
            self.last_tick = max(self.last_tick, int(datetime.fromisoformat(trigger["at"]).timestamp()))

    def _forget(self, run_id: str) -> None:
        self.removed.add(run_id)
        for found in (self._records, self.seen, self.accounts):
            found.pop(run_id, None)

    async def _removed(self, api: Api, dead_letters: frozenset[tuple[str, str]]) -> dict[str, list[str]]:
        """Where something is found of each run that was removed: what the API answers, and what the store has."""
        found = {run_id: await _shown_at(api, run_id) for run_id in self.removed}
        for run_id, step_id in dead_letters:
            if run_id in found:
                found[run_id].append(f"dead letter of {step_id}")
        for stream in (names.LOGS, names.CHUNKS, names.bucket_stream(names.RUNS)):
            for one in await self._store.reader.subject(stream, ">"):
                for run_id in found.keys() & set(one.subject.split(".")) if not one.removed else ():
                    found[run_id].append(one.subject)
        return found

    def _unborn(self) -> set[str]:
        """Runs of which there is nothing but that their parent has cancelled them."""
        return {run_id for run_id, seen in self.seen.items() if all(map(_by_parent, seen))}

    def _saying(self) -> list[str]:
        """Runs of which an execution has ended that says to have logged something."""
        return [run_id for run_id, seen in self.seen.items() if any(map(said_by, seen))]

    async def _chunks(self) -> dict[str, list[Said]]:
        """All that was streamed, as it is stored."""
        found, last = defaultdict[str, list[Said]](list), await self._last_seq(names.CHUNKS)
        async for stored in self._store.reader.between(names.CHUNKS, "stream.>", 1, last):
            if not stored.removed:
                _, run_id, step_id = stored.subject.split(".", 2)
                found[run_id] += chunks_of(step_id, orjson.loads(stored.data))
        return found

    async def _events(self) -> list[Sent]:
        """Everything that was sent to EVENTS from outside."""
        found, last = list[Sent](), (await self._store.events.tip()).seq
        async for stored in self._store.reader.between(names.EVENTS, "event.>", 1, last):
            name = names.event_of(stored.subject)
            if name is not None and not stored.removed:
                found.append(Sent(stored.seq, stored.at, name, orjson.loads(stored.data)))
        return found

    async def _last_seq(self, stream: str) -> int:
        info = await self._store.broker.api(f"STREAM.INFO.{stream}")
        return int(info["state"]["last_seq"])

    async def _snapshots(self, folds: dict[str, bytes], restored: bool) -> dict[str, bytes]:
        """As soon as they are what the log says; as they are, when that takes too long."""
        late = asyncio.get_running_loop().time() + SNAPSHOT_S_MAX
        while True:
            found = {entry.key: entry.value for entry in await self._store.runs.all()}
            await self._read_archive()
            found |= await self._carried(folds.keys())
            is_all = found.items() <= folds.items() and (restored or len(found) == len(folds))
            if is_all or asyncio.get_running_loop().time() > late:
                return found
            await asyncio.sleep(LOOK_S)

    async def _carried(self, run_ids: Iterable[str]) -> dict[str, bytes]:
        """The states of those runs that the event of their end carries, or that are archived."""
        found, gate = dict[str, bytes](), asyncio.Semaphore(READS_AT_ONCE)

        async def one(run_id: str) -> None:
            async with gate:
                last = await self._store.history.last(run_id)
                if run_id in self._archived and (last is None or last.seq <= self._archived[run_id].last_seq):
                    found[run_id] = self._state(self._archived[run_id])
                elif last is not None and names.owner_state(last.headers) is not None:
                    run = (await load(self._store, run_id)).run
                    found[run_id] = b"" if run is None else to_snapshot(run)

        await all_of(map(one, run_ids))
        return found

    def _state(self, archived: ArchivedRun) -> bytes:
        records = [Record(event.seq, event.at, decode(event.data)) for event in archived.events]
        return _folded(self.accounts[archived.run_id].workflow, records)

    async def _dead_letters(self) -> frozenset[tuple[str, str]]:
        found, before = set[tuple[str, str]](), None
        while True:
            page = await self._store.dead_letters.page(limit=1000, before=before)
            found |= {
                (letter.run_id, letter.step_id) for letter in page.dead_letters if letter.run_id and letter.step_id
            }
            if page.next is None:
                return frozenset(found)
            before = page.next

    async def _subjects(self, stream: str, under: str) -> list[str]:
        return [one.subject for one in await self._store.reader.subject(stream, under) if not one.removed]


def _folded(workflow: Workflow, records: list[Record]) -> bytes:
    run: Run | None = None
    for record in records:
        run, _ = advance_safely(workflow, run, record)
    assert run is not None
    return to_snapshot(run)


def _by_parent(seen: Seen) -> bool:
    return seen.type == "workflow.cancelled" and " of its parent run " in (seen.payload or {}).get("reason", "")


async def _children(api: Api, accounts: Mapping[str, Account]) -> dict[str, list[str]]:
    """What the API lists as the children of each run that may have some."""
    found: dict[str, list[str]] = {}
    for run_id, account in accounts.items():
        if any(isinstance((plan.each or plan).config, ChildPlan) for plan in account.plans.values()):
            heard = await api.insist("GET", f"/runs?parent={run_id}&limit={LISTED_MAX}")
            found[run_id] = [run["run_id"] for run in heard.json()] if heard.status == 200 else [heard.text]
    return found


async def _shown_at(api: Api, run_id: str) -> list[str]:
    """The paths about a run that are answered otherwise than 404; its history may say that it was removed."""
    paths = [f"/runs/{run_id}{part}" for part in ("", "/events", "/logs", "/export")]
    heard = {path: await api.insist("GET", path) for path in paths}
    return [f"GET {path}: {one.text[:80]}" for path, one in heard.items() if one.status != 404 and not _is_mark(one)]


def _is_mark(heard: Heard) -> bool:
    events = heard.said
    return isinstance(events, list) and [one.get("type") for one in events] == ["workflow.removed"]


async def _labelled(api: Api, team: str) -> list[str]:
    """The runs of a team, as the API lists them."""
    heard = await api.insist("GET", f"/runs?label=team:{quote(team)}&limit={LISTED_MAX}")
    return [run["run_id"] for run in heard.json()] if heard.status == 200 else [heard.text]


async def _lines(api: Api, run_id: str) -> list[Said]:
    """What it has logged, as the API answers it."""
    heard = await api.insist("GET", f"/runs/{run_id}/logs?limit={LISTED_MAX}")
    return [line_of(one) for one in heard.json()] if heard.status == 200 else []


async def _items(api: Api, accounts: Mapping[str, Account]) -> dict[tuple[str, str], list[ShownStep]]:
    """The elements of every map, as the API lists them."""
    found: dict[tuple[str, str], list[ShownStep]] = {}
    maps = [
        (run_id, step_id)
        for run_id, account in accounts.items()
        for step_id, step in account.steps.items()
        if step.elements is not None
    ]
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(run_id: str, step_id: str) -> None:
        async with gate:
            heard = await api.insist("GET", f"/runs/{run_id}/steps/{step_id}/items?limit=1000")
            if heard.status == 200:
                found[run_id, step_id] = [shown_item(item) for item in heard.json()]

    async with asyncio.TaskGroup() as group:
        for run_id, step_id in maps:
            group.create_task(one(run_id, step_id))
    return found


async def _views(api: Api, run_ids: list[str]) -> dict[str, ShownRun]:
    found: dict[str, ShownRun] = {}
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(run_id: str) -> None:
        async with gate:
            heard = await api.insist("GET", f"/runs/{run_id}")
            if heard.status == 200:
                found[run_id] = shown_state(heard.json(), api=True)

    async with asyncio.TaskGroup() as group:
        for run_id in run_ids:
            group.create_task(one(run_id))
    return found


async def _listed(api: Api) -> dict[str, ShownRun]:
    """Every run of every list; the storm never has more of one workflow than a list can hold."""
    found: dict[str, ShownRun] = {}
    for definition in DEFINITIONS:
        heard = await api.insist("GET", f"/runs?workflow={definition['name']}&limit={LISTED_MAX}")
        found |= {run["run_id"]: shown_state(run, api=True) for run in heard.json()} if heard.status == 200 else {}
    return found
