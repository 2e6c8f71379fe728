"""Who held slots of limits, or waited for some, when a backup was made: the log of limits is not in it.

It begins anew with a decision about each limit that names all its holders, so that nobody else gets their slots. Behind
that, what waited asks again. Tokens of rates are not remembered.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from penstock.actors.runs.asking_again import requests_again
from penstock.actors.runs.commands.slots import Slots
from penstock.actors.runs.commands.step_values import StepValues
from penstock.actors.runs.loading import load_many
from penstock.actors.runs.outputs import Outputs
from penstock.actors.runs.shared.lease import ShardLease, now
from penstock.broker.store import Store
from penstock.config.limits import PARTITIONS
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed, Decided, Granted
from penstock.engine.run.expansion import expanded
from penstock.engine.run.slots.holders import RUN, holder_of, slots_of
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow

PAGE = 500  # runs that ask together


class SlotsHeld:
    """Belongs to one restore. `note` each run that may go on, then `store_all`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._holders: dict[LimitName, list[Granted]] = {}
        self._allowed: dict[LimitName, Allowed] = {}
        self._run_ids: list[str] = []

    async def note(self, run: Run) -> None:
        """Remember what the run and its executions hold. Raises NotFound, Unavailable."""
        if not run.slots:
            return
        self._run_ids.append(run.run_id)
        workflow = await self._workflow(run)
        for owner, slot in run.slots.items():
            wanted = slots_of(workflow, owner)
            for number, held in enumerate(slot.granted):
                if wanted is None or held.inherited or held.kind == LimitKind.RATE:
                    continue
                name = LimitName(LimitKind(held.kind), held.scope, held.key)
                holder = Granted(holder_of(run, owner, slot), run.run_id, None if owner == RUN else owner)
                self._holders.setdefault(name, []).append(holder)
                self._allowed[name] = wanted.limits[number].allowed

    async def store_all(self) -> None:
        """Store who holds, and after that who waits. Raises NotFound, Unavailable."""
        if not self._run_ids:
            return
        limit_log, at = self._store.limit_log, await self._store.history.now()
        await limit_log.make()
        for name, holders in list(self._holders.items()):
            since = tuple(replace(holder, at=at) for holder in holders)
            await limit_log.decide(
                Decided(name=name, upto=0, at=at, allowed=self._allowed[name], full=True, holders=since), 0
            )
        lease = ShardLease()  # nobody else acts before the restore has ended
        values = StepValues(lease, asyncio.Semaphore(1))
        async with values.evaluator:
            slots = Slots(self._store, lease, values)
            for start in range(0, len(self._run_ids), PAGE):
                for run in await load_many(self._store, self._run_ids[start : start + PAGE]):
                    await self._ask(slots, lease, run)
        await limit_log.note_asked(range(PARTITIONS))

    async def _ask(self, slots: Slots, lease: ShardLease, run: Run) -> None:
        workflow = await self._workflow(run)
        outputs = Outputs(self._store.history, run.run_id)
        _, awaited = requests_again(workflow, run)
        for command in awaited:
            lease.renewed(now())
            await (await slots.request(workflow, run, command, outputs))

    async def _workflow(self, run: Run) -> Workflow:
        return expanded(await self._store.definitions.load(run.workflow_id, run.digest), run)
