"""The limits around the run of the state machine: they grant in any order, late, and more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from penstock.engine.limits.names import LimitKind, OnLimit
from penstock.engine.run.commands import AppendEvent, BeginStep, Command, DispatchTask, ReleaseSlot, RequestSlot
from penstock.engine.run.event_payloads import SlotGrant, SlotRefusal
from penstock.engine.run.events import Event, LimitGranted, LimitRefused, StepSkipped
from penstock.engine.run.slots.holders import RUN, awaits_slots, holder_of, slots_of
from penstock.engine.run.slots.plans import LimitPlan
from penstock.engine.run.state import Run, RunStatus
from penstock.engine.times import rfc3339
from tests.properties.shell import Shell
from tests.properties.world import RUN_ID, some

Taken = tuple[str, str]  # by which holder, of which limit


class Wanted(Struct, frozen=True):
    """A request that waits. `may_refuse`: its limit may let the run not begin."""

    grant: SlotGrant
    may_refuse: bool = False


class Slots(Shell):
    """Limits know a holder as long as it waits or holds, and forget it when it gives back."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[Taken, Wanted] = {}
        self.taken: dict[Taken, SlotGrant] = {}

    def append(self, event: Event) -> list[Command]:
        commands = super().append(event)
        for one in commands:
            if isinstance(one, DispatchTask | BeginStep):
                self._check_taken(one)
        return commands

    def following(self, command: Command) -> Sequence[Command]:
        match command:
            case RequestSlot():
                return self._request(command)
            case ReleaseSlot():
                self._release(command)
                return []
            case _:
                return super().following(command)

    def grant(self, pick: int) -> None:
        """One that waits is let in, whichever, or refused; or one that is in is told so again."""
        known = [*self.requests, *self.taken]
        taken = some(known, pick)
        if taken not in self.requests:
            self.tell(self._granted(self.taken[taken]))  # after a takeover, without an id that is still known
        elif self.requests[taken].may_refuse and pick % 3 == 0:
            refusal = SlotRefusal(*taken, "limit")
            del self.requests[taken]
            self.tell(LimitRefused(run_id=RUN_ID, timestamp=self.stamp(), payload=refusal))
        else:
            self.let_in(taken)

    def let_in(self, taken: Taken) -> None:
        self.taken[taken] = self.requests.pop(taken).grant
        self.tell(self._granted(self.taken[taken]))

    def is_asked(self, owner: str) -> bool:
        """Whether what the owner waits for is known to its limit."""
        run = self.known()
        slot = run.slots[owner]
        return (holder_of(run, owner, slot), _limit_id(owner, slot.number)) in {**self.requests, **self.taken}

    def awaits(self, owner: str) -> bool:
        return awaits_slots(self.whole(), self.known(), owner)

    def check_slots_are_back(self) -> None:
        """Of a run that has ended nobody waits for a slot or has one; and each was given back once."""
        assert self.known().slots == {}
        assert self.requests == {}
        assert [one for one in self.taken.values() if one.kind != LimitKind.RATE and not one.inherited] == []
        given_back = Counter(
            (command.holder, command.limit_id or command.number)
            for record, commands in zip(self.log, self.ordered, strict=True)
            for command in commands
            if isinstance(command, ReleaseSlot) and not isinstance(record.event, LimitGranted)
        )
        assert max(given_back.values(), default=1) == 1

    def _request(self, command: RequestSlot) -> Sequence[Command]:
        """A step whose condition does not hold is skipped instead. A request may come late: its limit cannot know."""
        owner = command.step_id or RUN
        limits = slots_of(self.whole(), owner)
        assert limits is not None
        if command.number == 0 and command.step_id is not None:
            begun = self.begun(BeginStep(command.step_id, command.attempt, command.iteration, command.at))
            skips = [one for one in begun if isinstance(one, AppendEvent) and isinstance(one.event, StepSkipped)]
            if skips:
                return skips
        limit = limits.limits[command.number]
        grant = SlotGrant(
            command.holder,
            _limit_id(owner, command.number),
            limit.kind,
            limit.scope,
            step_id=command.step_id,
            inherited=limit.scope == "above",
        )
        taken = (grant.holder, grant.limit_id)
        if taken not in self.taken:
            self.requests[taken] = Wanted(grant, _may_refuse(limit))
        return []

    def _release(self, command: ReleaseSlot) -> None:
        taken = (command.holder, command.limit_id or _limit_id(command.step_id or RUN, command.number))
        self.requests.pop(taken, None)
        found = self.taken.pop(taken, None)
        assert found is None or found.kind != LimitKind.RATE or command.limit_id is None, "tokens are spent"
        assert found is None or not found.inherited or command.limit_id is None, "it is another run's"

    def _granted(self, grant: SlotGrant) -> LimitGranted:
        return LimitGranted(run_id=RUN_ID, timestamp=rfc3339(self.broker.now), payload=grant)

    def _check_taken(self, command: DispatchTask | BeginStep) -> None:
        """Nothing begins without all its slots."""
        run, owner = self.known(), command.step_id
        limits = slots_of(self.whole(), owner)
        if limits is None:
            return
        slot = run.slots[owner]
        assert (slot.attempt, slot.iteration) == (command.attempt, command.iteration)
        holder = holder_of(run, owner, slot)
        assert all((holder, _limit_id(owner, number)) in self.taken for number in range(len(limits.limits)))
        self._check_run(run)

    def _check_run(self, run: Run) -> None:
        if self.workflow.slots is not None:
            slot = run.slots[RUN]
            assert len(slot.granted) == len(self.workflow.slots.limits)
            assert run.status is not RunStatus.PENDING


def _limit_id(owner: str, number: int) -> str:
    return f"{owner}#{number}"


def _may_refuse(limit: LimitPlan) -> bool:
    return limit.on_limit is not OnLimit.QUEUE
