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
from penstock.actors.control.rerunning import Definition
from penstock.actors.index.run_index import RunPage
from penstock.broker.store import Store
from penstock.engine.errors import CallFailed, Conflict, Invalid, NotFound, Unavailable
from penstock.engine.run.state import RunStatus
from tests.simulation import archiving, importing, labelling, operating, pruning
from tests.simulation.broken import Broken
from tests.simulation.clock import TIME

if TYPE_CHECKING:
    from tests.simulation.plan import Known, Move
    from tests.simulation.world import World

MANY = 4
AHEAD_S = 1.5
STATUS = {
    "unschedule": RunStatus.SCHEDULED,
    "replay": RunStatus.FAILED,
    "rerun": RunStatus.FAILED,
    "cancel": RunStatus.RUNNING,
}
FITS = {
    **operating.FITS,
    pruning.PRUNE: pruning.fits,
    archiving.ARCHIVE: archiving.fits,
    importing.IMPORT: lambda run: not run.removed,
}
APART = (pruning.PRUNE, archiving.ARCHIVE, importing.IMPORT)
CALL_S_MAX = 30.0
STARTS = ("start", "start keyed", "schedule", "call")
AGAIN_S, PATIENCE_S = 0.2, 6.0  # of an operator: how often one looks, and for how long


class LogIndex:
    """In the place of the run index, which is a file: the log, as of now."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def caught_up(self, seq: int, timeout_s: float) -> None:
        """It always is."""

    def statuses(self, run_ids: Collection[str]) -> dict[str, str]:
        runs = self._world.watch.runs
        return {run_id: runs[run_id].status for run_id in run_ids if run_id in runs and not runs[run_id].removed}

    def needed(self, run_ids: Sequence[str]) -> dict[str, str]:
        return pruning.needed(self._world.watch.runs, run_ids)

    def query(
        self, workflow: str, statuses: frozenset[str], after: str | None, before: str | None, limit: int
    ) -> RunPage:
        found = [
            run_id
            for run_id, run in self._world.watch.runs.items()
            if run.workflow_id == workflow and run.status in statuses and not run.removed
        ]
        return RunPage(found[::-1][:limit], None)


class Said(NamedTuple):
    """What a verb was told and has answered; `answer` None: nobody knows what became of it."""

    move: Move
    marker: str
    answer: Any
    run_id: str = ""
    order: operating.Order | None = None


class Front:
    """Owned by a world: it outlives the processes in which the operations run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._index: Any = LogIndex(world)
        self.said: list[Said] = []
        self._orders = 0
        self._reruns: dict[str, set[str]] = {}
        self._labels = labelling.Given()
        self._imports = importing.Imports(world)

    def wish(self, move: Move) -> None:
        """Have a move's verb carried out, some by two at the same time."""
        if move.act in (*operating.ASKED, *APART) and not self._fits_now(move):
            self._world.server.later(AGAIN_S, self.wish, move)
            return
        twice = move.act in ("start keyed", "unschedule")
        twice = twice or (move.act in ("cancel", "replay", importing.IMPORT, *operating.TWICE) and move.pick % 3 == 0)
        twice = (
            twice or (move.act == "start many" and _is_keyed(move)) or (move.act == "rerun" and _rerun_of(move) != "")
        )
        for _ in range(2 if twice else 1):
            process = self._world.front
            if process.store is not None and process.alive:
                process.spawn(self._carry_out(process.store, move))

    def _fits_now(self, move: Move) -> bool:
        """Whether there is a run that can do what an operator asks for; who has waited for long tries all the same."""
        fits, loop = FITS.get(move.act), self._world.loop
        if fits is None or loop.now > move.at + PATIENCE_S:
            return True
        return any(map(fits, self._world.watch.runs.values()))

    async def _carry_out(self, store: Store, move: Move) -> None:
        marker = f"{move.act} {move.at} {move.pick}"
        run_id = self._pick(move)
        order = self._order(move, run_id)
        wanted = self._verb(store, move, marker, run_id) if order is None else operating.wanted(store, order)
        if wanted is None:
            return
        self._note_reruns(move, marker, run_id, order)
        try:
            answer = await wanted
        except (Conflict, NotFound, CallFailed) as error:
            answer = error
        except Invalid as error:
            answer = error
            if order is None or not operating.is_invalid(order, self._world.watch.of[run_id].definition):
                self._world.watch.fail(Broken(f"{marker} was refused: {error}", run_id))
        except Unavailable:
            answer = None
        self.said.append(Said(move, marker, answer, run_id, order))

    def _order(self, move: Move, run_id: str) -> operating.Order | None:
        if move.act not in operating.ASKED or not run_id:
            return None
        self._orders += 1
        run = self._world.watch.runs[run_id]
        step_id = operating.step_of(move.act, run, move.pick)
        ids = self._all()
        if move.act == "rerun runs":  # of one workflow
            ids = [one for one in ids if self._world.watch.runs[one].workflow_id == run.workflow_id]
        return operating.Order(move.act, run, step_id, ids, move.pick, self._orders)

    def _note_reruns(self, move: Move, marker: str, run_id: str, order: operating.Order | None) -> None:
        """Note how many new runs may be asked for of which runs, before it is known what becomes of that."""
        self._orders += 1
        new = f"{marker} {self._orders}"
        if order is not None:
            new = new if order.key is None else order.key
        elif move.act == "rerun":
            new = {"once": "once", "keyed": marker}.get(_rerun_of(move), new)
        reruns = order.reruns if order is not None else [run_id] if move.act == "rerun" else []
        for one in reruns:
            self._reruns.setdefault(one, set()).add(new)
            self._world.watch.rerun_asked(one)
            self._labels.rerun(one, None if order is None else order.labels)

    def _verb(self, store: Store, move: Move, marker: str, run_id: str) -> Awaitable[Any] | None:
        known = self._world.workflow(move.pick)
        value = Raw(b'{"m":"%b"}' % marker.encode())
        labels = labelling.given(move.pick)
        if move.act in STARTS:
            self._labels.start(marker, [labels])
        match move.act:
            case "start":
                return self._start(store, known, value, None, labels)
            case "call":
                return self._call(store, known, value, labels)
            case "start keyed":
                return self._start(store, known, value, marker, labels)
            case "start many":
                each = [labelling.given(move.pick, number) for number in range(MANY)]
                self._labels.start(marker, each)
                return self._start_many(store, known, value, marker if _is_keyed(move) else None, each)
            case "schedule":
                run_at = datetime.fromtimestamp(TIME.time() + AHEAD_S + move.more, UTC)
                return run_operations.schedule(store, known.definition, known.digest, value, run_at, labels=labels)
            case _ if not run_id:
                return None
            case pruning.PRUNE:
                return pruning.wanted(store, self._index, run_id, self._all(), move.pick)
            case archiving.ARCHIVE:
                runs = self._world.watch.runs
                ended = [one for one in self._all() if archiving.fits(runs[one])]
                return archiving.archive(store, ended, move.pick)
            case importing.IMPORT:
                return self._imports.wanted(store, move, run_id)
            case "unschedule":
                return run_operations.unschedule(store, run_id)
            case "cancel":
                return run_operations.cancel(store, run_id, compensate=_undoes(move))
            case "cancel many":
                return bulk.cancel(store, self._all(), compensate=_undoes(move))
            case "replay":
                return run_operations.replay(store, run_id)
            case "replay many":
                return bulk.replay(store, self._all(), dry_run=False)
            case "rerun":
                return self._rerun(store, known, run_id, marker, _rerun_of(move))
            case "signal":
                return run_operations.signal(store, run_id, "go", b"1")
            case _:
                raise AssertionError(move.act)

    async def _start(
        self, store: Store, known: Known, value: Raw, key: str | None, labels: dict[str, str] | None
    ) -> str:
        return (await run_operations.begin(store, known.definition, known.digest, value, key, labels=labels)).run_id

    async def _start_many(
        self, store: Store, known: Known, value: Raw, key: str | None, labels: Sequence[dict[str, str] | None]
    ) -> list[str]:
        values = [value] * MANY
        begun = await run_operations.begin_all(store, known.definition, known.digest, values, key, labels)
        return begun.run_ids

    async def _rerun(self, store: Store, known: Known, run_id: str, marker: str, how: str) -> bulk.RetriedRuns:
        plan, key = retry.Plan([run_id], once=how == "once"), marker if how == "keyed" else None
        if key is not None:
            plan = await retry.keep(store, known.definition.name, key, plan)
        again = retry.with_latest(store, _latest(known))
        return await retry.rerun(store, known.definition.name, plan, again, dry_run=False, key=key)

    async def _call(self, store: Store, known: Known, value: Raw, labels: dict[str, str] | None) -> tuple[str, Any]:
        """The run, and what it has answered."""
        async with calls.called(store, known.definition, known.digest, value, labels=labels) as pending:
            try:
                return pending.begun.run_id, await pending.answer(asyncio.timeout(CALL_S_MAX))
            except CallFailed as error:
                return pending.begun.run_id, error

    def _all(self) -> Sequence[str]:
        return list(self._world.watch.runs)[::-1]

    def _pick(self, move: Move) -> str:
        runs = list(self._world.watch.runs.values())
        fits = FITS.get(move.act, lambda run: run.status is STATUS.get(move.act))
        fitting = [run for run in runs if fits(run)] or runs
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
                case _:
                    operating.check(self._world, said)
        for marker in {said.marker for said in self.said if said.move.act == "start many"}:
            self._check_bulk(marker)
        self._check_unscheduled()
        self._check_rerun()
        pruning.check(self._world, self.said)
        self._imports.check(self.said)
        self._labels.check(self._world, self._by_marker())

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
            if isinstance(answer, Exception):
                raise Broken(f"a bulk start was refused: {answer}", next(iter(found), None))
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

    def _check_rerun(self) -> None:
        """One run for all reruns `once` of a run, one for each key, and no more for the others than were asked for."""
        found: dict[str, int] = {}
        for run in self._world.watch.runs.values():
            if run.rerun_of is not None:
                found[run.rerun_of] = found.get(run.rerun_of, 0) + 1
        for run_id, count in found.items():
            asked = len(self._reruns.get(run_id, ()))
            if count > asked:
                raise Broken(f"{count} runs were started again from it by {asked} calls", run_id)

    def _is_there(self, run_id: str, what: str) -> None:
        if run_id not in self._world.watch.runs:
            raise Broken(f"{what} was lost", run_id)

    def _marked(self, marker: str) -> list[str]:
        return self._by_marker().get(marker, [])

    def _by_marker(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for run in self._world.watch.runs.values():
            if run.rerun_of is run.parent is run.failure_of is None:
                found.setdefault(bytes(run.input)[len('{"m":"') : -len('"}')].decode(), []).append(run.run_id)
        return found


def _undoes(move: Move) -> bool:
    """Whether whoever cancels wants the runs to undo their steps."""
    return move.pick % 2 == 1


def _is_keyed(move: Move) -> bool:
    return move.pick % 2 == 1


def _rerun_of(move: Move) -> str:
    """How a run is started again: empty for each time anew."""
    return ("", "once", "keyed")[move.pick % 3]


def _latest(known: Known) -> Definition:
    return Definition(known.definition, known.digest, None)
