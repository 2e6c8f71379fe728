"""What people ask of the service, by way of a front end: the real operations, whose answers are compared with the log
in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from msgspec import Raw

from penstock.actors.control import bulk, calls, retry, run_operations
from penstock.actors.index.run_index import RunPage
from penstock.broker.store import Store
from penstock.engine.errors import CallFailed, Conflict, NotFound, Unavailable
from penstock.engine.run.state import RunStatus
from tests.simulation.broken import Broken
from tests.simulation.clock import TIME

if TYPE_CHECKING:
    from tests.simulation.plan import Known, Move
    from tests.simulation.world import World

MANY = 4
AHEAD_S = 1.5
CALL_S_MAX = 30.0


class LogIndex:
    """In the place of the run index, which is a file: the log, as of now."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def caught_up(self, seq: int, timeout_s: float) -> None:
        """It always is."""

    def statuses(self, run_ids: Collection[str]) -> dict[str, str]:
        runs = self._world.watch.runs
        return {run_id: runs[run_id].status for run_id in run_ids if run_id in runs}

    def query(
        self, workflow: str, statuses: frozenset[str], after: str | None, before: str | None, limit: int
    ) -> RunPage:
        found = [
            run_id
            for run_id, run in self._world.watch.runs.items()
            if run.workflow_id == workflow and run.status in statuses
        ]
        return RunPage(found[::-1][:limit], None)


class Said(NamedTuple):
    """What a verb was told and has answered; `answer` None: nobody knows what became of it."""

    move: Move
    marker: str
    answer: Any
    run_id: str = ""


class Front:
    """Owned by a world: it outlives the processes in which the operations run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._index: Any = LogIndex(world)
        self.said: list[Said] = []

    def wish(self, move: Move) -> None:
        """Have a move's verb carried out, some by two at the same time."""
        twice = move.act in ("start keyed", "unschedule") or (move.act in ("cancel", "replay") and move.pick % 3 == 0)
        for _ in range(2 if twice else 1):
            process = self._world.front
            if process.store is not None and process.alive:
                process.spawn(self._carry_out(process.store, move))

    async def _carry_out(self, store: Store, move: Move) -> None:
        marker = f"{move.act} {move.at} {move.pick}"
        run_id = self._pick(move)
        wanted = self._verb(store, move, marker, run_id)
        if wanted is None:
            return
        try:
            answer = await wanted
        except (Conflict, NotFound, CallFailed) as error:
            answer = error
        except Unavailable:
            answer = None
        self.said.append(Said(move, marker, answer, run_id))

    def _verb(self, store: Store, move: Move, marker: str, run_id: str) -> Awaitable[Any] | None:
        known = self._world.workflow(move.pick)
        value = Raw(b'{"m":"%b"}' % marker.encode())
        match move.act:
            case "start":
                return run_operations.start(store, known.definition, known.digest, value)
            case "call":
                return self._call(store, known, value)
            case "start keyed":
                return run_operations.start(store, known.definition, known.digest, value, marker)
            case "start many":
                return run_operations.start_all(store, known.definition, known.digest, [value] * MANY)
            case "schedule":
                run_at = datetime.fromtimestamp(TIME.time() + AHEAD_S + move.more, UTC)
                return run_operations.schedule(store, known.definition, known.digest, value, run_at)
            case _ if not run_id:
                return None
            case "unschedule":
                return run_operations.unschedule(store, run_id)
            case "cancel":
                return run_operations.cancel(store, run_id)
            case "cancel many":
                return bulk.cancel(store, self._all())
            case "replay":
                return run_operations.replay(store, run_id)
            case "replay many":
                return bulk.replay(store, self._all(), dry_run=False)
            case "rerun":
                return retry.rerun(store, retry.Plan([run_id]), _latest(known), dry_run=False)
            case "signal":
                return run_operations.signal(store, run_id, "go", b"1")
            case _:
                raise AssertionError(move.act)

    async def _call(self, store: Store, known: Known, value: Raw) -> tuple[str, Any]:
        """The run, and what it has answered."""
        async with calls.called(store, known.definition, known.digest, value) as pending:
            try:
                return pending.begun.run_id, await pending.answer(asyncio.timeout(CALL_S_MAX))
            except CallFailed as error:
                return pending.begun.run_id, error

    def _all(self) -> Sequence[str]:
        return list(self._world.watch.runs)[::-1]

    def _pick(self, move: Move) -> str:
        runs = list(self._world.watch.runs.values())
        wanted = {"unschedule": RunStatus.SCHEDULED, "replay": RunStatus.FAILED, "cancel": RunStatus.RUNNING}.get(
            move.act
        )
        fitting = [run for run in runs if run.status is wanted] or runs
        return fitting[move.pick % len(fitting)].run_id if fitting else ""

    def check(self) -> None:
        """At the end: what was said is true, and what nobody knows is at least not half true. Raises Broken."""
        for said in self.said:
            match said.move.act:
                case "start" | "start keyed":
                    self._check_started(said)
                case "schedule":
                    self._check_scheduled(said)
                case "call" if isinstance(said.answer, tuple):
                    self._check_called(*said.answer)
                case "unschedule" if said.answer is None or isinstance(said.answer, Exception):
                    pass
                case "cancel many" if isinstance(said.answer, bulk.CancelledRuns):
                    self._check_cancelled(said.answer.cancelled)
                case "rerun" if isinstance(said.answer, bulk.RetriedRuns):
                    for rerun in said.answer.retried:
                        self._is_there(str(rerun.new_run_id), "a rerun")
        for marker in {said.marker for said in self.said if said.move.act == "start many"}:
            self._check_bulk(marker)
        self._check_unscheduled()

    def _check_started(self, said: Said) -> None:
        if isinstance(said.answer, str):
            self._is_there(said.answer, "a start")
        if said.move.act == "start keyed" and len(found := self._marked(said.marker)) > 1:
            raise Broken(f"one key has started {len(found)} runs", found[0])

    def _check_scheduled(self, said: Said) -> None:
        if isinstance(said.answer, run_operations.Begun):
            self._is_there(said.answer.run_id, "a scheduled run")

    def _check_called(self, run_id: str, answer: Any) -> None:
        """The first response of the run by its log; without one, how it has ended."""
        self._is_there(run_id, "a call")
        retold = self._world.watch.retold.get(run_id)
        if retold is None or (isinstance(answer, calls.CallAnswer) and answer.outcome == RunStatus.RUNNING):
            return
        reply = answer.reply if isinstance(answer, calls.CallAnswer) else None
        told = None if reply is None else (reply.status, orjson.loads(bytes(reply.body)))
        if told != retold.answer:
            raise Broken(f"its caller was answered {told or answer}, and it has responded {retold.answer}", run_id)

    def _check_bulk(self, marker: str) -> None:
        found, answers = self._marked(marker), [said.answer for said in self.said if said.marker == marker]
        if len(found) not in (0, MANY):
            raise Broken(f"of a bulk start, {len(found)} of {MANY} have started", found[0])
        for answer in answers:
            if answer is not None and sorted(answer) != sorted(found):
                raise Broken("a bulk start was lost", answer[0])

    def _check_cancelled(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            if self._world.watch.runs[run_id].status is not RunStatus.CANCELLED:
                raise Broken("a run that was told as cancelled is not", run_id)

    def _check_unscheduled(self) -> None:
        done = [said.run_id for said in self.said if said.move.act == "unschedule" and said.answer is True]
        for run_id in done:
            if done.count(run_id) > 1:
                raise Broken("a scheduled run was taken back twice", run_id)
            run = self._world.watch.runs[run_id]
            if run.status is not RunStatus.CANCELLED or run.started_at is not None:
                raise Broken("a scheduled run was taken back and has started all the same", run_id)

    def _is_there(self, run_id: str, what: str) -> None:
        if run_id not in self._world.watch.runs:
            raise Broken(f"{what} was lost", run_id)

    def _marked(self, marker: str) -> list[str]:
        wanted = b'{"m":"%b"}' % marker.encode()
        return [
            run.run_id
            for run in self._world.watch.runs.values()
            if bytes(run.input) == wanted and run.rerun_of is run.parent is run.failure_of is None
        ]


def _latest(known: Known) -> retry.Latest:
    return retry.Latest(known.definition, known.digest, None)
